//! The configuration that requests follow, and the clients that trusted proxies name.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use offramp_http::forwarded;
use offramp_http::head::{Fields, Known};

use crate::snapshot::http::Http;
use crate::snapshot::{Listener, Snapshot};

/// The configuration that requests follow now.
pub(crate) struct SessionView {
    /// Goes before its snapshot, lest it be the last of it.
    pub(super) listener: Arc<Listener>,
    pub(crate) snapshot: Arc<Snapshot>,
    /// The peer is a trusted proxy.
    pub(crate) trusted: bool,
}

impl SessionView {
    /// The part of the listener for requests; `None` where it changed its mode while the connection was open.
    pub(crate) fn http(&self) -> Option<&Http> {
        self.listener.http.as_ref()
    }

    pub(super) fn new(snapshot: Arc<Snapshot>, listener: Arc<Listener>, ip: Option<IpAddr>) -> Rc<Self> {
        let mut view = Self { snapshot, listener, trusted: false };
        view.trusted = ip.is_some_and(|ip| view.trusts(ip));
        Rc::new(view)
    }

    fn trusts(&self, ip: IpAddr) -> bool {
        self.http().is_some_and(|http| http.trusted_proxies.iter().any(|network| network.contains(ip)))
    }

    /// The client that trusted proxies name in a request which came from `peer`; `None` where that is the peer
    /// itself. `X-Forwarded-For` decides where it is, since nearly every proxy extends it, and many let `Forwarded`
    /// pass as a client sent it.
    pub(crate) fn named(&self, peer: Option<IpAddr>, fields: &Fields) -> Option<IpAddr> {
        let peer = peer.filter(|_| self.trusted)?;
        let trusts = |ip| self.trusts(ip);
        let client = if fields.contains(Known::XForwardedFor) {
            forwarded::x_forwarded_for(fields.all(Known::XForwardedFor), peer, trusts)
        } else {
            forwarded::client(fields.all(Known::Forwarded), peer, trusts)
        };
        (client.hops > 0).then_some(client.address)
    }

    /// `Forwarded` names another client than `X-Forwarded-For`, which decides: a client sent it, and its proxy let it
    /// pass.
    pub(crate) fn is_contradicted(
        &self,
        peer: Option<IpAddr>,
        fields: &Fields,
        named: Option<IpAddr>,
    ) -> bool {
        let (Some(peer), true) = (peer, fields.contains(Known::XForwardedFor)) else { return false };
        if !fields.contains(Known::Forwarded) {
            return false;
        }
        let client = forwarded::client(fields.all(Known::Forwarded), peer, |ip| self.trusts(ip));
        (client.hops > 0).then_some(client.address) != named
    }
}
