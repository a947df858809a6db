use super::*;
use crate::clock::coarse_ms;

const RATE: NonZeroU64 = NonZeroU64::new(1_000_000).unwrap();

/// Transfers `bytes` bytes.
fn transfer(allowance: &Allowance, way: TransferDirection, bytes: usize, rate: NonZeroU64) {
    let now = monotonic();
    allowance.draw(way, bytes, rate, now);
    allowance.pass(way, bytes, rate, now);
}

fn pace(allowance: &Arc<Allowance>, rate: u64) -> BandwidthLimiter {
    BandwidthLimiter::new(Arc::clone(allowance), NonZeroU64::new(rate).unwrap(), ConnectionSide::Client)
}

#[test]
fn grains_are_neither_tiny_nor_huge() {
    for (rate, grain) in [(1, 1024), (200_000, 10_000), (u64::MAX, 64 * 1024)] {
        assert_eq!(pace(&Arc::default(), rate).grain(), grain);
    }
}

#[tokio::test]
async fn two_that_share_get_half_each() {
    let allowance = Arc::new(Allowance::default());
    let rate = NonZeroU64::new(1 << 20).unwrap();
    transfer(&allowance, TransferDirection::Out, 1 << 20, rate);
    let passed = |pace: BandwidthLimiter| async move {
        let mut total = 0;
        for _ in 0..6 {
            let room =
                std::future::poll_fn(|cx| pace.poll_room(cx, TransferDirection::Out, usize::MAX)).await;
            pace.spend(TransferDirection::Out, room);
            total += room;
        }
        assert!(pace.waited_until() > 0);
        total
    };
    let begun = tokio::time::Instant::now();
    let (first, second) = tokio::join!(passed(pace(&allowance, 1 << 20)), passed(pace(&allowance, 1 << 20)));
    assert_eq!(first, second);
    let least = (first + second) as f64 / (1 << 20) as f64;
    let took = begun.elapsed().as_secs_f64();
    assert!(took >= least - 0.05, "{took} s for {least}");
}

/// Time by which the reservations of a direction are ahead of the clock.
fn owed(allowance: &Allowance, way: TransferDirection) -> u64 {
    allowance.end(way).saturating_sub(u64::try_from(monotonic().as_nanos()).unwrap())
}

#[test]
fn excess_is_owed_and_unused_bytes_are_returned() {
    let allowance = Arc::new(Allowance::default());
    // A large debt, so that the time between reservation and transfer is negligible.
    transfer(&allowance, TransferDirection::In, 500_000, RATE);
    let pace = pace(&allowance, RATE.get());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert_eq!(pace.poll_room(&mut cx, TransferDirection::In, usize::MAX), Poll::Ready(50_000));
    // A second poll before the transfer reserves nothing more.
    assert_eq!(pace.poll_room(&mut cx, TransferDirection::In, 20_000), Poll::Ready(20_000));
    pace.spend(TransferDirection::In, 60_000);
    assert!(owed(&allowance, TransferDirection::In) <= 560_000_000 && allowance.owes());
    let before = allowance.end(TransferDirection::In);
    assert_eq!(pace.poll_room(&mut cx, TransferDirection::In, usize::MAX), Poll::Ready(50_000));
    pace.spend(TransferDirection::In, 1000);
    assert_eq!(allowance.end(TransferDirection::In), before + 1_000_000);
    // A reservation never exceeds the bytes to be moved, and is returned when its owner is dropped.
    assert_eq!(pace.poll_room(&mut cx, TransferDirection::In, 700), Poll::Ready(700));
    assert_eq!(allowance.end(TransferDirection::In), before + 1_700_000);
    drop(pace);
    assert_eq!(allowance.end(TransferDirection::In), before + 1_000_000);
}

#[test]
fn directions_of_a_server_are_those_of_the_client() {
    let allowance = Arc::new(Allowance::default());
    let server = BandwidthLimiter::new(Arc::clone(&allowance), RATE, ConnectionSide::Server);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let begun = u64::try_from(monotonic().as_nanos()).unwrap();
    assert_eq!(server.poll_room(&mut cx, TransferDirection::Out, 40_000), Poll::Ready(40_000));
    server.spend(TransferDirection::Out, 40_000);
    assert!(allowance.end(TransferDirection::In) > begun);
    assert_eq!(owed(&allowance, TransferDirection::Out), 0);
}

/// Connections that find the allowance used up after a long pause reserve nothing once they have waited.
#[test]
fn a_wait_without_transfer_keeps_no_reservation() {
    let (allowance, now) = (Arc::new(Allowance::default()), Duration::from_secs(1000));
    allowance.draw(TransferDirection::Out, 1_030_000, RATE, now);
    allowance.pass(TransferDirection::Out, 1_030_000, RATE, now);
    let pace = pace(&allowance, RATE.get());
    let before = allowance.end(TransferDirection::Out);
    // The 30 ms beyond a burst, and 10 for the grain itself.
    let wait = pace.begin(TransferDirection::Out, 10_000, now).unwrap();
    assert_eq!(wait, Duration::from_millis(40));
    assert_eq!(pace.waited_until(), 1_000_041);
    let early = now + wait - Duration::from_millis(5);
    assert_eq!(pace.wait(TransferDirection::Out, true, early), Some(Duration::from_millis(5)));
    assert_eq!(pace.wait(TransferDirection::Out, true, now + wait), None);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert_eq!(pace.poll_room(&mut cx, TransferDirection::Out, 10_000), Poll::Ready(10_000));
    pace.spend(TransferDirection::Out, 0);
    assert_eq!(allowance.end(TransferDirection::Out), before);
}

/// A waiting connection moves up when those ahead leave, and counts as waiting for a bounded time if it is
/// abandoned.
#[tokio::test]
#[cfg_attr(miri, ignore = "the first wait ends before the last one begins")]
async fn a_waiting_connection_moves_up_when_others_leave() {
    const SLOW: u64 = 64 * 1024;
    let allowance = Arc::new(Allowance::default());
    transfer(&allowance, TransferDirection::Out, SLOW as usize, NonZeroU64::new(SLOW).unwrap());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let others: Vec<_> = (0..600).map(|_| pace(&allowance, SLOW)).collect();
    assert!(others.iter().all(|one| one.poll_room(&mut cx, TransferDirection::Out, usize::MAX).is_pending()));
    let last = pace(&allowance, SLOW);
    let begun = Instant::now();
    assert!(last.poll_room(&mut cx, TransferDirection::Out, 1000).is_pending());
    // Its original turn would be half a minute from now.
    assert!(last.waited_until() <= coarse_ms() + 4100);
    drop(others);
    assert_eq!(std::future::poll_fn(|cx| last.poll_room(cx, TransferDirection::Out, 1000)).await, 1000);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
