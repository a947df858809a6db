//! Out of descriptors: accepting pauses, says so once, costs no CPU, and goes on when there are some. Connections that
//! are open need no more of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Process, Ready, Signal, Source, require};
use offramp_testkit::server::{Listen, Pattern, Server, Stream, apps};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::crowd::{connect, echo, get, tcp, trusting, until};
use crate::support::figures::{Page, cpu, descriptors};
use crate::support::instance::{Home, Instance, LIFE, PATIENCE};
use crate::support::skipped::sees_inside_or_skipped;

/// Lowers the limit of open files of a running process, soft and hard, so that it can open `more`.
fn leave(instance: &Instance, more: usize) {
    let used = descriptors(instance.process.id());
    // The limit is on the numbers, of which the lowest free one is always taken.
    let first_refused = (0..).filter(|number| !used.contains(number)).nth(more).unwrap();
    let files = Some(first_refused);
    let pid = Pid::from_raw(instance.process.id().try_into().unwrap());
    prlimit(pid, Resource::Nofile, Rlimit { current: files, maximum: files }).unwrap();
}

#[test]
fn accepting_pauses_and_recovers() {
    if !sees_inside_or_skipped() {
        return;
    }
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = "workers = 1\n[limits]\nhandshake_timeout = \"2m\"\n[metrics]\naddress = \"127.0.0.1:0\"\n";
    let instance = Home::new().run(&format!("{text}{}", Home::one_route(app.address())));
    let (address, process) = (instance.address(), instance.process.id());
    let config = trusting(&instance.home.ca.certificate());
    let mut kept = connect(&config, address, "localhost").unwrap();
    assert_eq!(get(&mut kept, "/x").unwrap(), "hello /x\n");
    leave(&instance, 10);

    // Many more than fit: those that are not accepted wait in the kernel's queue.
    let crowd: Vec<TcpStream> = (0..40).map(|_| tcp(address).unwrap()).collect();
    let warnings = || {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().filter(|line| line.contains("accepting pauses")).collect::<Vec<_>>()
    };
    until("a warning", || (!warnings().is_empty()).then_some(()));
    assert!(warnings()[0].contains("LimitNOFILE"), "{:?}", warnings());

    // It neither spins nor dies nor forgets those that it has.
    let (before, begun) = (cpu(process), Instant::now());
    thread::sleep(Duration::from_secs(2));
    let (used, time) = (cpu(process) - before, begun.elapsed());
    assert!(used <= time / 4, "{used:?} of CPU in {time:?} of waiting");
    assert_eq!(get(&mut kept, "/y").unwrap(), "hello /y\n");
    assert_eq!(warnings().len(), 1, "{:?}", warnings());

    drop(crowd);
    until("a new connection that is served", || {
        let mut next = connect(&config, address, "localhost").ok()?;
        get(&mut next, "/z").ok().filter(|answer| answer == "hello /z\n")
    });
    drop(kept);
    let page = Page::scrape(instance.metrics());
    assert!(page.get("offramp_accept_pauses_total{reason=\"descriptors\"}") >= 1.0);
    assert_eq!(warnings().len(), 1, "{:?}", warnings());
    let events = instance.stop();
    assert!(events.len() >= 42, "{}", events.len());
}

#[test]
fn a_client_for_whose_server_none_is_left_is_told() {
    if !sees_inside_or_skipped() {
        return;
    }
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let text = "workers = 1\n[metrics]\naddress = \"127.0.0.1:0\"\n";
    let instance = Home::new().run(&format!("{text}{}", Home::one_route(app.address())));
    let config = trusting(&instance.home.ca.certificate());
    let mut kept = connect(&config, instance.address(), "localhost").unwrap();
    echo(&mut kept, "hello").unwrap();
    // One for the client, none for the server.
    leave(&instance, 1);
    let mut refused = connect(&config, instance.address(), "localhost").unwrap();
    let error = echo(&mut refused, "hello").unwrap_err();
    drop(refused);
    let event = instance.events_of(1).remove(0);
    assert_eq!(
        (&event["cause"], &event["fault"]),
        (&"descriptors_exhausted".into(), &"us".into()),
        "{event}"
    );
    assert!(error.to_string().contains("InternalError"), "{error}");
    echo(&mut kept, "still here").unwrap();
    drop(kept);
    assert_eq!(Page::scrape(instance.metrics()).closed("descriptors_exhausted"), 1.0);
    instance.stop();
}

/// A process that may have so many of them, and has started.
fn start_with(limit: u32, path: &Path) -> Process {
    let mut command = Command::new(require("prlimit", "util-linux"));
    command.arg(format!("--nofile={limit}:{limit}"));
    command.arg(env!("CARGO_BIN_EXE_offramp")).args(["run", "-c"]).arg(path);
    let process = Process::start(command, LIFE).unwrap();
    process.wait_for(&Ready::Line(" started ".into()), PATIENCE).unwrap();
    process
}

