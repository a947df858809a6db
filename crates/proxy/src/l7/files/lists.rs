//! The lists of directories that a worker makes and remembers.
//!
//! A list costs tens of milliseconds of CPU time, for a request of a few bytes. So it is made once for all requests
//! that wait for it, by turns of their clients ([`FairPermits`]). It is given up when no request waits any more,
//! and it is remembered for [`FRESH`] as long as the directory is in the same state.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use offramp_net::clock::coarse_ms;
use offramp_net::file::{self, FileVersion, Wait};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_blocking, spawn_local};
use tokio::time::{sleep, timeout};

use super::listing::{ListingMemory, ListingRequest, ListingText};
use crate::fair_permits::FairPermits;
use crate::fair_queue::ClientNetworkPath;
use crate::snapshot::http::Files;

/// Time for which a list is remembered, in milliseconds.
const FRESH: u64 = 1000;
/// Number of lists that a worker makes at a time, and number that wait.
const MAKERS: usize = 2;
const WAITING: usize = 256;
/// Maximum wait for one of [`MAKERS`]. A list takes milliseconds: a request that waits for so long waits for
/// threads that hang.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of lists that a worker remembers; [`ListingMemory`] bounds their bytes.
const REMEMBERED: usize = 64;

/// All that a list depends on, beside the state of the directory.
#[derive(Clone)]
pub(super) struct ListKey {
    /// Of one route of one configuration: what else is served there, and what is hidden.
    pub(super) files: Arc<Files>,
    /// The path below the root.
    pub(super) name: String,
    pub(super) order: ListingRequest,
}

impl PartialEq for ListKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.files, &other.files) && self.name == other.name && self.order == other.order
    }
}

impl Eq for ListKey {}

impl Hash for ListKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (Arc::as_ptr(&self.files), &self.name, &self.order).hash(state);
    }
}

/// Result of a request for a list.
#[derive(Clone, Debug)]
pub(super) enum ListingOutcome {
    /// The list, as JSON or as a page.
    Page {
        body: Bytes,
        json: bool,
    },
    /// The process may not read the directory.
    Denied,
    /// There is no memory for it, or too many wait.
    Busy,
    Failed(Rc<str>),
}

/// The lists of a worker.
pub(super) struct DirectoryLists {
    known: RefCell<HashMap<ListKey, KnownList>>,
    makers: Rc<FairPermits>,
    /// The longest wait for one of them.
    patience: Duration,
    make: Maker,
    memory: ListingMemory,
}

/// Makes a list on a thread that may block, until the flag stops it.
type Maker = fn(&ListKey, &AtomicBool) -> io::Result<ListingText>;

enum KnownList {
    Made { stamp: FileVersion, since: u64, listed: ListingOutcome },
    UnderWay(Rc<Making>),
}

/// A list that is being made.
struct Making {
    stamp: FileVersion,
    outcome: RefCell<Option<ListingOutcome>>,
    over: Notify,
    /// Requests that wait for it.
    waiting: Cell<usize>,
    /// Set once no request waits any more.
    stop: Arc<AtomicBool>,
    /// The task that waits for a permit. None once it has one, which it must hold until its thread returns.
    task: RefCell<Option<AbortHandle>>,
}

impl Default for DirectoryLists {
    fn default() -> Self {
        let (known, memory) = Default::default();
        Self { known, makers: FairPermits::new(MAKERS, WAITING), patience: PATIENCE, make, memory }
    }
}

impl DirectoryLists {
    /// The list, where it is remembered of the directory in this state.
    pub(super) fn remembered(&self, key: &ListKey, stamp: FileVersion) -> Option<ListingOutcome> {
        match self.known.borrow().get(key)? {
            KnownList::Made { stamp: of, since, listed }
                if *of == stamp && coarse_ms().saturating_sub(*since) < FRESH =>
            {
                Some(listed.clone())
            }
            _ => None,
        }
    }

