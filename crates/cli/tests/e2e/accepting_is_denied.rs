//! The kernel does not let Offramp accept, as a security module or a seccomp filter would: accepting pauses, says so,
//! does not spin, hears the order to stop, and goes on when it may.

use std::fs;
use std::process::Command;

use offramp_testkit::process::{Process, Ready, Signal, Source, require};
use offramp_testkit::server::{Listen, Server, apps};

use crate::crowd::{connect, get, tcp, trusting};
use crate::figures::Page;
use crate::house::{Home, House, LIFE, PATIENCE};

/// Has every accept4(2) of the one worker fail with this error for as long as it is held.
fn deny(house: &House, error: &str) -> Process {
    let tasks = fs::read_dir(format!("/proc/{}/task", house.process.id())).unwrap();
    let worker = tasks.map(|task| task.unwrap()).find(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == "offramp-0")
    });
    let id = worker.expect("a worker").file_name().into_string().unwrap();
    let mut strace = Command::new(require("strace", "strace"));
    strace.args(["-e", "trace=accept4", "-e", &format!("inject=accept4:error={error}"), "-p", &id]);
    let strace = Process::start(strace, LIFE).unwrap();
    strace.wait_for(&Ready::Line(" attached".into()), PATIENCE).unwrap();
    strace
}

fn house(app: &Server) -> House {
    let text = "workers = 1\n[metrics]\naddress = \"127.0.0.1:0\"\n";
    Home::new().run(&format!("{text}{}", Home::one_route(app.address())))
}

#[test]
fn it_pauses_and_goes_on() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let house = house(&app);
    let config = trusting(&house.home.ca.certificate());
    let mut kept = connect(&config, house.address(), "localhost").unwrap();
    let pauses = || Page::scrape(house.metrics()).get("offramp_accept_pauses_total{reason=\"denied\"}");
    let mut before = 0.0;
    for error in ["EPERM", "EACCES", "EOPNOTSUPP"] {
        let strace = deny(&house, error);
        let waiting = tcp(house.address()).unwrap();
        house.until("pauses", || (pauses() >= before + 2.0).then_some(()));
        // Others are served meanwhile.
        assert_eq!(get(&mut kept, "/x").unwrap(), "hello /x\n");
        strace.signal(Signal::INT).unwrap();
        strace.wait(PATIENCE).unwrap();
        // Each time that it asked in vain is a pause: it did not spin.
        let after = pauses();
        let denied = strace.lines(Source::Stderr).iter().filter(|line| line.contains("(INJECTED)")).count();
        assert_eq!(after - before, denied as f64, "{}", strace.transcript());
        before = after;
        drop(waiting);
        let mut next = connect(&config, house.address(), "localhost").unwrap();
        assert_eq!(get(&mut next, "/y").unwrap(), "hello /y\n");
    }
    let said = |line: &String| line.contains("accepting pauses") && line.contains("reason=denied");
    assert_eq!(house.process.lines(Source::Stderr).into_iter().filter(said).count(), 1);
    drop(kept);
    house.stop();
}

#[test]
fn it_hears_the_order_to_stop() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let house = house(&app);
    let strace = deny(&house, "EPERM");
    let _waiting = tcp(house.address()).unwrap();
    let pauses = || Page::scrape(house.metrics()).get("offramp_accept_pauses_total{reason=\"denied\"}");
    house.until("a pause", || (pauses() >= 1.0).then_some(()));
    house.stop();
    strace.wait(PATIENCE).unwrap();
}
