//! Connection slots: the limits of open connections, and the choice of connections to close when one is reached.
//!
//! A semaphore bounds all connections, so that descriptors do not run out, and one owner has at most half of them. A new
//! connection that finds no slot takes that of the one that has waited for a request for the longest time: of its owner,
//! or of the owner with the most. So an operator gets in whoever fills the slots, unless operators with full access are
//! being answered on all of them.
//!
//! A request counts once all of it was received: half of one is a connection that waits, for as long as a head or a body
//! may take. From a client with full access it counts from its head on, so that its upload is not cut off. Few clients
//! without full access are answered at a time; one more takes the slot of the one that has been answered for the longest
//! time, which is one that does not read its answer.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::owner::ConnectionOwner;

/// The maximum number of connections: a few Grafana servers and browsers, which keep several each. One of them is the
/// newest, which looks for a slot.
pub(crate) const PLACES: usize = 128;
/// The maximum per user or address: the changes that may wait, the event streams, and some more.
pub(crate) const OF_ONE: usize = PLACES / 2;
/// The maximum per user or address that is being answered without full access: the panels of some dashboards at once. The rest
/// of its slots is for connections whose request, with the token, is on its way.
const WITHOUT_ACCESS: usize = OF_ONE * 3 / 4;

/// All slots. Clones share them.
#[derive(Clone)]
pub(crate) struct ConnectionSlots(Arc<SlotsState>);

struct SlotsState {
    table: Mutex<SlotTable>,
    /// A permit for each open connection, until it has ended.
    open: Arc<Semaphore>,
}

#[derive(Default)]
struct SlotTable {
    /// The number of the last connection.
    last: u64,
    taken: HashMap<u64, SlotState>,
}

struct SlotState {
    owner: ConnectionOwner,
    activity: SlotActivity,
    /// The time of the last change of `activity`.
    since: Instant,
    /// Set once the client has shown full access.
    admitted: bool,
    leaves: Arc<Notify>,
}

/// The use of a connection, in the order in which connections are closed for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SlotActivity {
    /// Without a whole request.
    Waits,
    /// Being answered, without full access.
    Answered,
    /// Being answered or heard, with full access: it is not closed for another.
    Served,
}

/// The permit of a connection that is about to be accepted.
pub(crate) struct SlotPermit {
    _permit: OwnedSemaphorePermit,
}

/// The slot of a connection.
pub(crate) struct ConnectionSlot {
    places: ConnectionSlots,
    number: u64,
    leaves: Arc<Notify>,
    _permit: SlotPermit,
}

/// The outcome of a request for a slot.
pub(crate) struct SlotOutcome {
    /// The slot; `None` if the connection is refused.
    pub(crate) place: Option<ConnectionSlot>,
    /// The owner of a connection closed for the new one, or the owner with too many, and its number of
    /// connections.
    pub(crate) short: Option<(ConnectionOwner, usize)>,
}

impl Default for ConnectionSlots {
    fn default() -> Self {
        let open = Arc::new(Semaphore::new(PLACES));
        Self(Arc::new(SlotsState { table: Mutex::default(), open }))
    }
}

