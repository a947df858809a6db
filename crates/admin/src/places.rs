//! The places of connections: how many are open at once, and who makes room when there is none.
//!
//! One user of this machine, or one address, has at most half of them: whoever fills these must not keep others out. Where
//! there is no room, a connection is closed for the new one (`Rank`): first one that waits for a request, and then one that
//! has not shown that it may use everything, even while it is being answered. So whoever has no token keeps nobody out who
//! has one. The new connection is refused only if all others have shown it and are being answered.
//!
//! A request counts from the moment when all of it has come: half of one is a connection that waits. From a client that has
//! shown that it may use everything it counts from its head on, so that nobody cuts off its upload.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use offramp_net::process::Identity;
use tokio::sync::Notify;

/// Connections at once: a few Grafana servers and browsers, which keep several each.
pub(crate) const PLACES: usize = 128;
/// Of one user or address: as many changes as may wait, as many as may watch, and some more.
pub(crate) const OF_ONE: usize = PLACES / 2;
/// How long a connection that waits for a request is spared if others can make room: a client that means to ask does so
/// at once, and has a chance to show its token.
const FRESH: Duration = Duration::from_secs(1);

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A user of this machine, over a Unix socket; `None` where the kernel does not tell.
    User(Option<u32>),
    /// An address; of IPv6 the network of 64 bits, as one client has all of it.
    Address(IpAddr),
}

impl Owner {
    /// The owner of connections from this address.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
            }
            other => other,
        })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(None) => f.write_str("an unknown user"),
            Self::User(Some(user)) => {
                // The group does not matter to the name.
                let name = Identity::of_numbers(*user, *user).name();
                if name == user.to_string() {
                    write!(f, "uid {user}")
                } else {
                    write!(f, "{name} (uid {user})")
                }
            }
            Self::Address(IpAddr::V6(address)) if !address.is_loopback() => write!(f, "{address}/64"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// All places. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// Woken when a connection that had to go has ended, and when the last one has.
    ended: Notify,
}

#[derive(Default)]
struct Table {
    /// The number of the last connection.
    last: u64,
    taken: HashMap<u64, Taken>,
    /// Connections that had to make room, and have not ended yet.
    leaving: usize,
}

struct Taken {
    owner: Owner,
    /// Whether a request is being answered; otherwise it waits for one.
    busy: bool,
    /// Since when.
    since: Instant,
    /// Whether it has shown that it may use everything.
    admitted: bool,
    leaves: Arc<Notify>,
}

/// Who makes room, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It waits for a request, the one that has waited for longest first.
    Idle,
    /// The same of one that has shown that it may use everything.
    AdmittedIdle,
    /// It is being answered and has not shown that, the latest first: those before it are closer to their answers.
    Answered,
    /// It has waited for less than [`FRESH`], the longest first.
    Fresh,
}

impl Taken {
    /// `None`: it makes no room.
    fn rank(&self, now: Instant) -> Option<Rank> {
        match (self.busy, self.admitted) {
            (true, true) => None,
            (true, false) => Some(Rank::Answered),
            (false, _) if now.saturating_duration_since(self.since) < FRESH => Some(Rank::Fresh),
            (false, false) => Some(Rank::Idle),
            (false, true) => Some(Rank::AdmittedIdle),
        }
    }
}

/// A place for a connection.
pub(crate) struct Place {
    places: Places,
    number: u64,
    leaves: Arc<Notify>,
}

/// What came of asking for a place.
pub(crate) struct Outcome {
    /// It; `None`: the connection is refused.
    pub(crate) place: Option<Place>,
    /// Whose connection made room for it, or whose were too many, and how many that one had.
    pub(crate) short: Option<(Owner, usize)>,
}

impl Places {
    /// A place for a connection of this owner.
    pub(crate) fn take(&self, owner: Owner) -> Outcome {
        self.take_at(owner, Instant::now())
    }

    fn take_at(&self, owner: Owner, now: Instant) -> Outcome {
        let mut table = self.table();
        let own = table.count(owner);
        let short = if own >= OF_ONE {
            Some((owner, own, table.first_to_go(Some(owner), now)))
        } else if table.taken.len() >= PLACES {
            let found = table.first_to_go(None, now);
            let of = found.and_then(|number| table.taken.get(&number)).map_or(owner, |taken| taken.owner);
            Some((of, table.count(of), found))
        } else {
            None
        };
        let told = short.map(|(of, count, _)| (of, count));
        match short {
            Some((.., None)) => return Outcome { place: None, short: told },
            Some((.., Some(number))) => {
                if let Some(taken) = table.taken.remove(&number) {
                    table.leaving += 1;
                    taken.leaves.notify_one();
                }
            }
            None => {}
        }
        table.last += 1;
        let (number, leaves) = (table.last, Arc::new(Notify::new()));
        let taken = Taken { owner, busy: false, since: now, admitted: false, leaves: Arc::clone(&leaves) };
        table.taken.insert(number, taken);
        Outcome { place: Some(Place { places: self.clone(), number, leaves }), short: told }
    }

