//! Requests that no server has answered: their refusals.

use http::StatusCode;
use offramp_observe::{Cause, Close, Fault};
use offramp_upstream::{Breach, ConnectFault, FailedRequest, UpstreamFault};

use super::answer::ErrorReply;
use super::record::RequestRecord;
use crate::failure;

/// Turns the failure of a request at all servers of a backend into its refusal, and notes the attempts in the record.
/// `servers` is the number of servers of the backend.
pub(super) fn refusal(failed: &FailedRequest, record: &RequestRecord, servers: usize) -> ErrorReply {
    record.note(|facts| {
        facts.path.server.clone_from(&failed.server);
        facts.path.tries = failed.tries;
        facts.times.queue = (!failed.queue.is_zero()).then_some(failed.queue);
        facts.times.connect = failed.connect;
    });
    // The body knows best what is wrong with it.
    if let Some(close) = record.body_fault.take() {
        let status = match close.cause {
            Cause::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Cause::RequestBodyTimeout | Cause::RequestTooSlow => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        };
        return ErrorReply::new(status, close);
    }
    let close = |cause: Cause| Close::from(cause).with_detail(&failed.fault.to_string());
    let (status, close) = match &failed.fault {
        UpstreamFault::Connect(reason) => {
            let close = failure::unreached(reason, servers);
            let status = match reason {
                ConnectFault::NoServerAlive | ConnectFault::QueueFull | ConnectFault::QueueTimeout => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                ConnectFault::Timeout => StatusCode::GATEWAY_TIMEOUT,
                _ if close.fault == Fault::Us => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_GATEWAY,
            };
            (status, close)
        }
        UpstreamFault::ResponseTimeout | UpstreamFault::Stalled => {
            (StatusCode::GATEWAY_TIMEOUT, close(Cause::ServerResponseTimeout))
        }
        UpstreamFault::BadResponse(_) => (StatusCode::BAD_GATEWAY, close(Cause::BadResponse)),
        UpstreamFault::Aborted(Breach::Io(error)) if failure::is_ours(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, failure::resources(error, Cause::Internal))
        }
        UpstreamFault::Aborted(_) => (StatusCode::BAD_GATEWAY, close(Cause::ServerAborted)),
        UpstreamFault::RequestBody(_) => (StatusCode::BAD_REQUEST, close(Cause::ClientAborted)),
    };
    ErrorReply::new(status, close)
}
