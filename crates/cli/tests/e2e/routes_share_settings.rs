//! What routes share, and the limits that a route has of its own.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::sync::{Arc, Condvar, Mutex};

use offramp_testkit::server::{Listen, Server, Stream};

use crate::support::crowd::{connect, trusting};
use crate::support::http_app::{Request, app, named, respond};
use crate::support::http_curl::{HTTP, curl, get};
use crate::support::instance::{CERTIFICATE, Home};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

/// Opened once, by the test.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let guard = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(guard, |open| !*open).unwrap());
    }
}

/// An application that waits at the gate before its response, or in the middle of it.
fn waiting(home: &Home, gate: &Gate) -> Server {
    let gate = gate.clone();
    app(
        &Listen::Unix(home.file("app.sock")),
        move |request: &Request, stream: &mut Stream| -> io::Result<()> {
            if request.target.ends_with("/middle") {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")?;
                gate.pass();
                return stream.write_all(b"half");
            }
            if request.target.ends_with("/before") {
                gate.pass();
            }
            respond(stream, 200, &[], b"whole")
        },
    )
}

#[test]
fn routes_share_headers_pages_and_limits() {
    let home = Home::new();
    let (_app, _) = named(&Listen::Unix(home.file("app.sock")), "app");
    fs::write(home.file("4xx.html"), "shared {status}").unwrap();
    fs::write(home.file("404.html"), "own {status}").unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[defaults.route]\nmax_body = \"4B\"\nerror_pages = {{ 4xx = \"4xx.html\" }}\n\
         response_headers = {{ set = {{ X-Shared = \"all\", X-Other = \"all\" }} }}\n\
         [policy.large]\nmax_body = \"1KiB\"\nresponse_headers = {{ set = {{ X-Other = \"policy\" }} }}\n\
         [[route]]\npath = \"/small\"\nserver = \"unix:app.sock\"\n\
         [[route]]\npath = \"/large\"\nserver = \"unix:app.sock\"\npolicy = \"large\"\n\
         response_headers = {{ set = {{ X-Own = \"route\" }} }}\n\
         [[route]]\npath = \"/any\"\nserver = \"unix:app.sock\"\nmax_body = false\nresponse_headers = false\n\
         [[route]]\npath = \"/files\"\nroot = \"{}\"\nerror_pages = {{ 404 = \"404.html\" }}\n",
        std::env::temp_dir().display()
    ));
    for version in VERSIONS {
        let ask = |path: &str, more: &[&str]| {
            get(&instance, &[&[version], more].concat(), &format!("https://localhost{path}"))
        };
        let small = ask("/small", &[]);
        assert_eq!((small.status(), small.field("x-shared"), small.field("x-other")), (200, "all", "all"));
        let large = ask("/large", &["--data", "more than four"]);
        assert_eq!((large.status(), large.field("x-shared"), large.field("x-other")), (200, "all", "policy"));
        assert_eq!(large.field("x-own"), "route");
        let refused = ask("/small", &["--data", "more than four"]);
        assert_eq!((refused.status(), refused.text().as_str()), (413, "shared 413"));
        let any = ask("/any", &["--data", "more than four"]);
        assert_eq!((any.status(), any.field("x-shared")), (200, ""));
        // What no route has, and what a route says itself.
        assert_eq!(ask("/", &[]).text(), "shared 404");
        assert_eq!(ask("/files/there-is-no-such-file", &[]).text(), "own 404");
        assert_eq!(ask("/files/x", &["--data", "a"]).text(), "shared 405");
    }
    instance.stop();
}

#[test]
fn a_route_waits_for_responses_as_long_as_it_says() {
    for version in VERSIONS {
        let (home, gate) = (Home::new(), Gate::default());
        let _app = waiting(&home, &gate);
        let instance = home.run(&format!(
            "[limits]\nresponse_timeout = \"300ms\"\n{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n\
             [[route]]\npath = \"/own\"\nserver = \"unix:app.sock\"\nresponse_timeout = \"10m\"\n"
        ));
        std::thread::scope(|scope| {
            let own = scope.spawn(|| get(&instance, &[version], "https://localhost/own/before"));
            assert_eq!(get(&instance, &[version], "https://localhost/before").status(), 504);
            gate.open();
            assert_eq!(own.join().unwrap().text(), "whole");
        });
        instance.stop();
    }
}

#[test]
fn a_route_ends_responses_that_stand_still_as_it_says() {
    for version in VERSIONS {
        let (home, gate) = (Home::new(), Gate::default());
        let _app = waiting(&home, &gate);
        let instance = home.run(&format!(
            "{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n\
             [[route]]\npath = \"/own\"\nserver = \"unix:app.sock\"\nidle_timeout = \"300ms\"\n"
        ));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| get(&instance, &[version], "https://localhost/middle"));
            let own = curl(&instance, &[version], "https://localhost/own/middle");
            assert!(own.code != 0 && own.status() == 200, "{own:?}");
            gate.open();
            assert_eq!(other.join().unwrap().text(), "halfhalf");
        });
        instance.stop();
    }
}

#[test]
fn a_route_waits_for_bodies_as_long_as_it_says() {
    let (home, gate) = (Home::new(), Gate::default());
    let _app = waiting(&home, &gate);
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\nrequest_body_timeout = \"10m\"\nmin_body_rate = \"0B\"\n\
         [[route]]\npath = \"/own\"\nserver = \"unix:app.sock\"\nrequest_body_timeout = \"300ms\"\n"
    ));
    let config = trusting(&instance.home.ca.certificate());
    let begin = |path: &str| {
        let mut tls = connect(&config, instance.address(), "localhost").unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 8\r\n\r\nhalf"
        );
        tls.write_all(head.as_bytes()).unwrap();
        tls
    };
    let (mut other, mut own) = (begin("/other"), begin("/own"));
    let mut heard = String::new();
    own.read_to_string(&mut heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 408 "), "{heard}");
    other.write_all(b"half").unwrap();
    heard.clear();
    other.read_to_string(&mut heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 200 ") && heard.ends_with("whole"), "{heard}");
    instance.stop();
}