    /// Waits until those that had to make room have ended: until then their descriptors are open.
    pub(crate) async fn left(&self) {
        while self.table().leaving > 0 {
            self.0.ended.notified().await;
        }
    }

    /// Waits until no connection is left.
    pub(crate) async fn emptied(&self) {
        while !self.table().is_empty() {
            self.0.ended.notified().await;
        }
    }

    /// How many connections had a place so far.
    #[cfg(test)]
    pub(crate) fn accepted(&self) -> u64 {
        self.table().last
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics with the lock held.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn count(&self, owner: Owner) -> usize {
        self.taken.values().filter(|taken| taken.owner == owner).count()
    }

    fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.leaving == 0
    }

    /// The connection that makes room: of this owner, or of the one who has the most among those with one of the first
    /// rank that there is.
    fn first_to_go(&self, owner: Option<Owner>, now: Instant) -> Option<u64> {
        let mut counts: HashMap<Owner, usize> = HashMap::new();
        for taken in self.taken.values() {
            *counts.entry(taken.owner).or_default() += 1;
        }
        let own = self.taken.iter().filter(|(_, taken)| owner.is_none_or(|owner| taken.owner == owner));
        let ranked = own.filter_map(|(number, taken)| Some((*number, taken, taken.rank(now)?)));
        let first = ranked.min_by_key(|(number, taken, rank)| {
            let age = now.saturating_duration_since(taken.since);
            let (longest, latest) = match rank {
                Rank::Answered => (None, Some((age, Reverse(*number)))),
                _ => (Some((Reverse(age), *number)), None),
            };
            (*rank, Reverse(counts.get(&taken.owner).copied()), longest, latest)
        });
        first.map(|(number, ..)| number)
    }
}

impl Place {
    /// It has shown that it may use everything.
    pub(crate) fn admitted(&self) {
        if let Some(taken) = self.places.table().taken.get_mut(&self.number) {
            taken.admitted = true;
        }
    }

    fn busy(&self, busy: bool) {
        if let Some(taken) = self.places.table().taken.get_mut(&self.number)
            && taken.busy != busy
        {
            (taken.busy, taken.since) = (busy, Instant::now());
        }
    }

    /// Waits until it has to make room.
    pub(crate) async fn taken_away(&self) {
        self.leaves.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table();
        let had_to_go = table.taken.remove(&self.number).is_none();
        table.leaving -= usize::from(had_to_go);
        if had_to_go || table.is_empty() {
            self.places.0.ended.notify_one();
        }
    }
}

/// A request and its answer, on a connection that has a place. When it is dropped, the connection waits for the next one.
pub(crate) struct Exchange(Arc<Place>);

impl Exchange {
    /// Begins with the head of the request.
    pub(crate) fn new(place: &Arc<Place>) -> Self {
        Self(Arc::clone(place))
    }

    /// The client has shown that it may use everything, by the head of its request.
    pub(crate) fn admitted(&self) {
        self.0.admitted();
        self.0.busy(true);
    }

