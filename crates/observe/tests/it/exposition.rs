//! The metrics page under a strict reader of both formats.

use crate::samples;
use offramp_observe::counters::{Counters, Direction};
use offramp_observe::facts::{Cause, Close, ConnectionFacts, Handshake, HttpVersion, TlsVersion};
use offramp_observe::names::{self, MetricKind};
use offramp_observe::prometheus::Build;
use offramp_observe::{
    EventFormat, Exposition, ExpositionFormat, Flusher, FlusherSettings, Log, Output, Sampled, Sampler,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    unit: Option<String>,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads a page, and panics at whatever the format does not allow (and at some of what it merely allows).
fn read(page: &str, format: ExpositionFormat) -> BTreeMap<String, Family> {
    let open_metrics = format == ExpositionFormat::OpenMetrics;
    let body = if open_metrics { page.strip_suffix("# EOF\n").expect("ends in EOF") } else { page };
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    for line in body.strip_suffix('\n').expect("ends in a newline").split('\n') {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) =
                (words.next().unwrap(), words.next().unwrap(), words.next().unwrap().to_owned());
            if what == "HELP" {
                assert!(families.insert(name.to_owned(), Family::default()).is_none(), "{name} twice");
                name.clone_into(&mut current);
            }
            assert_eq!(name, current, "metadata of another family");
            let family = families.get_mut(name).unwrap();
            assert!(family.samples.is_empty(), "metadata after samples: {line}");
            match what {
                "HELP" => family.help = rest,
                "TYPE" => family.kind = rest,
                "UNIT" if open_metrics => family.unit = Some(rest),
                _ => panic!("unknown comment: {line}"),
            }
            continue;
        }
        let sample = read_sample(line);
        let family = families.get_mut(&current).unwrap();
        let suffix = sample.name.strip_prefix(&current).expect("a sample belongs to the current family");
        assert!(suffixes(&family.kind, open_metrics).contains(&suffix), "{line}");
        assert!(seen.insert((sample.name.clone(), sample.labels.clone())), "twice: {line}");
        family.samples.push(sample);
    }
    families
}

fn suffixes(kind: &str, open_metrics: bool) -> &'static [&'static str] {
    match kind {
        "histogram" => &["_bucket", "_sum", "_count"],
        "counter" if open_metrics => &["_total"],
        "info" if open_metrics => &["_info"],
        "counter" | "gauge" => &[""],
        other => panic!("unknown type {other}"),
    }
}

fn read_sample(line: &str) -> Sample {
    let name_end = line.find(['{', ' ']).unwrap();
    let name = &line[..name_end];
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name:?}");
    let mut rest = &line[name_end..];
    let mut labels = BTreeMap::new();
    if let Some(after) = rest.strip_prefix('{') {
        rest = after;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{label:?}");
            let (value, after) = read_label_value(after);
            assert!(labels.insert(label.to_owned(), value).is_none());
            match after.split_at(1) {
                (",", more) => rest = more,
                ("}", more) => {
                    rest = more;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').expect("one space").parse().expect("a number, and nothing after it");
    Sample { name: name.to_owned(), labels, value }
}

fn read_label_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next().unwrap().1 {
                'n' => '\n',
                c @ ('"' | '\\') => c,
                other => panic!("\\{other} is no escape"),
            }),
            c => value.push(c),
        }
    }
    panic!("unterminated label value: {text}");
}

fn session(worker: usize) -> ConnectionFacts {
    let mut facts = samples::ordinary();
    facts.path.server = Some(format!("server {worker}").into());
    facts.times.total = Duration::from_secs(301);
    facts.close = Close::from(Cause::IdleTimeout);
    facts
}

fn sampled() -> Vec<Sampled> {
    let metrics = [&names::SERVER_UP, &names::SERVER_EJECTED, &names::SERVER_DRAINING, &names::SERVER_ACTIVE];
    let server = || vec!["gitea".into(), "unix:/run/gitea.sock".into()];
    let mut sampled: Vec<_> =
        metrics.map(|metric| Sampled { metric, labels: server(), value: 1.0 }).into_iter().collect();
    sampled.push(Sampled { metric: &names::SERVER_UP, labels: Vec::new(), value: 1.0 });
    for (metric, labels) in [
        (&names::SPANS, &["exported"][..]),
        (&names::NOTIFICATIONS, &["phone", "sent"]),
        (&names::LOG_STORE_UP, &[]),
        (&names::LOG_STORE_EVENTS, &["stored"]),
        (&names::LOG_STORE_SPOOL, &[]),
        (&names::LOG_STORE_SPOOL_LIMIT, &[]),
        (&names::LAST_RELOAD, &[]),
        (&names::CONFIG_LOADED, &[]),
        (&names::RELOADS, &["refused"]),
        (&names::AUTOSAVE_FAILURES, &[]),
        (&names::WORKER_LATE, &[]),
        (&names::WORKER_LATE_TIME, &[]),
        (&names::PANICS, &[]),
        (&names::LIMIT, &["connections"]),
        (&names::LIMIT_USED, &["connections"]),
        (&names::ROUTE_BANDWIDTH, &["default"]),
        (&names::LIMIT_REFUSALS, &["too_many_requests"]),
        (&names::CERTIFICATE_EXPIRY, &["*.example.org", "rsa"]),
        (&names::CERTIFICATE_LEFT, &["*.example.org", "file"]),
        (&names::ACME_ORDERS, &["obtained"]),
        (&names::JWKS_FETCHES, &["success"]),
        (&names::ACME_ON_DEMAND, &["denied"]),
    ] {
        let labels = labels.iter().map(|label| (*label).into()).collect();
        sampled.push(Sampled { metric, labels, value: 7.0 });
    }
    sampled
}

