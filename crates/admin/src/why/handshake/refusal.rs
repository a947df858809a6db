//! The rule that refuses a hello, the key that it comes from, and what would have to change.

use offramp_certs::KeyKind;
use offramp_config::model::{AeadCipher, Policy, RouteConfig, TlsVersionLimit};
use offramp_observe::facts::Cause;
use offramp_wire::client_hello::{self, ClientHello};

use super::{Scene, key_place, listed, names, place, protocols};

/// The first rule that refuses.
pub(super) struct Refusal {
    /// The reason, as part of a sentence.
    pub(super) reason: String,
    /// The rule, as a sentence.
    pub(super) rule: String,
    /// The key of the rule, with its place.
    pub(super) source: String,
    pub(super) remedies: Vec<String>,
}

impl Refusal {
    fn new(reason: impl Into<String>, rule: impl Into<String>, source: impl Into<String>) -> Self {
        let (reason, rule, source) = (reason.into(), rule.into(), source.into());
        Self { reason, rule, source, remedies: Vec::new() }
    }

    fn advise(mut self, remedy: impl Into<String>) -> Self {
        self.remedies.push(remedy.into());
        self
    }
}

const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;

/// Suites that Offramp can offer, with the cipher that offers them.
#[rustfmt::skip]
const OFFERED: [(u16, AeadCipher); 9] = [
    (0x1301, AeadCipher::Aes128Gcm), (0x1302, AeadCipher::Aes256Gcm), (0x1303, AeadCipher::ChaCha20Poly1305),
    (0xc02b, AeadCipher::Aes128Gcm), (0xc02c, AeadCipher::Aes256Gcm), (0xcca9, AeadCipher::ChaCha20Poly1305),
    (0xc02f, AeadCipher::Aes128Gcm), (0xc030, AeadCipher::Aes256Gcm), (0xcca8, AeadCipher::ChaCha20Poly1305),
];
/// Of these, those that an RSA key signs for in TLS 1.2, and those of ECDSA and Ed25519.
const RSA_SUITES: [u16; 3] = [0xc02f, 0xc030, 0xcca8];
const ECDSA_SUITES: [u16; 3] = [0xc02b, 0xc02c, 0xcca9];

/// The remedy where the configuration cannot help.
const NOTHING_OLDER: &str = "Update the client. For one that cannot be updated, pass its TLS to a server that still \
                             speaks it: a [[route]] with `host` and `passthrough`.";