    /// Waits for the list of a directory that is in this state, beside others that do. The first one begins it.
    pub(super) fn wait(
        self: &Rc<Self>,
        key: ListKey,
        stamp: FileVersion,
        client: Option<IpAddr>,
    ) -> ListWaiter {
        let under_way = match self.known.borrow().get(&key) {
            Some(KnownList::UnderWay(making)) if making.stamp == stamp => Some(Rc::clone(making)),
            _ => None,
        };
        let making = under_way.unwrap_or_else(|| self.begin(&key, stamp, ClientNetworkPath::of(client)));
        making.waiting.set(making.waiting.get() + 1);
        ListWaiter { lists: Rc::clone(self), key, making }
    }

    fn begin(self: &Rc<Self>, key: &ListKey, stamp: FileVersion, client: ClientNetworkPath) -> Rc<Making> {
        let making = Rc::new(Making {
            stamp,
            outcome: RefCell::default(),
            over: Notify::new(),
            waiting: Cell::new(0),
            stop: Arc::default(),
            task: RefCell::default(),
        });
        self.known.borrow_mut().insert(key.clone(), KnownList::UnderWay(Rc::clone(&making)));
        let (this, key, of) = (Rc::clone(self), key.clone(), Rc::clone(&making));
        let task = spawn_local(async move {
            let Ok(Some(_permit)) = timeout(this.patience, this.makers.enter(client)).await else {
                return this.end(&key, &of, 0, ListingOutcome::Busy);
            };
            of.task.take();
            let (since, order, stop, make) = (coarse_ms(), key.clone(), Arc::clone(&of.stop), this.make);
            let page = spawn_blocking(move || make(&order, &stop)).await;
            let listed = match page.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(page) => this.hold(page),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => ListingOutcome::Denied,
                Err(error) => ListingOutcome::Failed(error.to_string().into()),
            };
            this.end(&key, &of, since, listed);
        });
        *making.task.borrow_mut() = Some(task.abort_handle());
        making
    }

    fn hold(&self, page: ListingText) -> ListingOutcome {
        let json = page.json;
        match self.memory.hold(page.text) {
            Ok(body) => ListingOutcome::Page { body, json },
            Err(text) => {
                // What is only remembered makes room.
                self.known.borrow_mut().retain(|_, known| matches!(known, KnownList::UnderWay(_)));
                self.memory
                    .hold(text)
                    .map_or(ListingOutcome::Busy, |body| ListingOutcome::Page { body, json })
            }
        }
    }

    fn end(self: &Rc<Self>, key: &ListKey, making: &Rc<Making>, since: u64, listed: ListingOutcome) {
        let mut known = self.known.borrow_mut();
        if known.get(key).is_some_and(|known| known.is(making)) {
            known.remove(key);
            let made = known.values().filter(|known| matches!(known, KnownList::Made { .. })).count();
            if matches!(listed, ListingOutcome::Page { .. }) && made < REMEMBERED {
                let (stamp, listed) = (making.stamp, listed.clone());
                known.insert(key.clone(), KnownList::Made { stamp, since, listed });
                spawn_local(Rc::clone(self).forget(key.clone(), since));
            }
        }
        drop(known);
        *making.outcome.borrow_mut() = Some(listed);
        making.over.notify_waiters();
    }

    /// Forgets a list in time.
    async fn forget(self: Rc<Self>, key: ListKey, made: u64) {
        sleep(Duration::from_millis(FRESH)).await;
        let mut known = self.known.borrow_mut();
        if matches!(known.get(&key), Some(KnownList::Made { since, .. }) if *since == made) {
            known.remove(&key);
        }
    }
}

impl KnownList {
    fn is(&self, making: &Rc<Making>) -> bool {
        matches!(self, Self::UnderWay(known) if Rc::ptr_eq(known, making))
    }
}

