//! Two workers: both serve, and the figures are the sum of what they did.

use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{Crowd, trusting};
use crate::support::figures::Page;
use crate::support::instance::Home;

#[test]
fn both_workers_serve() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = "workers = 2\n[metrics]\naddress = \"127.0.0.1:0\"\n";
    let instance = Home::new().run(&format!("{text}{}", Home::one_route(app.address())));
    let crowd = Crowd::send(8, &trusting(&instance.home.ca.certificate()), instance.address(), "localhost");
    crowd.busy(100);
    let tally = crowd.stop();
    assert!(tally.failures.is_empty(), "{tally:?}");
    let events = instance.events_of(tally.connections);
    for worker in [0, 1] {
        // The kernel deals by a hash of the addresses: about half, of a hundred connections and more.
        let served = events.iter().filter(|event| event["worker"] == worker).count();
        assert!(served * 4 >= events.len(), "worker {worker} has served {served} of {}", events.len());
    }
    let page = Page::scrape(instance.metrics());
    let connections = tally.connections as f64;
    let request = "GET /crowd HTTP/1.1\r\nHost: localhost\r\n\r\n".len() * tally.answered;
    for (name, figure) in [
        ("offramp_workers", 2.0),
        ("offramp_connections_total", connections),
        ("offramp_connections_active", 0.0),
        ("offramp_events_written_total", connections),
        ("offramp_connect_attempts_total", connections),
        ("offramp_connect_failures_total", 0.0),
        ("offramp_handshakes_failed_total", 0.0),
        ("offramp_connection_duration_seconds_count", connections),
        ("offramp_handshake_duration_seconds_count", connections),
        ("offramp_relayed_bytes_total{direction=\"client_to_server\"}", request as f64),
    ] {
        assert_eq!(page.get(name), figure, "{name}");
    }
    let handshakes = ["full", "resumed"]
        .map(|kind| page.get(&format!("offramp_handshakes_total{{version=\"TLSv1.3\",kind=\"{kind}\"}}")));
    assert!(handshakes.iter().all(|&count| count > 0.0), "{handshakes:?}");
    assert_eq!(handshakes.iter().sum::<f64>(), connections);
    assert_eq!(page.closed("client_closed"), connections);
    instance.stop();
}
