//! The client of a connection, as servers learn of it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use offramp_http::head::Fields;
use offramp_observe::ConnectionBrief;
use offramp_observe::facts::EndpointAddress;

use crate::l7::forwarded_fields;

/// The host of a request, if it named one, and the fields for servers that carry it.
type FieldsOfHost = (Option<Box<[u8]>>, Rc<Fields>);

/// The fields by which servers learn of a client, written once for the connection.
pub(crate) struct ForwardedClient {
    /// The client's address, for X-Forwarded-For.
    pub(crate) client: Box<str>,
    /// The port that the client came to.
    pub(crate) port: Option<Box<str>>,
    /// Number of the connection in events.
    pub(super) id: Box<str>,
    /// All of it for the latest host: most clients ask for one alone.
    pub(super) fields: RefCell<Option<FieldsOfHost>>,
}

impl ForwardedClient {
    pub(super) fn new(brief: &ConnectionBrief, local: Option<SocketAddr>) -> Self {
        Self {
            client: forwarded_fields::address(brief.client.ip()).into(),
            port: port(brief.client.destination.as_ref(), local).map(|port| port.to_string().into()),
            id: brief.id.to_string().into(),
            fields: RefCell::default(),
        }
    }

    /// The fields for a request to `host`, made by `make` for the first one.
    pub(crate) fn fields(&self, host: Option<&[u8]>, make: impl FnOnce() -> Fields) -> Rc<Fields> {
        let mut known = self.fields.borrow_mut();
        match &*known {
            Some((of, fields)) if of.as_deref() == host => Rc::clone(fields),
            _ => Rc::clone(&known.insert((host.map(Into::into), Rc::new(make()))).1),
        }
    }
}

/// The port that a client came to: as a believed PROXY header says, else that of our end.
fn port(claimed: Option<&EndpointAddress>, local: Option<SocketAddr>) -> Option<u16> {
    match claimed {
        Some(EndpointAddress::Ip(destination)) => Some(destination.port()),
        Some(EndpointAddress::Unix(_)) => None,
        None => local.map(|local| local.port()),
    }
}