/// Makes a list, until `stop` is set.
fn make(key: &ListKey, stop: &AtomicBool) -> io::Result<ListingText> {
    let root = file::root(&key.files.root, Wait::Allowed)?;
    key.order.page(root.as_fd(), &key.name, &key.files, || stop.load(Ordering::Relaxed))
}

/// A request that waits for a list.
pub(super) struct ListWaiter {
    lists: Rc<DirectoryLists>,
    key: ListKey,
    making: Rc<Making>,
}

impl ListWaiter {
    pub(super) async fn outcome(&self) -> ListingOutcome {
        loop {
            let over = self.making.over.notified();
            if let Some(listed) = &*self.making.outcome.borrow() {
                return listed.clone();
            }
            over.await;
        }
    }
}

impl Drop for ListWaiter {
    fn drop(&mut self) {
        let left = self.making.waiting.get() - 1;
        self.making.waiting.set(left);
        if left > 0 || self.making.outcome.borrow().is_some() {
            return;
        }
        self.making.stop.store(true, Ordering::Relaxed);
        if let Some(task) = self.making.task.take() {
            task.abort();
        }
        let mut known = self.lists.known.borrow_mut();
        if known.get(&self.key).is_some_and(|known| known.is(&self.making)) {
            known.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Waker};

    use tokio::task::{LocalSet, yield_now};

    use super::*;
    use crate::snapshot::http::ClosedPaths;

    fn key(root: &Path, host: &str) -> ListKey {
        let files = Arc::new(Files {
            root: root.into(),
            closed: ClosedPaths::default(),
            strip: 0,
            index: Vec::new(),
            tries: Vec::new(),
            fallback: None,
            listing: true,
            precompressed: false,
            hidden: false,
            cache_control: Vec::new(),
        });
        let order = ListingRequest { host: host.into(), path: "/".to_owned(), json: true };
        ListKey { files, name: String::new(), order }
    }

    fn stamp(root: &Path) -> FileVersion {
        let root = file::root(root, Wait::Allowed).unwrap();
        file::open(&root, ".", Wait::Allowed).unwrap().stamp
    }

    fn text(listed: &ListingOutcome) -> &str {
        let ListingOutcome::Page { body, json: true } = listed else { panic!("{listed:?}") };
        std::str::from_utf8(body).unwrap()
    }

    fn count(lists: &DirectoryLists) -> usize {
        lists.known.borrow().len()
    }

    #[tokio::test]
    async fn a_list_is_made_once_for_all_who_wait_and_remembered_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "").unwrap();
        let work = async {
            let (lists, state) = (Rc::new(DirectoryLists::default()), stamp(folder.path()));
            let (of, other) = (key(folder.path(), "x"), key(folder.path(), "x"));
            let (one, two) = (lists.wait(of.clone(), state, None), lists.wait(of.clone(), state, None));
            assert!(Rc::ptr_eq(&one.making, &two.making));
            let (one, two) = (one.outcome().await, two.outcome().await);
            assert!(text(&one).contains("\"a\"") && text(&one).as_ptr() == text(&two).as_ptr());
            let again = lists.remembered(&of, state).unwrap();
            assert_eq!(text(&again).as_ptr(), text(&one).as_ptr());
            // Not for another state, host, form, path or route.
            let mut changed = state;
            changed.changed.1 += 1;
            assert!(lists.remembered(&of, changed).is_none());
            let order = |order| ListKey { order, ..of.clone() };
            for key in [
                order(ListingRequest { host: "y".into(), ..of.order.clone() }),
                order(ListingRequest { json: false, ..of.order.clone() }),
                order(ListingRequest { path: "/b/".to_owned(), ..of.order.clone() }),
                ListKey { name: "b/".to_owned(), ..of.clone() },
                other,
            ] {
                assert!(lists.remembered(&key, state).is_none());
            }
            while count(&lists) > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        LocalSet::new().run_until(work).await;
    }

