//! Tests in virtual time: the clock is an argument.

use super::*;

const RATE: NonZeroU64 = NonZeroU64::new(1_000_000).unwrap();
/// Bytes that pass in 10 ms and in 50 ms.
const SMALL: usize = 10_000;
const GRAIN: usize = 50_000;
const BEGIN: Duration = Duration::from_secs(1000);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_second_may_pass_at_once_and_the_rest_when_it_is_due() {
    let allowance = Allowance::default();
    let due = |way, bytes, at: Duration| {
        let due = Duration::from_nanos(allowance.draw(way, bytes, RATE, at).end).saturating_sub(BURST);
        due.saturating_sub(at)
    };
    let draw = |bytes, at| due(TransferDirection::Out, bytes, at);
    let begin = ms(5000);
    assert!((0..10).all(|_| draw(100_000, begin).is_zero()));
    // A new reservation is placed behind the earlier ones.
    assert_eq!(draw(100_000, begin), ms(100));
    assert_eq!(draw(100_000, begin), ms(200));
    assert_eq!(draw(100_000, begin + ms(300)), Duration::ZERO);
    // The other direction is separate.
    assert_eq!(due(TransferDirection::In, 1_000_000, begin), Duration::ZERO);
    // A pause of any length saves up the burst only.
    let later = begin + ms(100_000);
    assert_eq!((draw(1_000_000, later), draw(1000, later)), (Duration::ZERO, ms(1)));
    allowance.give_back(TransferDirection::Out, 1000, RATE);
    assert_eq!(draw(1000, later), ms(1));
}

/// Transfers are worked off before any reservation passes.
#[test]
fn transfers_bound_the_rate() {
    let allowance = Allowance::default();
    let mut place = allowance.draw(TransferDirection::Out, GRAIN, RATE, BEGIN);
    let mut wait = |at| allowance.wait(TransferDirection::Out, &mut place, at, true);
    assert_eq!(wait(BEGIN), None);
    allowance.pass(TransferDirection::Out, 1_000_000, RATE, BEGIN);
    assert_eq!((wait(BEGIN), wait(BEGIN + ms(49))), (Some(ms(50)), Some(ms(1))));
    assert_eq!(wait(BEGIN + ms(50)), None);
}

/// A connection that waits for a grain.
struct Waiter {
    name: u32,
    place: Reservation,
    next: Duration,
    looks: u32,
}

/// Waiting connections of one allowance, and the transfers: time and name of the connection.
struct Queue {
    allowance: Allowance,
    grain: usize,
    now: Duration,
    waiters: Vec<Waiter>,
    passed: Vec<(Duration, u32)>,
}

impl Queue {
    /// Starts with the burst used up.
    fn new(grain: usize) -> Self {
        let allowance = Allowance::default();
        let queue = Self { allowance, grain, now: BEGIN, waiters: Vec::new(), passed: Vec::new() };
        queue.allowance.draw(TransferDirection::Out, 1_000_000, RATE, BEGIN);
        queue.allowance.pass(TransferDirection::Out, 1_000_000, RATE, BEGIN);
        queue
    }

    fn enter(&mut self, name: u32) {
        let mut place = self.allowance.draw(TransferDirection::Out, self.grain, RATE, self.now);
        match self.allowance.wait(TransferDirection::Out, &mut place, self.now, false) {
            Some(wait) => self.waiters.push(Waiter { name, place, next: self.now + wait, looks: 0 }),
            None => self.pass(name),
        }
    }

    fn pass(&mut self, name: u32) {
        self.allowance.pass(TransferDirection::Out, self.grain, RATE, self.now);
        self.passed.push((self.now, name));
    }

    /// Removes the connections of this name.
    fn leave(&mut self, name: u32) {
        let before = self.waiters.len();
        self.waiters.retain(|waiter| waiter.name != name);
        (self.waiters.len()..before)
            .for_each(|_| self.allowance.give_back(TransferDirection::Out, self.grain, RATE));
    }

    /// Advances the time.
    fn run(&mut self, until: Duration) {
        while let Some(at) = (0..self.waiters.len()).min_by_key(|at| self.waiters[*at].next)
            && self.waiters[at].next <= until
        {
            self.now = self.waiters[at].next;
            let waiter = &mut self.waiters[at];
            waiter.looks += 1;
            match self.allowance.wait(TransferDirection::Out, &mut waiter.place, self.now, true) {
                Some(wait) => waiter.next = self.now + wait,
                None => {
                    let name = self.waiters.remove(at).name;
                    self.pass(name);
                }
            }
        }
        self.now = until;
    }

    /// Number of grains transferred since `from`.
    fn since(&self, from: Duration) -> usize {
        self.passed.iter().filter(|(at, _)| *at > from).count()
    }
}

