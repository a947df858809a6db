//! Out of descriptors: accepting pauses, says so once, costs no CPU, and goes on when there are some.

use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, Signal, Source, require};
use offramp_testkit::server::{Listen, Server, apps};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::crowd::{connect, echo, get, tcp, trusting, until};
use crate::figures::{Page, cpu, descriptors};
use crate::house::{Home, House, LIFE, PATIENCE};

/// Lowers the limit of open files of a running process, soft and hard, so that it can open `more`.
fn leave(house: &House, more: usize) {
    let used = descriptors(house.process.id());
    // The limit is on the numbers, of which the lowest free one is always taken.
    let last = (0..).filter(|number| !used.contains(number)).nth(more - 1).unwrap();
    let files = Some(last + 1);
    let pid = Pid::from_raw(house.process.id().try_into().unwrap());
    prlimit(pid, Resource::Nofile, Rlimit { current: files, maximum: files }).unwrap();
}

#[test]
fn accepting_pauses_and_recovers() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = "workers = 1\n[limits]\nhandshake_timeout = \"2m\"\n[metrics]\naddress = \"127.0.0.1:0\"\n";
    let house = Home::new().run(&format!("{text}{}", Home::one_route(app.address())));
    let (address, process) = (house.address(), house.process.id());
    let config = trusting(&house.home.ca.certificate());
    let mut kept = connect(&config, address, "localhost").unwrap();
    assert_eq!(get(&mut kept, "/x").unwrap(), "hello /x\n");
    leave(&house, 10);

    // Many more than fit: those that are not accepted wait in the kernel's queue.
    let crowd: Vec<TcpStream> = (0..40).map(|_| tcp(address).unwrap()).collect();
    let warnings = || {
        let lines = house.process.lines(Source::Stderr);
        lines.into_iter().filter(|line| line.contains("accepting pauses")).collect::<Vec<_>>()
    };
    until("a warning", || (!warnings().is_empty()).then_some(()));
    assert!(warnings()[0].contains("LimitNOFILE"), "{:?}", warnings());

    // It neither spins nor dies nor forgets those that it has.
    let before = cpu(process);
    thread::sleep(Duration::from_secs(2));
    let used = cpu(process) - before;
    assert!(used <= Duration::from_millis(100), "{used:?} of CPU in two seconds of waiting");
    assert_eq!(get(&mut kept, "/y").unwrap(), "hello /y\n");
    assert_eq!(warnings().len(), 1, "{:?}", warnings());

    drop(crowd);
    until("a new connection that is served", || {
        let mut next = connect(&config, address, "localhost").ok()?;
        get(&mut next, "/z").ok().filter(|answer| answer == "hello /z\n")
    });
    drop(kept);
    let page = Page::scrape(house.metrics());
    assert!(page.get("offramp_accept_pauses_total{reason=\"descriptors\"}") >= 1.0);
    assert_eq!(warnings().len(), 1, "{:?}", warnings());
    let events = house.stop();
    assert!(events.len() >= 42, "{}", events.len());
}

#[test]
fn a_client_for_whose_server_none_is_left_is_told() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let text = "workers = 1\n[metrics]\naddress = \"127.0.0.1:0\"\n";
    let house = Home::new().run(&format!("{text}{}", Home::one_route(app.address())));
    let config = trusting(&house.home.ca.certificate());
    let mut kept = connect(&config, house.address(), "localhost").unwrap();
    echo(&mut kept, "hello").unwrap();
    // One for the client, none for the server.
    leave(&house, 1);
    let mut refused = connect(&config, house.address(), "localhost").unwrap();
    let error = echo(&mut refused, "hello").unwrap_err();
    drop(refused);
    let event = house.events_of(1).remove(0);
    assert_eq!(
        (&event["cause"], &event["fault"]),
        (&"descriptors_exhausted".into(), &"us".into()),
        "{event}"
    );
    assert!(error.to_string().contains("InternalError"), "{error}");
    echo(&mut kept, "still here").unwrap();
    drop(kept);
    assert_eq!(Page::scrape(house.metrics()).closed("descriptors_exhausted"), 1.0);
    house.stop();
}

#[test]
fn a_start_with_few_of_them_serves_with_few_of_them() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let path = home.configure(&format!("workers = 1\n{}", Home::one_route(app.address())));
    let mut command = Command::new(require("prlimit", "util-linux"));
    command.arg("--nofile=48:48").arg(env!("CARGO_BIN_EXE_offramp")).args(["run", "-c"]).arg(path);
    let process = Process::start(command, LIFE).unwrap();
    process.wait_for(&Ready::Line(" started ".into()), PATIENCE).unwrap();
    let lines = process.lines(Source::Stderr);
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