    #[tokio::test]
    async fn a_list_for_which_nobody_waits_is_given_up_and_clients_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let work = async {
            let (lists, state) = (Rc::new(DirectoryLists::default()), stamp(folder.path()));
            let flooder = Some("203.0.113.7".parse().unwrap());
            // All makers are busy with something else.
            let nobody = ClientNetworkPath::default();
            let (first, second) = (lists.makers.enter(nobody).await, lists.makers.enter(nobody).await);
            let mut waiters = Vec::new();
            for number in 0..WAITING + 1 {
                let key = ListKey { name: format!("{number}/"), ..key(folder.path(), "x") };
                waiters.push(lists.wait(key, state, flooder));
                yield_now().await;
            }
            assert!(matches!(waiters[WAITING].outcome().await, ListingOutcome::Busy));
            // Somebody else takes a place, and is the next.
            let of = key(folder.path(), "x");
            let other = lists.wait(of.clone(), state, Some("198.51.100.7".parse().unwrap()));
            let mut outcome = Box::pin(other.outcome());
            assert!(outcome.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            yield_now().await;
            assert!(matches!(waiters[WAITING - 1].outcome().await, ListingOutcome::Busy));
            waiters.drain(1..);
            assert_eq!(count(&lists), 2);
            drop(first);
            assert!(
                matches!(waiters[0].outcome().await, ListingOutcome::Failed(_)),
                "there is no such directory"
            );
            drop(second);
            assert_eq!(text(&outcome.await), "{\"path\":\"/\",\"entries\":[\n],\"truncated\":false}\n");
            // What was made is handed out though its waiter comes late; what is stopped says so.
            let stopped = AtomicBool::new(true);
            assert!(make(&of, &stopped).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted));
        };
        LocalSet::new().run_until(work).await;
    }

    /// Hangs as on a mount whose server is gone, until the test lets go; the flag is not seen in the kernel.
    fn hang(key: &ListKey, _: &AtomicBool) -> io::Result<ListingText> {
        HANGING.fetch_add(1, Ordering::SeqCst);
        while !LET_GO.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        HANGING.fetch_sub(1, Ordering::SeqCst);
        make(key, &AtomicBool::new(false))
    }

    static HANGING: AtomicUsize = AtomicUsize::new(0);
    static LET_GO: AtomicBool = AtomicBool::new(false);

    async fn until(reached: impl Fn() -> bool) {
        while !reached() {
            sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn threads_that_hang_keep_their_permits_though_their_lists_are_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let work = async {
            let (lists, state) = (DirectoryLists { make: hang, ..Default::default() }, stamp(folder.path()));
            let (makers, patience) = (Rc::clone(&lists.makers), Duration::ZERO);
            let impatient = Rc::new(DirectoryLists { make: hang, makers, patience, ..Default::default() });
            let (lists, key) = (Rc::new(lists), key(folder.path(), "x"));
            let wait = |lists: &Rc<DirectoryLists>| lists.wait(key.clone(), state, None);
            for begun in 1..=MAKERS {
                let waiter = wait(&lists);
                until(|| HANGING.load(Ordering::SeqCst) == begun).await;
                drop(waiter);
                assert_eq!(count(&lists), 0, "given up");
            }
            // Without the permits of those that hang, each of these would hang one thread more.
            for _ in 0..50 {
                let waiter = wait(&lists);
                for _ in 0..20 {
                    yield_now().await;
                }
                drop(waiter);
            }
            assert!(matches!(wait(&impatient).outcome().await, ListingOutcome::Busy));
            assert_eq!(HANGING.load(Ordering::SeqCst), MAKERS);
            let next = wait(&lists);
            LET_GO.store(true, Ordering::SeqCst);
            assert!(text(&next.outcome().await).contains("entries"));
            until(|| HANGING.load(Ordering::SeqCst) == 0).await;
        };
        LocalSet::new().run_until(work).await;
    }
}
