//! The listening sockets: opening them, telling workers, and saying why one cannot be opened.

mod reserve;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use offramp_config::At;
use offramp_config::model::{ListenAddress, ListenerConfig};
use offramp_net::{Address, listen, port_holder};
use offramp_observe::Log;
use offramp_process::Finding;
use offramp_process::inherited::WantedSocket;
use offramp_process::inherited::{Label, Purpose, Set, Unwanted};
use offramp_proxy::{AcceptorId, Snapshot, WorkerCommand, WorkerHandle};

use crate::socket_plan::{HeldSocket, SocketPlan, plan};

use reserve::Reserved;

/// The sockets that are open.
#[derive(Debug)]
pub(crate) struct Listening {
    open: Vec<Open>,
    /// Those that an unconfirmed change has given up.
    reserved: Vec<Arc<Reserved>>,
    /// The number of workers, each of which accepts on a socket of its own.
    pub(crate) workers: usize,
    pub(crate) log: Log,
}

/// One open address. Workers have its sockets. They are kept here too, for a process that takes the place of this one:
/// that of a worker that ended stays open until the drain, which its end begins.
#[derive(Debug)]
struct Open {
    /// One, or more where there are more sockets than workers.
    ids: Vec<AcceptorId>,
    kept: Vec<OwnedFd>,
    /// Set if the service manager keeps them too.
    foreign: bool,
    held: HeldSocket,
    bound: Address,
}

/// A socket for each worker at least, not yet with them.
#[derive(Debug)]
pub(crate) struct Fresh {
    wanted: WantedSocket,
    bound: Address,
    /// Its name towards workers; several where a worker gets more than one socket of the address.
    ids: Vec<AcceptorId>,
    fds: Vec<OwnedFd>,
    /// The same sockets, each once.
    kept: Vec<OwnedFd>,
    /// Set if another process opened them: the service manager, which keeps them, or the one before.
    adopted: bool,
    foreign: bool,
    /// The sockets that were kept for the way back.
    reserved: Option<Arc<Reserved>>,
    /// Set if they do not listen yet.
    waits: bool,
}

/// The sockets of listeners, and their positions in the configuration.
pub(crate) fn wanted(listeners: &[ListenerConfig]) -> (Vec<WantedSocket>, Vec<At>) {
    let sockets = listeners.iter().flat_map(|listener| {
        let name: Arc<str> = listener.name.as_str().into();
        listener.addresses.iter().map(move |address| {
            (WantedSocket { listener: Arc::clone(&name), address: net_address(address) }, listener.at.clone())
        })
    });
    sockets.unzip()
}

/// The address in the words of `net`.
pub(crate) fn net_address(address: &ListenAddress) -> Address {
    match address {
        ListenAddress::Ip(address) => Address::Tcp(*address),
        ListenAddress::Unix(path) => Address::Unix(path.clone()),
    }
}

/// The origin of an address's sockets.
#[derive(Debug)]
pub(crate) enum Opening {
    /// Another process has opened them.
    Inherited(Set),
    /// They are opened, if no other process listens there.
    Alone,
    /// They were kept while a change waited to be confirmed.
    Reserved(Arc<Reserved>),
    /// They are opened beside sockets of this process, or of the one before, that take some of the same connections until
    /// they are closed. They listen when they [begin](Fresh::begin).
    BesideOwn,
}

