use super::*;

const RATE: NonZeroU64 = NonZeroU64::new(1_000_000).unwrap();

/// Has so many bytes pass.
fn use_up(allowance: &Allowance, way: Way, bytes: usize, rate: NonZeroU64) {
    let now = monotonic();
    allowance.draw(way, bytes, rate, now);
    allowance.pass(way, bytes, rate, now);
}

fn pace(allowance: &Arc<Allowance>, rate: u64) -> Pace {
    Pace::new(Arc::clone(allowance), NonZeroU64::new(rate).unwrap(), Side::Client)
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
    use_up(&allowance, Way::Out, 1 << 20, rate);
    let passed = |pace: Pace| async move {
        let mut total = 0;
        for _ in 0..6 {
            let room = std::future::poll_fn(|cx| pace.poll_room(cx, Way::Out, usize::MAX)).await;
            pace.spend(Way::Out, room);
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

/// For how long what was drawn of a direction is not worked off.
fn owed(allowance: &Allowance, way: Way) -> u64 {
    allowance.end(way).saturating_sub(u64::try_from(monotonic().as_nanos()).unwrap())
}

#[test]
fn what_was_too_much_is_owed_and_what_was_not_used_is_given_back() {
    let allowance = Arc::new(Allowance::default());
    // So that what passes later than it was drawn changes nothing.
    use_up(&allowance, Way::In, 500_000, RATE);
    let pace = pace(&allowance, RATE.get());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert_eq!(pace.poll_room(&mut cx, Way::In, usize::MAX), Poll::Ready(50_000));
    // Whoever asks once more before it has moved something draws nothing.
    assert_eq!(pace.poll_room(&mut cx, Way::In, 20_000), Poll::Ready(20_000));
    pace.spend(Way::In, 60_000);
    assert!(owed(&allowance, Way::In) <= 560_000_000 && allowance.owes());
    let before = allowance.end(Way::In);
    assert_eq!(pace.poll_room(&mut cx, Way::In, usize::MAX), Poll::Ready(50_000));
    pace.spend(Way::In, 1000);
    assert_eq!(allowance.end(Way::In), before + 1_000_000);
    // No more is drawn than there is to move, and nothing is kept by who is gone.
    assert_eq!(pace.poll_room(&mut cx, Way::In, 700), Poll::Ready(700));
    assert_eq!(allowance.end(Way::In), before + 1_700_000);
    drop(pace);
    assert_eq!(allowance.end(Way::In), before + 1_000_000);
}

#[test]
fn what_goes_out_to_a_server_came_in_from_a_client() {
    let allowance = Arc::new(Allowance::default());
    let server = Pace::new(Arc::clone(&allowance), RATE, Side::Server);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert_eq!(server.poll_room(&mut cx, Way::Out, 40_000), Poll::Ready(40_000));
    server.spend(Way::Out, 40_000);
    assert!(owed(&allowance, Way::In) > 0);
    assert_eq!(owed(&allowance, Way::Out), 0);
}

/// Those that were idle for long and find the allowance used up hold nothing of it once they have waited.
#[tokio::test]
async fn who_has_waited_for_nothing_keeps_nothing() {
    let allowance = Arc::new(Allowance::default());
    use_up(&allowance, Way::Out, 1_030_000, RATE);
    let pace = pace(&allowance, RATE.get());
    let before = allowance.end(Way::Out);
    let room = std::future::poll_fn(|cx| {
        let room = pace.poll_room(cx, Way::Out, 10_000);
        assert!(room.is_ready() || pace.waited_until() > coarse_ms());
        room
    });
    assert_eq!(room.await, 10_000);
    pace.spend(Way::Out, 0);
    assert_eq!(allowance.end(Way::Out), before);
}

/// Who waits behind others moves up when they leave, and is not taken to wait for ever where nobody asks for it.
#[tokio::test]
async fn who_waits_moves_up_when_others_leave() {
    const SLOW: u64 = 64 * 1024;
    let allowance = Arc::new(Allowance::default());
    use_up(&allowance, Way::Out, SLOW as usize, NonZeroU64::new(SLOW).unwrap());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let others: Vec<_> = (0..600).map(|_| pace(&allowance, SLOW)).collect();
    assert!(others.iter().all(|one| one.poll_room(&mut cx, Way::Out, usize::MAX).is_pending()));
    let last = pace(&allowance, SLOW);
    let begun = Instant::now();
    assert!(last.poll_room(&mut cx, Way::Out, 1000).is_pending());
    // Not until its turn would have come, in half a minute.
    assert!(last.waited_until() <= coarse_ms() + 4100);
    drop(others);
    assert_eq!(std::future::poll_fn(|cx| last.poll_room(cx, Way::Out, 1000)).await, 1000);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
