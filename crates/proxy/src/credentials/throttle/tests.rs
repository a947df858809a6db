use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::super::check_queue::{CheckQueue, HashJob};
use super::super::hash::PasswordHash;
use super::*;

const FREE: u32 = OF_NAMES.free;
const ANNA: u128 = 1;

fn address(number: u32) -> Option<IpAddr> {
    Some(IpAddr::V4(number.into()))
}

/// A client, and what it has guessed so far of the password of Anna.
struct Guessing(Option<IpAddr>, u128);

impl Guessing {
    fn guess(&mut self, throttle: &Arc<Throttle>, now: Instant) -> Result<(), ThrottleDenial> {
        self.guess_for(ANNA, throttle, now)
    }

    fn guess_for(
        &mut self,
        name: u128,
        throttle: &Arc<Throttle>,
        now: Instant,
    ) -> Result<(), ThrottleDenial> {
        self.1 += 1;
        throttle.begin(self.0, name, self.1, now).map(|attempt| attempt.was_wrong(now))
    }
}

#[test]
fn one_person_of_an_office_keeps_out_nobody_else() {
    let throttle = Arc::new(Throttle::default());
    let mut now = Instant::now();
    let mut office = Guessing(address(1), 0);
    let mut waits = 0;
    // All the time that wrong passwords are remembered, as fast as it goes.
    for _ in 0..FORGET.as_secs() {
        waits += u32::from(office.guess(&throttle, now).is_err());
        drop(throttle.begin(office.0, 2, 0, now).expect("another person is let in"));
        now += Duration::from_secs(1);
    }
    assert!(waits > 800, "{waits}");
    // Another one who mistypes has as many tries as anybody.
    for _ in 0..FREE {
        office.guess_for(2, &throttle, now).unwrap();
    }
    assert_eq!(office.guess_for(2, &throttle, now), Err(ThrottleDenial::Wait(FIRST)));
}

#[test]
fn an_address_that_tries_many_names_waits_for_all_of_them() {
    let throttle = Arc::new(Throttle::default());
    let mut now = Instant::now();
    let mut one = Guessing(address(1), 0);
    for name in 0..u128::from(OF_ADDRESSES.free) {
        one.guess_for(name, &throttle, now).unwrap();
    }
    for seconds in [1, 2, 4, 8] {
        let wait = Duration::from_secs(seconds);
        assert_eq!(one.guess_for(1000, &throttle, now), Err(ThrottleDenial::Wait(wait)));
        assert!(throttle.begin(address(2), 1000, 0, now).is_ok(), "other addresses do not wait");
        now += wait;
        one.guess_for(u128::from(seconds) + 2000, &throttle, now).unwrap();
    }
    // For hours: no more than what is forgiven, and never for good.
    let (begun, mut guesses) = (now, 0);
    while now - begun < FORGET * 8 {
        guesses += u32::from(one.guess_for(one.1, &throttle, now).is_ok());
        now += FIRST;
    }
    assert!((300..=410).contains(&guesses), "{guesses}");
    assert!(throttle.begin(one.0, 1, 0, now + LONGEST).is_ok());
}

#[test]
fn many_people_who_mistype_now_and_then_do_not_add_up() {
    let throttle = Arc::new(Throttle::default());
    let mut now = Instant::now();
    let mut office = Guessing(address(1), 0);
    for name in 0..2000 {
        office.guess_for(name, &throttle, now).unwrap();
        now += Duration::from_secs(19);
    }
}

#[test]
fn each_further_wrong_password_doubles_the_wait() {
    let throttle = Arc::new(Throttle::default());
    let mut now = Instant::now();
    let mut client = Guessing(address(1), 0);
    for _ in 0..FREE {
        client.guess(&throttle, now).unwrap();
    }
    for seconds in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
        let wait = Duration::from_secs(seconds);
        assert_eq!(client.guess(&throttle, now), Err(ThrottleDenial::Wait(wait)));
        assert!(throttle.begin(address(2), ANNA, 0, now).is_ok(), "others do not wait");
        now += wait;
        client.guess(&throttle, now).unwrap();
    }
    // A right one makes nothing of it forgotten, time does.
    now += LONGEST;
    drop(throttle.begin(client.0, ANNA, 0, now).unwrap());
    client.guess(&throttle, now).unwrap();
    assert!(throttle.begin(client.0, ANNA, 0, now).is_err());
    now += FORGET;
    assert!(throttle.begin(client.0, ANNA, client.1, now).is_ok());
    now += OF_NAMES_IN_NETWORKS.forget;
    assert!(throttle.begin(client.0, ANNA, client.1, now).is_ok());
    assert!(is_empty(&throttle));
}

