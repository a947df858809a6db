//! Events: one per finished connection (`tcp`) or finished request (`http`).
//!
//! A connection of an `http` listener has an event of its own only if it ended without a request, or by a
//! fault outside of any request.

use crate::facts::{ConnectionFacts, Fault, RequestFacts};

/// One event on its way from a worker to the flusher. Its facts are boxed, so that it is two words.
#[derive(Clone, Debug)]
pub enum Event {
    /// A connection that ended.
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

    /// The kind as a word: `connection` or `request`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Connection(_) => "connection",
            Self::Request(_) => "request",
        }
    }
}

/// A consumer of events beside the sink, such as the log store.
///
/// Called on the thread of the flusher for every event, even one that the sink could not write. It must not
/// block: a slow consumer needs a bounded queue, a thread of its own, and a count of what it drops.
pub trait Tap: Send {
    /// Consumes one event; must not block.
    fn take(&mut self, event: &Event);

    /// Ends a batch: the next event is some milliseconds away at least.
    fn flush(&mut self);
}
