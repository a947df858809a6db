//! The metrics endpoint: what a scraper needs, and nothing else.

use offramp_observe::names;
use offramp_testkit::process::Signal;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{close, connect, echo, trusting};
use crate::support::figures::{Page, ask};
use crate::support::instance::{Home, Instance};

fn instance(app: &Server) -> Instance {
    let settings = "[metrics]\naddress = \"127.0.0.1:0\"\n[log_store]\nurl = \"sqlite:access.db\"\n";
    Home::new().run(&format!("{settings}{}", Home::one_route(app.address())))
}

#[test]
fn every_metric_is_there_and_described() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app);
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    echo(&mut tls, "hello").unwrap();
    assert_eq!(Page::scrape(instance.metrics()).get("offramp_connections_active"), 1.0);
    close(tls).unwrap();
    instance.events_of(1);

    let (head, body) = ask(instance.metrics(), "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
    for metric in names::ALL {
        // One with labels is told from the first of its samples on.
        let is_told = body.contains(&format!("\n{}", metric.name));
        for line in [format!("# HELP {} {}", metric.name, metric.help), format!("# TYPE {} ", metric.name)] {
            assert!(body.contains(&line) || (!is_told && !metric.labels.is_empty()), "{line} in {body}");
        }
    }
    let page = Page::parse(&body);
    for (name, figure) in [
        ("offramp_connections_total", 1.0),
        ("offramp_connections_active", 0.0),
        ("offramp_relayed_bytes_total{direction=\"client_to_server\"}", 5.0),
        ("offramp_relayed_bytes_total{direction=\"server_to_client\"}", 5.0),
        ("offramp_records_total{operation=\"open\"}", 1.0),
        ("offramp_records_total{operation=\"seal\"}", 1.0),
        ("offramp_connection_duration_seconds_bucket{le=\"+Inf\"}", 1.0),
    ] {
        assert_eq!(page.get(name), figure, "{name} in {body}");
    }
    instance.until("the event is in the log store", || {
        let page = Page::scrape(instance.metrics());
        let stored = page.get("offramp_log_store_events_total{outcome=\"stored\"}");
        (stored == 1.0 && page.get("offramp_log_store_up") == 1.0).then_some(())
    });
    assert_eq!(page.get("offramp_log_store_spool_limit_bytes"), f64::from(64 << 20));
    assert!(page.get("process_open_fds") > 0.0 && page.get("process_resident_memory_bytes") > 1e6);
    // The limit of open files is raised to the hard one at the start.
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", instance.process.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{files}");
    assert_eq!(page.get("process_max_fds").to_string(), words[3]);
    instance.stop();
}

#[test]
fn what_operators_look_for_first_is_there() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let text = format!(
        "[limits]\nconnections = 400\nhandshakes_per_client = \"120/m\"\n[metrics]\naddress = \"127.0.0.1:0\"\n{}",
        Home::one_route(app.address())
    );
    let instance = Home::new().run(&text);
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let began = now();
    let page = Page::scrape(instance.metrics());
    assert!(page.0.keys().any(|name| name.starts_with("offramp_build_info{version=\"")));
    let expiry = page.get("offramp_certificate_expiry_timestamp_seconds{name=\"localhost\",key=\"ecdsa\"}");
    // That of tests lives very long.
    assert!(expiry > began && expiry < began + 10_000.0 * 365.25 * 86_400.0, "{expiry}");
    assert_eq!(page.get("offramp_config_last_reload_successful"), 1.0);
    let loaded = "offramp_config_last_load_success_timestamp_seconds";
    let first = page.get(loaded);
    assert!(first <= began && first > began - 300.0, "{first}");
    for (limit, figure) in [("connections", 400.0), ("connections_per_client", 1000.0)] {
        assert_eq!(page.get(&format!("offramp_limit{{limit=\"{limit}\"}}")), figure);
        assert_eq!(page.0[&format!("offramp_limit_used{{limit=\"{limit}\"}}")], 0.0);
    }
    assert_eq!(page.get("offramp_limit{limit=\"handshakes_per_client_per_second\"}"), 2.0);
    assert_eq!(page.0["offramp_limit_refusals_total{limit=\"limit_handshakes_per_client\"}"], 0.0);

    let reload = |text: &str, outcome: &str| {
        instance.home.configure(text);
        instance.process.signal(Signal::HUP).unwrap();
        let name = format!("offramp_config_reloads_total{{outcome=\"{outcome}\"}}");
        instance.until(&name, || Some(Page::scrape(instance.metrics())).filter(|page| page.get(&name) == 1.0))
    };
    let page = reload("nonsense", "refused");
    assert_eq!((page.get("offramp_config_last_reload_successful"), page.get(loaded)), (0.0, first));
    let page = reload(&text.replace("120/m", "10/s"), "success");
    assert_eq!(page.get("offramp_config_last_reload_successful"), 1.0);
    assert!(page.get(loaded) > first);
    assert_eq!(page.get("offramp_limit{limit=\"handshakes_per_client_per_second\"}"), 10.0);
    instance.stop();
}

#[test]
fn whoever_asks_for_openmetrics_gets_it() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app);
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let (head, body) =
        ask(instance.metrics(), &format!("GET /metrics HTTP/1.1\r\nHost: test\r\n{accept}\r\n\r\n"));
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with("# EOF\n") && body.contains("# TYPE offramp_connections counter\n"), "{body}");
    instance.stop();
}

#[test]
fn there_is_nothing_else() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app);
    let answer =
        |request: &str| ask(instance.metrics(), &format!("{request} HTTP/1.1\r\nHost: test\r\n\r\n"));
    let (head, body) = answer("HEAD /metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head} {body}");
    assert!(answer("GET /").0.starts_with("HTTP/1.1 404 "));
    assert!(answer("GET /metrics/").0.starts_with("HTTP/1.1 404 "));
    let (head, _) = answer("POST /metrics");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.to_lowercase().contains("allow: get, head"), "{head}");
    let (head, _) = ask(instance.metrics(), "nonsense\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    instance.stop();
}
