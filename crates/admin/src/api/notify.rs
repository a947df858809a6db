//! Receivers of notifications: a list, and a message for a trial.

use hyper::StatusCode;
use offramp_control::{TrialOutcome, View};
use serde_json::{Value, json};

use super::{Control, ProblemDetails};

/// All receivers, each with the fates of its messages.
pub(super) fn receivers(view: &View) -> Value {
    let receivers = view.receivers().into_iter().map(|one| {
        json!({
            "name": one.name, "to": one.to, "on": one.on,
            "sent": one.sent, "retried": one.retried, "refused": one.refused, "dropped": one.dropped,
        })
    });
    json!({ "receivers": receivers.collect::<Vec<_>>() })
}

/// Sends a message to a receiver, and tells what it has answered.
pub(super) async fn try_receiver(control: &Control, name: &str) -> Result<Value, ProblemDetails> {
    let Some(TrialOutcome { to, taken, says }) = control.view.try_receiver(name).await else {
        let known: Vec<String> = control.view.receivers().into_iter().map(|one| one.name).collect();
        return Err(ProblemDetails::unknown("receiver", name, known.iter().map(String::as_str)));
    };
    if taken {
        return Ok(json!({ "name": name, "to": to, "answer": says }));
    }
    let problem =
        ProblemDetails::new(StatusCode::BAD_GATEWAY, format!("{to} did not take the message: {says}"));
    Err(problem.with("name", name.into()).with("to", to.into()))
}
