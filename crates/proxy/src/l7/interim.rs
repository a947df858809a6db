//! Interim responses (1xx) on their way from a server to an HTTP/1 client.
//!
//! They are put down here, already written, and the connection sends them where nothing else is under way.
//! `100 Continue` is not among them when the client asked for it: the connection says that one by itself as soon
//! as the request's body is read, and [`Interim::may_read`] says when that is.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use offramp_http::head::{Fields, Known, KnownSet};
use offramp_http::semantics::variables::NoValues;
use offramp_http::semantics::{HeaderRules, hop_by_hop};
use offramp_upstream::InterimListener;

/// The most bytes of interim responses that wait for a client; more are dropped, as no client needs them.
const MOST_WAITING: usize = 16 * 1024;

/// The interim responses of one connection. Listeners have to be `Send`; nothing here ever leaves the worker's
/// thread, so neither the lock nor the flags are contended.
#[derive(Default)]
pub(crate) struct Interim {
    waiting: AtomicBool,
    continued: AtomicBool,
    /// Set if the client waits for `100 Continue`.
    expects: AtomicBool,
    bytes: Mutex<Vec<u8>>,
    /// Rules of the route for the fields of responses.
    rules: Mutex<Option<Arc<HeaderRules>>>,
}

impl Interim {
    /// Returns true if there is something to send.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Moves what is to be sent behind `out`.
    pub(crate) fn take(&self, out: &mut Vec<u8>) {
        self.waiting.store(false, Ordering::Relaxed);
        out.append(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A request begins, which `expects` `100 Continue`, or not. What is left of the one before is too late, and so
    /// is what is still to come of it: its server is not listened to any more.
    pub(crate) fn renew(interim: &mut Arc<Self>, expects: bool) {
        match Arc::get_mut(interim) {
            Some(own) => {
                (*own.waiting.get_mut(), *own.continued.get_mut()) = (false, false);
                *own.expects.get_mut() = expects;
                own.bytes.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
                *own.rules.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
            }
            None => *interim = Arc::new(Self { expects: AtomicBool::new(expects), ..Self::default() }),
        }
    }

    /// Has the interim responses follow the rules of their route.
    pub(crate) fn follow(&self, rules: Arc<HeaderRules>) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Some(rules);
    }

    /// Returns true if the server wants the body of a request that waits to be asked for it.
    pub(crate) fn may_read(&self) -> bool {
        self.continued.load(Ordering::Relaxed)
    }
}

impl InterimListener for Interim {
    fn interim(&self, status: StatusCode, fields: &Fields) {
        if status == StatusCode::CONTINUE && self.expects.load(Ordering::Relaxed) {
            self.continued.store(true, Ordering::Relaxed);
            return;
        }
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.len() < MOST_WAITING {
            let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
            write(status, &self::fields(fields, rules.as_deref()), &mut bytes);
            self.waiting.store(true, Ordering::Relaxed);
        }
    }
}

/// The fields that a client gets of an interim response: without those of the connection (RFC 9110 §7.6.1), and as the
/// rules of the route have them. No cookie is set before there is a response that could be refused, cached or counted.
pub(super) fn fields(sent: &Fields, rules: Option<&HeaderRules>) -> Fields {
    let mut fields = sent.clone();
    hop_by_hop::clean_response(&mut fields);
    if let Some(rules) = rules {
        // They have no variables, or were filled in.
        rules.apply(&mut fields, &NoValues);
    }
    fields.remove_named(b"set-cookie");
    fields
}

/// Writes an interim response (RFC 9112 §4).
fn write(status: StatusCode, fields: &Fields, out: &mut Vec<u8>) {
    let mut line = String::with_capacity(48);
    let reason = status.canonical_reason().unwrap_or("Interim");
    // Writing to a string cannot fail.
    let _ = write!(line, "HTTP/1.1 {} {reason}\r\n", status.as_str());
    out.extend_from_slice(line.as_bytes());
    fields.write(KnownSet::of(&[Known::ContentLength]), out);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_written_and_continue_is_not() {
        let mut interim: Arc<Interim> = Arc::default();
        Interim::renew(&mut interim, true);
        let all = [
            ("link", "</a.css>; rel=preload"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("te", "trailers"),
            ("content-length", "5"),
        ];
        let headers: Fields = all.into_iter().collect();
        interim.interim(StatusCode::CONTINUE, &Fields::new());
        assert!(interim.may_read() && !interim.is_waiting());
        interim.interim(StatusCode::EARLY_HINTS, &headers);
        assert!(interim.is_waiting());
        let mut out = Vec::new();
        interim.take(&mut out);
        assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n");
        assert!(!interim.is_waiting());
        Interim::renew(&mut interim, false);
        assert!(!interim.may_read());
        interim.interim(StatusCode::CONTINUE, &Fields::new());
        assert!(interim.is_waiting() && !interim.may_read());
        Interim::renew(&mut interim, false);
        assert!(!interim.is_waiting());
    }

    /// A server of HTTP/2 may still have something to say to a request that was given up.
    #[test]
    fn who_listens_to_a_request_that_is_over_is_not_heard() {
        for expects in [false, true] {
            let mut interim: Arc<Interim> = Arc::default();
            Interim::renew(&mut interim, true);
            let late = Arc::clone(&interim);
            late.interim(StatusCode::EARLY_HINTS, &Fields::new());
            Interim::renew(&mut interim, expects);
            assert!(!interim.is_waiting());
            late.interim(StatusCode::EARLY_HINTS, &Fields::new());
            late.interim(StatusCode::CONTINUE, &Fields::new());
            assert!(!interim.is_waiting() && !interim.may_read());
            interim.interim(StatusCode::CONTINUE, &Fields::new());
            assert_eq!((interim.may_read(), interim.is_waiting()), (expects, !expects));
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let interim = Interim::default();
        for _ in 0..10_000 {
            interim.interim(StatusCode::PROCESSING, &Fields::new());
        }
        let mut out = Vec::new();
        interim.take(&mut out);
        assert!(out.len() < MOST_WAITING + 100, "{}", out.len());
    }
}
