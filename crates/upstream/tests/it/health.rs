//! Active checks over loopback.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use offramp_upstream::health::HealthChange;
use offramp_upstream::probe;
use offramp_upstream::{CheckKind, ConnectFault, Pools, ProbeSettings, UpstreamFault};
use tokio::sync::mpsc::unbounded_channel;

use crate::server::{HELLO, PATIENCE, Server};
use crate::world::{backend, get, send, text, worker};

#[test]
fn a_server_goes_down_and_comes_up_again() {
    worker(async {
        let well = Arc::new(AtomicBool::new(true));
        let state = Arc::clone(&well);
        let asked = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&asked);
        let server = Server::start(move |mut peer| {
            while let Some(head) = peer.head() {
                let probe = head.starts_with("GET /healthz ");
                if probe {
                    *seen.lock().unwrap() = Some(head);
                }
                let well = !probe || state.load(Ordering::SeqCst);
                peer.say(if well { HELLO } else { "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n" });
            }
        });
        let mut backend = backend(&[server.address]);
        backend.check = Some(ProbeSettings {
            kind: CheckKind::Http {
                path: "/healthz".into(),
                host: "app.test".into(),
                status: [200..=399].into(),
            },
            interval: Duration::from_millis(10),
            timeout: PATIENCE,
            rise: 2,
            fall: 3,
            prologue: Box::default(),
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        let (tell, mut told) = unbounded_channel();
        let prober = tokio::task::spawn_local(probe::run(Arc::clone(&backend), move |report| {
            let reason = report.reason.map(ToString::to_string);
            tell.send((report.server.to_string(), report.change, reason)).unwrap();
        }));
        text(send(&pools, &backend, get("/")).await.unwrap()).await;
        well.store(false, Ordering::SeqCst);
        let name = server.address.to_string();
        let reason = Some("the probe was answered with 500".to_owned());
        assert_eq!(told.recv().await.unwrap(), (name.clone(), HealthChange::Down, reason));
        let failure = send(&pools, &backend, get("/")).await.unwrap_err();
        assert!(matches!(failure.fault, UpstreamFault::Connect(ConnectFault::NoServerAlive)));
        well.store(true, Ordering::SeqCst);
        assert_eq!(told.recv().await.unwrap(), (name, HealthChange::Up, None));
        text(send(&pools, &backend, get("/")).await.unwrap()).await;
        assert!(asked.lock().unwrap().as_ref().unwrap().contains("Host: app.test\r\n"));
        prober.abort();
    });
}

#[test]
fn a_connect_can_be_the_check() {
    worker(async {
        let check = ProbeSettings::default();
        let server = Server::steady(HELLO);
        let reached = backend(&[server.address]);
        assert!(probe::probe(&reached, &check, 0).await.is_ok());
        drop(server);
        let failed = probe::probe(&reached, &check, 0).await;
        assert!(matches!(failed, Err(probe::ProbeFault::Unreachable(ConnectFault::Io(_)))), "{failed:?}");
    });
}

#[test]
fn the_prologue_precedes_the_probe() {
    worker(async {
        let kinds = [
            CheckKind::Tcp,
            CheckKind::Http { path: "/".into(), host: "app.test".into(), status: [200..=299].into() },
        ];
        for kind in kinds {
            let (tell, told) = std::sync::mpsc::channel();
            let question = matches!(kind, CheckKind::Http { .. });
            // A server that closes if the header is missing.
            let server = Server::start(move |mut peer| {
                let line = peer.body(15);
                tell.send(line.clone()).unwrap();
                if question && line == b"PROXY UNKNOWN\r\n" {
                    peer.answer(HELLO);
                }
            });
            let prologue = b"PROXY UNKNOWN\r\n".to_vec().into();
            let check = ProbeSettings { kind, prologue, ..ProbeSettings::default() };
            probe::probe(&backend(&[server.address]), &check, 0).await.unwrap();
            assert_eq!(told.recv_timeout(PATIENCE).unwrap(), b"PROXY UNKNOWN\r\n");
        }
    });
}

#[test]
fn probes_report_the_reason() {
    worker(async {
        let status = [200..=299, 401..=401].into();
        let kind = CheckKind::Http { path: "/".into(), host: "app.test".into(), status };
        let of = async |response: &'static str| {
            let timeout = if response == "wait" { Duration::from_secs(1) } else { PATIENCE };
            let check = ProbeSettings { kind: kind.clone(), timeout, ..ProbeSettings::default() };
            let server = Server::start(move |mut peer| {
                peer.answer(response);
                if response == "wait" {
                    peer.wait_for_close();
                }
            });
            probe::probe(&backend(&[server.address]), &check, 0).await
        };
        assert!(of(HELLO).await.is_ok());
        assert!(of("HTTP/1.1 401 Who\r\n\r\n").await.is_ok());
        assert!(matches!(of("HTTP/1.1 302 There\r\n\r\n").await, Err(probe::ProbeFault::Status(302))));
        assert!(matches!(of("HTTP/1.1 404 No\r\n\r\n").await, Err(probe::ProbeFault::Status(404))));
        assert!(matches!(of("220 mail.example.org ESMTP\r\n").await, Err(probe::ProbeFault::NotHttp)));
        assert!(matches!(of("").await, Err(probe::ProbeFault::NotHttp | probe::ProbeFault::Io(_))));
        assert!(matches!(of("wait").await, Err(probe::ProbeFault::Timeout)));
    });
}
