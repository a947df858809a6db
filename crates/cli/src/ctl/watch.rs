//! `ctl watch`: prints events as they happen.
//!
//! Offramp ends a stream after some minutes, and at an upgrade. The next request resumes after the last event
//! (`Last-Event-ID`, HTML Living Standard §9.2), so no event is missed.

use std::time::Duration;

use super::client::events::{Each, IDLE_TIMEOUT, WatchEnd, WatchStream};
use super::client::{AdminClient, AdminRequest};
use crate::failure::Failure;
use crate::surroundings;

/// Delay between the end of a stream and the next request.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// Passes the events of `path` to `each` until that returns false.
///
/// # Errors
/// No Offramp answers, or it refuses.
pub(super) fn watch(client: &AdminClient, path: &str, each: Each<'_>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| client.failed(&error))?;
    runtime.block_on(follow(client, path, IDLE_TIMEOUT, each))
}

async fn follow(client: &AdminClient, path: &str, silence: Duration, each: Each<'_>) -> Result<(), Failure> {
    let mut last = None;
    loop {
        let request = AdminRequest { last, ..AdminRequest::new("GET", path) };
        let body = client.open(&request).await?;
        let mut stream = WatchStream::after(request.last);
        match stream.read(body, silence, each).await? {
            WatchEnd::Enough => return Ok(()),
            WatchEnd::Ended => {}
            WatchEnd::Silent => surroundings::say(&format!(
                "Offramp has sent nothing for {} s; connecting again",
                silence.as_secs()
            )),
        }
        last = stream.last();
        // Bounds the rate of requests if streams end at once.
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;

    /// Answers a request for a stream with this beginning of it, and returns the request and the connection.
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
        let client = AdminClient::at_socket(&path);
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