impl ConnectionSlots {
    /// Waits until another connection may be open: those that must close have descriptors until they have ended.
    pub(crate) async fn permit(&self) -> SlotPermit {
        match Arc::clone(&self.0.open).acquire_owned().await {
            Ok(permit) => SlotPermit { _permit: permit },
            // It is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Takes a slot for a connection of this owner.
    pub(crate) fn take(&self, permit: SlotPermit, owner: ConnectionOwner) -> SlotOutcome {
        self.take_at(permit, owner, Instant::now())
    }

    fn take_at(&self, permit: SlotPermit, owner: ConnectionOwner, now: Instant) -> SlotOutcome {
        let mut table = self.table();
        let own = table.count(owner);
        let short = if own >= OF_ONE {
            Some(table.first_to_close(Some(owner)))
        } else {
            (table.taken.len() >= PLACES - 1).then(|| table.first_to_close(None))
        };
        let short = match short {
            None => None,
            Some(None) => return SlotOutcome { place: None, short: Some((owner, own)) },
            Some(Some((number, of))) => {
                let count = table.count(of);
                table.close(number);
                Some((of, count))
            }
        };
        table.last += 1;
        let (number, leaves) = (table.last, Arc::new(Notify::new()));
        let activity = SlotActivity::Waits;
        let taken = SlotState { owner, activity, since: now, admitted: false, leaves: Arc::clone(&leaves) };
        table.taken.insert(number, taken);
        SlotOutcome {
            place: Some(ConnectionSlot { places: self.clone(), number, leaves, _permit: permit }),
            short,
        }
    }

    /// Waits until no connection is left.
    pub(crate) async fn emptied(&self) {
        // An error would mean the same.
        let _ = self.0.open.acquire_many(PLACES as u32).await;
    }

    /// The number of connections that had a slot so far.
    #[cfg(test)]
    pub(crate) fn accepted(&self) -> u64 {
        self.table().last
    }

    fn table(&self) -> MutexGuard<'_, SlotTable> {
        // No code panics while it holds this lock.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    fn count(&self, owner: ConnectionOwner) -> usize {
        self.taken.values().filter(|taken| taken.owner == owner).count()
    }

    /// The connection to close for another, with its owner: of this owner, or of the one with the most. Those that wait go
    /// first, the oldest of them before the others; those that are served never do.
    fn first_to_close(&self, owner: Option<ConnectionOwner>) -> Option<(u64, ConnectionOwner)> {
        let mut counts: HashMap<ConnectionOwner, usize> = HashMap::new();
        for taken in self.taken.values() {
            *counts.entry(taken.owner).or_default() += 1;
        }
        let is_meant = |one: &SlotState| owner.is_none_or(|owner| one.owner == owner);
        let all = self.taken.iter().filter(|(_, one)| is_meant(one) && one.activity != SlotActivity::Served);
        let first = all.min_by_key(|(number, one)| {
            (one.activity, Reverse(counts.get(&one.owner).copied()), one.since, **number)
        });
        first.map(|(number, one)| (*number, one.owner))
    }

    fn close(&mut self, number: u64) {
        if let Some(taken) = self.taken.remove(&number) {
            taken.leaves.notify_one();
        }
    }

    fn set(&mut self, number: u64, activity: SlotActivity, now: Instant) {
        let Some(taken) = self.taken.get_mut(&number).filter(|taken| taken.activity != activity) else {
            return;
        };
        (taken.activity, taken.since) = (activity, now);
        let owner = taken.owner;
        let answered = || {
            self.taken.iter().filter(|(_, one)| one.owner == owner && one.activity == SlotActivity::Answered)
        };
        if answered().count() > WITHOUT_ACCESS
            && let Some(oldest) =
                answered().min_by_key(|(number, one)| (one.since, **number)).map(|(number, _)| *number)
        {
            self.close(oldest);
        }
    }
}

impl ConnectionSlot {
    /// Records that the client has full access.
    pub(crate) fn admitted(&self) {
        if let Some(taken) = self.places.table().taken.get_mut(&self.number) {
            taken.admitted = true;
        }
    }

    fn busy(&self, busy: bool) {
        self.busy_at(busy, Instant::now());
    }

    fn busy_at(&self, busy: bool, now: Instant) {
        let mut table = self.places.table();
        let admitted = table.taken.get(&self.number).is_some_and(|taken| taken.admitted);
        let activity = match (busy, admitted) {
            (false, _) => SlotActivity::Waits,
            (true, false) => SlotActivity::Answered,
            (true, true) => SlotActivity::Served,
        };
        table.set(self.number, activity, now);
    }

    /// Waits until the connection must close.
    pub(crate) async fn taken_away(&self) {
        self.leaves.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.table().taken.remove(&self.number);
    }
}

/// A request and its answer on a connection with a slot. After its drop, the connection waits for the next
/// one.
pub(crate) struct ActiveRequest(Arc<ConnectionSlot>);

impl ActiveRequest {
    /// Starts with the head of a request.
    pub(crate) fn new(place: &Arc<ConnectionSlot>) -> Self {
        Self(Arc::clone(place))
    }

    /// Records, from the head of its request, that the client has full access.
    pub(crate) fn admitted(&self) {
        self.0.admitted();
        self.0.busy(true);
    }

