//! `bandwidth_per_client`: what one client moves in either direction has a bound, over all of its connections, and others
//! are not slowed.
//!
//! Times have lower bounds only: a busy machine takes longer. Who overtakes whom does not depend on it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use offramp_testkit::server::{Listen, Server, Stream};
use rustls::ClientConfig;
use socket2::{Domain, Socket, Type};

use crate::support::crowd::{Tls, secure, trusting};
use crate::support::http_curl::command;
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE};

const MIB: usize = 1 << 20;
/// What a client moves; a second's worth passes at once.
const SIZE: usize = 3 * MIB;
/// The least time for so many bytes at 1 MiB/s, with what a clock may round.
fn least(bytes: usize) -> Duration {
    Duration::from_secs_f64((bytes - MIB) as f64 / MIB as f64) - Duration::from_millis(20)
}

/// Takes [`SIZE`] bytes, and answers with one.
fn taker(mut stream: Stream) {
    if stream.read_exact(&mut vec![0; SIZE]).is_ok() {
        let _ = stream.write_all(b"!");
    }
}

/// Gives [`SIZE`] bytes to whoever says something.
fn giver(mut stream: Stream) {
    if stream.read_exact(&mut [0]).is_ok() {
        let _ = stream.write_all(&vec![7; SIZE]);
    }
}

struct World {
    instance: Instance,
    config: Arc<ClientConfig>,
    _servers: [Server; 2],
}

fn world(limits: &str) -> World {
    let home = Home::new();
    fs::create_dir(home.file("files")).unwrap();
    fs::write(home.file("files/large"), vec![b'x'; SIZE]).unwrap();
    let config = trusting(&home.ca.certificate());
    let servers = [taker, giver].map(|app| Server::start(&Listen::Ipv4, app).unwrap());
    let tcp = |name: &str, server: &Server| {
        format!(
            "[[listener]]\nname = \"{name}\"\naddress = \"127.0.0.1:0\"\n\
             [[route]]\nlistener = [\"{name}\"]\nserver = \"{}\"\n",
            server.address()
        )
    };
    let text = format!(
        "workers = 2\n{limits}{CERTIFICATE}[[listener]]\nname = \"default\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n\
         [[route]]\nlistener = [\"default\"]\nroot = \"{}\"\n{}{}",
        home.file("files").display(),
        tcp("taker", &servers[0]),
        tcp("giver", &servers[1])
    );
    let instance = home.run(&text);
    World { instance, config, _servers: servers }
}

const LIMITED: &str = "[limits]\nbandwidth_per_client = \"1MiB\"\n";

impl World {
    /// A connection of this client to a listener.
    fn connect(&self, from: [u8; 4], listener: &str) -> Tls {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&self.instance.address_of(listener).into()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        secure(&self.config, TcpStream::from(socket), "localhost").unwrap()
    }

    /// Begins to download the file as this client.
    fn download(&self, from: &str, arguments: &[&str]) -> Child {
        let mut command = command(&self.instance, "https");
        command.args([
            "--interface",
            from,
            "--output",
            "/dev/null",
            "--write-out",
            "%{size_download} %{http_version}",
        ]);
        command
            .args(arguments)
            .arg("https://localhost/large")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// Waits until the file has come whole.
fn finish(download: Child, version: &str) {
    let output = download.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{SIZE} {version}"));
}

fn receive(client: &mut Tls) {
    client.write_all(b"?").unwrap();
    client.flush().unwrap();
    let mut bytes = vec![0; SIZE];
    client.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
}

#[test]
fn files_come_at_the_rate_over_both_versions_and_relays_go_at_it_both_ways() {
    let world = world(LIMITED);
    // Each way is another client, for what one has used is not forgotten at once.
    let begun = Instant::now();
    let mut all = vec![
        (world.download("127.0.2.1", &["--http1.1"]), "1.1"),
        (world.download("127.0.2.2", &["--http2"]), "2"),
    ];
    let mut up = world.connect([127, 0, 2, 3], "taker");
    up.write_all(&vec![1; SIZE]).unwrap();
    up.flush().unwrap();
    let mut answer = [0];
    up.read_exact(&mut answer).unwrap();
    assert!(begun.elapsed() >= least(SIZE), "an upload took {:?}", begun.elapsed());
    for (download, version) in all.drain(..) {
        finish(download, version);
        assert!(begun.elapsed() >= least(SIZE), "HTTP/{version} took {:?}", begun.elapsed());
    }
    let begun = Instant::now();
    receive(&mut world.connect([127, 0, 2, 4], "giver"));
    assert!(begun.elapsed() >= least(SIZE), "a relay took {:?}", begun.elapsed());
    world.instance.stop();
}

#[test]
fn connections_of_a_client_share_and_others_are_not_slowed() {
    let world = world(LIMITED);
    let begun = Instant::now();
    let mut first = world.download("127.0.2.1", &["--http1.1"]);
    let mut second = world.download("127.0.2.1", &["--http2"]);
    // Another client, which asks for no more than may pass at once, is done long before.
    let other = world.download("127.0.2.9", &["--http1.1", "--range", "0-900000"]);
    let output = other.wait_with_output().unwrap();
    assert!(output.stdout.starts_with(b"900001 "), "{}", output.stdout.escape_ascii());
    assert!(first.try_wait().unwrap().is_none() && second.try_wait().unwrap().is_none());
    finish(first, "1.1");
    finish(second, "2");
    assert!(begun.elapsed() >= least(2 * SIZE), "both took {:?}", begun.elapsed());
    world.instance.stop();
}

#[test]
fn without_a_limit_nothing_waits() {
    let world = world("");
    let begun = Instant::now();
    for _ in 0..10 {
        finish(world.download("127.0.2.1", &["--http1.1"]), "1.1");
        receive(&mut world.connect([127, 0, 2, 1], "giver"));
    }
    // With a limit it would be a minute.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    world.instance.stop();
}