/// Unless a connection leaves, each passes when it is due, in order of arrival.
#[test]
fn waiting_connections_pass_in_order() {
    let mut queue = Queue::new(GRAIN);
    (1..=100).for_each(|name| queue.enter(name));
    let looks = ms(5000).as_millis() / LOOK.as_millis();
    queue.run(BEGIN + ms(2500));
    assert!(queue.waiters.iter().all(|waiter| u128::from(waiter.looks) <= looks / 2));
    queue.run(BEGIN + ms(10_000));
    let due: Vec<_> = (1..=100).map(|name| (BEGIN + ms(50) * name, name)).collect();
    assert_eq!(queue.passed, due);
}

/// Distant connections poll rarely, because each poll wakes a task.
#[test]
fn a_long_queue_polls_rarely() {
    const FAST: NonZeroU64 = NonZeroU64::new(100_000_000).unwrap();
    let (allowance, grain, waiters) = (Allowance::default(), 64 << 10, 10_000);
    allowance.draw(TransferDirection::Out, 100_000_000, FAST, BEGIN);
    allowance.pass(TransferDirection::Out, 100_000_000, FAST, BEGIN);
    let looks: f64 = (0..waiters)
        .map(|_| {
            let mut place = allowance.draw(TransferDirection::Out, grain, FAST, BEGIN);
            let wait = allowance.wait(TransferDirection::Out, &mut place, BEGIN, false).unwrap();
            assert!(wait <= LONGEST_LOOK);
            if wait < LOOK { 0.0 } else { wait.as_secs_f64().recip() }
        })
        .sum();
    assert!((500.0..8000.0).contains(&looks), "{looks} looks a second");
}

/// The last connection of the queue does not wait for those that have left.
#[test]
fn the_last_connection_moves_up() {
    let mut queue = Queue::new(GRAIN);
    (0..60).for_each(|_| queue.enter(1));
    queue.enter(2);
    queue.run(BEGIN + ms(1));
    queue.leave(1);
    queue.run(BEGIN + ms(10_000));
    let [(passed, 2)] = queue.passed[..] else { panic!("{:?}", queue.passed) };
    assert!(passed <= BEGIN + ms(200), "{:?}", passed - BEGIN);
}

/// Connections in the middle of the queue take the time of those that have left, too.
#[test]
fn free_time_is_used() {
    let mut queue = Queue::new(GRAIN);
    for name in 1..=3 {
        (0..60).for_each(|_| queue.enter(name));
    }
    queue.run(BEGIN + ms(1));
    queue.leave(1);
    queue.run(BEGIN + ms(3200));
    let passed = queue.since(BEGIN);
    assert!((58..=64).contains(&passed), "{passed} in 3.2 s");
    queue.run(BEGIN + ms(60_000));
    assert_eq!(queue.since(BEGIN), 120);
    assert!(queue.passed.last().unwrap().0 <= BEGIN + ms(6300));
}

/// Repeated reserving and leaving never raises the total above the rate.
#[test]
fn repeated_leaving_does_not_raise_the_rate() {
    let mut queue = Queue::new(GRAIN);
    let mut leavers = 0;
    for step in 1..=5000 {
        // Connections that have passed come back.
        while queue.waiters.len() < 40 {
            queue.enter(1);
        }
        (0..20).for_each(|_| queue.enter(2));
        queue.run(BEGIN + ms(step));
        leavers += queue.waiters.iter().filter(|waiter| waiter.name == 2).count();
        queue.leave(2);
        // The burst has passed before.
        let most = usize::try_from(step / 50).unwrap() + 2;
        assert!(queue.since(BEGIN) <= most, "{} grains in {step} ms", queue.since(BEGIN));
    }
    assert!(leavers > 90_000 && queue.since(BEGIN) >= 95, "{} grains in 5 s", queue.since(BEGIN));
}

/// Later connections may overtake one whose predecessors left only until its next poll.
#[test]
fn later_connections_overtake_until_the_next_poll() {
    let mut queue = Queue::new(SMALL);
    (0..600).for_each(|_| queue.enter(1));
    queue.enter(2);
    queue.run(BEGIN + ms(1));
    queue.leave(1);
    for step in 1..3000 {
        while queue.waiters.len() < 20 {
            queue.enter(3);
        }
        queue.run(BEGIN + ms(step));
    }
    // It stands behind 600 and polls after a second. Earlier arrivals with earlier polls go first, each of
    // which takes 10 ms.
    let passed = queue.passed.iter().find(|(_, name)| *name == 2);
    assert!(passed.is_some_and(|(at, _)| *at <= BEGIN + ms(1500)), "{passed:?}");
}
