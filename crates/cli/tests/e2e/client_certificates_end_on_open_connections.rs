//! A client's certificate that ends while its HTTP connection lives: what is under way is finished, nothing more is
//! served, and the event says why.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use offramp_testkit::ca::{Leaf, Validity};
use offramp_testkit::server::{Listen, Server};
use rustls::ClientConfig;

use crate::support::crowd::{Tls, connect, get, with_certificate};
use crate::support::h2_client::{self, H2, PREFACE, kind};
use crate::support::http_app::{self, respond};
use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};

/// How long certificates are valid; a machine that is too slow for the first gets more time.
const LIVES: [u64; 4] = [3, 9, 27, 81];
/// How long the end of a connection is waited for.
const LONG: Duration = Duration::from_secs(180);

/// When the certificate of the moment ends, and the targets that the application was asked for.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<(Option<SystemTime>, Vec<String>)>>);

impl Shared {
    fn end(&self) -> SystemTime {
        self.0.lock().unwrap().0.unwrap()
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().1)
    }

    /// Returns when the certificate has ended.
    fn outlive(&self) {
        while SystemTime::now() <= self.end() + Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// An application that responds to `/held` only when the certificate has ended.
fn application(home: &Home) -> (Server, Shared) {
    let shared = Shared::default();
    let app = http_app::app(&Listen::Unix(home.file("app.sock")), {
        let shared = shared.clone();
        move |request, stream| {
            shared.0.lock().unwrap().1.push(request.target.clone());
            if request.target == "/held" {
                shared.outlive();
            }
            respond(stream, 200, &[], b"served")
        }
    });
    (app, shared)
}

fn served() -> (Server, Shared, Instance) {
    let home = Home::new();
    let (app, shared) = application(&home);
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[limits]\nkeepalive_timeout = \"1h\"\n[[route]]\nserver = \"unix:app.sock\"\n\
         client_auth = {{ mode = \"required\", ca = \"ca.pem\" }}\n"
    ));
    (app, shared, instance)
}

/// A client whose certificate ends soon, in the middle of what `begin` does with it; that gives nothing where the
/// machine was too slow.
fn with_short_life<T>(
    instance: &Instance,
    shared: &Shared,
    begin: impl Fn(&Arc<ClientConfig>) -> Option<T>,
) -> T {
    let begun = LIVES.into_iter().find_map(|seconds| {
        let end = SystemTime::now() + Duration::from_secs(seconds);
        shared.0.lock().unwrap().0 = Some(end);
        let leaf = Leaf { validity: Validity::Until(end), ..Leaf::client("dave", &[]) };
        let files = instance.home.ca.issue("dave", &leaf).unwrap();
        begin(&with_certificate(&instance.home.ca.certificate(), &files.cert, &files.key))
    });
    begun.expect("81 seconds are enough")
}

/// One connection over HTTP/1.1, on which a request was served.
fn first(instance: &Instance, config: &Arc<ClientConfig>) -> Option<Tls> {
    let mut tls = connect(config, instance.address(), "localhost").ok()?;
    let response = get(&mut tls, "/first").ok()?;
    (response == "served").then_some(tls)
}

/// The event of a connection that ended with the certificate.
fn ended(instance: &Instance) {
    let event = instance.event("the certificate has ended", |event| {
        cause(event) == "client_certificate_expired" && event["status"].is_null()
    });
    assert_eq!(text(&event, "fault"), "client", "{event}");
}

#[test]
fn a_quiet_connection_closes_when_the_certificate_of_its_client_ends() {
    let (_app, shared, instance) = served();
    let mut tls = with_short_life(&instance, &shared, |config| first(&instance, config));
    tls.sock.set_read_timeout(Some(LONG)).unwrap();
    // In order, by close_notify, and not before.
    assert_eq!(tls.read(&mut [0; 100]).unwrap(), 0);
    assert!(SystemTime::now() + Duration::from_secs(1) >= shared.end());
    ended(&instance);
    instance.stop();
}

#[test]
fn a_request_that_is_under_way_is_the_last_one() {
    let (_app, shared, instance) = served();
    let mut tls = with_short_life(&instance, &shared, |config| {
        let mut tls = first(&instance, config)?;
        // The second one is sent ahead.
        let both = ["/held", "/after"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        tls.write_all(both.concat().as_bytes()).unwrap();
        instance.until("the application is asked, or the connection has ended", || {
            let asked = shared.0.lock().unwrap().1.iter().any(|target| target == "/held");
            (asked || SystemTime::now() > shared.end()).then_some(())
        });
        shared.asked().contains(&"/held".to_owned()).then_some(tls)
    });
    tls.sock.set_read_timeout(Some(LONG)).unwrap();
    let mut said = Vec::new();
    tls.read_to_end(&mut said).unwrap();
    let said = String::from_utf8(said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("served"), "{said}");
    assert!(said.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{said}");
    assert!(shared.asked().is_empty());
    ended(&instance);
    instance.stop();
}

#[test]
fn streams_after_the_end_are_refused_and_the_connection_is_going_away() {
    let (_app, shared, instance) = served();
    let mut h2 = with_short_life(&instance, &shared, |config| {
        let mut h2 = H2::silent(config, instance.address());
        h2.patience(LONG);
        let first = [PREFACE, &h2_client::settings(&[]), &h2_client::get(1, "/held")].concat();
        if !h2.send(&first) {
            return None;
        }
        instance.until("the application is asked, or the connection has ended", || {
            let asked = !shared.0.lock().unwrap().1.is_empty();
            (asked || SystemTime::now() > shared.end()).then_some(())
        });
        shared.asked().contains(&"/held".to_owned()).then_some(h2)
    });
    h2.find("GOAWAY", |frame| frame.kind == kind::GOAWAY);
    assert!(SystemTime::now() + Duration::from_secs(1) >= shared.end());
    // A client that has not heard of it yet.
    h2.send(&h2_client::get(3, "/after"));
    let mut statuses = Vec::new();
    while let Some(frame) = h2.next() {
        if frame.kind == kind::HEADERS {
            statuses.push((frame.stream, frame.status()));
        }
    }
    assert!(statuses.contains(&(1, 200)), "{statuses:?}");
    // Whether there is a response to the second depends on how soon it came.
    let others = statuses.iter().filter(|(stream, _)| *stream != 1);
    assert!(others.clone().all(|other| *other == (3, 421)), "{statuses:?}");
    assert!(shared.asked().is_empty());
    ended(&instance);
    instance.stop();
}