pub(crate) fn exposition() -> (Exposition, Flusher) {
    let (counters, workers) = Counters::new(2);
    for (index, worker) in workers.iter().enumerate() {
        worker.connection_accepted();
        worker.connection_accepted();
        worker.handshake_done(TlsVersion::Tls13, Handshake::Resumed, Duration::from_micros(300));
        worker.bytes_relayed(Direction::ServerToClient, 1000 + index as u64);
        worker.connection_ended(&session(index));
        worker.connection_accepted();
        worker.connection_ended(&samples::mismatched());
        worker.http_connection(HttpVersion::Http2);
        for facts in samples::requests() {
            worker.request_begun();
            worker.request_ended(&facts);
        }
        worker.request_begun();
    }
    let settings = FlusherSettings::new(2, Output::None, EventFormat::Json, Log::silent());
    let (flusher, _) = Flusher::start(settings).unwrap();
    let build = Build { version: "0.1.0", commit: "with \"quotes\", \\ and\nnewline" };
    let events = Some(flusher.monitor());
    (Exposition { events, sampler: Some(Sampler::new(sampled)), ..Exposition::new(counters, build) }, flusher)
}

fn page(exposition: &Exposition, format: ExpositionFormat) -> BTreeMap<String, Family> {
    let mut out = Vec::new();
    exposition.render(format, &mut out);
    read(&String::from_utf8(out).unwrap(), format)
}

#[test]
fn every_metric_is_on_the_page_in_both_formats() {
    let (exposition, _flusher) = exposition();
    for format in [ExpositionFormat::Prometheus, ExpositionFormat::OpenMetrics] {
        let families = page(&exposition, format);
        for metric in names::ALL {
            let open_metrics = format == ExpositionFormat::OpenMetrics;
            let name = if open_metrics { metric.family() } else { metric.name };
            let family = families.get(name).unwrap_or_else(|| panic!("{name} is not on the page"));
            assert_eq!(family.help, metric.help);
            assert_eq!(family.unit.as_deref(), metric.unit().filter(|_| open_metrics));
            if open_metrics || metric.kind != MetricKind::Info {
                assert_eq!(family.kind, metric.kind.name());
            }
            assert!(!family.samples.is_empty(), "{} has no sample", metric.name);
            for sample in &family.samples {
                let labels = sample.labels.keys().map(String::as_str).filter(|&label| label != "le");
                let expected: BTreeSet<_> = metric.labels.iter().copied().collect();
                assert_eq!(labels.collect::<BTreeSet<_>>(), expected, "{}", metric.name);
            }
        }
        assert_eq!(families.len(), names::ALL.len());
    }
}

#[test]
fn the_figures_are_those_of_all_workers() {
    let (exposition, _flusher) = exposition();
    let families = page(&exposition, ExpositionFormat::Prometheus);
    let value = |name: &str, labels: &[(&str, &str)]| {
        let wanted = labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        families[name].samples.iter().find(|sample| sample.labels == wanted).unwrap().value
    };
    assert_eq!(value("offramp_workers", &[]), 2.0);
    assert_eq!(value("offramp_connections_total", &[]), 6.0);
    assert_eq!(value("offramp_connections_active", &[]), 2.0);
    let closed = "offramp_connections_closed_total";
    assert_eq!(value(closed, &[("cause", "idle_timeout"), ("fault", "nobody")]), 2.0);
    assert_eq!(value(closed, &[("cause", "internal"), ("fault", "us")]), 0.0);
    assert_eq!(families[closed].samples.len(), Cause::COUNT);
    assert_eq!(value("offramp_handshakes_total", &[("version", "TLSv1.3"), ("kind", "resumed")]), 2.0);
    assert_eq!(value("offramp_relayed_bytes_total", &[("direction", "server_to_client")]), 2001.0);
    assert_eq!(value("offramp_requests_active", &[]), 2.0);
    let went = [("route", "git.example.org"), ("backend", "gitea"), ("server", "unix:/run/gitea.sock")];
    let with = |more: &[(&'static str, &'static str)]| [&went[..], more].concat();
    let requests = value("offramp_requests_total", &with(&[("method", "GET"), ("code", "2xx")]));
    assert_eq!(requests, 8.0);
    assert_eq!(value("offramp_request_tries_total", &went), 8.0);
    assert_eq!(value("offramp_request_retries_total", &went), 0.0);
    let down = value("offramp_route_bytes_total", &with(&[("direction", "server_to_client")]));
    assert_eq!(down, 8.0 * 18_423.0);
    let client = [("client", "192.0.2.1")];
    assert_eq!(value("offramp_client_requests_total", &client), 8.0);
    assert_eq!(value("offramp_client_connections_total", &client), 2.0);
    assert_eq!(value("offramp_client_connections_total", &[("client", "2001:db8::/64")]), 2.0);
    assert_eq!(value("offramp_client_overestimate_max", &[("figure", "requests")]), 0.0);
    assert_eq!(families["offramp_client_tls_sessions_total"].samples[0].labels["post_quantum"], "true");
    assert_eq!(families["offramp_client_tls_failures_total"].samples[0].labels["cause"], "no_common_version");
    assert!(value("process_resident_memory_bytes", &[]) > 100_000.0);
    let build = &families["offramp_build_info"].samples[0];
    assert_eq!(build.labels["commit"], "with \"quotes\", \\ and\nnewline");
}

