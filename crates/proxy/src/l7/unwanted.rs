//! Unwanted bodies of servers. A little of them is read and forgotten, so that their connection can be kept.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use offramp_http::body::Frame;
use tokio::time::timeout;

/// Bytes that are read of an unwanted body.
pub(super) const UNWANTED: usize = 64 * 1024;
/// For how long a body is read that is in nobody's way.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads and forgets a body in a task of its own, as much of it as comes soon and is short.
pub(super) fn forget<E: 'static>(
    poll: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame, E>>> + 'static,
) {
    tokio::task::spawn_local(drain(poll, PATIENCE));
}

/// Reads and forgets a body until it ends or fails, [`UNWANTED`] bytes of it have come, or `patience` is over. Frames without
/// data count as a byte each, so that an endless row of them ends too.
pub(super) async fn drain<E>(
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame, E>>>,
    patience: Duration,
) {
    let mut left = UNWANTED;
    let all = poll_fn(|cx| {
        while let Some(Ok(frame)) = ready!(poll(cx)) {
            match left.checked_sub(frame.data_len().max(1)) {
                Some(less) => left = less,
                None => break,
            }
        }
        Poll::Ready(())
    });
    // One that takes its time is given up.
    let _ = timeout(patience, all).await;
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// How often a body of such frames is asked for the next one before it is given up.
    async fn asked(mut next: impl FnMut(usize) -> Poll<Option<Result<Frame, ()>>>) -> usize {
        let mut count = 0;
        let poll = |_: &mut Context<'_>| {
            count += 1;
            next(count)
        };
        drain(poll, Duration::from_millis(10)).await;
        count
    }

    fn data(length: usize) -> Poll<Option<Result<Frame, ()>>> {
        Poll::Ready(Some(Ok(Frame::Data(Bytes::from(vec![0; length])))))
    }

    #[tokio::test]
    async fn a_body_is_read_to_its_end_or_its_bounds() {
        assert_eq!(asked(|count| if count < 7 { data(1000) } else { Poll::Ready(None) }).await, 7);
        assert_eq!(asked(|_| Poll::Ready(Some(Err(())))).await, 1);
        // All that is allowed, and the frame that is too much.
        assert_eq!(asked(|_| data(UNWANTED / 4)).await, 5);
        assert_eq!(asked(|_| data(0)).await, UNWANTED + 1);
        // One that says nothing is asked again when its time is over.
        assert!(asked(|_| Poll::Pending).await <= 2);
    }
}
