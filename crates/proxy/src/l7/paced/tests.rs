use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use offramp_net::clock::coarse_ms;

use super::*;
use crate::l7::record::Stillness;

const KIB: usize = 1024;

fn bandwidth(rate: usize) -> Bandwidth {
    Bandwidth { rate: NonZeroU64::new(rate as u64).unwrap(), allowance: Arc::default() }
}

/// Frames of these lengths.
struct Frames(VecDeque<usize>);

impl Frames {
    fn next(&mut self) -> Outcome {
        Poll::Ready(self.0.pop_front().map(|length| Ok(Frame::Data(vec![7; length].into()))))
    }
}

/// A frame is asked for when nothing of the one before is left; what exceeds the rate waits, and is told to.
#[tokio::test]
async fn what_has_come_passes_at_the_rate_and_no_more_is_asked_for() {
    let bandwidth = bandwidth(64 * KIB);
    let mut gate = Gate::new(&bandwidth, TransferDirection::Out);
    let mut frames = Frames([64 * KIB, 10 * KIB, 0, 6 * KIB].into());
    let (mut passed, waited, begun) = (0, Cell::new(false), Instant::now());
    loop {
        let next = poll_fn(|cx| {
            let note = |until| {
                assert!(until > 0 && until <= coarse_ms() + 150, "until {until} at {}", coarse_ms());
                waited.set(true);
            };
            let (before, held) = (frames.0.len(), gate.piece.len());
            let outcome = gate.poll_frame(cx, note, |_| frames.next());
            assert!(held == 0 || frames.0.len() == before, "a frame was asked for while one waits");
            outcome
        });
        let Some(Ok(Frame::Data(data))) = next.await else { break };
        assert!(data.len() <= 64 * KIB / 20, "{} at once", data.len());
        passed += data.len();
        // What passes at once is as much as in a second.
        assert_eq!(waited.get(), passed > 64 * KIB, "after {passed}");
    }
    assert_eq!(passed, 80 * KIB);
    let least = 16.0 / 64.0;
    let took = begun.elapsed().as_secs_f64();
    assert!(took >= least - 0.02, "{took} s");
}

/// A body whose sender says nothing draws nothing, and one that is dropped gives back what it waits for.
#[tokio::test]
async fn who_has_nothing_to_say_holds_nothing() {
    let bandwidth = bandwidth(16 * KIB);
    let mut cx = Context::from_waker(Waker::noop());
    let mut silent = Gate::new(&bandwidth, TransferDirection::In);
    assert!(silent.poll_frame(&mut cx, |_| panic!("it waits for nothing"), |_| Poll::Pending).is_pending());
    assert!(!bandwidth.allowance.owes());
    let mut talks = Gate::new(&bandwidth, TransferDirection::In);
    let mut frames = Frames([40 * KIB].into());
    while talks.poll_frame(&mut cx, |_| (), |_| frames.next()).is_ready() {}
    assert!(talks.piece.len() > 20 * KIB && frames.0.is_empty());
    let mut all = |gate: &mut Gate| {
        let mut all = 0;
        let mut frames = Frames([40 * KIB].into());
        while let Poll::Ready(Some(Ok(Frame::Data(data)))) =
            gate.poll_frame(&mut cx, |_| (), |_| frames.next())
        {
            all += data.len();
        }
        all
    };
    // The other direction is another matter.
    assert!((16 * KIB..18 * KIB).contains(&all(&mut Gate::new(&bandwidth, TransferDirection::Out))));
    // As many as wait for long: what they do not use is there for others.
    let before = Instant::now();
    for _ in 0..100 {
        let mut one = Gate::new(&bandwidth, TransferDirection::In);
        assert_eq!(all(&mut one) / (4 * KIB), 0, "after {:?}", before.elapsed());
    }
    drop(talks);
    let mut last = Gate::new(&bandwidth, TransferDirection::In);
    let mut frames = Frames([KIB].into());
    poll_fn(|cx| last.poll_frame(cx, |_| (), |_| frames.next())).await;
    assert!(before.elapsed().as_secs() < 50, "{:?} behind those that have left", before.elapsed());
}

/// A wait that is given up, as where a server answers before it has the whole request, keeps no request from being idle.
#[tokio::test]
async fn a_wait_that_was_given_up_is_forgotten() {
    let bandwidth = bandwidth(16 * KIB);
    let stillness = Stillness::default();
    let mut cx = Context::from_waker(Waker::noop());
    let mut frames = Frames([400 * KIB].into());
    let mut gates: Vec<_> = (0..100).map(|_| Gate::new(&bandwidth, TransferDirection::In)).collect();
    let mut wait = |gate: &mut Gate, stillness: &Stillness| {
        frames.0.push_back(40 * KIB);
        while gate.poll_frame(&mut cx, |until| stillness.held_until(until), |_| frames.next()).is_ready() {}
    };
    wait(&mut gates[0], &stillness);
    assert_eq!(stillness.since(), None, "the response has not begun");
    let begun = coarse_ms();
    stillness.moved(begun);
    gates[1..].iter_mut().for_each(|gate| wait(gate, &stillness));
    // All of them would take 5 seconds.
    let since = stillness.since().unwrap();
    assert!(since > begun && since <= coarse_ms() + 2000, "{since} and {begun}");
    drop(gates);
    assert_eq!(stillness.since(), Some(since));
}
