//! What a worker tells: one event per finished connection (`tcp`), or per finished request (`http`).
//!
//! A connection of an `http` listener has an event of its own only where it ended without a request, or by a
//! fault outside of any request.

use crate::facts::{ConnectionFacts, Fault, RequestFacts};

/// One event on its way from a worker to the flusher. It is two words: what it tells is boxed.
#[derive(Clone, Debug)]
pub enum Event {
    /// A connection ended.
    Connection(Box<ConnectionFacts>),
    /// A request was answered, or failed.
    Request(Box<RequestFacts>),
}

impl From<Box<ConnectionFacts>> for Event {
    fn from(facts: Box<ConnectionFacts>) -> Self {
        Self::Connection(facts)
    }
}

impl From<Box<RequestFacts>> for Event {
    fn from(facts: Box<RequestFacts>) -> Self {
        Self::Request(facts)
    }
}

impl Event {
    /// Syslog's severity of the event (RFC 5424 §6.2.1): 4, a warning, where Offramp or a server failed, else
    /// 6, informational. What clients do wrong is no reason for an alarm.
    #[must_use]
    pub fn severity(&self) -> u8 {
        let (fault, status) = match self {
            Self::Connection(facts) => (facts.close.fault, 0),
            Self::Request(facts) => (facts.close.fault, facts.status),
        };
        if matches!(fault, Fault::Us | Fault::Server) || status >= 500 { 4 } else { 6 }
    }

    /// The word for its kind: `connection` or `request`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Connection(_) => "connection",
            Self::Request(_) => "request",
        }
    }
}

/// Another consumer of events besides the sink, such as the log store.
///
/// It is called on the flusher's thread, for every event that a worker sent, whether or not the sink took
/// it. It must not block: a consumer that can be slow has a bounded queue and a thread of its own, and
/// counts what it drops.
pub trait Tap: Send {
    /// Takes one event.
    fn take(&mut self, event: &Event);

    /// Ends a batch: no event follows for some milliseconds at least.
    fn flush(&mut self);
}
