//! Floods of wrong passwords, from a few addresses and from whole networks: whoever else logs in is checked next, and a
//! name that is guessed from everywhere lets its owner in.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::memory_is_bounded::log_in;
use crate::support::http_curl::PLAIN;
use crate::support::instance::{Home, Instance};
use crate::support::offramp::{offramp, stdout};

const PASSWORD: &str = "right";

/// Users of these names with [`PASSWORD`] behind a trusted proxy.
fn served(names: &[&str]) -> Instance {
    let home = Home::new();
    let mut command = offramp(home.path(), &["password", "anna"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(PASSWORD.as_bytes()).unwrap();
    let line = stdout(&child.wait_with_output().unwrap());
    let hash = line.trim_end().strip_prefix("anna:").unwrap();
    let users: String = names.iter().map(|name| format!("{name}:{hash}\n")).collect();
    fs::write(home.file("users"), users).unwrap();
    home.run(&format!(
        "{PLAIN}trusted_proxies = [\"127.0.0.1\"]\n[[route]]\nrespond = {{ body = \"in\" }}\nbasic_auth = \"users\"\n"
    ))
}

/// Sends wrong passwords without pause, by threads that each have one under way, while `work` is done. Gives how many were
/// checked.
fn flooded(address: SocketAddr, guess: impl Fn(u32) -> (String, String) + Sync, work: impl FnOnce()) -> u32 {
    let (stop, next, checked) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let (client, credentials) = guess(next.fetch_add(1, Ordering::Relaxed));
                    let status = log_in(address, &client, &credentials);
                    checked.fetch_add(u32::from(status == "401"), Ordering::Relaxed);
                    assert!(["401", "429", "503"].contains(&&*status), "{status}");
                }
            });
        }
        // Something is wrong for good where nothing is ever checked.
        crate::support::crowd::until("the flood", || (checked.load(Ordering::Relaxed) > 4).then_some(()));
        work();
        stop.store(true, Ordering::Relaxed);
    });
    checked.load(Ordering::Relaxed)
}

#[test]
fn a_newcomer_is_let_in_at_the_first_try() {
    let names = ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7"];
    // Three addresses, as many of a /24, of a /16, of a /48, and of a /32.
    let floods: [fn(u32) -> String; 5] = [
        |n| format!("203.0.{}.113", n % 3),
        |n| format!("203.0.113.{}", n % 256),
        |n| format!("203.0.{}.{}", n % 256, n / 256 % 256),
        |n| format!("2001:db8:1:{:x}::1", n % 0x1_0000),
        |n| format!("2001:db8:{:x}:{:x}::1", n % 0x1_0000, n % 7),
    ];
    for (number, flood) in floods.into_iter().enumerate() {
        let instance = served(&names);
        let address = instance.address_of("plain");
        flooded(
            address,
            |n| (flood(n), format!("n{n}:wrong")),
            || {
                for (name, client) in names.iter().zip(0_u32..) {
                    let client =
                        if client % 2 == 0 { "198.51.100.7".to_owned() } else { "2001:db9::7".to_owned() };
                    assert_eq!(
                        log_in(address, &client, &format!("{name}:{PASSWORD}")),
                        "200",
                        "flood {number}"
                    );
                }
            },
        );
        instance.stop();
    }
}

#[test]
fn the_owner_of_a_name_that_is_guessed_from_everywhere_is_let_in() {
    let instance = served(&["anna", "bernd"]);
    let address = instance.address_of("plain");
    // As many networks as it takes to have the name slowed; each has guessed by then.
    let network = |n: u32| format!("10.{}.0.1", n % 36);
    let mut checked = 0;
    while checked < 36 {
        match &*log_in(address, &network(checked), &format!("anna:wrong{checked}")) {
            "401" => checked += 1,
            "429" | "503" => {}
            other => panic!("{other}"),
        }
    }
    let begun = std::time::Instant::now();
    let more = flooded(
        address,
        |n| (network(n), format!("anna:guess{n}")),
        || {
            // Neither has logged in from here before.
            assert_eq!(log_in(address, "198.51.100.7", &format!("anna:{PASSWORD}")), "200");
            assert_eq!(log_in(address, "198.51.100.7", &format!("bernd:{PASSWORD}")), "200");
        },
    );
    // One in a second, and those that were on their way.
    assert!(u64::from(more) <= begun.elapsed().as_secs() + 4, "{more} in {:?}", begun.elapsed());
    instance.stop();
}
