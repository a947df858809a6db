//! Streams of events (`text/event-stream`) whose source is a task: figures, and requests as they end.
//!
//! The task waits while its client reads slowly: the channel between them has a few places. A stream ends in order
//! after ten minutes, and when the process stops or hands the admin interface over.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use serde_json::Value;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

/// The maximum duration of a stream.
const LIFE: Duration = Duration::from_secs(600);
/// Events that wait for a slow client.
const WAITING: usize = 2;

/// The body of any stream.
pub(crate) type EventStream = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

/// The client's end of a stream.
struct TaskEvents {
    events: Receiver<Bytes>,
    /// The permit that limits the number of streams.
    _place: OwnedSemaphorePermit,
}

/// Starts a task that sends events. It ends when it has nothing more to send, when the client has gone, and at the end of
/// the stream; then it is dropped where it waits.
pub(super) fn open<F>(
    place: OwnedSemaphorePermit,
    closes: Option<watch::Receiver<bool>>,
    work: impl FnOnce(Sender<Bytes>) -> F,
) -> EventStream
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, events) = mpsc::channel(WAITING);
    let work = work(sender.clone());
    tokio::spawn(async move {
        let closed = async {
            match closes {
                // A closed channel counts as the end, too.
                Some(mut closes) => drop(closes.wait_for(|closes| *closes).await),
                None => pending().await,
            }
        };
        tokio::select! {
            () = work => {}
            () = closed => {}
            () = sleep(LIFE) => {}
            () = sender.closed() => {}
        }
    });
    Box::pin(TaskEvents { events, _place: place })
}

/// Formats one event.
pub(super) fn event(kind: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}

/// A comment, which keeps a quiet stream alive.
pub(super) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

impl Body for TaskEvents {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.events.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use serde_json::json;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_stream_ends_with_its_task_its_client_and_the_interface() {
        let places = Arc::new(Semaphore::new(1));
        let place = || Arc::clone(&places).try_acquire_owned().unwrap();
        let mut some = open(place(), None, |sender| async move {
            let _ = sender.send(event("one", &json!({ "a": 1 }))).await;
        });
        let first = some.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&first[..], b"event: one\ndata: {\"a\":1}\n\n");
        assert!(some.frame().await.is_none());
        drop(some);

        // A client that goes ends the task, wherever it waits.
        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        let stream = open(place(), None, |_| async move {
            pending::<()>().await;
            drop(held);
        });
        drop(stream);
        while Arc::strong_count(&alive) > 1 {
            tokio::task::yield_now().await;
        }

        let (closing, closes) = watch::channel(false);
        let mut stream = open(place(), Some(closes), |_| pending());
        closing.send(true).unwrap();
        assert!(stream.frame().await.is_none());
    }
}
