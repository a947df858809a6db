//! A Redis that knows nothing of TLS, asked by `redis-cli --tls`: the relay is blind to what it carries.

use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, require};

use crate::support::conversation::Conversation;
use crate::support::instance::{Home, Instance, LIFE, PATIENCE, ask, cause, text};

/// A Redis on a Unix socket of the home and an Offramp before it.
struct Served {
    _redis: Process,
    instance: Instance,
}

impl Served {
    fn start() -> Self {
        let home = Home::new();
        let socket = home.file("redis.sock");
        let mut command = Command::new(require("redis-server", "redis-server"));
        // No port, nothing on disk.
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(home.path());
        let redis = Process::start(command, LIFE).unwrap();
        redis.wait_for(&Ready::Unix(socket), PATIENCE).unwrap();
        let instance = home.run(&Home::one_route("unix:redis.sock"));
        Self { _redis: redis, instance }
    }

    fn cli(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(require("redis-cli", "redis-tools"));
        let address = self.instance.address();
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.args(["--tls", "--sni", "localhost", "--cacert"]).arg(self.instance.home.ca.certificate());
        command.args(arguments).current_dir(self.instance.home.path());
        command
    }

    /// Runs the client with this input and gives what it answers.
    fn answer(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let output = ask(self.cli(arguments), input, Duration::from_secs(60));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        output.stdout
    }
}

#[test]
fn redis_sets_and_gets() {
    let served = Served::start();
    assert_eq!(served.answer(&["SET", "colour", "green"], b""), b"OK\n");
    assert_eq!(served.answer(&["GET", "colour"], b""), b"green\n");
    let events = served.instance.stop();
    assert_eq!(events.len(), 2);
    for event in &events {
        assert!(text(event, "server").ends_with("/redis.sock"), "{event}");
        assert_eq!((text(event, "sni"), text(event, "tls_version")), ("localhost", "TLSv1.3"), "{event}");
        // redis-cli exits without a close_notify.
        assert!(["client_closed", "client_vanished"].contains(&cause(event)), "{event}");
    }
}

#[test]
fn redis_takes_a_pipeline() {
    let served = Served::start();
    let commands: String = (0..20_000).map(|n| format!("SET key:{n} value:{n}\r\n")).collect();
    let said = served.answer(&["--pipe"], commands.as_bytes());
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("errors: 0, replies: 20000"), "{said}");
    assert_eq!(served.answer(&["DBSIZE"], b""), b"20000\n");
    assert_eq!(served.answer(&["GET", "key:19999"], b""), b"value:19999\n");
    served.instance.stop();
}

#[test]
fn redis_keeps_a_value_of_five_mebibytes() {
    let served = Served::start();
    let value: Vec<u8> = (0..5 << 20).map(|at: u32| b'a' + (at % 25) as u8).collect();
    // -x takes the last argument from the input, as it is.
    assert_eq!(served.answer(&["-x", "SET", "large"], &value), b"OK\n");
    assert_eq!(served.answer(&["STRLEN", "large"], b""), b"5242880\n");
    let mut got = served.answer(&["GET", "large"], b"");
    assert_eq!(got.pop(), Some(b'\n'));
    assert!(got == value, "{} bytes came back", got.len());
    served.instance.stop();
}

#[test]
fn redis_publishes_to_who_listens() {
    let served = Served::start();
    let mut listener = Conversation::start(served.cli(&["SUBSCRIBE", "news"]));
    listener.hear("subscribe\nnews\n1\n");
    for number in 1..=50 {
        let published = served.answer(&["PUBLISH", "news", &format!("item-{number}-")], b"");
        assert_eq!(published, b"1\n", "one listens");
    }
    // In order, and each once.
    let expected: String = (1..=50).map(|number| format!("message\nnews\nitem-{number}-\n")).collect();
    listener.hear(&expected);
    drop(listener);
    served.instance.stop();
}
