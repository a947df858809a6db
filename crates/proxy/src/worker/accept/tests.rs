use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};

use offramp_observe::Log;

use super::*;
use crate::worker::rig::{PROXIED, block_on_counted, listen, snapshot};

fn crowd(address: SocketAddr, size: usize) -> Vec<TcpStream> {
    (0..size).map(|_| TcpStream::connect(address).unwrap()).collect()
}

/// Lets the worker go on until this is so.
async fn until(done: impl Fn() -> bool) {
    while !done() {
        yield_now().await;
    }
}

#[test]
fn others_have_a_turn_after_every_few() {
    block_on_counted(10_000, |event_loop, _| async move {
        let address = listen(&event_loop, 1);
        let _crowd = crowd(address, 300);
        let mut known = 0;
        while known < 300 {
            yield_now().await;
            let now = event_loop.resources.open.count();
            assert!(now - known <= BURST, "{} connections were accepted in one turn", now - known);
            known = now;
        }
    });
}

#[test]
fn nobody_is_accepted_while_the_process_holds_too_much() {
    block_on_counted(100, |event_loop, counters| async move {
        let address = listen(&event_loop, 1);
        let pressure = Arc::clone(&event_loop.resources.shared.pressure);
        let log = Log::silent();
        let pauses = || counters.totals().accept_pauses(PauseReason::ProcessMemory);
        let test = async {
            pressure.bound(Some(1));
            until(|| pressure.is_high()).await;
            // Nobody waits: there is nothing to pause.
            assert_eq!(pauses(), 0);
            let crowd = crowd(address, 3);
            until(|| pauses() >= 2).await;
            assert_eq!(
                (event_loop.resources.open.count(), event_loop.resources.shared.admission.taken()),
                (0, 0)
            );
            pressure.bound(None);
            until(|| event_loop.resources.open.count() == crowd.len()).await;
        };
        tokio::select! {
            never = pressure.watch(&log) => match never {},
            () = test => {}
        }
    });
}