/// A name that no socket of the process has had.
fn next_id() -> AcceptorId {
    static LAST: AtomicU32 = AtomicU32::new(0);
    AcceptorId(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Opens one socket for each of `workers`, or takes those that another process has opened.
///
/// # Errors
/// Which address, why not, and what to do.
pub(crate) fn open(
    wanted: &WantedSocket,
    at: &At,
    workers: usize,
    opening: Opening,
) -> Result<Fresh, Finding> {
    let waits = matches!(opening, Opening::BesideOwn);
    let refused = |error: io::Error| {
        let shared = waits && error.kind() == io::ErrorKind::AddrInUse;
        let advice = if shared { BESIDE_OTHERS } else { "" };
        Finding::new(at, explain(&wanted.address, &error) + advice)
    };
    let adopted = matches!(opening, Opening::Inherited(_) | Opening::Reserved(_));
    let (foreign, reserved) = match &opening {
        Opening::Inherited(set) => (set.label.foreign, None),
        Opening::Reserved(reserved) => (reserved.is_foreign(), Some(Arc::clone(reserved))),
        Opening::Alone | Opening::BesideOwn => (false, None),
    };
    let fds = match opening {
        Opening::Inherited(set) => listen::adopt(set.fds, workers),
        Opening::Reserved(reserved) => reserved.copies(workers),
        Opening::Alone => listen::open(&wanted.address, workers),
        Opening::BesideOwn => listen::open_beside_own(&wanted.address, workers),
    };
    let fds = fds.map_err(refused)?;
    let kept: io::Result<Vec<OwnedFd>> = listen::queues(&fds).iter().map(OwnedFd::try_clone).collect();
    let kept = kept.map_err(refused)?;
    let bound = fds.first().and_then(listen::address_of);
    let bound = bound.filter(|bound| foreign || matches!(bound, Address::Tcp(_)));
    let bound = bound.unwrap_or_else(|| wanted.address.clone());
    let ids = (0..fds.len().div_ceil(workers.max(1))).map(|_| next_id()).collect();
    Ok(Fresh { wanted: wanted.clone(), bound, ids, fds, kept, adopted, foreign, reserved, waits })
}

/// Said of an address that overlaps with one that Offramp listens on itself: the kernel lets sockets share a port only if
/// the same user has opened them.
const BESIDE_OTHERS: &str = ". If Offramp itself listens on this port at the moment: sockets of another user (of root, if \
     Offramp was started as root, or of the service manager) cannot be replaced while they are open; restart Offramp to \
     change the address";

/// The reason why an address cannot be listened on, with a remedy.
pub(crate) fn explain(address: &Address, error: &io::Error) -> String {
    let port = match address {
        Address::Tcp(tcp) => Some(tcp.port()),
        Address::Unix(_) => None,
    };
    let advice = match (error.kind(), port) {
        (io::ErrorKind::AddrInUse, Some(port)) => port_holder::advice(port),
        (io::ErrorKind::AddrInUse, None) => {
            "another process listens there; find it with `ss -lxp`, stop it or choose another path".into()
        }
        (io::ErrorKind::PermissionDenied, Some(port)) if port < 1024 => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE: give it with AmbientCapabilities= \
             in the systemd unit or with `setcap`, open them to all in a container (`--sysctl \
             net.ipv4.ip_unprivileged_port_start=0`), start as root, or choose a higher port"
                .into()
        }
        (io::ErrorKind::PermissionDenied, None) => {
            "the user that Offramp runs as must be able to write to the directory".into()
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            "no interface of this machine has the address; see `ip address`, or listen on [::]".into()
        }
        (io::ErrorKind::NotFound, None) => "make the directory first".into(),
        (io::ErrorKind::AlreadyExists, None) => "move it away or choose another path".into(),
        _ => String::new(),
    };
    let separator = if advice.is_empty() { "" } else { "; " };
    format!("cannot listen on {address}: {error}{separator}{advice}")
}

impl Fresh {
    /// The listener's name, and the address that it is bound to.
    pub(crate) fn address(&self) -> (String, Address) {
        (self.wanted.listener.to_string(), self.bound.clone())
    }

    /// Has sockets listen that were kept for the way back, or opened beside others: clients that connect wait from now on.
    pub(crate) fn begin(&self, log: &Log) {
        let (begun, message) = match &self.reserved {
            Some(reserved) => (reserved.resume(), "an address does not come back"),
            None if self.waits => (listen::start(&self.fds), "a new address accepts no connections"),
            None => return,
        };
        if let Err(error) = begun {
            let reason = explain(&self.wanted.address, &error);
            log.error(message, &[("reason", (&reason).into())]);
        }
    }

    /// Takes away what opening it has left in the file system.
    pub(crate) fn abandon(&self) {
        if !self.adopted {
            unlink(&self.bound);
        }
    }
}

impl Listening {
    /// Nothing is listened on yet.
    pub(crate) fn new(workers: usize, log: Log) -> Self {
        Self { open: Vec::new(), reserved: Vec::new(), workers, log }
    }

    /// Plans the way to what is wanted.
    pub(crate) fn plan(&self, wanted: &[WantedSocket]) -> SocketPlan {
        let held: Vec<HeldSocket> = self.open.iter().map(|open| open.held.clone()).collect();
        plan(&held, wanted)
    }

    /// The addresses that are open, with their listeners' names.
    pub(crate) fn addresses(&self) -> Vec<(String, Address)> {
        self.open.iter().map(|open| (open.held.listener.to_string(), open.bound.clone())).collect()
    }

    /// The addresses that a plan gives up.
    pub(crate) fn closing<'a>(&'a self, plan: &'a SocketPlan) -> impl Iterator<Item = &'a Address> {
        plan.close.iter().map(|at| &self.open[*at].bound)
    }

    /// Has workers serve the clients that wait and close what the plan gives up; with `keep` the sockets stay reserved. Must come
    /// before [`Self::serve`] of the same plan.
    pub(crate) fn close(&mut self, plan: &SocketPlan, workers: &[WorkerHandle], keep: bool) {
        for at in &plan.close {
            let open = &mut self.open[*at];
            let reserved = (keep && !open.kept.is_empty()).then(|| {
                let kept = std::mem::take(&mut open.kept);
                let acceptors = kept.len().max(workers.len());
                Arc::new(Reserved::new(open.held.clone(), open.bound.clone(), open.foreign, kept, acceptors))
            });
            if reserved.is_none() {
                open.give_up();
            }
            open.order(workers, |id, number| {
                let reserve = reserved.as_ref().map(|reserved| (reserved.sockets(), number));
                WorkerCommand::Unlisten { id, reserve }
            });
            self.reserved.extend(reserved);
        }
    }

    /// Forgets what [`Self::close`] has closed, where [`Self::serve`] does not follow.
    pub(crate) fn forget_closed(&mut self) {
        self.open.retain(|open| !open.kept.is_empty());
    }

    /// The sockets that were kept for what is wanted.
    pub(crate) fn reserved(&self, wanted: &WantedSocket) -> Option<Arc<Reserved>> {
        self.reserved.iter().find(|reserved| reserved.is(wanted)).map(Arc::clone)
    }

    /// The addresses of all that are kept so.
    pub(crate) fn reserved_addresses(&self) -> impl Iterator<Item = &Address> {
        self.reserved.iter().map(|reserved| reserved.bound())
    }

    /// Gives up what was kept for the way back: there is none any more.
    pub(crate) fn forget_reserved(&mut self) {
        self.reserved.drain(..).for_each(|reserved| reserved.give_up());
    }

    /// The sockets of each address, in a fixed order.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (Label, &[OwnedFd])> {
        self.open.iter().map(|open| {
            let (name, address) = (open.held.listener.to_string(), open.held.address.to_string());
            let label = Label { purpose: Purpose::Listener, name, address, foreign: open.foreign };
            (label, open.kept.as_slice())
        })
    }

    /// Leaves each address to a process that has its sockets, too, or closes it after the clients in its queue were
    /// served, where `unwanted` tells so.
    pub(crate) fn leave(&mut self, unwanted: &mut Unwanted, workers: &[WorkerHandle]) {
        for mut open in std::mem::take(&mut self.open) {
            if unwanted.next_is_left() {
                open.give_up();
                open.order(workers, |id, _| WorkerCommand::Unlisten { id, reserve: None });
            } else {
                open.order(workers, |id, _| WorkerCommand::Leave { id });
            }
        }
    }

    /// Writes into a snapshot what the sockets serve when the plan is carried out.
    pub(crate) fn assign_sockets(
        &self,
        plan: &SocketPlan,
        wanted: &[WantedSocket],
        fresh: &[Fresh],
        snapshot: &mut Snapshot,
    ) {
        let kept = plan.keep.iter().map(|(at, want)| (&self.open[*at].ids, &wanted[*want].listener));
        let fresh = fresh.iter().map(|fresh| (&fresh.ids, &fresh.wanted.listener));
        for (ids, name) in kept.chain(fresh) {
            if let Some(listener) = snapshot.listeners.get(name).cloned() {
                snapshot.sockets.extend(ids.iter().map(|id| (*id, Arc::clone(&listener))));
            }
        }
    }

    /// Has workers accept on `fresh`, and takes note of what the plan keeps and gives up. The snapshot
    /// must already be the one of [`Self::assign_sockets`].
    pub(crate) fn serve(
        &mut self,
        plan: &SocketPlan,
        wanted: &[WantedSocket],
        fresh: Vec<Fresh>,
        workers: &[WorkerHandle],
    ) {
        let mut kept: HashMap<usize, usize> = plan.keep.iter().copied().collect();
        let before = std::mem::take(&mut self.open);
        for (at, mut open) in before.into_iter().enumerate() {
            if let Some(want) = kept.remove(&at) {
                open.held.listener = Arc::clone(&wanted[want].listener);
                self.open.push(open);
            }
        }
        for Fresh { wanted, bound, ids, fds, kept, foreign, .. } in fresh {
            let WantedSocket { listener, address } = wanted;
            for (at, fd) in fds.into_iter().enumerate() {
                // A worker that gets another socket of the address knows it by another name.
                let id = ids[at / workers.len()];
                workers[at % workers.len()].send(WorkerCommand::Listen {
                    id,
                    listener: Arc::clone(&listener),
                    fd,
                });
            }
            self.open.push(Open { ids, kept, foreign, held: HeldSocket { listener, address }, bound });
        }
    }

    /// Before the drain: the files of Unix sockets go, their queues stay until workers close them.
    pub(crate) fn unlink_all(&mut self) {
        self.open.iter_mut().for_each(Open::give_up);
        self.forget_reserved();
    }
}

