//! The kernel does not let Offramp accept, as a security module or a seccomp filter would: accepting pauses, says so,
//! does not spin, hears the order to stop, and goes on when it may.

use std::fs;
use std::process::Command;

use offramp_testkit::process::{Process, Ready, Signal, Source, require};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{connect, get, tcp, trusting};
use crate::support::figures::Page;
use crate::support::instance::{Home, Instance, LIFE, PATIENCE};
use crate::support::skipped::sees_inside_or_skipped;

/// Has every accept4(2) of the one worker fail with this error for as long as it is held.
fn deny(instance: &Instance, error: &str) -> Process {
    let tasks = fs::read_dir(format!("/proc/{}/task", instance.process.id())).unwrap();
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

fn instance(app: &Server) -> Instance {
    let text = "workers = 1\n[metrics]\naddress = \"127.0.0.1:0\"\n";
    Home::new().run(&format!("{text}{}", Home::one_route(app.address())))
}

#[test]
fn it_pauses_and_goes_on() {
    if !sees_inside_or_skipped() {
        return;
    }
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = instance(&app);
    let config = trusting(&instance.home.ca.certificate());
    let mut kept = connect(&config, instance.address(), "localhost").unwrap();
    let pauses = || Page::scrape(instance.metrics()).get("offramp_accept_pauses_total{reason=\"denied\"}");
    let mut before = 0.0;
    for error in ["EPERM", "EACCES", "EOPNOTSUPP"] {
        let strace = deny(&instance, error);
        let waiting = tcp(instance.address()).unwrap();
        instance.until("pauses", || (pauses() >= before + 2.0).then_some(()));
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
        let mut next = connect(&config, instance.address(), "localhost").unwrap();
        assert_eq!(get(&mut next, "/y").unwrap(), "hello /y\n");
    }
    let said = |line: &String| line.contains("accepting pauses") && line.contains("reason=denied");
    assert_eq!(instance.process.lines(Source::Stderr).into_iter().filter(said).count(), 1);
    drop(kept);
    instance.stop();
}

#[test]
fn it_hears_the_order_to_stop() {
    if !sees_inside_or_skipped() {
        return;
    }
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = instance(&app);
    let strace = deny(&instance, "EPERM");
    let _waiting = tcp(instance.address()).unwrap();
    let pauses = || Page::scrape(instance.metrics()).get("offramp_accept_pauses_total{reason=\"denied\"}");
    instance.until("a pause", || (pauses() >= 1.0).then_some(()));
    instance.stop();
    strace.wait(PATIENCE).unwrap();
}
