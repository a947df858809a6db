use std::net::IpAddr;
use std::time::{Duration, Instant};

use offramp_certs::local_ca::LocalCa;
use offramp_config::model::{AcmeAuthority, Environment};
use offramp_control::{AuthorityOrder, CaaFinding, ReachedAddress};
use serde_json::Value;

use super::*;

const CONFIG: &str = r#"
[[listener]]
mode = "http"

[[certificate]]
acme = "letsencrypt"
names = ["ordered.example.org"]

[[route]]
host = "sealed.example.org"
passthrough = "127.0.0.1:9443"

[[route]]
host = ["www.example.org", "ordered.example.org"]
server = "127.0.0.1:3000"
"#;

fn config() -> Config {
    let parsed = offramp_config::parse(CONFIG, "offramp.toml", &Environment::default());
    parsed.unwrap_or_else(|errors| panic!("{errors}")).0
}

/// A certificate of a local CA for `www.example.org`.
fn certificate(now: SystemTime) -> Certificate {
    let folder = tempfile::tempdir().unwrap();
    LocalCa::open_or_create(folder.path(), now).unwrap().issue(&["www.example.org"], now).unwrap()
}

fn order(failures: u32, last_failure: Option<&str>, next: Option<SystemTime>) -> CertificateOrder {
    let authority = AcmeAuthority::well_known(&"letsencrypt".parse().unwrap()).unwrap();
    let authority = AuthorityOrder { authority, paused_until: None, barred_until: None };
    CertificateOrder {
        names: vec!["ordered.example.org".to_owned()],
        authorities: vec![authority],
        failures,
        last_failure: last_failure.map(|words| (SystemTime::UNIX_EPOCH, words.to_owned())),
        next,
    }
}

fn on_demand(outcome: Option<DemandOutcome>, words: Option<&str>) -> DemandOrder {
    let until = Instant::now() + Duration::from_secs(600);
    let refused = |outcome| DemandStanding::Refused(DemandRefusal { outcome, until });
    let standing = outcome.map_or(DemandStanding::Unasked, refused);
    let certificate = order(0, words, None);
    DemandOrder { certificate, asks: false, rate: "50/h".to_owned(), left: 49, standing }
}

struct Case {
    held: Option<(Arc<Certificate>, MatchKind)>,
    kept: Vec<CertificateOrder>,
    demand: Option<DemandOrder>,
    is_elsewhere: bool,
    look: NameLook,
}

impl Case {
    fn none() -> Self {
        let look = NameLook::Omitted("not looked at");
        Self { held: None, kept: Vec::new(), demand: None, is_elsewhere: false, look }
    }

    fn ask(self, config: &Config, name: &str, now: SystemTime) -> Value {
        let Self { held, kept, demand, is_elsewhere, look } = self;
        let orders = NameOrders { kept, demand, is_elsewhere };
        let state = CertificateState { config, held, orders, look, now };
        no_certificate(&state, &read(name).unwrap()).into_json()
    }
}

#[test]
fn each_state_of_a_name_has_its_sentence() {
    let (now, mut config) = (SystemTime::now(), config());
    let hour = Duration::from_secs(3600);
    let own = Arc::new(certificate(now));
    let of_authority = |not_before, not_after| {
        let source = CertificateOrigin::Acme { path: "/state/x.pem".into() };
        let mut certificate = (*own).clone();
        (certificate.not_before, certificate.not_after, certificate.source) = (not_before, not_after, source);
        Some((Arc::new(certificate), MatchKind::Exact))
    };
    let (valid, past) = (of_authority(now - hour, now + hour), of_authority(now - 2 * hour, now - hour));
    let until = |time: SystemTime| date(time);
    let local = Some((Arc::clone(&own), MatchKind::Exact));
    let default = Some((Arc::clone(&own), MatchKind::Default));
    let failed = || vec![order(3, Some("letsencrypt: no such name."), Some(now + hour))];
    let none = Case::none;
    let (w, o) = ("www.example.org", "ordered.example.org");
    for (name, case, first) in [
        ("sealed.example.org", none(), "The TLS of sealed.example.org passes unchanged to 127.0.0.1:9443 by route sealed.example.org: the server there has the certificate.".to_owned()),
        (w, Case { held: past.clone(), ..none() }, format!("The certificate of {w} has expired at {}.", until(now - hour))),
        (w, Case { held: of_authority(now + hour, now + 2 * hour), ..none() }, format!("The certificate of {w} is not valid before {}.", until(now + hour))),
        (w, Case { held: past, kept: failed(), ..none() }, format!("The certificate of {w} has expired at {}: 3 orders have failed, the latest with: letsencrypt: no such name.", until(now - hour))),
        (w, Case { held: valid.clone(), kept: failed(), ..none() }, format!("{w} has a certificate until {}, and its renewal fails: 3 orders have failed, the latest with: letsencrypt: no such name.", until(now + hour))),
        (w, Case { held: local.clone(), ..none() }, format!("{w} has a certificate of the local CA, which clients refuse that do not trust it.")),
        (w, Case { held: local.clone(), kept: vec![order(1, None, None)], ..none() }, format!("{w} has only a certificate of the local CA, which clients refuse: 1 order has failed; the reason is in the log of the time before this start.")),
        (w, Case { held: local, kept: failed(), is_elsewhere: true, ..none() }, format!("{w} has only a certificate of the local CA, which clients refuse: another process has the lock of the state directory, and orders.")),
        (o, Case { kept: vec![order(0, None, Some(now))], ..none() }, format!("{o} has no certificate yet: it is being ordered.")),
        (o, Case { kept: vec![order(0, None, Some(now + hour))], ..none() }, format!("{o} has no certificate yet: it is ordered at {}, in 60 min.", until(now + hour))),
        (o, Case { demand: Some(on_demand(None, None)), ..none() }, format!("{o} has no certificate yet: one is ordered when a client asks for it.")),
        (o, Case { demand: Some(on_demand(Some(DemandOutcome::OverRate), None)), ..none() }, format!("{o} has no certificate yet: a client has asked for it, and certificate.on_demand.rate allows no more names now.")),
        (o, Case { demand: Some(on_demand(Some(DemandOutcome::Failed), Some("letsencrypt: CAA."))), ..none() }, format!("{o} has no certificate yet: its order has failed with: letsencrypt: CAA.")),
        ("x.test", Case { held: default.clone(), ..none() }, "No certificate names x.test: clients get the default one, for www.example.org, and refuse it.".to_owned()),
        ("x.test", none(), "No certificate names x.test: clients are refused with alert unrecognized_name (112).".to_owned()),
    ] {
        let answer = case.ask(&config, name, now);
        assert_eq!(answer["first"], first, "{name}");
        assert!(answer["evidence"].as_array().is_some_and(|all| !all.is_empty()), "{answer:#}");
    }
    let good = Case { held: valid, ..Case::none() }.ask(&config, w, now);
    let begin = format!("{w} has a certificate of CN=");
    assert!(good["first"].as_str().unwrap().starts_with(&begin), "{good:#}");
    assert_eq!(good["facts"]["has_certificate"], true);
    config.tls.unknown_name = Nameless::Refuse;
    let refused = Case { held: default, ..Case::none() }.ask(&config, "x.test", now);
    assert!(refused["first"].as_str().unwrap().contains("unrecognized_name"), "{refused:#}");
}

