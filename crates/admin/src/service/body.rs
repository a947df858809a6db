//! Bodies of requests: their size, and the time that they have.

use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes};
use hyper::{Method, StatusCode};
use tokio::time::{Instant, timeout_at};

use crate::api::ProblemDetails;
use crate::refusal::PlainRefusal;

/// The time for receiving a body.
const BODY: Duration = Duration::from_secs(10);
/// The bytes that extend this time by a second: the largest body has 74 s, over a line of 2 Mbit/s.
const BODY_STEP: usize = 256 << 10;

/// Reads a body of so many bytes at most.
pub(super) async fn read<B>(body: B, most: usize) -> Result<Bytes, PlainRefusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = pin!(Limited::new(body, most));
    let (began, mut all) = (Instant::now(), Vec::new());
    loop {
        match timeout_at(began + time_for(all.len()), body.frame()).await {
            Ok(Some(Ok(frame))) => all.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Ok(None) => return Ok(all.into()),
            Ok(Some(Err(error))) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(PlainRefusal {
                    status: StatusCode::PAYLOAD_TOO_LARGE,
                    text: format!("the request has more than {most} bytes"),
                });
            }
            Ok(Some(Err(_))) => return Err(PlainRefusal::wrong("the body of the request could not be read")),
            Err(_) => {
                return Err(PlainRefusal {
                    status: StatusCode::REQUEST_TIMEOUT,
                    text: format!(
                        "the body of the request did not come in time: it has {} s, and another second for each {} KiB",
                        BODY.as_secs(),
                        BODY_STEP >> 10
                    ),
                });
            }
        }
    }
}

/// The time for a body of which this many bytes were received.
fn time_for(received: usize) -> Duration {
    BODY + Duration::from_secs(u64::try_from(received / BODY_STEP).unwrap_or(u64::MAX))
}

/// Returns `true` for an empty body or an empty object.
pub(super) fn is_nothing(body: &[u8]) -> bool {
    let text: Vec<u8> = body.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    text.is_empty() || text == b"{}"
}

pub(super) fn unwanted(method: &Method, path: &str) -> ProblemDetails {
    ProblemDetails::wrong(format!("{method} {path} takes no body; leave it out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_body_has_more_time_as_it_comes() {
        let seconds = [0, BODY_STEP - 1, BODY_STEP, 16 << 20].map(|received| time_for(received).as_secs());
        assert_eq!(seconds, [10, 10, 11, 74]);
    }

    #[test]
    fn an_empty_object_is_nothing() {
        assert!([&b""[..], b" ", b"{}", b" { }\n"].into_iter().all(is_nothing));
        assert!(![&b"[]"[..], b"{\"force\":true}", b"null"].into_iter().any(is_nothing));
    }
}
