//! Event streams of the admin interface (HTML Living Standard §9.2).

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Incoming};
use serde_json::Value;

use super::{AdminClient, AdminRequest, RESPONSE_TIMEOUT};
use crate::failure::Failure;

/// Silence after which a stream counts as dead: Offramp sends at least a keep-alive every 15 seconds.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Callback for an event's kind and data; returns false to end the stream.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&str, Value) -> Result<bool, Failure>;

impl AdminClient {
    /// Sends a request for a stream, and returns the stream.
    ///
    /// # Errors
    /// No Offramp answers, or it refuses.
    pub(crate) async fn open(&self, request: &AdminRequest) -> Result<Incoming, Failure> {
        let soon = self.timeout.unwrap_or(RESPONSE_TIMEOUT);
        let response = tokio::time::timeout(soon, self.send(request, None)).await;
        let response = response.unwrap_or_else(|_| Err(self.timed_out(request, soon)))?;
        self.accepted(response).await
    }
}

/// Reason for the end of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    /// The callback returned false.
    Enough,
    Ended,
    Silent,
}

/// Parser of an event stream.
#[derive(Default)]
pub(crate) struct WatchStream {
    text: Vec<u8>,
    /// Fields of the incomplete event.
    id: Option<String>,
    kind: String,
    data: Option<Value>,
    /// Id of the last complete event.
    last: Option<String>,
}

impl WatchStream {
    /// A stream that resumes after this event.
    pub(crate) fn after(last: Option<String>) -> Self {
        Self { last, ..Self::default() }
    }

    /// Id of the last complete event.
    pub(crate) fn last(self) -> Option<String> {
        self.last
    }

    /// Passes events to `each` until that returns false, the stream ends, or nothing arrives for `silence`.
    ///
    /// # Errors
    /// Those of `each`.
    pub(crate) async fn read(
        &mut self,
        mut body: impl Body<Data = Bytes> + Unpin,
        silence: Duration,
        each: Each<'_>,
    ) -> Result<WatchEnd, Failure> {
        loop {
            match tokio::time::timeout(silence, body.frame()).await {
                Err(_) => return Ok(WatchEnd::Silent),
                Ok(Some(Ok(frame))) => {
                    self.text.extend_from_slice(&frame.into_data().unwrap_or_default());
                    while let Some((kind, data)) = self.next() {
                        if !each(&kind, data)? {
                            return Ok(WatchEnd::Enough);
                        }
                    }
                }
                Ok(Some(Err(_)) | None) => return Ok(WatchEnd::Ended),
            }
        }
    }

    /// Takes the next complete event from the received text.
    fn next(&mut self) -> Option<(String, Value)> {
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            if let Some(id) = line.strip_prefix("id: ") {
                self.id = Some(id.to_owned());
            } else if let Some(name) = line.strip_prefix("event: ") {
                name.clone_into(&mut self.kind);
            } else if let Some(data) = line.strip_prefix("data: ") {
                self.data = Some(serde_json::from_str(data).unwrap_or_default());
            } else if line.is_empty() {
                if let Some(id) = self.id.take() {
                    self.last = Some(id);
                }
                let kind = std::mem::take(&mut self.kind);
                if let Some(data) = self.data.take() {
                    return Some((kind, data));
                }
            }
        }
        None
    }
}
