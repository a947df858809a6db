//! Strategies of what TLS is made of: the certificates of clients, and TLS to servers.

use offramp_config::model::{
    AeadCipher, Allow, AlpnId, AuthMode, ClientAuth, ClientCertificate, ImpliedCertificates, Nameless, Pin,
    Policy, PreambleProtocol, RecordSizeLimit, RecordSizePolicy, ServerTls, Tickets, Tls, TlsName,
    TrustDomainConfig, Verify,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{distinct, duration, file};

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
                trust_domains.extend(names.map(|name| TrustDomainConfig { name, ca: ca.clone() }));
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
    let preamble = option::of(Just(PreambleProtocol::Postgres));
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

pub(super) fn tls() -> impl Strategy<Value = Tls> {
    let record_size = prop_oneof![
        Just(RecordSizePolicy::Adaptive),
        (4096u16..=16384).prop_map(|size| RecordSizePolicy::Fixed(RecordSizeLimit::new(size).unwrap())),
    ];
    let plain = (select(Policy::ALL), 0u16..=8, duration(1000, 72 * 3_600_000), record_size);
    (plain, any::<bool>(), select(ImpliedCertificates::ALL)).prop_map(
        |((policy, tickets, ticket_rotation, record_size), post_quantum, certificates)| Tls {
            policy,
            tickets: Tickets::new(tickets).unwrap(),
            ticket_rotation,
            record_size,
            post_quantum,
            certificates,
            acme: match certificates {
                ImpliedCertificates::Acme => vec!["by.dns".parse().unwrap()],
                ImpliedCertificates::Local => Vec::new(),
            },
            aeads: AeadCipher::ALL.iter().copied().skip(usize::from(tickets % 3)).collect(),
            unknown_name: if post_quantum { Nameless::Refuse } else { Nameless::Default },
            ..Tls::default()
        },
    )
}