#[test]
fn limits_addresses_and_records_are_told_with_their_remedies() {
    let (now, config) = (SystemTime::now(), config());
    let later = now + Duration::from_secs(1800);
    let mut kept = order(2, Some("letsencrypt: urn:ietf:params:acme:error:caa"), Some(later));
    kept.authorities[0].paused_until = Some(later);
    kept.authorities[0].barred_until = Some(later);
    let record = |value: &str| caa_record("issue", value);
    let address = ReachedAddress {
        address: IpAddr::from([192, 0, 2, 1]),
        is_own: true,
        ports: vec![(80, Ok(())), (443, Err("Connection refused (os error 111)".to_owned()))],
    };
    let finding = CaaFinding { at: Some("example.org".to_owned()), records: vec![record("ca.test; x=y")] };
    let reach = NameReach { addresses: Ok(vec![address]), caa: Ok(finding) };
    let look = NameLook::Taken(Box::new(reach));
    let case = Case { kept: vec![kept], look, ..Case::none() };
    let answer = case.ask(&config, "ordered.example.org", now);
    let text = answer.to_string();
    for part in [
        "It is ordered from letsencrypt with tls-alpn-01.",
        "certificate, offramp.toml:",
        "Orders that failed since the last certificate: 2.",
        "letsencrypt wants to be left alone until ",
        "letsencrypt has looked for a name in vain five times in an hour",
        ", in 30 min.",
        "ordered.example.org resolves to 192.0.2.1, an address of this machine: port 80 answers; port 443 does not: Connection refused (os error 111).",
        "The CAA records of example.org let only ca.test issue.",
        "tls-alpn-01 needs port 443 of ordered.example.org, and nothing answers there from here",
        "Add a CAA record to example.org: 0 issue \\\"letsencrypt.org\\\"",
        "offramp cert renew ordered.example.org",
    ] {
        assert!(text.contains(part), "{part}: {answer:#}");
    }
    let reach = NameReach { addresses: Err("no such name".to_owned()), caa: Err("no answer".to_owned()) };
    let look = NameLook::Taken(Box::new(reach));
    let case = Case { kept: vec![order(0, None, None)], look, ..Case::none() };
    let text = case.ask(&config, "ordered.example.org", now).to_string();
    for part in [
        "does not resolve here: no such name.",
        "Set an A or AAAA record",
        "Its CAA records are not known: no answer.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn caa_record(tag: &str, value: &str) -> offramp_certs::acme::caa::CaaRecord {
    offramp_certs::acme::caa::CaaRecord { critical: false, tag: tag.to_owned(), value: value.to_owned() }
}

#[test]
fn only_names_of_the_configuration_are_looked_at() {
    let config = config();
    let orders = NameOrders { kept: Vec::new(), demand: None, is_elsewhere: false };
    for (name, expected) in [
        ("www.example.org", true),
        ("WWW.example.org.", true),
        ("ordered.example.org", true),
        ("example.org", false),
        ("metadata.internal", false),
    ] {
        assert_eq!(is_configured(&config, &orders, &read(name).unwrap()), expected, "{name}");
    }
    for text in ["192.0.2.1", "", "a b", "https://a.test", "a.test:443", "a\u{202e}b.test"] {
        let refusal = read(text).unwrap_err();
        assert!(refusal.contains("is no name such as") && !refusal.contains('\u{202e}'), "{refusal}");
    }
}
