//! Choice of a certificate by the name and the abilities of a client.
//!
//! A [`Store`] is built once per configuration and never changes; a handshake looks into it without
//! locks and without allocation. Names are tried exactly, then as a wildcard of one label, then the
//! defaults are left. Of several certificates for a name the client gets the one that it can verify
//! and that costs least to sign with: ECDSA, then Ed25519, then RSA.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::SignatureScheme;

use crate::certificate::Certificate;
use crate::name::{MAX_NAME, lower, parent};

/// The certificates of a configuration, arranged for lookup.
#[derive(Clone, Debug, Default)]
pub struct Store {
    exact: HashMap<Box<str>, Candidates>,
    /// By what follows the `*.`.
    wildcard: HashMap<Box<str>, Candidates>,
    default: Candidates,
    all: Vec<Arc<Certificate>>,
}

/// A certificate on its way into a [`Store`].
#[derive(Clone, Debug)]
pub struct Entry {
    /// The certificate; its names are what it is found by.
    pub certificate: Arc<Certificate>,
    /// Whether it also serves clients that name no host, or one that no certificate has. Several
    /// defaults, such as an ECDSA and an RSA one, are chosen from like the certificates of a name.
    pub default: bool,
}

/// What a client gets.
#[derive(Clone, Copy, Debug)]
pub enum Pick<'a> {
    /// This certificate.
    Found {
        /// The certificate. If none of the name's certificates suits the client it is the first of
        /// them, with which rustls ends the handshake with `handshake_failure`.
        certificate: &'a Arc<Certificate>,
        /// How it was found.
        by: By,
    },
    /// There is none for this name, or for no name, and no default: `unrecognized_name`
    /// (RFC 6066 §3).
    NoneForName,
}

/// How a certificate was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// It has the very name.
    Exact,
    /// It has a wildcard for the name.
    Wildcard,
    /// It is a default.
    Default,
}

impl By {
    /// `exact`, `wildcard` or `default`, for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            By::Exact => "exact",
            By::Wildcard => "wildcard",
            By::Default => "default",
        }
    }
}

/// The certificates for one name, the preferred one first.
type Candidates = Vec<Arc<Certificate>>;

impl Store {
    /// Arranges certificates. Of several for one name those that are valid at `now` go first, then
    /// the cheaper kind of key, then the later issued, then the order given.
    pub fn new(entries: impl IntoIterator<Item = Entry>, now: SystemTime) -> Self {
        let mut store = Store::default();
        for Entry { certificate, default } in entries {
            for name in &certificate.names {
                let map = if name.is_wildcard() { &mut store.wildcard } else { &mut store.exact };
                map.entry(name.host().into()).or_default().push(Arc::clone(&certificate));
            }
            if default {
                store.default.push(Arc::clone(&certificate));
            }
            store.all.push(certificate);
        }
        let groups = store.exact.values_mut().chain(store.wildcard.values_mut());
        for group in groups.chain([&mut store.default]) {
            // The sort is stable, which keeps the order given among equals.
            group.sort_by_key(|certificate| {
                (!certificate.is_valid(now), certificate.kind, Reverse(certificate.not_before))
            });
        }
        store
    }

    /// Selects for a client that requested `server_name`, in any case, and can verify `schemes`.
    ///
    /// For TLS 1.2 `schemes` should be without those that none of the client's cipher suites can use,
    /// as [`rustls::server::ClientHello::signature_schemes`] gives them.
    pub fn pick(&self, server_name: Option<&str>, schemes: &[SignatureScheme]) -> Pick<'_> {
        let mut buffer = [0; MAX_NAME];
        let name = server_name.and_then(|name| lower(name, &mut buffer));
        let exact = name.and_then(|name| self.exact.get(name));
        let wildcard = name.and_then(parent).and_then(|parent| self.wildcard.get(parent));
        let by_name = [(exact, By::Exact), (wildcard, By::Wildcard)];
        for (group, by) in by_name {
            if let Some(certificate) = group.and_then(|group| suitable(group, schemes)) {
                return Pick::Found { certificate, by };
            }
        }
        for (group, by) in by_name {
            if let Some(certificate) = group.and_then(|group| group.first()) {
                return Pick::Found { certificate, by };
            }
        }
        match suitable(&self.default, schemes).or(self.default.first()) {
            Some(certificate) => Pick::Found { certificate, by: By::Default },
            None => Pick::NoneForName,
        }
    }

    /// Every certificate, in the order given.
    pub fn certificates(&self) -> impl Iterator<Item = &Arc<Certificate>> {
        self.all.iter()
    }

    /// Whether there is no certificate at all.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether there is a default.
    pub fn has_default(&self) -> bool {
        !self.default.is_empty()
    }
}

fn suitable<'a>(group: &'a Candidates, schemes: &[SignatureScheme]) -> Option<&'a Arc<Certificate>> {
    group.iter().find(|certificate| certificate.suits(schemes))
}
