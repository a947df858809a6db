//! The state that all workers share. docs/architecture.md has the reason for each part.

use std::sync::Arc;

use offramp_observe::Log;

use crate::challenges::Challenges;
use crate::credentials::Logins;
use crate::demand::Demand;
use crate::late::Lateness;
use crate::limit::{ClientTable, ConnectionLimit, StreamMemory};
use crate::pressure::Pressure;
use crate::refusals::Refusals;
use crate::snapshot::Current;

/// The state that all workers share. Cheap to clone.
#[derive(Clone)]
pub struct SharedResources {
    /// The configuration in force.
    pub current: Current,
    /// The limit of connections.
    pub admission: Arc<ConnectionLimit>,
    /// The limits per client.
    pub clients: Arc<ClientTable>,
    /// Bytes that each worker holds for requests over HTTP/2.
    pub held: Arc<StreamMemory>,
    /// Set while the process holds as much memory as it may.
    pub pressure: Arc<Pressure>,
    /// Measures how late the event loops are.
    pub late: Arc<Lateness>,
    /// The log lines about limits that refuse, and about pauses: at most one a minute each.
    pub refusals: Arc<Refusals>,
    /// The answers to certificate authorities that validate names.
    pub challenges: Arc<Challenges>,
    /// The threads that check passwords.
    pub logins: Arc<Logins>,
    /// Certificates that are ordered when the first client asks for their name.
    pub demand: Arc<Demand>,
    /// Log of errors.
    pub log: Log,
}
