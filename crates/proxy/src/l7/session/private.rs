//! Server connections that begin with the PROXY header of one client, and so belong to that client alone.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use offramp_observe::ConnectionBrief;
use offramp_observe::facts::TlsFacts;
use offramp_upstream::PrivateConnections;

use crate::l7::body::ClientBody;
use crate::proxy_header::{self, About};
use crate::snapshot::SendProxy;

/// The most clients, named by trusted proxies, for which one connection keeps connections to servers that begin with a
/// PROXY header.
const MOST_PRIVATE: usize = 16;

/// The server connections of one client.
pub(crate) type Private = Rc<PrivateConnections<ClientBody>>;

/// The PROXY headers of a client's connection, and the server connections that begin with one.
pub(super) struct PrivateUpstreams {
    /// The address that the client connected to.
    local: Option<SocketAddr>,
    /// The header in each version that a route asked for when the connection began.
    headers: Vec<(SendProxy, Vec<u8>)>,
    /// Connections by age, the latest last.
    connections: RefCell<Vec<PrivateUpstream>>,
}

/// The server connections that begin with one header.
struct PrivateUpstream {
    version: SendProxy,
    /// The client that trusted proxies name; `None`: the peer.
    named: Option<IpAddr>,
    connections: Private,
}

impl PrivateUpstreams {
    pub(super) fn new(local: Option<SocketAddr>, headers: Vec<(SendProxy, Vec<u8>)>) -> Self {
        Self { local, headers, connections: RefCell::default() }
    }

    /// The server connections of the client that trusted proxies name in a request, else of the peer.
    pub(super) fn of(&self, brief: &ConnectionBrief, version: SendProxy, named: Option<IpAddr>) -> Private {
        let mut known = self.connections.borrow_mut();
        if let Some(at) = known.iter().position(|known| (known.version, known.named) == (version, named)) {
            known[at..].rotate_left(1);
        } else {
            if known.len() >= MOST_PRIVATE {
                // Requests that are under way there are finished.
                known.remove(0);
            }
            let connections = Rc::new(PrivateConnections::new(self.header(brief, version, named)));
            known.push(PrivateUpstream { version, named, connections });
        }
        // It is there by now.
        Rc::clone(&known[known.len() - 1].connections)
    }

    /// The PROXY header for a client.
    fn header(&self, brief: &ConnectionBrief, version: SendProxy, named: Option<IpAddr>) -> Vec<u8> {
        let none = TlsFacts::default();
        let tls = brief.tls.as_ref().unwrap_or(&none);
        let about = About { id: brief.id, client: &brief.client, local: self.local, tls };
        if let Some(named) = named {
            return proxy_header::build_named(version, &about, named);
        }
        let made = self.headers.iter().find(|(made, _)| *made == version);
        // A route that came with a reload: TLS has forgotten the rest by now.
        made.map_or_else(|| proxy_header::build(version, &about, None), |(_, header)| header.clone())
    }
}