impl Scene<'_> {
    pub(super) fn refusal(&self, cause: Cause, detail: &str) -> Refusal {
        let Some(hello) = self.hello else {
            return Refusal::new(detail, cause.meaning(), "ClientHello").advise(
                "See whether it is a ClientHello of TLS, and whole; a capture with `tcpdump -s 0` has all bytes",
            );
        };
        match cause {
            Cause::NoCommonVersion => self.version(hello),
            Cause::NoCommonSuite => self.suite(hello),
            Cause::NoCommonGroup => self.group(hello),
            Cause::NoCommonScheme => self.scheme(hello),
            Cause::NoCommonAlpn => self.protocol(hello),
            Cause::NoRoute => self.route(hello),
            Cause::UnknownName => self.name(hello),
            Cause::Ja4Denied => self.of_route("its JA4 fingerprint is in deny_ja4", "deny_ja4").advise(
                format!("Take {} out of the route's deny_ja4, if this client is welcome", hello.ja4()),
            ),
            Cause::AddressDenied => self.address(),
            _ => Refusal::new(
                if detail.is_empty() { cause.meaning().trim_end_matches('.') } else { detail },
                cause.meaning(),
                "rehearsal",
            ),
        }
    }

    /// The key of a setting of TLS, with the place of the route if it overrides it.
    fn tls_key(&self, key: &'static str, overrides: impl Fn(&RouteConfig) -> bool) -> String {
        match self.route.filter(|route| overrides(route)) {
            Some(route) => place(&route.at, key.strip_prefix("tls.").map_or(key, |_| "route.tls")),
            None => key_place(self.config, key),
        }
    }

    fn version(&self, hello: &ClientHello<'_>) -> Refusal {
        let offered = names(client_hello::version_name, hello.versions());
        let ours = self.trial.offers.as_ref().map(|offers| offers.versions.join(" and ")).unwrap_or_default();
        let most = hello.versions().max().unwrap_or_default();
        let at_most = if hello.versions().count() == 1 && most < TLS13 { " at most" } else { "" };
        let reason = format!("it offers {}{at_most}, and {ours} is configured", listed(&offered));
        if hello.offers_version(TLS13) {
            let source = self.tls_key("tls.max_version", |route| route.tls.max_version.is_some());
            return Refusal::new(reason, "max_version = \"1.2\" leaves TLS 1.3 out.", source)
                .advise(format!("Set max_version = \"{}\", or leave it out", TlsVersionLimit::Tls13));
        }
        let source = self.tls_key("tls.policy", |route| route.tls.policy.is_some());
        if hello.offers_version(TLS12) {
            return Refusal::new(reason, "policy = \"modern\" leaves TLS 1.2 out.", source)
                .advise(format!("Set policy = \"{}\", or leave it out", Policy::Intermediate));
        }
        let rule = "Offramp speaks TLS 1.2 and 1.3: there is no key for older versions (RFC 8996).";
        Refusal::new(reason, rule, source).advise(NOTHING_OLDER)
    }

    fn suite(&self, hello: &ClientHello<'_>) -> Refusal {
        let speaks = |version: u16| {
            let name = client_hello::version_name(version).to_string();
            self.trial
                .offers
                .as_ref()
                .is_some_and(|offers| offers.versions.iter().any(|spoken| *spoken == name))
        };
        let is_usable = |suite: u16| {
            let version = if suite < 0x1400 { TLS13 } else { TLS12 };
            speaks(version) && hello.offers_version(version)
        };
        let mut missing: Vec<String> = Vec::new();
        let ours = self.trial.offers.as_ref().map(|offers| offers.suites.as_slice()).unwrap_or_default();
        for suite in hello.suites().filter(|suite| is_usable(*suite) && !ours.contains(suite)) {
            if let Some((_, aead)) = OFFERED.iter().find(|(offered, _)| *offered == suite) {
                missing.push(aead.to_string());
            }
        }
        missing.dedup();
        if let Some(aead) = missing.first() {
            let reason = "the ciphers that it offers are left out by aeads";
            let source = self.tls_key("tls.aeads", |route| !route.tls.aeads.is_empty());
            return Refusal::new(reason, format!("aeads does not have {}.", listed(&missing)), source)
                .advise(format!("Add \"{aead}\" to aeads, or leave aeads out"));
        }
        if hello.suites().any(|suite| ours.contains(&suite) && is_usable(suite)) {
            return self.key_kind(hello);
        }
        let count = hello.suites().filter(|suite| !matches!(suite, 0x00ff | 0x5600)).count();
        let reason = format!("none of its {count} cipher suites is offered");
        let rule = "Offramp offers suites with AES-GCM or ChaCha20-Poly1305 and an ephemeral key (ECDHE) only: \
                    no CBC, RC4 or 3DES, and no key exchange by RSA or DHE.";
        Refusal::new(reason, rule, self.tls_key("tls.policy", |route| route.tls.policy.is_some()))
            .advise("Enable ECDHE suites with AES-GCM in the client, such as ECDHE-RSA-AES128-GCM-SHA256")
            .advise(NOTHING_OLDER)
    }

    /// The suites and schemes in common need a key that the certificate does not have.
    fn key_kind(&self, hello: &ClientHello<'_>) -> Refusal {
        let Some((certificate, _)) = &self.trial.certificate else {
            return Refusal::new("no certificate suits it", "No certificate is there.", "certificates");
        };
        let offers = |suites: &[u16]| hello.suites().any(|suite| suites.contains(&suite));
        let wants_rsa = match certificate.kind {
            KeyKind::Rsa => false,
            // In TLS 1.3 the schemes decide, which an old list of suites does not bind.
            _ => offers(&RSA_SUITES) || !offers(&ECDSA_SUITES),
        };
        let wanted = if wants_rsa { "RSA" } else { "ECDSA" };
        let has = certificate.description.key_algorithm.clone();
        let reason = format!("it cannot use a certificate with a key of kind {has}, and asks for {wanted}");
        let name = certificate.names.first().map(ToString::to_string).unwrap_or_default();
        let rule = format!(
            "The certificate of {name} has a key of kind {has}, and there is no other for this name."
        );
        let kind = if wants_rsa { "rsa2048" } else { "p256" };
        Refusal::new(reason, rule, self.certificate_place()).advise(format!(
            "Add a second [[certificate]] for the name with a key of kind {wanted} (with `acme`: key_type = \"{kind}\"); each \
             client gets the one that it can use"
        ))
    }

    /// The place of the certificate in the configuration, as far as it is known.
    fn certificate_place(&self) -> String {
        let Some((certificate, _)) = &self.trial.certificate else { return "[[certificate]]".to_owned() };
        let file = match &certificate.source {
            offramp_certs::CertificateOrigin::Files { cert, .. } => cert.display().to_string(),
            _ => String::new(),
        };
        let written = self.config.certificates.iter().find(|one| !file.is_empty() && one.name() == file);
        match written.or(self.config.certificates.first().filter(|_| self.config.certificates.len() == 1)) {
            Some(one) => place(&one.at, "[[certificate]]"),
            None => "[[certificate]]".to_owned(),
        }
    }

    fn group(&self, hello: &ClientHello<'_>) -> Refusal {
        let theirs = names(client_hello::group_name, hello.groups());
        let numbers = self.trial.offers.as_ref().map(|offers| offers.groups.clone()).unwrap_or_default();
        let ours = names(client_hello::group_name, numbers.into_iter());
        let reason = match theirs.is_empty() {
            true => "it offers no group for the key exchange".to_owned(),
            false => format!("it offers the groups {} only", listed(&theirs)),
        };
        let rule = format!("Offramp exchanges keys by {}.", listed(&ours));
        let refusal = Refusal::new(reason, rule, key_place(self.config, "tls.post_quantum"));
        if hello.groups().any(|group| group == 0x11ec) && !self.config.tls.post_quantum {
            return refusal.advise("Set post_quantum = true, or leave it out");
        }
        refusal.advise("Enable x25519 or secp256r1 (P-256) in the client")
    }

    fn scheme(&self, hello: &ClientHello<'_>) -> Refusal {
        let mut refusal = self.key_kind(hello);
        let theirs = names(client_hello::scheme_name, hello.schemes());
        refusal.reason = match theirs.is_empty() {
            true => "it names no signature scheme".to_owned(),
            false => {
                format!("{}: its signature schemes are {}", refusal.reason, listed(&theirs))
            }
        };
        refusal
    }

    fn protocol(&self, hello: &ClientHello<'_>) -> Refusal {
        let theirs = protocols(hello.alpn());
        let routes = self.config.routes_of(self.listener).flat_map(|route| &route.alpn);
        let mut ours: Vec<String> = routes.map(|id| id.as_str().to_owned()).collect();
        if let Some(offers) = &self.trial.offers {
            ours.extend(protocols(offers.alpn.iter().map(Vec::as_slice)));
        }
        ours.sort();
        ours.dedup();
        let reason = match theirs.is_empty() {
            true => format!(
                "it offers no protocol by ALPN, and the routes for its name have alpn = {}",
                listed(&ours)
            ),
            false => format!("it offers {} by ALPN, and {} is configured", listed(&theirs), listed(&ours)),
        };
        let at = self.route.map_or(&self.listener.at, |route| &route.at);
        Refusal::new(reason, "A client must offer a protocol of the route (RFC 7301).", place(at, "alpn"))
            .advise("Add a [[route]] for the name without `alpn`, or with one that the client offers")
    }

    fn route(&self, hello: &ClientHello<'_>) -> Refusal {
        let host = hello.server_name().host();
        let reason = match host {
            Some(host) => format!("no route of listener {} has host {host}", self.listener.name),
            None => format!(
                "it sends no server name, and each route of listener {} has a host",
                self.listener.name
            ),
        };
        let rule = format!("Listener {} has no route for any host.", self.listener.name);
        let refusal = Refusal::new(reason, rule, place(&self.listener.at, "[[listener]]"));
        let hosts = self.config.routes_of(self.listener).flat_map(|route| &route.hosts);
        let hosts: Vec<String> = hosts.map(ToString::to_string).collect();
        let near = host.and_then(|host| offramp_config::nearest(host, hosts.iter().map(String::as_str)));
        let refusal = match near {
            Some(near) => refusal.advise(format!(
                "The nearest host of a route is {near}: correct the host if it is misspelt."
            )),
            None => refusal,
        };
        match host {
            Some(host) => refusal.advise(format!("Add a [[route]] with host = \"{host}\"")),
            None => refusal.advise("Add a [[route]] without `host`, or have the client send the name (SNI)"),
        }
    }

    fn name(&self, hello: &ClientHello<'_>) -> Refusal {
        let Some(host) = hello.server_name().host() else {
            let source = key_place(self.config, "tls.no_server_name");
            return Refusal::new(
                "it sends no server name (SNI)",
                "Clients without a server name get no default certificate.",
                source,
            )
            .advise("Have the client send the name it connects to (SNI)")
            .advise("Set no_server_name = \"default\", so that it gets the default certificate");
        };
        if let Some(item) = super::on_demand(self.config, host) {
            return Refusal::new(
                format!("no certificate names {host} yet"),
                "A certificate for it is ordered when a client asks for the name, and the handshake waits for it.",
                place(&item.at, "certificate.on_demand"),
            )
            .advise(format!("offramp why no-certificate {host}"));
        }
        let source = key_place(self.config, "tls.unknown_name");
        let refusal = Refusal::new(
            format!("no certificate names {host}"),
            "Clients whose server name is in no certificate get no default one.",
            source,
        );
        refusal
            .advise(format!("Add a [[certificate]] that names {host}"))
            .advise("Or set unknown_name = \"default\" and have a default certificate; clients that verify names refuse it")
    }

    fn address(&self) -> Refusal {
        let at = match (&self.trial.route, self.route) {
            (Some(_), Some(route)) => place(&route.at, "allow, deny"),
            _ => place(&self.listener.at, "allow, deny"),
        };
        Refusal::new("its address is not admitted", "Clients are chosen by their networks.", at)
            .advise("Take the address into allow, or out of deny")
    }

    fn of_route(&self, reason: &str, key: &str) -> Refusal {
        let at = self.route.map_or(&self.listener.at, |route| &route.at);
        let rule = format!("Route {} refuses it.", self.trial.route.as_deref().unwrap_or_default());
        Refusal::new(reason, rule, place(at, key))
    }
}
