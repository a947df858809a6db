use std::future::pending;

use super::*;

fn desk() -> (Desk, Handle) {
    let (connections, history) = Default::default();
    Desk::new(None, Closer { connections, history, log: Log::silent() })
}

#[tokio::test]
async fn an_order_to_stop_waits_for_no_disk() {
    let (mut desk, handle) = desk();
    assert_eq!(desk.unless_stopped(async { 7 }).await, Ok(7));
    handle.reopen();
    handle.reopen();
    let _first = handle.reload();
    let _second = handle.reload();
    let a_while = async {
        for _ in 0..WAITING {
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(desk.unless_stopped(a_while).await, Ok(()));
    handle.stop();
    // As a file system that does not answer.
    let stopped = desk.unless_stopped(pending::<()>()).await;
    assert_eq!(stopped, Err(Cause::Order(Requester::Program)));
    // What else was asked for is not forgotten where the work comes to its end.
    for expected in [Ask::Reopen, Ask::Reload, Ask::Reload] {
        assert_eq!(desk.next().await.ask, expected);
    }
    assert!(desk.deferred.is_empty());
}

#[tokio::test]
async fn so_many_requests_wait_and_no_more_but_an_order_to_stop_always_has_a_place() {
    let (mut desk, handle) = desk();
    // As many as may be put off, and as many as wait for that.
    for room in [WAITING, WAITING, 0] {
        let taken: Vec<_> =
            (0..=WAITING).map(|_| handle.reload()).filter_map(|mut one| one.try_recv().err()).collect();
        let waiting = taken.iter().filter(|error| **error == oneshot::error::TryRecvError::Empty).count();
        assert_eq!(waiting, room);
        let a_while = async {
            for _ in 0..2 * WAITING {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(desk.unless_stopped(a_while).await, Ok(()));
        assert_eq!(desk.deferred.len(), WAITING);
    }
    let refused = handle.change(Change::Reload, Terms::default(), Requester::Program).await;
    assert!(matches!(refused, Err(NotChanged::Busy)));
    handle.stop();
    let stopped = desk.unless_stopped(pending::<()>()).await;
    assert_eq!(stopped, Err(Cause::Order(Requester::Program)));
    drop(desk);
    let refused = handle.confirm(Requester::Program).await;
    assert!(matches!(refused, Err(NotChanged::Ended)));
}
