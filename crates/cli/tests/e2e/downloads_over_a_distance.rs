//! Downloads from far HTTP/2 servers: the windows of their streams grow with the path, and the memory of a client that
//! stops reading stays within the limits.

use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{Process, Source, require};
use offramp_testkit::server::Address;

use crate::support::crowd::{Tls, connect, trusting, until};
use crate::support::distance::relay;
use crate::support::figures::{Page, resident};
use crate::support::h2_client::kind::DATA;
use crate::support::h2_client::{H2, get, window};
use crate::support::http_curl::HTTP;
use crate::support::http_node::node;
use crate::support::instance::{CERTIFICATE, Home, Instance, ask};

/// Delay in each direction.
const DELAY: Duration = Duration::from_millis(40);
const DOWNLOAD: usize = 8 << 20;
/// Initial window of long responses.
const USUAL_WINDOW: usize = 256 << 10;

/// `/sized/N` and `/open/N`: N bytes, with their length or without.
const FAR: &str = r"
const http2 = require('http2'), piece = Buffer.alloc(65536, 'x');
const server = http2.createServer();
server.on('session', () => console.log('SESSION'));
server.on('stream', (stream, headers) => {
  const [, kind, size] = headers[':path'].split('/');
  const head = { ':status': 200 };
  if (kind === 'sized') head['content-length'] = size;
  stream.on('error', () => {});
  stream.respond(head);
  let left = +size;
  const write = () => {
    while (left > 0 && !stream.destroyed) {
      const n = Math.min(left, piece.length);
      left -= n;
      if (!stream.write(piece.subarray(0, n))) return;
    }
    stream.end();
  };
  stream.on('drain', write);
  write();
});
server.listen('app.sock');
";

fn far(limits: &str) -> (Instance, Process) {
    let home = Home::new();
    let app = node(&home, FAR);
    let server = relay(Address::Unix(home.file("app.sock")), DELAY);
    let route =
        format!("[[route]]\nbackend = \"app\"\n[backend.app]\nservers = [\"{server}\"]\nprotocol = \"h2\"\n");
    let metrics = "[metrics]\naddress = \"127.0.0.1:0\"\n";
    (home.run(&format!("workers = 1\n{limits}{metrics}{CERTIFICATE}{HTTP}{route}")), app)
}

/// Duration of a download, in seconds.
#[track_caller]
fn download(instance: &Instance, version: &str, path: &str) -> f64 {
    let mut command = Command::new(require("curl", "curl"));
    command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", "100", "--cacert"]);
    let there = format!("::{}", instance.address());
    command.arg(instance.home.ca.certificate()).args(["--connect-to", &there, version]);
    command.args(["--output", "/dev/null", "--write-out", "%{http_code} %{size_download} %{time_total}"]);
    command.arg(format!("https://localhost/{path}/{DOWNLOAD}"));
    let output = ask(command, b"", Duration::from_secs(110));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let took = said.strip_prefix(&format!("200 {DOWNLOAD} ")).and_then(|took| took.parse().ok());
    took.unwrap_or_else(|| panic!("{said} {}", String::from_utf8_lossy(&output.stderr)))
}

/// Minimum duration of a download with the initial window, in seconds.
fn least() -> f64 {
    (DOWNLOAD / USUAL_WINDOW - 1) as f64 * 2.0 * DELAY.as_secs_f64()
}

#[test]
fn windows_grow_with_the_distance() {
    let (instance, _app) = far("");
    for version in ["--http1.1", "--http2"] {
        for path in ["sized", "open"] {
            // The best of a few tries counts, as the machine has other work.
            let tries = (0..3).map(|_| download(&instance, version, path));
            let best = tries.fold(f64::MAX, f64::min);
            println!("{version} {path}: {best} s, {} s with the first window", least());
            assert!(best < least() / 2.0, "{version} {path}: {best} s");
        }
    }
    instance.stop();
}

#[test]
fn windows_stay_as_small_as_is_said() {
    let (instance, _app) = far("[limits]\nmax_window = \"256KiB\"\n");
    for version in ["--http1.1", "--http2"] {
        let took = download(&instance, version, "open");
        assert!(took > least(), "{version}: {took} s, where windows need {} s", least());
    }
    instance.stop();
}

/// Client that reads only on demand.
enum Slow {
    Http1(Tls),
    Http2(H2),
}

impl Slow {
    /// Requests a response without an end.
    fn ask(instance: &Instance, version: u8) -> Self {
        let config = trusting(&instance.home.ca.certificate());
        if version == 1 {
            let mut tls = connect(&config, instance.address(), "localhost").unwrap();
            tls.write_all(b"GET /open/100000000000 HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            return Self::Http1(tls);
        }
        let mut h2 = H2::open(&config, instance.address(), &[(4, 1 << 30)]);
        assert!(h2.send(&[window(0, 1 << 30), get(1, "/open/100000000000")].concat()));
        Self::Http2(h2)
    }

    fn read(&mut self, n: usize) {
        match self {
            Self::Http1(tls) => tls.read_exact(&mut vec![0; n]).unwrap(),
            Self::Http2(h2) => {
                let mut left = n;
                while left > 0 {
                    let n = h2.find("data", |frame| frame.kind == DATA).payload.len();
                    left = left.saturating_sub(n);
                    if n > 0 {
                        h2.send(&[window(0, n as u32), window(1, n as u32)].concat());
                    }
                }
            }
        }
    }
}

/// The memory of a client that stops reading is bounded by `max_window`, that of all by half of `memory`, and others
/// continue over the same connection to the server.
#[test]
fn clients_that_stop_to_read_hold_no_more_than_is_said() {
    const MOST_WINDOW: u64 = 4 << 20;
    const MEMORY: u64 = 16 << 20;
    let limits = format!("[limits]\nmemory = \"{MEMORY}B\"\nmax_window = \"{MOST_WINDOW}B\"\n");
    for version in [1, 2] {
        let (instance, app) = far(&limits);
        let used = || Page::scrape(instance.metrics()).get("offramp_limit_used{limit=\"memory\"}");
        download(&instance, "--http1.1", "sized");
        // The first session is that of the readiness check.
        let sessions = || app.lines(Source::Stdout).iter().filter(|line| *line == "SESSION").count();
        let (first, before) = (sessions(), resident(instance.process.id()));
        let mut clients: Vec<_> = (0..2).map(|_| Slow::ask(&instance, version)).collect();
        for client in &mut clients {
            // Its window has grown then.
            let others = used();
            until("a larger window", || {
                client.read(1 << 18);
                (used() > others + 1_000_000.0).then_some(())
            });
        }
        // Only one more client reads.
        for other in ["--http1.1", "--http2"] {
            download(&instance, other, "open");
        }
        let held = resident(instance.process.id()).saturating_sub(before);
        println!("HTTP/{version}: {held} bytes, {} of them counted", used());
        assert!(used() <= (MEMORY / 2) as f64 + 1_000_000.0, "HTTP/{version}: {} are counted", used());
        assert!(held < MEMORY / 2 + (4 << 20), "HTTP/{version}: {held} bytes");
        assert_eq!(sessions(), first, "one connection to the server carries all");
        drop(clients);
        instance.until("nothing is held", || (used() == 0.0).then_some(()));
        instance.stop();
    }
}