    /// All of the request has come, and is being answered.
    pub(crate) fn complete(&self) {
        self.0.busy(true);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.busy(false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ROOT: Owner = Owner::User(Some(0));

    fn address(last: u8) -> Owner {
        Owner::of(IpAddr::from([192, 0, 2, last]))
    }

    /// Whether it has to make room.
    async fn goes(place: &Place) -> bool {
        tokio::time::timeout(Duration::ZERO, place.taken_away()).await.is_ok()
    }

    /// A place that was taken at this moment.
    fn take(places: &Places, owner: Owner, now: Instant) -> Arc<Place> {
        Arc::new(places.take_at(owner, now).place.unwrap())
    }

    /// One is being answered that has shown that it may use everything.
    fn answer(place: &Arc<Place>) -> Exchange {
        let exchange = Exchange::new(place);
        exchange.admitted();
        exchange.complete();
        exchange
    }

    #[tokio::test]
    async fn one_has_half_and_makes_room_for_itself() {
        let (places, now) = (Places::default(), Instant::now());
        let mut own: Vec<Arc<Place>> = (0..OF_ONE).map(|_| take(&places, ROOT, now)).collect();
        // The first is being answered, so that the second has waited for longest.
        let mut answers = vec![answer(&own[0])];
        let outcome = places.take_at(ROOT, now);
        assert_eq!(outcome.short, Some((ROOT, OF_ONE)));
        assert!(!goes(&own[0]).await && goes(&own[1]).await && !goes(&own[2]).await);
        own.push(Arc::new(outcome.place.unwrap()));
        // Others have room.
        assert!(places.take_at(address(1), now).short.is_none());
        answers.extend(own.iter().map(answer));
        let refused = places.take_at(ROOT, now);
        assert!(refused.place.is_none() && refused.short == Some((ROOT, OF_ONE)));
    }

    #[tokio::test]
    async fn where_there_is_no_room_whoever_has_the_most_makes_it() {
        let (places, now) = (Places::default(), Instant::now());
        let few: Vec<_> = (0..10).map(|_| take(&places, address(1), now)).collect();
        let half: Vec<_> = (0..OF_ONE).map(|_| take(&places, address(2), now)).collect();
        let rest: Vec<_> = (0..PLACES - OF_ONE - 10).map(|_| take(&places, address(3), now)).collect();
        let outcome = places.take_at(ROOT, now);
        assert_eq!(outcome.short, Some((address(2), OF_ONE)));
        let root = Arc::new(outcome.place.unwrap());
        assert!(goes(&half[0]).await && !goes(&few[0]).await);
        let mut answers: Vec<_> = half.iter().chain(&rest).chain(&few).map(answer).collect();
        drop(answers.remove(half.len() + rest.len() + 3));
        let later = now + Duration::from_secs(30);
        answers.push(answer(&root));
        let more = take(&places, ROOT, later);
        assert!(goes(&few[3]).await, "whoever has less makes room if nobody else can");
        answers.push(answer(&more));
        assert!(places.take_at(ROOT, later).place.is_none());
        drop((answers, few, half, rest, root, more));
        places.emptied().await;
        assert!(places.table().is_empty());
    }

    #[tokio::test]
    async fn whoever_has_shown_no_token_makes_room_even_while_it_is_answered() {
        let (places, now) = (Places::default(), Instant::now());
        let own: Vec<_> = (0..OF_ONE).map(|_| take(&places, ROOT, now)).collect();
        // All are being answered: two by right, and the third was the last to begin.
        let by_right = [answer(&own[0]), answer(&own[1])];
        let others: Vec<_> = own[3..].iter().chain([&own[2]]).map(Exchange::new).collect();
        others.iter().for_each(Exchange::complete);
        let later = now + Duration::from_secs(30);
        let new = take(&places, ROOT, later);
        assert!(goes(&own[2]).await);
        // The new one has a moment to show its token.
        let next = take(&places, ROOT, later);
        assert!(goes(&own[OF_ONE - 1]).await && !goes(&new).await && !goes(&next).await);
        // One whose request has come in part waits, and goes first; then one that waits by right.
        drop(others);
        let slow = Exchange::new(&own[5]);
        drop(by_right);
        let much_later = later + Duration::from_secs(30);
        places.table().taken.get_mut(&own[5].number).unwrap().since = now;
        let third = take(&places, ROOT, much_later);
        assert!(goes(&own[5]).await && !goes(&own[0]).await);
        drop((slow, third));
    }

    #[tokio::test]
    async fn strangers_do_not_cut_off_an_upload_of_who_has_the_token() {
        let (places, now) = (Places::default(), Instant::now());
        let slow = take(&places, ROOT, now);
        let upload = Exchange::new(&slow);
        upload.admitted();
        let later = now + Duration::from_secs(30);
        let strangers: Vec<_> = (0..2 * OF_ONE).map(|_| take(&places, ROOT, later)).collect();
        assert!(!goes(&slow).await, "its body is on the way");
        drop(upload);
        let _one_more = take(&places, ROOT, later + FRESH);
        assert!(goes(&strangers[OF_ONE + 1]).await && !goes(&slow).await, "strangers that wait go before it");
    }

    #[tokio::test]
    async fn a_connection_that_had_to_go_counts_until_it_has_ended() {
        let (places, now) = (Places::default(), Instant::now());
        let mut own: Vec<_> = (0..OF_ONE).map(|_| take(&places, ROOT, now)).collect();
        places.left().await;
        let new = take(&places, ROOT, now);
        let left = async || tokio::time::timeout(Duration::ZERO, places.left()).await.is_ok();
        assert!(!left().await);
        drop(own.remove(0));
        assert!(left().await);
        drop(new);
    }

    #[test]
    fn an_owner_is_a_user_an_address_or_a_network_of_ipv6() {
        let of = |text: &str| Owner::of(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!((of("::ffff:192.0.2.1"), of("::1")), ("192.0.2.1".to_owned(), "::1".to_owned()));
        assert_eq!(ROOT.to_string(), "root (uid 0)");
        assert_eq!(Owner::User(Some(4_000_000_001)).to_string(), "uid 4000000001");
    }
}
