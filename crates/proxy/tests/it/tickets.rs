//! Session tickets reach a client whatever its server does.

use std::io::Read;

use offramp_testkit::server::{Listen, Pattern, Server, apps};

use crate::test_proxy::{ListenerKind, Setup, TestProxy, shake};

/// As many as the policy of the proxy gives.
const TICKETS: u32 = 2;

#[test]
fn a_client_gets_its_tickets_where_nobody_says_anything() {
    let app = Server::start(&Listen::Ipv4, apps::sink).unwrap();
    for kind in [ListenerKind::Tls, ListenerKind::Https] {
        let proxy = TestProxy::open(&[app.address()], &Setup::default());
        let mut tls = shake(proxy.connect(kind)).unwrap();
        while tls.conn.tls13_tickets_received() < TICKETS {
            assert_ne!(tls.conn.read_tls(&mut tls.sock).unwrap(), 0, "{kind:?}");
            tls.conn.process_new_packets().unwrap();
        }
        drop(tls);
        proxy.end();
    }
}

#[test]
fn tickets_come_before_what_a_server_says_first() {
    const LENGTH: usize = 300_000;
    let app = Server::start(&Listen::Ipv4, apps::source(1, LENGTH as u64)).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut tls = proxy.tls();
    let (mut said, mut expected) = (vec![0; LENGTH], vec![0; LENGTH]);
    tls.read_exact(&mut said[..1]).unwrap();
    assert_eq!(tls.conn.tls13_tickets_received(), TICKETS);
    tls.read_exact(&mut said[1..]).unwrap();
    Pattern::new(1).fill(&mut expected);
    assert!(said == expected);
    drop(tls);
    proxy.end();
}
