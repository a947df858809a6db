//! HTTP connections on which nothing is under way: whatever was said on them before, their worker sleeps.

use std::fs;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::support::crowd::{Tls, connect, offering, trusting};
use crate::support::h2_client::H2;
use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE};
use crate::support::smuggling_backend::Backend;

/// For how long a worker has to sleep. What rings once a second would wake it twice.
const QUIET: Duration = Duration::from_millis(2500);

/// What the kernel says of the only worker, under `/proc`.
fn worker(instance: &Instance, file: &str) -> String {
    let tasks = fs::read_dir(format!("/proc/{}/task", instance.process.id())).unwrap();
    let worker = tasks
        .map(|task| task.unwrap().path())
        .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "offramp-0"));
    fs::read_to_string(worker.expect("there is a worker").join(file)).unwrap()
}

/// How often the only worker has waited for something.
pub(crate) fn waits(instance: &Instance) -> u64 {
    let status = worker(instance, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// Whether the only worker waits now, and has not just no core to run on.
pub(crate) fn sleeps(instance: &Instance) -> bool {
    is_in_state(instance, 'S')
}

/// Whether the only worker was stopped by a signal.
pub(crate) fn is_stopped(instance: &Instance) -> bool {
    is_in_state(instance, 'T')
}

fn is_in_state(instance: &Instance, state: char) -> bool {
    worker(instance, "stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
}

/// Waits until the worker has slept for [`QUIET`] without a break: memory is given back a second after the last
/// request, and a timer that is not needed any more may ring once.
#[track_caller]
fn falls_asleep(instance: &Instance, what: &str) {
    let begun = Instant::now();
    loop {
        let before = waits(instance);
        std::thread::sleep(QUIET);
        let woken = waits(instance) - before;
        if woken == 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: woken {woken} times in {QUIET:?}");
    }
}

#[test]
fn a_worker_sleeps_beside_quiet_connections() {
    let backend = Backend::start();
    let home = Home::new();
    let config = trusting(&home.ca.certificate());
    // Connections to servers that are kept are looked after every second.
    let instance = home.run(&format!(
        "workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n\
         [backend.app]\nservers = \"{}\"\nidle_connections = 0\n",
        backend.address()
    ));
    let get = |tls: &mut Tls| {
        tls.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            let mut chunk = [0; 1024];
            let n = tls.read(&mut chunk).unwrap();
            answer.extend_from_slice(&chunk[..n]);
            assert!(n > 0, "{}", answer.escape_ascii());
        }
    };
    let mut http1 = connect(&offering(&config, &["http/1.1"]), instance.address(), "localhost").unwrap();
    get(&mut http1);
    falls_asleep(&instance, "HTTP/1.1 behind a request");
    let fresh = H2::open(&config, instance.address(), &[]);
    falls_asleep(&instance, "HTTP/2 behind SETTINGS");
    let mut asked = H2::open(&config, instance.address(), &[]);
    asked.is_well(1);
    falls_asleep(&instance, "HTTP/2 behind a request");
    // Who falls quiet comes back, and falls quiet again.
    get(&mut http1);
    asked.is_well(3);
    falls_asleep(&instance, "both behind another request");
    drop((http1, fresh, asked));
    instance.stop();
}