impl Open {
    /// Has the sockets no longer, but for those that workers have, nor the file of a Unix socket.
    fn give_up(&mut self) {
        if !self.foreign {
            unlink(&self.bound);
        }
        self.kept.clear();
    }

    /// Orders with the name of each socket towards its worker, and its number as [`Listening::serve`] counts them.
    fn order(&self, workers: &[WorkerHandle], command: impl Fn(AcceptorId, usize) -> WorkerCommand) {
        for (at, worker) in workers.iter().enumerate() {
            for (turn, id) in self.ids.iter().enumerate() {
                worker.send(command(*id, turn * workers.len() + at));
            }
        }
    }
}

/// Takes away the file of a Unix socket; what is left is replaced at the next start.
pub(crate) fn unlink(address: &Address) {
    if let Address::Unix(path) = address {
        // Whatever else may be in its place by now is not ours.
        let _ = listen::unlink(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change that ends between the two leaves addresses that are open by name only.
    #[test]
    fn what_was_closed_without_an_end_is_opened_again() {
        let wanted = |port: &str| WantedSocket {
            listener: "web".into(),
            address: Address::Tcp(format!("127.0.0.1:{port}").parse().unwrap()),
        };
        let (first, second) = (wanted("0"), wanted("1"));
        for keep in [false, true] {
            let mut listening = Listening::new(1, Log::silent());
            let fresh = open(&first, &At::NOWHERE, 1, Opening::Alone).unwrap();
            let Fresh { bound, ids, kept, foreign, wanted: WantedSocket { listener, address }, .. } = fresh;
            listening.open.push(Open { ids, kept, foreign, held: HeldSocket { listener, address }, bound });
            let plan = listening.plan(std::slice::from_ref(&second));
            listening.close(&plan, &[], keep);
            listening.forget_closed();
            assert_eq!(listening.reserved(&first).is_some(), keep);
            let plan = listening.plan(std::slice::from_ref(&first));
            assert_eq!((plan.open, plan.keep, plan.close), (vec![0], vec![], vec![]));
        }
    }

    #[test]
    fn what_is_in_the_way_is_explained() {
        let one = |address: Address| WantedSocket { listener: "web".into(), address };
        let first = open(&one(Address::Tcp("127.0.0.1:0".parse().unwrap())), &At::NOWHERE, 2, Opening::Alone)
            .unwrap();
        assert_eq!(first.fds.len(), 2);
        let taken = open(&one(first.bound.clone()), &At::NOWHERE, 1, Opening::Alone).unwrap_err().to_string();
        assert!(taken.contains(&first.bound.to_string()) && taken.contains("ss -ltnp"), "{taken}");
        let missing =
            open(&one(Address::Unix("/nonexistent/s".into())), &At::NOWHERE, 1, Opening::Alone).unwrap_err();
        assert!(missing.to_string().contains("make the directory"), "{missing}");
        // TEST-NET-1 of RFC 5737 is no machine's.
        let foreign =
            open(&one(Address::Tcp("192.0.2.1:0".parse().unwrap())), &At::NOWHERE, 1, Opening::Alone)
                .unwrap_err();
        assert!(foreign.to_string().contains("ip address"), "{foreign}");
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let text = explain(&Address::Tcp("0.0.0.0:443".parse().unwrap()), &denied);
        assert!(text.contains("CAP_NET_BIND_SERVICE"), "{text}");
    }
}
