//! TLS to the clients: one rustls configuration for all routes with the same settings.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use offramp_certs::anchors::Anchors;
use offramp_certs::client_auth::{AllowList, Pattern, Trust, TrustDomain};
use offramp_certs::store::CertificateStore;
use offramp_config::At;
use offramp_config::model::{self, AlpnId, AuthMode, FilePath};
use offramp_observe::facts::TlsOffer;
use offramp_sources::certificates::Sources;
use offramp_tls::{Ciphers, ClientVerification, Configs, TicketKeys, TlsPolicy};
use offramp_wire::client_hello::{group_name, scheme_name, suite_name};
use rustls::{RootCertStore, SignatureScheme};

use super::Findings;

/// The TLS settings of a route.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) configs: Configs,
    /// The offered protocols, by their IANA names.
    pub(super) offer: Arc<TlsOffer>,
}

/// The identity of a route's TLS: versions and ciphers, protocols, and the rule for client certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    policy: TlsPolicy,
    alpn: Vec<AlpnId>,
    auth: Option<AuthKey>,
}

/// A file may hold authorities and revocation lists, so that it matters as which of the two it is named.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AuthKey {
    required: bool,
    ca: Vec<PathBuf>,
    domains: Vec<(String, Vec<PathBuf>)>,
    crl: Vec<PathBuf>,
    /// Sessions belong to the whole rule.
    allow: Vec<String>,
}

impl Key {
    fn of(policy: TlsPolicy, alpn: &[AlpnId], auth: Option<&model::ClientAuth>) -> Self {
        let paths =
            |files: &[FilePath]| -> Vec<PathBuf> { files.iter().map(|file| file.path.clone()).collect() };
        let domain = |one: &model::TrustDomainConfig| (one.name.to_string(), paths(&one.ca));
        let auth = auth.map(|auth| AuthKey {
            required: auth.mode == AuthMode::Required,
            ca: paths(&auth.ca),
            domains: auth.trust_domains.iter().map(domain).collect(),
            crl: paths(&auth.crl),
            allow: auth.allow.iter().map(ToString::to_string).collect(),
        });
        Self { policy, alpn: alpn.to_vec(), auth }
    }
}

/// Makes the terms of routes.
pub(super) struct Termination<'a> {
    tls: &'a model::Tls,
    store: &'a Arc<CertificateStore>,
    tickets: &'a Arc<TicketKeys>,
    sources: &'a Sources,
    schemes: Vec<SignatureScheme>,
    /// `None`: they cannot be made, as was reported.
    made: HashMap<Key, Option<Terms>>,
}

impl<'a> Termination<'a> {
    pub(super) fn new(
        tls: &'a model::Tls,
        store: &'a Arc<CertificateStore>,
        tickets: &'a Arc<TicketKeys>,
        sources: &'a Sources,
    ) -> Self {
        let schemes = schemes(store);
        Self { tls, store, tickets, sources, schemes, made: HashMap::new() }
    }

    /// The versions and ciphers of a route, or of no route.
    pub(super) fn policy(&self, route: &model::RouteTls) -> TlsPolicy {
        let (tls13, tls12, aeads) = route.over(self.tls);
        let has = |aead| aeads.contains(&aead);
        TlsPolicy {
            tls13,
            tls12,
            ciphers: Ciphers {
                aes_128_gcm: has(model::AeadCipher::Aes128Gcm),
                aes_256_gcm: has(model::AeadCipher::Aes256Gcm),
                chacha20_poly1305: has(model::AeadCipher::ChaCha20Poly1305),
            },
            post_quantum: self.tls.post_quantum,
            tickets: self.tls.tickets.get().into(),
        }
    }

    /// The terms for these protocols and client certificates; `None` where that is impossible, which
    /// is reported once.
    pub(super) fn terms(
        &mut self,
        route: &model::RouteTls,
        alpn: &[AlpnId],
        auth: Option<&model::ClientAuth>,
        at: &At,
        report: &mut Findings,
    ) -> Option<Terms> {
        let policy = self.policy(route);
        let key = Key::of(policy, alpn, auth);
        if let Some(made) = self.made.get(&key) {
            return made.clone();
        }
        let made = self.make(&policy, alpn, auth, at, report);
        self.made.insert(key, made.clone());
        made
    }