#[test]
fn a_full_queue_does_not_overshoot_the_limit_and_goes_on_when_a_place_is_free() {
    block_on_counted(5, |event_loop, counters| async move {
        // Two listeners, as places are counted over all of them.
        let addresses = [listen(&event_loop, 1), listen(&event_loop, 2)];
        let mut crowd: Vec<TcpStream> = addresses.into_iter().flat_map(|to| crowd(to, 20)).collect();
        let all = crowd.len();
        until(|| event_loop.resources.open.count() == 5).await;
        for _ in 0..200 {
            yield_now().await;
            assert_eq!(
                (event_loop.resources.open.count(), event_loop.resources.shared.admission.taken()),
                (5, 5)
            );
        }
        assert_eq!(counters.totals().accept_pauses(PauseReason::Connections), 2);
        // They wait, and nobody was reset.
        for stream in &crowd {
            stream.set_nonblocking(true).unwrap();
            let mut stream = stream;
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        // Whoever leaves makes room for another, from either queue.
        while !crowd.is_empty() {
            drop(crowd.remove(0));
            let left = crowd.len();
            until(|| {
                assert!(event_loop.resources.open.count() <= 5);
                event_loop.resources.open.count() == left.min(5)
                    && counters.totals().active() == left.min(5) as u64
            })
            .await;
        }
        assert_eq!(counters.totals().accepted(), all as u64);
        assert_eq!(event_loop.resources.shared.admission.taken(), 0);
    });
}

#[test]
fn there_is_no_pause_while_nobody_waits() {
    block_on_counted(3, |event_loop, counters| async move {
        let address = listen(&event_loop, 1);
        let _crowd = crowd(address, 3);
        let pauses = || counters.totals().accept_pauses(PauseReason::Connections);
        until(|| event_loop.resources.open.count() == 3).await;
        for _ in 0..50 {
            yield_now().await;
        }
        assert_eq!(pauses(), 0);
        let _waits = TcpStream::connect(address).unwrap();
        until(|| pauses() == 1).await;
    });
}

#[test]
fn a_new_limit_is_heard_of_at_once() {
    block_on_counted(2, |event_loop, counters| async move {
        let address = listen(&event_loop, 1);
        let mut crowd = crowd(address, 10);
        until(|| event_loop.resources.open.count() == 2).await;
        let change = |connections| {
            event_loop.resources.shared.current.replace(snapshot(connections));
            event_loop.resources.shared.admission.limit_changed();
        };
        change(7);
        until(|| event_loop.resources.open.count() == 7).await;
        // Nobody is thrown out by a smaller one; the next one comes in when there are fewer.
        change(3);
        for left in [6, 5, 4, 3] {
            drop(crowd.remove(0));
            until(|| event_loop.resources.open.count() == left).await;
        }
        // Three are in, three are in the queue.
        drop(crowd.remove(0));
        until(|| counters.totals().accepted() == 8 && event_loop.resources.open.count() == 3).await;
    });
}

#[test]
fn a_full_house_hears_the_order_to_stop_and_turns_the_rest_away() {
    block_on_counted(3, |event_loop, counters| async move {
        let address = listen(&event_loop, 1);
        let mut crowd = crowd(address, 40);
        until(|| {
            event_loop.resources.open.count() == 3
                && counters.totals().accept_pauses(PauseReason::Connections) == 1
        })
        .await;
        event_loop.draining.set(true);
        event_loop.unlisten(AcceptorId(1), None);
        until(|| event_loop.acceptors.borrow().is_empty() && event_loop.resources.open.count() == 3).await;
        let refused = counters
            .totals()
            .closed(offramp_observe::Cause::LimitConnections, offramp_observe::Fault::Policy);
        assert_eq!(refused, 37);
        assert_eq!(event_loop.resources.shared.admission.taken(), 3);
        let last = crowd.last_mut().unwrap();
        assert!(!matches!(last.read(&mut [0]), Ok(1..)));
        assert!(TcpStream::connect(address).is_err());
    });
}

/// A listener that leaves the configuration resets nobody who waits; a worker that ends does.
#[test]
fn who_waits_at_a_listener_that_leaves_gets_its_place() {
    block_on_counted(3, |event_loop, counters| async move {
        let address = listen(&event_loop, 1);
        let mut crowd = crowd(address, 12);
        until(|| {
            event_loop.resources.open.count() == 3
                && counters.totals().accept_pauses(PauseReason::Connections) == 1
        })
        .await;
        event_loop.unlisten(AcceptorId(1), None);
        for left in (6..12).rev() {
            drop(crowd.remove(0));
            until(|| {
                counters.totals().accepted() as usize == 15 - left && event_loop.resources.open.count() == 3
            })
            .await;
            assert_eq!(event_loop.resources.shared.admission.taken(), 3);
        }
        event_loop.draining.set(true);
        event_loop.unlisten(AcceptorId(1), None);
        until(|| event_loop.acceptors.borrow().is_empty()).await;
        until(|| event_loop.resources.open.count() == 3).await;
        let policy = offramp_observe::Fault::Policy;
        let refused = counters.totals().closed(offramp_observe::Cause::LimitConnections, policy);
        assert_eq!(refused, 3);
        assert!(TcpStream::connect(address).is_err());
    });
}

/// Another process has the socket, too: nobody is accepted any more, and nobody is reset.
#[test]
fn who_waits_at_a_socket_that_is_left_is_served_by_another() {
    block_on_counted(3, |event_loop, counters| async move {
        let fd = offramp_net::listen::open(&offramp_net::Address::Tcp("127.0.0.1:0".parse().unwrap()), 1)
            .unwrap()
            .remove(0);
        let address = offramp_net::listen::bound_address(&fd).unwrap();
        let other: std::net::TcpListener = fd.try_clone().unwrap().into();
        event_loop.listen(AcceptorId(1), PROXIED.into(), fd);
        let crowd = crowd(address, 12);
        until(|| {
            event_loop.resources.open.count() == 3
                && counters.totals().accept_pauses(PauseReason::Connections) == 1
        })
        .await;
        event_loop.leave(AcceptorId(1));
        until(|| event_loop.acceptors.borrow().is_empty()).await;
        assert_eq!((event_loop.resources.open.count(), counters.totals().accepted()), (3, 3));
        other.set_nonblocking(true).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| other.accept().ok()).collect();
        assert_eq!(waiting.len(), 9);
        drop(crowd);
    });
}

#[test]
fn errors_that_last_are_no_connections() {
    let mut burst = Burst::default();
    for _ in 0..3 {
        for _ in 0..GONE - 1 {
            assert_eq!(burst.gone(), None);
        }
        assert_eq!(burst.gone(), Some(PauseReason::Denied));
        assert!(burst.is_over());
    }
    assert!(!burst.is_over());
    burst.gone();
    burst.accepted();
    assert_eq!((burst.gone, burst.attempts), (0, 2));
    burst.ends();
    assert_eq!(burst.attempts, 0);
}
