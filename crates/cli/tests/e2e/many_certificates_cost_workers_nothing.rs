//! Forty certificates in one go: at most four orders at a time, and the workers that serve clients pay nothing for them.

use std::fs;
use std::time::{Duration, Instant};

use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{connect, trusting};
use crate::support::instance::{Home, Instance};
use crate::support::pebble::{Pebble, Terms};

const NAMES: usize = 40;

/// The CPU time of the workers and of all threads, in ticks of 10 ms.
fn ticks(instance: &Instance) -> (u64, u64) {
    let (mut workers, mut all) = (0, 0);
    for task in fs::read_dir(format!("/proc/{}/task", instance.process.id())).unwrap() {
        // A thread may have ended meanwhile.
        let Ok(stat) = fs::read_to_string(task.unwrap().path().join("stat")) else { continue };
        let (head, rest) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let spent: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        all += spent;
        let name = head.split_once('(').unwrap().1;
        if name.strip_prefix("offramp-").is_some_and(|number| number.parse::<u32>().is_ok()) {
            workers += spent;
        }
    }
    (workers, all)
}

#[test]
fn orders_are_spread_and_leave_workers_alone() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms { believes: true, ..Terms::default() });
    let client = trusting(&pebble.root(home.path()));
    let names: Vec<String> = (0..NAMES).map(|number| format!("n{number}.test")).collect();
    let text = format!(
        "{}[tls]\ncertificates = \"acme\"\n[[listener]]\nname = \"default\"\naddress = \"127.0.0.1:0\"\n\
         [[route]]\nhost = {names:?}\nserver = \"{}\"\n",
        pebble.section(&home.ca, ""),
        app.address()
    );
    let instance = home.run(&text);
    let (workers_before, all_before) = ticks(&instance);
    let lines = || instance.process.lines(Source::Stderr);
    let deadline = Instant::now() + Duration::from_secs(240);
    while lines().iter().filter(|line| line.contains("a certificate was obtained")).count() < NAMES {
        assert!(Instant::now() < deadline, "{}", instance.process.transcript());
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let (workers, all) = ticks(&instance);
    let (workers, all) = (workers - workers_before, all - all_before);
    // The challenge is believed, so that whatever workers do is for the orders themselves.
    assert!(workers <= 3 || workers * 20 <= all, "{workers} of {all} ticks");
    let mut under_way = 0;
    for line in lines() {
        under_way += usize::from(line.contains("ordering a certificate"));
        under_way -= usize::from(line.contains("a certificate was obtained"));
        assert!(under_way <= 4, "{}", instance.process.transcript());
    }
    instance.until("all are served", || {
        names.iter().all(|name| connect(&client, instance.address(), name).is_ok()).then_some(())
    });
    assert_eq!(pebble.count("Added order"), NAMES);
}
