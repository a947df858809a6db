//! Questions that wait: figures of an interval, the log store, trials, and orders of certificates.

use std::sync::Arc;

use offramp_analytics::questions::IdSearch;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::logs::{self, LogList};
use super::query::QueryParameters;
use super::{
    Body, Control, OperationRequest, OperationResult, ProblemDetails, check, figures, notify, renew, stream,
    why,
};

/// A question for the page, the terminal, or a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AskOperation {
    Figures,
    Check,
    ConfigFile,
    Renew,
    Logs(LogList),
    Tail,
    /// One request of the log store.
    Request,
    Why,
    /// A message to a receiver of notifications.
    TryReceiver,
}

/// Answers a question.
pub(super) async fn answer(
    control: &Control,
    what: AskOperation,
    asked: &OperationRequest<'_>,
    query: &QueryParameters,
) -> Result<OperationResult, ProblemDetails> {
    let name = asked.names.first().map_or("", String::as_str);
    Ok(match what {
        AskOperation::Figures => {
            let (view, source, every) =
                (control.view.clone(), control.figures.clone(), figures::every(query));
            if query.flag("once") {
                return Ok(OperationResult::Json(figures::once(&view, &source, every).await));
            }
            let place = place(&control.watchers)?;
            let stream = stream::open(place, control.closes.clone(), |events| {
                figures::send(view, source, every, events)
            });
            OperationResult::Stream(stream)
        }
        AskOperation::Check => OperationResult::Json(check::answer(control, &asked.body).await?),
        AskOperation::ConfigFile => {
            let in_force = control.view.in_force();
            OperationResult::Json(json!({
                "path": control.view.file(),
                "text": &*in_force.text,
                "version": in_force.version,
                "differs": !in_force.unwritten.is_empty(),
            }))
        }
        AskOperation::Renew => return renew::answer(control, name).await,
        AskOperation::Logs(list) => OperationResult::Json(logs::answer(control, list, query).await?),
        AskOperation::Tail => {
            let place = place(&control.tails)?;
            OperationResult::Stream(logs::tail(control, query, place).await?)
        }
        AskOperation::TryReceiver => OperationResult::Json(notify::try_receiver(control, name).await?),
        AskOperation::Why => {
            let hello = if asked.operation.body == Body::Hello { &asked.body[..] } else { &[] };
            OperationResult::Json(why::answer(control, query, hello).await?)
        }
        AskOperation::Request => OperationResult::Json(logs::request(control, name, IdSearch::All).await?),
    })
}

/// A place for one more stream.
fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ProblemDetails> {
    let place = Arc::clone(places).try_acquire_owned();
    place.map_err(|_| ProblemDetails::busy("too many clients watch already; try again later"))
}
