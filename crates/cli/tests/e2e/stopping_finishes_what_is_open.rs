//! SIGTERM: what was accepted is served to its end, within bounds that a second signal lifts.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Signal, Source};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{Crowd, Tls, connect, echo, get, tcp, trusting};
use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, cause};

fn instance(app: &Server, drain: &str) -> Instance {
    let limits = format!("[limits]\ndrain_timeout = \"{drain}\"\n");
    Home::new().run(&format!("workers = 2\n{limits}{}", Home::one_route(app.address())))
}

fn client(instance: &Instance) -> Tls {
    let mut tls =
        connect(&trusting(&instance.home.ca.certificate()), instance.address(), "localhost").unwrap();
    echo(&mut tls, "hello").unwrap();
    tls
}

/// Waits for the end of the process, which must be in order, and gives the last line of its log.
fn ended(instance: &Instance) -> String {
    let status = instance.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", instance.process.transcript());
    let lines = instance.process.lines(Source::Stderr);
    lines.into_iter().rfind(|line| line.contains(" stopped ")).expect("the log says that it stopped")
}

#[test]
fn no_request_fails_on_the_way_out() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = instance(&app, "5m");
    let address = instance.address();
    let crowd = Crowd::send(8, &trusting(&instance.home.ca.certificate()), address, "localhost");
    crowd.busy(20);
    instance.process.signal(Signal::TERM).unwrap();
    instance.wait_for_notification("STOPPING=1");
    // Those on kept connections are served as before; there is no way in for others.
    crowd.closed_to_others(50);
    assert!(TcpStream::connect(address).is_err());
    let tally = crowd.stop();
    assert!(tally.failures.is_empty(), "{tally:?}");
    let last = ended(&instance);
    assert!(last.contains("connections_cut=0") && last.contains("events_lost=0"), "{last}");
    let events = instance.events();
    let served = events.iter().filter(|event| event["cause"] == "client_closed").count();
    assert_eq!(served, tally.connections, "{events:?}");
}

#[test]
fn what_is_left_after_the_drain_is_told_goodbye() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app, "3s");
    let mut tls = client(&instance);
    let begun = Instant::now();
    instance.process.signal(Signal::INT).unwrap();
    instance.wait_for_notification("STOPPING=1");
    echo(&mut tls, "still served").unwrap();
    // Without close_notify this would be an error: UnexpectedEof.
    assert_eq!(tls.read(&mut [0; 16]).unwrap(), 0);
    assert!(begun.elapsed() >= Duration::from_secs(3));
    drop(tls);
    let last = ended(&instance);
    assert!(last.contains("connections_cut=1") && last.contains("hurried=false"), "{last}");
    let events = instance.events();
    assert_eq!((&events[0]["cause"], &events[0]["fault"]), (&"drain".into(), &"policy".into()), "{events:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app, "1h");
    let mut tls = client(&instance);
    instance.process.signal(Signal::TERM).unwrap();
    instance.wait_for_notification("STOPPING=1");
    echo(&mut tls, "still served").unwrap();
    instance.process.signal(Signal::TERM).unwrap();
    // An hour of drain would be more than is waited for.
    let last = ended(&instance);
    assert!(last.contains("connections_cut=1") && last.contains("hurried=true"), "{last}");
    assert!(last.contains("events_lost=0"), "{last}");
    assert!(!matches!(tls.read(&mut [0; 16]), Ok(1..)));
    // Of what was cut there is an event as of everything else.
    let events = instance.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((cause(&events[0]), &events[0]["fault"]), ("drain", &"policy".into()), "{events:?}");
    assert_eq!(events[0]["bytes_from_client"], 17, "{events:?}");
}

#[test]
fn who_leaves_when_asked_to_is_not_cut() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"{}\"\n", app.address());
    for drain in ["20s", "0s"] {
        let limits = format!("workers = 2\n[limits]\ndrain_timeout = \"{drain}\"\n");
        let instance = Home::new().run(&format!("{limits}{text}"));
        let config = trusting(&instance.home.ca.certificate());
        // They have their answers and ask for nothing more: HTTP lets such a connection be closed.
        let mut idle: Vec<_> = (0..5)
            .map(|_| {
                let mut tls = connect(&config, instance.address(), "localhost").unwrap();
                assert_eq!(get(&mut tls, "/x").unwrap(), "hello /x\n");
                tls
            })
            .collect();
        instance.events_of(5);
        instance.process.signal(Signal::TERM).unwrap();
        for tls in &mut idle {
            assert_eq!(tls.read(&mut [0; 16]).unwrap(), 0);
        }
        drop(idle);
        let last = ended(&instance);
        assert!(last.contains("connections_cut=0"), "{drain}: {last}");
    }
}

#[test]
fn a_drain_of_zero_ends_at_the_first_signal() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app, "0s");
    let mut tls = client(&instance);
    instance.process.signal(Signal::TERM).unwrap();
    assert_eq!(tls.read(&mut [0; 16]).unwrap(), 0);
    drop(tls);
    assert!(ended(&instance).contains("connections_cut=1"));
}

#[test]
fn a_handshake_that_never_ends_does_not_hold_up_the_end() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app, "500ms");
    let _half_open = tcp(instance.address()).unwrap();
    let mut tls = client(&instance);
    instance.process.signal(Signal::TERM).unwrap();
    assert_eq!(tls.read(&mut [0; 16]).unwrap(), 0);
    drop(tls);
    let last = ended(&instance);
    assert!(last.contains("connections_cut=2"), "{last}");
    let events = instance.events();
    let causes: Vec<_> = events.iter().map(cause).collect();
    assert_eq!(causes, ["drain", "drain"], "{events:?}");
}