    /// Records that the request is complete and being answered.
    pub(crate) fn complete(&self) {
        self.0.busy(true);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.busy(false);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    const ROOT: ConnectionOwner = ConnectionOwner::User(Some(0));

    fn address(last: u8) -> ConnectionOwner {
        ConnectionOwner::of(IpAddr::from([192, 0, 2, last]))
    }

    /// Returns `true` if the connection must close.
    async fn goes(place: &ConnectionSlot) -> bool {
        tokio::time::timeout(Duration::ZERO, place.taken_away()).await.is_ok()
    }

    impl ConnectionSlots {
        async fn ask(&self, owner: ConnectionOwner, now: Instant) -> SlotOutcome {
            self.take_at(self.permit().await, owner, now)
        }

        /// A slot taken at this moment.
        async fn one(&self, owner: ConnectionOwner, now: Instant) -> Arc<ConnectionSlot> {
            Arc::new(self.ask(owner, now).await.place.unwrap())
        }

        async fn several(
            &self,
            count: usize,
            owner: ConnectionOwner,
            now: Instant,
        ) -> Vec<Arc<ConnectionSlot>> {
            let mut several = Vec::new();
            for _ in 0..count {
                several.push(self.one(owner, now).await);
            }
            several
        }
    }

    /// Starts an answer to a client with full access.
    fn answer(place: &Arc<ConnectionSlot>) -> ActiveRequest {
        let exchange = ActiveRequest::new(place);
        exchange.admitted();
        exchange.complete();
        exchange
    }

    #[tokio::test]
    async fn one_has_half_and_makes_room_for_itself() {
        let (places, now) = (ConnectionSlots::default(), Instant::now());
        let mut own = places.several(OF_ONE, ROOT, now).await;
        // The first is being answered, so the second has waited longest.
        let mut answers = vec![answer(&own[0])];
        let outcome = places.ask(ROOT, now).await;
        assert_eq!(outcome.short, Some((ROOT, OF_ONE)));
        assert!(!goes(&own[0]).await && goes(&own[1]).await && !goes(&own[2]).await);
        own.push(Arc::new(outcome.place.unwrap()));
        // Other owners have free slots.
        assert!(places.ask(address(1), now).await.short.is_none());
        answers.extend(own.iter().map(answer));
        let refused = places.ask(ROOT, now).await;
        assert!(refused.place.is_none() && refused.short == Some((ROOT, OF_ONE)));
    }

    #[tokio::test]
    async fn the_owner_with_the_most_makes_room_where_there_is_none() {
        let (places, now) = (ConnectionSlots::default(), Instant::now());
        let few = places.several(10, address(1), now).await;
        let mut half = places.several(OF_ONE, address(2), now).await;
        let rest = places.several(PLACES - 1 - OF_ONE - 10, address(3), now).await;
        let outcome = places.ask(ROOT, now).await;
        assert_eq!(outcome.short, Some((address(2), OF_ONE)));
        let root = Arc::new(outcome.place.unwrap());
        assert!(goes(&half[0]).await && !goes(&few[0]).await);
        drop(half.remove(0));
        let mut answers: Vec<_> = half.iter().chain(&rest).chain(&few).map(answer).collect();
        drop(answers.remove(half.len() + rest.len() + 3));
        answers.push(answer(&root));
        let more = places.one(ROOT, now + Duration::from_secs(30)).await;
        assert!(goes(&few[3]).await, "an owner with less makes room if no other can");
        answers.push(answer(&more));
    }

    #[tokio::test]
    async fn an_operator_gets_in_whatever_clients_of_its_address_do() {
        let (places, now) = (ConnectionSlots::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        // All slots of the address: most are answered and do not read, some have sent a part of a request.
        let all = places.several(OF_ONE, ROOT, now).await;
        let many = OF_ONE - 4;
        let halves: Vec<_> = all[many..].iter().map(ActiveRequest::new).collect();
        let answers: Vec<_> = all[..many].iter().map(ActiveRequest::new).collect();
        for (second, answer) in (1..).zip(&answers) {
            answer.0.busy_at(true, at(second));
        }
        let closed = many - WITHOUT_ACCESS;
        assert!(goes(&all[0]).await && goes(&all[closed - 1]).await && !goes(&all[closed]).await);
        // The operator comes, and then as many as have waited before it and more.
        let operator = places.one(ROOT, at(60)).await;
        let mut crowd = places.several(OF_ONE - WITHOUT_ACCESS - 1, ROOT, at(61)).await;
        assert!(!goes(&operator).await, "those that came before it go first");
        let served = answer(&operator);
        crowd.extend(places.several(PLACES - 1 - crowd.len() - OF_ONE, ROOT, at(62)).await);
        assert!(!goes(&operator).await, "it is served");
        drop((halves, served, crowd));
    }

    #[tokio::test]
    async fn an_upload_of_a_client_with_the_token_is_not_cut_off() {
        let (places, now) = (ConnectionSlots::default(), Instant::now());
        let slow = places.one(ROOT, now).await;
        let upload = ActiveRequest::new(&slow);
        upload.admitted();
        let mut strangers = Vec::new();
        for _ in 0..2 * OF_ONE {
            strangers.push(places.one(ROOT, now).await);
            if strangers.len() == OF_ONE {
                strangers.remove(0);
            }
        }
        assert!(!goes(&slow).await, "its body is on the way");
        drop(upload);
    }

    #[tokio::test]
    async fn a_connection_that_had_to_go_counts_until_it_has_ended() {
        let (places, now) = (ConnectionSlots::default(), Instant::now());
        let mut kept = places.several(OF_ONE, ROOT, now).await;
        kept.extend(places.several(PLACES - OF_ONE, ROOT, now).await);
        let free = async || tokio::time::timeout(Duration::ZERO, places.permit()).await.is_ok();
        assert!(goes(&kept[0]).await && !free().await);
        drop(kept.remove(0));
        assert!(free().await);
        drop(kept);
        places.emptied().await;
        assert!(places.table().taken.is_empty());
    }
}
