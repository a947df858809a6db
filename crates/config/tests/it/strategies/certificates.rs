//! Strategies of certificates, and of the authorities that they come from.

use offramp_config::At;
use offramp_config::model::{
    AcmeAuthority, AcmeCertificate, AcmeKeyType, CertificateConfig, CertificateName, CertificateSource,
    Challenge, DefaultRole, DnsProvider, DnsUpdate, ExternalAccount, FilePath, HostPattern, OnDemand,
    TsigAlgorithm,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{duration, file, host};

pub(super) fn certificates() -> impl Strategy<Value = Vec<CertificateConfig>> {
    let files = (file(), option::of(file()), option::of(file()))
        .prop_map(|(cert, key, ocsp)| CertificateSource::Files { cert, key, ocsp });
    let local = host().prop_map(|host| CertificateSource::Local { names: vec![CertificateName::Host(host)] });
    let folder = file().prop_map(|path| CertificateSource::Directory { path });
    let how = (select(AcmeKeyType::ALL), any::<bool>(), option::of((any::<bool>(), duration(0, 60_000))));
    let acme = (host(), how).prop_map(|(host, (key_type, reuse_key, demanded))| {
        let wildcard = matches!(host, HostPattern::Wildcard(_));
        let authority = if wildcard && demanded.is_none() { "by.dns" } else { "letsencrypt" };
        let names = vec![host];
        let ask = || "http://127.0.0.1:3000/ask?from=offramp".parse().unwrap();
        let on_demand = demanded.map(|(asks, wait)| OnDemand {
            names: names.clone(),
            ask: asks.then(ask),
            rate: OnDemand::RATE,
            wait,
        });
        CertificateSource::Acme(AcmeCertificate {
            authorities: vec![authority.parse().unwrap()],
            names: if on_demand.is_some() { Vec::new() } else { names },
            key_type,
            reuse_key,
            on_demand,
        })
    });
    let role = prop_oneof![Just(DefaultRole::Unsaid), Just(DefaultRole::Always), Just(DefaultRole::Never)];
    vec((prop_oneof![files, folder, local, acme], role), 0..4).prop_map(|certificates| {
        let mut defaults = 0;
        let certificate = |(source, mut default)| {
            let demanded = matches!(&source, CertificateSource::Acme(acme) if acme.on_demand.is_some());
            if demanded && default == DefaultRole::Always {
                default = DefaultRole::Never;
            }
            defaults += usize::from(default == DefaultRole::Always);
            if default == DefaultRole::Always && defaults > 1 {
                default = DefaultRole::Unsaid;
            }
            CertificateConfig { source, default, at: At::NOWHERE }
        };
        certificates.into_iter().map(certificate).collect()
    })
}

/// A name server that takes updates.
fn dns_update(key_file: FilePath) -> DnsUpdate {
    DnsUpdate {
        server: "[::1]:53".parse().unwrap(),
        zone: "example.org".parse().unwrap(),
        key_name: "offramp".parse().unwrap(),
        key_file,
        algorithm: TsigAlgorithm::HmacSha512,
    }
}

/// An authority for wildcards, and any other.
pub(super) fn authorities() -> impl Strategy<Value = Vec<AcmeAuthority>> {
    let words = option::of("[a-z\"\\\\]{1,4}");
    let rest = (option::of(file()), words.clone(), option::of(("[a-z]{1,3}", file())), option::of(words));
    (file(), duration(0, 3_600_000), rest).prop_map(|(hook, dns_wait, (ca, profile, eab, email))| {
        let new = |name: &str| {
            AcmeAuthority::new(name.parse().unwrap(), "https://acme.test:14000/dir".parse().unwrap())
        };
        let by_dns = AcmeAuthority {
            challenge: Challenge::Dns01,
            dns: Some(if ca.is_some() {
                DnsProvider::Update(dns_update(hook))
            } else {
                DnsProvider::Hook(hook)
            }),
            dns_wait,
            profile,
            ..new("by.dns")
        };
        let eab = eab.map(|(key_id, key_file)| ExternalAccount { key_id, key_file });
        let email = email.map(|_| "me@example.org".to_owned());
        vec![by_dns, AcmeAuthority { ca, eab, email, ..new("other") }]
    })
}
