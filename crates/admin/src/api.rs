//! What is asked about the running process, and the answers as JSON. It only reads.

use std::time::SystemTime;

use offramp_control::{Applied, History, Refused};
use offramp_observe::timestamp::rfc3339_micros;
use serde_json::{Value, json};

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `/v1/changes`: the latest changes of the configuration.
    Changes,
    /// `/v1/refused`: the latest changes that were refused.
    Refused,
}

impl Call {
    /// By what follows `/v1/` in the path.
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path {
            "changes" => Some(Self::Changes),
            "refused" => Some(Self::Refused),
            _ => None,
        }
    }

    /// The answer, the newest first.
    pub(crate) fn answer(self, history: &History) -> Value {
        match self {
            Self::Changes => {
                let (version, applied) = history.applied();
                json!({ "version": version, "changes": applied.iter().map(change).collect::<Vec<_>>() })
            }
            Self::Refused => json!({ "refused": history.refused().iter().map(refusal).collect::<Vec<_>>() }),
        }
    }
}

fn change(Applied { version, at, by, changes, omitted }: &Applied) -> Value {
    json!({
        "version": version,
        "at": time(*at),
        "by": by.as_str(),
        "changes": changes.lines,
        "omitted": omitted,
        "new_certificates": changes.new_certificates,
        "needs_a_restart": changes.needs_restart,
    })
}

fn refusal(Refused { at, by, reasons, omitted }: &Refused) -> Value {
    json!({ "at": time(*at), "by": by.as_str(), "reasons": reasons, "omitted": omitted })
}

fn time(at: SystemTime) -> String {
    String::from_utf8_lossy(&rfc3339_micros(at)).into_owned()
}
