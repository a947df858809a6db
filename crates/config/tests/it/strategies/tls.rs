//! Strategies of what TLS is made of: the certificates of clients, and TLS to servers.

use offramp_config::model::{
    Allow, AlpnId, AuthMode, ClientAuth, ClientCertificate, Pin, Preamble, ServerTls, TlsName, TrustDomain,
    Verify,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{distinct, file};

pub(super) fn client_auth() -> impl Strategy<Value = ClientAuth> {
    let allow = "(dns|uri|ip|cn|ou|pin):[a-z*:/.]{1,8}".prop_map(|text| text.parse::<Allow>().unwrap());
    let files = (vec(file(), 1..3), vec(file(), 0..3));
    let by_domain = any::<bool>();
    (select(AuthMode::ALL), files, vec(allow, 0..3), by_domain).prop_map(
        |(mode, (mut ca, mut crl), mut allow, by_domain)| {
            distinct(&mut allow);
            distinct(&mut ca);
            distinct(&mut crl);
            let mut trust_domains = Vec::new();
            if by_domain {
                let names = ["example.org", "partner.test"].map(|name| name.parse().unwrap());
                trust_domains.extend(names.map(|name| TrustDomain { name, ca: ca.clone() }));
                ca.clear();
            }
            ClientAuth { mode, ca, trust_domains, crl, allow, xfcc: false }
        },
    )
}

pub(super) fn server_tls() -> impl Strategy<Value = ServerTls> {
    let verify = prop_oneof![
        Just(Verify::System),
        Just(Verify::Nothing),
        file().prop_map(Verify::File),
        any::<[u8; 32]>().prop_map(|hash| Verify::Pins(vec![Pin(hash)])),
    ];
    let certificate = (file(), option::of(file())).prop_map(|(cert, key)| ClientCertificate { cert, key });
    let alpn = select(vec!["redis", "h2"]).prop_map(|id| id.parse::<AlpnId>().unwrap());
    let preamble = option::of(Just(Preamble::Postgres));
    (verify, vec(file(), 0..3), option::of(certificate), option::of(alpn), preamble).prop_map(
        |(verify, mut crl, certificate, alpn, preamble)| {
            // A Unix socket needs a name, and a pin must not have one.
            let named = !matches!(verify, Verify::Pins(_) | Verify::Nothing);
            let name = named.then(|| "db.internal".parse::<TlsName>().unwrap());
            crl.retain(|_| named);
            distinct(&mut crl);
            let alpn = alpn.into_iter().collect();
            ServerTls { verify, crl, name, certificate, alpn, preamble, ..ServerTls::default() }
        },
    )
}