#[test]
fn histograms_are_cumulative_and_end_in_their_count() {
    let (exposition, _flusher) = exposition();
    for format in [ExpositionFormat::Prometheus, ExpositionFormat::OpenMetrics] {
        for (name, family) in page(&exposition, format) {
            if family.kind != "histogram" {
                continue;
            }
            let mut sets: BTreeMap<BTreeMap<String, String>, Vec<&Sample>> = BTreeMap::new();
            for sample in &family.samples {
                let mut labels = sample.labels.clone();
                labels.remove("le");
                sets.entry(labels).or_default().push(sample);
            }
            sets.values().for_each(|samples| check_histogram(&name, samples));
        }
    }
}

fn check_histogram(name: &str, samples: &[&Sample]) {
    let (buckets, rest) = samples.split_at(samples.len() - 2);
    let bounds: Vec<f64> = buckets.iter().map(|bucket| bucket.labels["le"].parse().unwrap()).collect();
    assert!(bounds.is_sorted_by(|a, b| a < b) && bounds.last() == Some(&f64::INFINITY), "{name}");
    assert!(buckets.iter().all(|bucket| bucket.labels["le"].contains(['.', 'I'])), "{name}");
    assert!(buckets.is_sorted_by(|a, b| a.value <= b.value), "{name}");
    assert_eq!(
        (rest[0].name.as_str(), rest[1].name.as_str()),
        (&*format!("{name}_sum"), &*format!("{name}_count"))
    );
    assert_eq!(rest[1].value, buckets.last().unwrap().value);
    assert!(rest[1].value > 0.0 && rest[0].value > 0.0);
}

#[test]
fn times_of_creation_are_told_to_who_asks() {
    let (exposition, _flusher) = exposition();
    let mut out = Vec::new();
    exposition.render_with_created(&mut out);
    let page = String::from_utf8(out).unwrap();
    let began = exposition.counters.began().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let created = |name: &str| page.lines().find(|line| line.starts_with(name)).unwrap_or("");
    assert!(
        created("offramp_connections_created ").starts_with(&format!("offramp_connections_created {began}."))
    );
    assert!(created("offramp_request_duration_seconds_created{route=").contains(&format!(" {began}.")));
    assert_eq!(created("offramp_connections_active_created"), "", "a gauge is not created");
    assert_eq!(created("offramp_client_tls_sessions_created"), "", "these begin anew");
    assert!(page.ends_with("# EOF\n"));
}

#[test]
fn graphite_gets_every_figure_by_a_path_of_its_own() {
    let (exposition, _flusher) = exposition();
    let mut out = Vec::new();
    exposition.render_graphite("instance.proxy", samples::accepted(), &mut out);
    let page = String::from_utf8(out).unwrap();
    let mut paths = BTreeSet::new();
    for line in page.lines() {
        let words: Vec<_> = line.split(' ').collect();
        assert!(words[0].starts_with("instance.proxy.") && !words[0].contains(".."), "{line}");
        assert!(paths.insert(words[0]), "twice: {line}");
        assert!(words[1].parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        assert_eq!(words[2..], ["1795294260"], "{line}");
    }
    let route = "git:example:org.gitea.unix%3A%2Frun%2Fgitea:sock";
    assert!(
        page.contains(&format!("instance.proxy.requests_total.{route}.GET.2xx 8 1795294260\n")),
        "{page}"
    );
    assert!(page.contains(&format!("instance.proxy.request_duration_seconds.{route}.le.128:0 8 ")));
    assert!(page.contains(&format!("instance.proxy.request_duration_seconds.{route}.count 8 ")));
    assert!(page.contains("instance.proxy.build_info.0:1:0.with%20%22quotes%22%2C%20%5C%20and%0Anewline 1 "));
}