#[test]
fn the_same_wrong_password_counts_once() {
    let throttle = Arc::new(Throttle::default());
    let now = Instant::now();
    let (mut one, mut other) = (Guessing(address(1), 0), Guessing(address(2), 0));
    for _ in 0..FREE - 1 {
        one.guess(&throttle, now).unwrap();
    }
    for _ in 0..1000 {
        assert_eq!(throttle.begin(one.0, ANNA, one.1, now).unwrap_err(), ThrottleDenial::WrongBefore);
    }
    one.guess(&throttle, now).unwrap();
    // Also while it waits; but only the last ones, and only those of this client.
    assert_eq!(throttle.begin(one.0, ANNA, one.1, now).unwrap_err(), ThrottleDenial::WrongBefore);
    assert_eq!(throttle.begin(one.0, ANNA, 1, now).unwrap_err(), ThrottleDenial::Wait(FIRST));
    other.guess(&throttle, now).unwrap();
}

#[test]
fn so_many_at_a_time() {
    let throttle = Arc::new(Throttle::default());
    let now = Instant::now();
    let begin = |name: u32, digest: u32| throttle.begin(None, name.into(), digest.into(), now);
    let mut held: Vec<_> = (0..OF_NAMES.at_a_time).map(|number| begin(0, number).unwrap()).collect();
    assert_eq!(begin(0, 100).unwrap_err(), ThrottleDenial::Wait(SOON));
    // Other names at the address are checked meanwhile, but not without end.
    let others = OF_NAMES.at_a_time..OF_ADDRESSES.at_a_time;
    held.extend(others.map(|number| begin(number, 0).unwrap()));
    assert_eq!(begin(1000, 0).unwrap_err(), ThrottleDenial::Wait(SOON));
    drop(held);
    assert!(begin(0, 0).is_ok());
    assert!(is_empty(&throttle));
}

#[test]
fn the_table_is_bounded() {
    let throttle = Arc::new(Throttle::default());
    let now = Instant::now();
    for number in 0..100_000 {
        // Each in a network of its own.
        throttle.begin(address(number << 8), number.into(), 0, now).unwrap().was_wrong(now);
    }
    // One that guesses again and again has its place once.
    let mut client = Guessing(address(7), 0);
    for turn in 0..10_000 {
        let _ = client.guess(&throttle, now + LONGEST * turn);
    }
    let tables = throttle.lock();
    fn assert_bounded<K: Copy + Eq + Hash>(table: &GuesserTable<K>) {
        let most = table.bounds.known;
        assert!(table.guessers.len() <= most && table.order.len() <= most);
    }
    assert_bounded(&tables.names);
    assert_bounded(&tables.addresses);
    assert_bounded(&tables.households);
    assert_bounded(&tables.sites);
    assert_bounded(&tables.everywhere);
    tables.names_in_networks.iter().for_each(assert_bounded);
}

/// A network that guesses with each of its addresses in turn, as fast as it may, for an hour.
#[test]
fn a_network_does_not_begin_anew_with_each_address() {
    let of_ipv6 = |number: u32| format!("2001:db8:7:{:x}::1", number % 0x1_0000);
    let of_ipv4 = |number: u32| format!("203.0.113.{}", number % 256);
    for address in [&of_ipv6 as &dyn Fn(u32) -> String, &of_ipv4] {
        let throttle = Arc::new(Throttle::default());
        let (begun, mut guesses) = (Instant::now(), 0);
        let mut now = begun;
        for number in 0..36_000 {
            let client = Some(address(number).parse().unwrap());
            let attempt = throttle.begin(client, number.into(), number.into(), now);
            guesses += u32::from(attempt.map(|attempt| attempt.was_wrong(now)).is_ok());
            now += Duration::from_millis(100);
        }
        // The free ones, and one in each four seconds.
        assert!((900..=1150).contains(&guesses), "{guesses}");
        // Others do not wait, and neither does who has been let in.
        for other in ["2001:db8:8::1", "203.0.114.1"] {
            assert!(throttle.begin(Some(other.parse().unwrap()), 1, 1, now).is_ok());
        }
    }
}

