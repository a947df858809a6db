//! Uploads from far clients: windows of HTTP/2 grow with the path.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::require;
use offramp_testkit::server::{Address, Listen, Server, Stream};

use crate::support::distance::relay;
use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, ask};

/// One way.
const DELAY: Duration = Duration::from_millis(40);
const UPLOAD: usize = 6 << 20;
/// The window with which uploads begin.
const FIRST_WINDOW: usize = 256 << 10;

/// Takes a request with a body of [`UPLOAD`] bytes.
fn take(mut stream: Stream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return;
        }
        head.push(byte[0]);
    }
    let (mut left, mut buffer) = (UPLOAD, vec![0; 256 * 1024]);
    while left > 0 {
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => left -= n,
            _ => return,
        }
    }
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
}

fn far(limits: &str) -> (Instance, Server, SocketAddr) {
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), take).unwrap();
    fs::write(home.file("upload"), vec![b'x'; UPLOAD]).unwrap();
    let route = "[[route]]\nserver = \"unix:app.sock\"\n";
    let instance = home.run(&format!("workers = 1\n{limits}{CERTIFICATE}{HTTP}{route}"));
    let relay = relay(Address::Tcp(instance.address()), DELAY);
    (instance, app, relay)
}

/// How long an upload takes.
#[track_caller]
fn upload(instance: &Instance, relay: SocketAddr, version: &str) -> f64 {
    let mut command = Command::new(require("curl", "curl"));
    command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", "100", "--cacert"]);
    command.arg(instance.home.ca.certificate()).args(["--connect-to", &format!("::{relay}"), version]);
    command.args(["--upload-file", "upload", "--header", "Expect:", "--output", "/dev/null"]);
    command.args(["--write-out", "%{http_code} %{time_total}", "https://localhost/"]);
    command.current_dir(instance.home.path());
    let output = ask(command, b"", Duration::from_secs(110));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let took = said.strip_prefix("204 ").and_then(|took| took.parse().ok());
    took.unwrap_or_else(|| panic!("{said} {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn windows_grow_with_the_distance() {
    let (instance, _app, relay) = far("");
    // The best of a few tries, as the machine has other work; with the first window it takes 24 round trips.
    let tries = (0..3).map(|_| {
        let [old, new] = ["--http1.1", "--http2"].map(|version| upload(&instance, relay, version));
        println!("HTTP/1.1 {old} s, HTTP/2 {new} s");
        new / old
    });
    let best = tries.fold(f64::MAX, f64::min);
    assert!(best < 6.0, "HTTP/2 takes {best} times as long as HTTP/1.1");
    instance.stop();
}

#[test]
fn windows_stay_as_small_as_is_said() {
    let (instance, _app, relay) = far("[limits]\nmax_window = \"256KiB\"\n");
    let took = upload(&instance, relay, "--http2");
    let least = (UPLOAD / FIRST_WINDOW - 1) as f64 * 2.0 * DELAY.as_secs_f64();
    assert!(took > least, "{took} s, where windows need {least} s");
    instance.stop();
}
