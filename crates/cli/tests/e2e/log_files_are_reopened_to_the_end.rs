//! SIGUSR1 during the drain, which may take hours: log files are reopened, and the log says who has ordered the stop.

use std::fs;

use offramp_testkit::process::Signal;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{connect, echo, trusting};
use crate::support::instance::{Home, Instance, PATIENCE};
use crate::support::offramp::{output, stderr};

fn draining(instance: &Instance) -> String {
    instance.until("the drain begins", || {
        let log = fs::read_to_string(instance.home.file("offramp.log")).ok()?;
        log.lines().find(|line| line.contains(" draining ")).map(str::to_owned)
    })
}

#[test]
fn a_drain_reopens_log_files_and_is_somebodys() {
    for by_ctl in [false, true] {
        let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
        let text = format!(
            "[log]\noutput = \"./offramp.log\"\n[limits]\ndrain_timeout = \"1h\"\n{}",
            Home::one_route(app.address())
        );
        let home = Home::new();
        let log = home.file("offramp.log");
        let instance = home.run(&text);
        let address = instance.until("the address", || {
            let log = fs::read_to_string(&log).ok()?;
            let line = log.lines().find(|line| line.contains(" listening "))?.to_owned();
            line.split("address=").nth(1)?.split_whitespace().next()?.trim_matches('"').parse().ok()
        });
        let config = trusting(&instance.home.ca.certificate());
        let mut tls = connect(&config, address, "localhost").unwrap();
        echo(&mut tls, "hello").unwrap();
        if by_ctl {
            let done = output(instance.home.path(), &["ctl", "stop"]);
            assert!(done.status.success(), "{}", stderr(&done));
        } else {
            instance.process.signal(Signal::TERM).unwrap();
        }
        let line = draining(&instance);
        let by = if by_ctl { "pid " } else { "by=\"a signal\"" };
        assert!(line.contains("by=") && line.contains(by), "{line}");
        fs::rename(&log, instance.home.file("offramp.log.1")).unwrap();
        instance.process.signal(Signal::USR1).unwrap();
        instance.until("the new file", || {
            fs::read_to_string(&log).ok()?.contains("log files reopened").then_some(())
        });
        echo(&mut tls, "still served").unwrap();
        drop(tls);
        assert_eq!(instance.process.wait(PATIENCE).unwrap().code(), Some(0));
        let log = fs::read_to_string(&log).unwrap();
        assert!(log.contains(" stopped "), "{log}");
    }
}
