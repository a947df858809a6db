use std::future::pending;

use offramp_observe::Log;

use super::*;

fn queue() -> (RequestQueue, Handle) {
    let (connections, history) = Default::default();
    RequestQueue::new(None, Closer { connections, history, log: Log::silent() })
}

#[tokio::test]
async fn an_order_to_stop_waits_for_no_disk() {
    let (mut queue, handle) = queue();
    assert_eq!(queue.unless_stopped(async { 7 }).await, Ok(7));
    handle.reopen();
    handle.reopen();
    let _first = handle.reload();
    let _second = handle.reload();
    let a_while = async {
        for _ in 0..WAITING {
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(queue.unless_stopped(a_while).await, Ok(()));
    handle.stop();
    // As a file system that does not answer.
    let stopped = queue.unless_stopped(pending::<()>()).await;
    assert_eq!(stopped, Err(Cause::Order(Requester::Program)));
    // What else was asked for is not forgotten where the work comes to its end.
    assert!(matches!(queue.next().await, Request::Reopen));
    for _ in 0..2 {
        assert!(matches!(queue.next().await, Request::Change(reload) if reload.is_real_reload()));
    }
    assert!(queue.deferred.is_empty());
}

#[tokio::test]
async fn so_many_requests_wait_and_no_more_but_an_order_to_stop_always_has_a_place() {
    let (mut queue, handle) = queue();
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
        assert_eq!(queue.unless_stopped(a_while).await, Ok(()));
        assert_eq!(queue.deferred.len(), WAITING);
    }
    let refused = handle.change(Change::Reload, Terms::default(), Requester::Program).await;
    assert!(matches!(refused, Err(NotChanged::Busy)));
    handle.stop();
    let stopped = queue.unless_stopped(pending::<()>()).await;
    assert_eq!(stopped, Err(Cause::Order(Requester::Program)));
    drop(queue);
    let refused = handle.confirm(Requester::Program).await;
    assert!(matches!(refused, Err(NotChanged::Ended)));
}

/// Somebody who renews a hundred certificates and reloads after each gets no hundred reloads.
#[tokio::test]
async fn a_request_that_waits_stands_for_the_same_without_a_reply() {
    let (mut queue, handle) = queue();
    let expects = Terms { expected: Some(7), ..Terms::default() };
    let with_terms = ChangeRequest { terms: expects, ..ChangeRequest::reload(Requester::Watch) };
    let upgrade = || Request::Upgrade(UpgradeRequest { by: Requester::Signal, force: false, reply: None });
    let all = [
        (Request::Change(Box::new(with_terms)), true),
        // The one before may be refused because of the version that it expects.
        (Request::reload(Requester::Signal), true),
        (Request::reload(Requester::Watch), false),
        (upgrade(), true),
        (upgrade(), false),
        (Request::Reopen, true),
        (Request::Reopen, false),
    ];
    let kept = all.iter().filter(|(_, is_kept)| *is_kept).count();
    for (request, _) in all {
        handle.place(request).unwrap();
    }
    let _reply = handle.reload();
    let a_while = async {
        for _ in 0..WAITING {
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(queue.unless_stopped(a_while).await, Ok(()));
    assert_eq!(
        queue.deferred.len(),
        kept + 1,
        "and the one that a requester waits for: {:?}",
        queue.deferred
    );
}
