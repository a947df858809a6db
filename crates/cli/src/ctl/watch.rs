//! `ctl watch`: what happens, as it happens.
//!
//! A stream ends after some minutes, and at an upgrade. The next one is asked for from the last event on (`Last-Event-ID`,
//! HTML Living Standard §9.2), so that nothing between them is missed.

use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes};
use serde_json::Value;

use super::client::{Client, LARGEST, Request, SOON};
use crate::failure::Failure;
use crate::surroundings;

/// Between the end of a stream of events and the next.
const AGAIN: Duration = Duration::from_millis(500);
/// A stream that is silent for so long has no other end any more: Offramp sends something every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);

/// What is done with an event, by its kind; whether to go on.
pub(super) type Each<'a> = &'a mut dyn FnMut(&str, Value) -> Result<bool, Failure>;

/// Reads the events behind a path, and gives each to `each` until that says that it is enough.
///
/// # Errors
/// Nobody answers, or refuses.
pub(super) fn watch(client: &Client, path: &str, each: Each<'_>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| client.failed(&error))?;
    runtime.block_on(follow(client, path, SILENCE, each))
}

async fn follow(client: &Client, path: &str, silence: Duration, each: Each<'_>) -> Result<(), Failure> {
    let mut last = None;
    loop {
        let (request, soon) = (Request { last, ..Request::new("GET", path) }, client.timeout.unwrap_or(SOON));
        let response = tokio::time::timeout(soon, client.send(&request, None)).await;
        let response = response.unwrap_or_else(|_| Err(client.silent(&request, soon)))?;
        let status = response.status();
        let body = response.into_body();
        if !status.is_success() {
            let body = Limited::new(body, LARGEST).collect().await;
            let body = body.map_err(|error| client.failed(&error))?.to_bytes();
            return Err(client.refused(status, &body));
        }
        let mut stream = Stream { last: request.last, ..Stream::default() };
        match read(body, &mut stream, silence, each).await? {
            End::Enough => return Ok(()),
            End::Ended => {}
            End::Silent => surroundings::say(&format!(
                "Offramp has sent nothing for {} s; connecting again",
                silence.as_secs()
            )),
        }
        last = stream.last;
        // A stream that ends at once is not asked for without pause.
        tokio::time::sleep(AGAIN).await;
    }
}

/// How reading a stream has ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Nobody wants more.
    Enough,
    Ended,
    Silent,
}

async fn read(
    mut body: impl Body<Data = Bytes> + Unpin,
    stream: &mut Stream,
    silence: Duration,
    each: Each<'_>,
) -> Result<End, Failure> {
    loop {
        match tokio::time::timeout(silence, body.frame()).await {
            Err(_) => return Ok(End::Silent),
            Ok(Some(Ok(frame))) => {
                stream.text.extend_from_slice(&frame.into_data().unwrap_or_default());
                while let Some((kind, data)) = stream.next() {
                    if !each(&kind, data)? {
                        return Ok(End::Enough);
                    }
                }
            }
            Ok(Some(Err(_)) | None) => return Ok(End::Ended),
        }
    }
}

/// What has come of a stream.
#[derive(Default)]
struct Stream {
    text: Vec<u8>,
    /// The lines of an event that is not whole yet.
    id: Option<String>,
    kind: String,
    data: Option<Value>,
    /// The id of the last one that was.
    last: Option<String>,
}

impl Stream {
    /// The next event that is there whole.
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;

    /// Answers a request for a stream with this beginning of it, and gives the request and the connection.
    async fn serve(
        listener: &tokio::net::UnixListener,
        events: &str,
    ) -> (String, BufReader<tokio::net::UnixStream>) {
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.read_line(&mut head).await.unwrap();
        }
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}");
        stream.write_all(answer.as_bytes()).await.unwrap();
        (head.to_ascii_lowercase(), stream)
    }

    #[tokio::test]
    async fn a_stream_that_ends_or_falls_silent_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::UnixListener::from_std(listener).unwrap();
        let server = async {
            // The second event is cut off: it counts as not read.
            let begun = "id: 1-1\n: from now on\n\nid: 1-2\nevent: change\ndata: {\"n\":2}\n\nid: 1-3\nevent: change\n";
            let (first, cut) = serve(&listener, begun).await;
            drop(cut);
            let (second, silent) = serve(&listener, "id: 1-3\nevent: change\ndata: {\"n\":3}\n\n").await;
            let (third, _kept) = serve(&listener, "id: 1-4\nevent: late\ndata: {\"n\":4}\n\n").await;
            drop(silent);
            assert!(!first.contains("last-event-id"), "{first}");
            assert!(second.contains("last-event-id: 1-2\r\n"), "{second}");
            assert!(third.contains("last-event-id: 1-3\r\n"), "{third}");
        };
        let client = Client::at_socket(&path);
        let mut all = Vec::new();
        let mut each = |kind: &str, data: Value| {
            all.push((kind.to_owned(), data));
            Ok(all.len() < 3)
        };
        let silence = Duration::from_millis(200);
        let (done, ()) = tokio::join!(follow(&client, "/events", silence, &mut each), server);
        done.unwrap();
        let expected = [("change", 2), ("change", 3), ("late", 4)];
        assert_eq!(all, expected.map(|(kind, n)| (kind.to_owned(), json!({ "n": n }))));
    }
}