#[test]
fn a_name_that_is_guessed_from_everywhere_is_slowed_and_its_owner_is_not() {
    let throttle = Arc::new(Throttle::default());
    let mut now = Instant::now();
    let standing = |client: u32, now| throttle.begin(address(client), ANNA, 0, now).unwrap().standing;
    throttle.begin(address(7), ANNA, 0, now).unwrap().was_right(now);
    let pace = |seconds| Some(Duration::from_secs(seconds));
    let mut paces = Vec::new();
    for number in 1..=8 * OF_EVERYWHERE.free {
        // A network for each two guesses.
        let guess = throttle.begin(address((number / 2 + 256) << 8), ANNA, number.into(), now).unwrap();
        guess.was_wrong(now);
        paces.push(standing(1, now).pace);
    }
    let free = OF_EVERYWHERE.free as usize;
    assert!(paces[..free - 1].iter().all(Option::is_none));
    assert_eq!([0, 1, 2, 3, 7].map(|times| paces[free * (times + 1) - 1]), [1, 2, 4, 8, 8].map(pace));
    // By name, and in the order of what networks have guessed.
    let other = throttle.begin(address(1), 2, 0, now).unwrap();
    assert_eq!(other.standing, Standing::default());
    let total = u32::try_from(paces.len()).unwrap();
    assert_eq!(standing(1, now).guesses, Guesses::default());
    assert_eq!(standing((257 << 8) | 9, now).guesses, [total, 2, 0]);
    let owner = Standing { is_owner: true, pace: None, guesses: Guesses::default() };
    assert_eq!((standing(7, now), standing(8, now).is_owner), (owner, false));
    // Time forgives.
    now += OF_EVERYWHERE.forgive.unwrap() * 8 * OF_EVERYWHERE.free;
    assert_eq!(standing(1, now), Standing::default());
}

#[test]
fn who_has_logged_in_waits_for_nobody_elses_guesses() {
    let throttle = Arc::new(Throttle::default());
    let now = Instant::now();
    throttle.begin(address(1), ANNA, 0, now).unwrap().was_right(now);
    // Others at the address use up what it may guess.
    let mut others = Guessing(address(1), 0);
    let mut name = 10;
    while others.guess_for(name, &throttle, now).is_ok() {
        name += 1;
    }
    assert!(matches!(throttle.begin(address(1), 9, 0, now), Err(ThrottleDenial::Wait(_))));
    assert!(throttle.begin(address(1), ANNA, 0, now).is_ok());
    // Its own guesses count.
    for _ in 0..FREE {
        others.guess(&throttle, now).unwrap();
    }
    assert_eq!(others.guess(&throttle, now), Err(ThrottleDenial::Wait(FIRST)));
}

#[test]
fn a_crowd_makes_nobody_begin_anew() {
    let throttle = Arc::new(Throttle::default());
    let now = Instant::now();
    for number in 0..OF_ADDRESSES.free {
        let at = now + Duration::from_millis(number.into());
        throttle.begin(address(7), number.into(), 0, at).unwrap().was_wrong(at);
    }
    let known = u32::try_from(OF_ADDRESSES.known).unwrap();
    for number in 0..known {
        throttle.begin(address((number + 9) << 8), number.into(), 0, now).unwrap().was_wrong(now);
    }
    let wrong = |throttle: &Throttle| {
        let tables = throttle.lock();
        let guesser = tables.addresses.guessers.get(&address(7).unwrap());
        guesser.map(|guesser| guesser.wrong)
    };
    assert_eq!(wrong(&throttle), Some(OF_ADDRESSES.free / 2));
    // The next crowd finds nothing that would be worth a place.
    for number in 0..known {
        throttle.begin(address((number + 9_999) << 8), number.into(), 0, now).unwrap().was_wrong(now);
    }
    assert_eq!(wrong(&throttle), None);
}