#[test]
fn a_start_with_few_of_them_serves_with_few_of_them() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let written = home.configure(&format!(
        "workers = 1\n[limits]\nconnections = 100000\n{}",
        Home::one_route(app.address())
    ));
    let process = start_with(48, &written);
    let told = process.lines(Source::Stderr);
    process.signal(Signal::TERM).unwrap();
    process.wait(PATIENCE).unwrap();
    for word in ["WARN", "needs 201000 ", "the process may have 48 ", "connections fit", "LimitNOFILE=201000"]
    {
        assert!(told.iter().any(|line| line.contains(word)), "{word}: {told:?}");
    }
    let path = home.configure(&format!("workers = 1\n{}", Home::one_route(app.address())));
    let process = start_with(48, &path);
    let lines = process.lines(Source::Stderr);
    assert!(
        !lines.iter().any(|line| line.contains("limits.connections")),
        "nobody has written it: {lines:?}"
    );
    let address = lines.iter().find_map(|line| line.split("address=").nth(1)?.parse().ok()).unwrap();
    let config = trusting(&home.ca.certificate());
    let served = || get(&mut connect(&config, address, "localhost").ok()?, "/x").ok();
    assert_eq!(served().as_deref(), Some("hello /x\n"));
    let crowd: Vec<TcpStream> = (0..100).map(|_| tcp(address).unwrap()).collect();
    process.wait_for(&Ready::Line("accepting pauses".into()), PATIENCE).unwrap();
    drop(crowd);
    until("a new connection that is served", served);
    process.signal(Signal::TERM).unwrap();
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
}

const BULK: usize = 64 << 20;

/// Writes [`BULK`] bytes of a pattern, and counts them for the other side, which so knows when this one waits.
fn write_bulk(stream: &mut impl Write, written: &AtomicU64) {
    let (mut pattern, mut chunk) = (Pattern::new(9), vec![0; 64 * 1024]);
    for _ in 0..BULK / chunk.len() {
        pattern.fill(&mut chunk);
        if stream.write_all(&chunk).is_err() {
            return;
        }
        written.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    }
}

/// Waits until whoever writes has to wait, then reads everything that it has to say.
fn read_bulk(stream: &mut impl Read, written: &AtomicU64) -> Vec<u8> {
    let (mut seen, mut still) = (0, 0);
    // Standing still is what there is to be seen, so this looks again and again.
    while still < 10 {
        thread::park_timeout(Duration::from_millis(20));
        let now = written.load(Ordering::Relaxed);
        still = if now == seen && now > 0 { still + 1 } else { 0 };
        seen = now;
    }
    let mut all = vec![0; BULK];
    let mut got = 0;
    while got < BULK {
        match stream.read(&mut all[got..]) {
            Ok(n @ 1..) => got += n,
            _ => break,
        }
    }
    all.truncate(got);
    all
}

fn is_whole(got: &[u8]) -> bool {
    let mut expected = vec![0; BULK];
    Pattern::new(9).fill(&mut expected);
    got == expected
}

/// The first write that had to wait used to need another descriptor: a slow client's response was cut there.
#[test]
fn a_slow_client_gets_its_response_whole() {
    if !sees_inside_or_skipped() {
        return;
    }
    let home = Home::new();
    for listen in [Listen::Ipv4, Listen::Unix(home.path().join("app"))] {
        let written = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&written);
        let app = Server::start(&listen, move |mut stream: Stream| {
            // Nothing more is opened once the client has heard this.
            if stream.write_all(b"!").is_ok() && matches!(stream.read(&mut [0]), Ok(1)) {
                write_bulk(&mut stream, &counter);
            }
        })
        .unwrap();
        let instance = Home::new().run(&format!("workers = 1\n{}", Home::one_route(app.address())));
        let config = trusting(&instance.home.ca.certificate());
        let mut client = connect(&config, instance.address(), "localhost").unwrap();
        client.read_exact(&mut [0]).unwrap();
        leave(&instance, 0);
        client.write_all(b"?").unwrap();
        let got = read_bulk(&mut client, &written);
        assert!(is_whole(&got), "{listen:?}: {} of {BULK} bytes", got.len());
        let _ = client.read(&mut [0]);
        drop(client);
        let event = instance.events_of(1).remove(0);
        assert_eq!(
            (&event["fault"], &event["cause"]),
            (&"nobody".into(), &"server_closed".into()),
            "{event}"
        );
        instance.stop();
    }
}

/// The same the other way round: a slow application behind either kind of socket.
#[test]
fn a_slow_application_gets_its_upload_whole() {
    if !sees_inside_or_skipped() {
        return;
    }
    let home = Home::new();
    for listen in [Listen::Ipv4, Listen::Unix(home.path().join("app"))] {
        let written = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&written);
        let app = Server::start(&listen, move |mut stream: Stream| {
            if stream.write_all(b"!").is_ok() {
                let whole = is_whole(&read_bulk(&mut stream, &counter));
                let _ = stream.write_all(if whole { b"whole" } else { b"short" });
            }
        })
        .unwrap();
        let instance = Home::new().run(&format!("workers = 1\n{}", Home::one_route(app.address())));
        let config = trusting(&instance.home.ca.certificate());
        let mut client = connect(&config, instance.address(), "localhost").unwrap();
        client.read_exact(&mut [0]).unwrap();
        leave(&instance, 0);
        write_bulk(&mut client, &written);
        let mut verdict = String::new();
        client.read_to_string(&mut verdict).unwrap();
        assert_eq!(verdict, "whole", "{listen:?}");
        drop(client);
        assert_eq!(instance.events_of(1).remove(0)["fault"], "nobody");
        instance.stop();
    }
}
