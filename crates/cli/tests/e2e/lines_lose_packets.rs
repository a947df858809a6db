//! Clients behind a line that loses packets, delays them, and is dead for a while: what they send and get is whole, and
//! others notice nothing.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, Signal, require};
use offramp_testkit::server::{Listen, Pattern, Server, apps};

use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, PATIENCE, ask};
use crate::support::namespace::Namespace;
use crate::support::offramp::offramp;
use crate::support::skipped::is_root_or_skipped;

/// What each client sends, and gets back.
const LENGTH: usize = 192 << 10;

/// Offramp in one namespace, clients in another, and a bad line between them.
struct Apart {
    instance: Instance,
    clients: Namespace,
    line: Process,
    near: Namespace,
    _app: Server,
}

impl Apart {
    /// `loss`: the share of packets that are lost; `delay`: in milliseconds, one way.
    fn new(loss: &str, delay: &str) -> Self {
        let (near, clients, home) = (Namespace::new(), Namespace::new(), Home::new());
        let mut line = Command::new(require("python3", "python3"));
        line.args(["-c", include_str!("bad_line.py"), &clients.holder().to_string(), loss, delay]);
        let line = Process::start(near.within(&line), LIFE).unwrap();
        line.wait_for(&Ready::Line("up".into()), PATIENCE).unwrap();
        let app = Server::start(&Listen::Unix(home.file("app.sock")), apps::http).unwrap();
        let text = format!(
            "workers = 1\n{CERTIFICATE}\
             [[listener]]\nname = \"web\"\nmode = \"http\"\naddress = [\"10.77.0.1:8443\", \"127.0.0.1:8443\"]\n\
             [[listener]]\nname = \"relay\"\naddress = \"10.77.0.1:9443\"\n\
             [[route]]\nserver = \"unix:app.sock\"\n"
        );
        let mut pattern = vec![0; LENGTH];
        Pattern::new(3).fill(&mut pattern);
        fs::write(home.file("upload"), pattern).unwrap();
        let command = near.within(&offramp(home.path(), &["run", "--config"]));
        let instance = home.start(command, &text);
        Self { instance, clients, line, near, _app: app }
    }

    /// curl sends the file to an address and gets it back.
    fn echo(&self, network: &Namespace, address: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(require("curl", "curl"));
        command.args(["-q", "--silent", "--show-error", "--fail", "--noproxy", "*", "--cacert"]);
        command.arg(self.instance.home.ca.certificate());
        command.args(["--connect-to", &format!("::{address}"), "--data-binary", "@upload"]);
        command.args(arguments).arg("https://localhost/echo").current_dir(self.instance.home.path());
        ask(network.within(&command), b"", Duration::from_secs(120))
    }

    /// How many bytes have come over the line.
    fn received(&self) -> usize {
        let text = fs::read_to_string(format!("/proc/{}/net/dev", self.near.holder())).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("line:"));
        line.unwrap().split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Whether a client got back what it sent.
    #[track_caller]
    fn is_whole(&self, output: &Output) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == fs::read(self.instance.home.file("upload")).unwrap());
    }
}

/// Set where the test may make the ends of a line. Under CI the tests run as root, too.
fn may_make_lines() -> bool {
    if !is_root_or_skipped("only root may open /dev/net/tun") {
        return false;
    }
    let may = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok();
    assert!(may || std::env::var_os("CI").is_none(), "this test needs /dev/net/tun, which root may open");
    may
}

#[test]
fn what_comes_over_a_line_that_loses_packets_is_whole() {
    if !may_make_lines() {
        return;
    }
    let apart = Apart::new("0.03", "10");
    std::thread::scope(|scope| {
        let ways =
            [("10.77.0.1:8443", "--http1.1"), ("10.77.0.1:8443", "--http2"), ("10.77.0.1:9443", "--http1.1")];
        let clients: Vec<_> = ways
            .iter()
            .cycle()
            .take(9)
            .map(|(address, version)| scope.spawn(|| apart.echo(&apart.clients, address, &[version])))
            .collect();
        // Others are served meanwhile.
        while clients.iter().any(|client| !client.is_finished()) {
            apart.is_whole(&apart.echo(&apart.near, "127.0.0.1:8443", &["--http2"]));
        }
        clients.into_iter().for_each(|client| apart.is_whole(&client.join().unwrap()));
    });
    apart.instance.stop();
}

#[test]
fn a_line_that_is_dead_for_a_while_ends_no_request() {
    if !may_make_lines() {
        return;
    }
    let apart = Apart::new("0", "1");
    for version in ["--http1.1", "--http2"] {
        std::thread::scope(|scope| {
            let slow = || apart.echo(&apart.clients, "10.77.0.1:8443", &[version, "--limit-rate", "96k"]);
            let client = scope.spawn(slow);
            let before = apart.received();
            let half = || (apart.received() > before + LENGTH / 2).then_some(());
            apart.instance.until("half of it has come", half);
            apart.line.signal(Signal::STOP).unwrap();
            // So long is the line dead.
            std::thread::sleep(Duration::from_secs(3));
            assert!(!client.is_finished());
            apart.is_whole(&apart.echo(&apart.near, "127.0.0.1:8443", &[version]));
            apart.line.signal(Signal::CONT).unwrap();
            apart.is_whole(&client.join().unwrap());
        });
    }
    apart.instance.stop();
}