    fn make(
        &mut self,
        policy: &TlsPolicy,
        alpn: &[AlpnId],
        auth: Option<&model::ClientAuth>,
        at: &At,
        report: &mut Findings,
    ) -> Option<Terms> {
        let auth = match auth {
            None => ClientVerification::None,
            Some(auth) => {
                let trust = self.trust(auth)?;
                match auth.mode {
                    AuthMode::Required => ClientVerification::Required(trust),
                    AuthMode::Optional => ClientVerification::Optional(trust),
                }
            }
        };
        let protocols: Vec<Vec<u8>> = alpn.iter().map(|id| id.as_bytes().to_vec()).collect();
        match Configs::build(policy, self.store, &protocols, &auth, self.tickets) {
            Ok(configs) => Some(Terms { offer: Arc::new(self.offer(&configs)), configs }),
            Err(error) => {
                report.error(at, error.to_string());
                None
            }
        }
    }

    /// The authorities of client certificates; `None` where a file cannot be used, as was reported when it was read.
    pub(super) fn trust(&self, auth: &model::ClientAuth) -> Option<Trust> {
        let anchors = self.authorities(auth.authorities())?;
        let domain = |one: &model::TrustDomainConfig| {
            Some(TrustDomain { name: one.name.to_string(), roots: self.authorities(one.ca.iter())?.store })
        };
        let domains: Option<Vec<_>> = auth.trust_domains.iter().map(domain).collect();
        let mut revoked = Vec::new();
        for crl in &auth.crl {
            revoked.extend_from_slice(self.sources.revoked(&crl.path)?);
        }
        let allowed = auth.allow.iter().map(ToString::to_string).collect();
        Some(Trust { revoked, domains: domains?, allowed, ..Trust::from(&anchors) })
    }

    /// The authorities of several files.
    fn authorities<'f>(&self, files: impl Iterator<Item = &'f FilePath>) -> Option<Anchors> {
        let mut all = Anchors::from(RootCertStore::empty());
        for file in files {
            all = all.and(self.sources.authorities(&file.path)?);
        }
        Some(all)
    }

    fn offer(&self, configs: &Configs) -> TlsOffer {
        let offers = configs.offers();
        TlsOffer {
            versions: offers.versions.iter().collect(),
            suites: offers.suites.iter().map(|suite| suite_name(*suite).to_string()).collect(),
            groups: offers.groups.iter().map(|group| group_name(*group).to_string()).collect(),
            schemes: self.schemes.iter().map(|scheme| scheme_name((*scheme).into()).to_string()).collect(),
            alpn: offers.alpn.iter().collect(),
        }
    }
}

/// The clients to admit among those with a verified certificate.
pub(super) fn allow(auth: &model::ClientAuth, at: &At, report: &mut Findings) -> AllowList {
    let mut patterns = Vec::new();
    for allow in &auth.allow {
        match allow.to_string().parse::<Pattern>() {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => report.error(at, error.to_string()),
        }
    }
    AllowList::new(patterns)
}

/// The signature schemes of the certificates.
fn schemes(store: &CertificateStore) -> Vec<SignatureScheme> {
    let can = |scheme: &SignatureScheme| store.certificates().any(|one| one.suits(&[*scheme]));
    SCHEMES.iter().copied().filter(can).collect()
}

/// Every scheme that a supported key can sign with.
const SCHEMES: [SignatureScheme; 10] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
];

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: TlsPolicy =
        TlsPolicy { tls13: true, tls12: true, ciphers: Ciphers::ALL, post_quantum: true, tickets: 1 };

    #[test]
    fn a_file_of_authorities_is_not_one_of_revocation_lists() {
        let files =
            |names: &[&str]| -> Vec<FilePath> { names.iter().map(|name| FilePath::new(*name)).collect() };
        let auth = |ca: &[&str], crl: &[&str]| model::ClientAuth {
            mode: AuthMode::Required,
            ca: files(ca),
            trust_domains: Vec::new(),
            crl: files(crl),
            allow: Vec::new(),
            xfcc: false,
        };
        let key = |ca: &[&str], crl: &[&str]| Key::of(POLICY, &[], Some(&auth(ca, crl)));
        // The same handshake for both would trust the authorities of `both.pem` on a route that does not name them.
        assert_ne!(key(&["/root.pem"], &["/both.pem"]), key(&["/root.pem", "/both.pem"], &[]));
        assert_eq!(key(&["/root.pem"], &["/both.pem"]), key(&["/root.pem"], &["/both.pem"]));
        assert_ne!(Key::of(POLICY, &[], None), key(&["/root.pem"], &[]));
        let modern = TlsPolicy { tls12: false, ..POLICY };
        assert_ne!(Key::of(POLICY, &[], None), Key::of(modern, &[], None));
        // The access rule is a part of the rule that sessions are bound to.
        let mut alice = auth(&["/root.pem"], &[]);
        alice.allow = vec!["cn:alice".parse().unwrap()];
        assert_ne!(Key::of(POLICY, &[], Some(&alice)), key(&["/root.pem"], &[]));
    }
}