fn is_empty(throttle: &Throttle) -> bool {
    let tables = throttle.lock();
    let by_network = tables.households.guessers.is_empty() && tables.sites.guessers.is_empty();
    let by_name = tables.everywhere.guessers.is_empty()
        && tables.names_in_networks.iter().all(|table| table.guessers.is_empty());
    tables.names.guessers.is_empty() && tables.addresses.guessers.is_empty() && by_network && by_name
}

/// Guesses of one name, each with its place in the queue.
struct Flood {
    throttle: Arc<Throttle>,
    queue: CheckQueue,
    now: Instant,
    under_way: Vec<(PasswordAttempt, oneshot::Receiver<bool>)>,
    sent: usize,
}

impl Flood {
    const HASH: &str = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    /// Gives whether the password waits to be checked.
    fn send(&mut self, from: &str) -> bool {
        self.sent += 1;
        let client = Some(from.parse().unwrap());
        let digest = self.sent as u128;
        let Ok(attempt) = self.throttle.begin(client, ANNA, digest, self.now) else { return false };
        let (done, outcome) = oneshot::channel();
        let hash = PasswordHash::parse(Self::HASH).unwrap();
        let (client, standing) = (ClientNetworkPath::of(client), attempt.standing);
        let password = Zeroizing::new(Vec::new());
        let is_taken =
            self.queue.push(HashJob { hash, password, done, client, name: ANNA, standing }, self.now).is_ok();
        self.under_way.push((attempt, outcome));
        is_taken
    }

    /// Checks what may be checked in a second in which many more come. Gives whether one was from `client`.
    fn second(&mut self, attackers: &[String], client: &str) -> bool {
        for _ in 0..12 {
            self.send(&attackers[self.sent % attackers.len()].clone());
        }
        let mut is_checked = false;
        while let Some(job) = self.queue.pop(self.now) {
            is_checked |= job.client == ClientNetworkPath::of(Some(client.parse().unwrap()));
            job.done.send(false).unwrap();
        }
        let now = self.now;
        self.under_way.retain_mut(|(attempt, outcome)| match outcome.try_recv() {
            Ok(_) => {
                attempt.was_wrong(now);
                false
            }
            Err(oneshot::error::TryRecvError::Empty) => true,
            Err(oneshot::error::TryRecvError::Closed) => false,
        });
        self.now += Duration::from_secs(1);
        is_checked
    }
}

/// However many of its addresses, and of the networks in it, have guessed nothing yet.
#[test]
fn a_network_that_guesses_a_name_keeps_out_nobody_else() {
    let of = |count: usize, name: &dyn Fn(usize) -> String| (0..count).map(name).collect::<Vec<_>>();
    for (minutes, attackers) in [
        (20, of(249, &|number| format!("127.9.{}.1", number + 1))),
        (20, of(249 * 200, &|number| format!("127.9.{}.{}", number % 249 + 1, number / 249 + 1))),
        (20, of(128, &|number| format!("2001:db8:{number:x}::1"))),
        (20, of(65_536, &|number| format!("2001:db8:{:x}:{:x}::1", number % 128, number / 128))),
        // Each of these has guessed once after a while.
        (60, of(300, &|number| format!("10{}.{}.0.1", number / 200, number % 200))),
        (60, of(300, &|number| format!("2001:{number:x}::1"))),
    ] {
        let mut flood = Flood {
            throttle: Arc::default(),
            queue: CheckQueue::default(),
            now: Instant::now(),
            under_way: Vec::new(),
            sent: 0,
        };
        for _ in 0..minutes * 60 {
            flood.second(&attackers, "198.51.100.7");
        }
        for newcomer in ["198.51.100.7", "2a00:1::1"] {
            assert!(flood.send(newcomer), "{newcomer} finds a place beside {}", attackers[0]);
            let waited = (0..17).find(|_| flood.second(&attackers, newcomer));
            assert!(waited.is_some(), "{newcomer} has its turn beside {}", attackers[0]);
        }
    }
}
