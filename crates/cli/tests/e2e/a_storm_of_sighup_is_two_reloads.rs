//! A hundred SIGHUP in a second: two reloads, the second with what was written last, and nobody notices.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Signal, Source};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{Crowd, trusting};
use crate::support::instance::{Home, Instance};

const STORM: usize = 100;

fn reloads(instance: &Instance) -> Vec<String> {
    let lines = instance.process.lines(Source::Stderr);
    lines.into_iter().filter(|line| line.contains(" reloaded ") || line.contains("reload refused")).collect()
}

#[test]
fn the_last_one_is_not_forgotten() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = format!("workers = 1\n[limits]\nconnections = 1000\n{}", Home::one_route(app.address()));
    let instance = Home::new().run(&text);
    let file = instance.home.file("offramp.toml");
    let text = fs::read_to_string(&file).unwrap();
    let storm = |number: usize| {
        // As a whole: it may be read at any moment.
        let text = text.replace("connections = 1000", &format!("connections = {}", 1000 + number));
        fs::write(instance.home.file("new.toml"), text).unwrap();
        fs::rename(instance.home.file("new.toml"), &file).unwrap();
        instance.process.signal(Signal::HUP).unwrap();
    };
    let config = trusting(&instance.home.ca.certificate());
    let crowd = Crowd::send(2, &config, instance.address(), "localhost");
    crowd.busy(2);
    let begun = Instant::now();
    storm(1);
    instance.until("the first is obeyed", || (!reloads(&instance).is_empty()).then_some(()));
    for number in 2..=STORM {
        storm(number);
        thread::sleep(Duration::from_millis(5));
    }
    let took = begun.elapsed();
    let last = format!("-> {}", 1000 + STORM);
    instance.until("what was written last is in force", || {
        reloads(&instance).iter().any(|line| line.contains(&last)).then_some(())
    });
    // None comes later.
    thread::sleep(Duration::from_millis(1500));
    let all = reloads(&instance);
    let most = 2 + usize::try_from(took.as_secs()).unwrap();
    assert!((2..=most).contains(&all.len()), "{STORM} signals in {took:?}: {all:?}");
    assert!(all.iter().all(|line| line.contains(" reloaded ")), "{all:?}");
    crowd.busy(2);
    let tally = crowd.stop();
    assert!(tally.failures.is_empty() && tally.turned_away == 0, "{tally:?}");
    instance.stop();
}
