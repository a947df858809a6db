//! Selection of a certificate by server name and signature schemes.
//!
//! A [`CertificateStore`] is built once per configuration and never changes; handshakes look into it without
//! locks and without allocation. Names are tried exactly, then as a wildcard of one label, then the defaults
//! apply. Of several certificates for a name the client gets one that it can verify, the one cheapest to sign
//! with: ECDSA, then Ed25519, then RSA.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::SignatureScheme;

use crate::certificate::Certificate;
use crate::name::{MAX_NAME, lower, parent};

/// The certificates of a configuration, indexed by name.
#[derive(Clone, Debug, Default)]
pub struct CertificateStore {
    exact: HashMap<Box<str>, Candidates>,
    /// By the part after the `*.`.
    wildcard: HashMap<Box<str>, Candidates>,
    default: Candidates,
    all: Vec<Arc<Certificate>>,
}

/// A certificate to be added to a [`CertificateStore`].
#[derive(Clone, Debug)]
pub struct StoreEntry {
    /// The certificate with the names that it is found by.
    pub certificate: Arc<Certificate>,
    /// Set if the certificate also serves clients without a server name, or with an unknown one. Of several
    /// defaults, such as an ECDSA and an RSA one, one is selected as for a name.
    pub default: bool,
}

/// The result of a selection.
#[derive(Clone, Copy, Debug)]
pub enum Pick<'a> {
    /// A certificate was found.
    Found {
        /// The certificate. If none of those for the name suits the client, it is the first of them, with
        /// which rustls ends the handshake with `handshake_failure`.
        certificate: &'a Arc<Certificate>,
        /// The kind of match.
        by: MatchKind,
    },
    /// No certificate for this name, or for no name, and no default: the handshake ends with
    /// `unrecognized_name` (RFC 6066 §3).
    NoneForName,
}

/// The kind of match of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// By the exact name.
    Exact,
    /// By a wildcard that covers the name.
    Wildcard,
    /// By being a default.
    Default,
}

impl MatchKind {
    /// `exact`, `wildcard` or `default`, for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            MatchKind::Exact => "exact",
            MatchKind::Wildcard => "wildcard",
            MatchKind::Default => "default",
        }
    }
}

/// The certificates for one name, in order of preference.
type Candidates = Vec<Arc<Certificate>>;

impl CertificateStore {
    /// Indexes certificates. Of several for one name, those valid at `now` come first, then the cheaper kind
    /// of key, then the later issued, then the order given.
    pub fn new(entries: impl IntoIterator<Item = StoreEntry>, now: SystemTime) -> Self {
        let mut store = CertificateStore::default();
        for StoreEntry { certificate, default } in entries {
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
            // A stable sort keeps the given order among equals.
            group.sort_by_key(|certificate| {
                (!certificate.is_valid(now), certificate.kind, Reverse(certificate.not_before))
            });
        }
        store
    }

    /// Selects for a client that sent `server_name`, in any case, and can verify `schemes`.
    ///
    /// For TLS 1.2, `schemes` should not include those that none of the client's cipher suites can use, as
    /// given by [`rustls::server::ClientHello::signature_schemes`].
    pub fn pick(&self, server_name: Option<&str>, schemes: &[SignatureScheme]) -> Pick<'_> {
        let mut buffer = [0; MAX_NAME];
        let name = server_name.and_then(|name| lower(name, &mut buffer));
        let exact = name.and_then(|name| self.exact.get(name));
        let wildcard = name.and_then(parent).and_then(|parent| self.wildcard.get(parent));
        let by_name = [(exact, MatchKind::Exact), (wildcard, MatchKind::Wildcard)];
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
            Some(certificate) => Pick::Found { certificate, by: MatchKind::Default },
            None => Pick::NoneForName,
        }
    }

    /// Every certificate, in the order given.
    pub fn certificates(&self) -> impl Iterator<Item = &Arc<Certificate>> {
        self.all.iter()
    }

    /// Returns `true` for a store without certificates.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns `true` if there is a default.
    pub fn has_default(&self) -> bool {
        !self.default.is_empty()
    }
}

fn suitable<'a>(group: &'a Candidates, schemes: &[SignatureScheme]) -> Option<&'a Arc<Certificate>> {
    group.iter().find(|certificate| certificate.suits(schemes))
}
