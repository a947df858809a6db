//! Addresses move from listener to listener and become wider while they are in use.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, require};
use offramp_testkit::server::{Listen, Server, apps};

use crate::reload_loses_no_request::reload_to;
use crate::support::crowd::{connect, get, tcp, trusting};
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, PATIENCE, ask, text};
use crate::support::namespace::Namespace;
use crate::support::offramp::{offramp, output, stderr};
use crate::support::skipped::is_root_or_skipped;
use crate::support::upgrade::Upgraded;

/// Two addresses that nothing else listens on.
fn addresses() -> [SocketAddr; 2] {
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.3:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap())
}

/// A listener of mode `http` with a response of its own.
fn listener(name: &str, address: SocketAddr) -> String {
    format!(
        "[[listener]]\nname = \"{name}\"\nmode = \"http\"\naddress = \"{address}\"\n\
         [[route]]\nlistener = \"{name}\"\nrespond = {{ body = \"hello {name}\\n\" }}\n"
    )
}

#[test]
fn two_listeners_swap_their_addresses() {
    let [first, second] = addresses();
    let both = |one, two| format!("{CERTIFICATE}{}{}", listener("one", one), listener("two", two));
    let instance = Home::new().run(&both(first, second));
    let config = trusting(&instance.home.ca.certificate());
    let mut kept = connect(&config, first, "localhost").unwrap();
    assert_eq!(get(&mut kept, "/kept").unwrap(), "hello one\n");
    for (one, two) in [(second, first), (first, second), (second, first)] {
        let outcome = reload_to(&instance, &both(one, two));
        assert!(outcome.contains(" reloaded "), "{outcome}");
        for (address, said) in [(one, "hello one\n"), (two, "hello two\n")] {
            assert_eq!(get(&mut connect(&config, address, "localhost").unwrap(), "/new").unwrap(), said);
        }
        // An open connection belongs to the listener that has its address now.
        let said = if one == first { "hello one\n" } else { "hello two\n" };
        assert_eq!(get(&mut kept, "/kept").unwrap(), said);
    }
    // A renamed one keeps its socket, and its events have the new name.
    let outcome = reload_to(&instance, &format!("{CERTIFICATE}{}", listener("three", first)));
    assert!(outcome.contains(" reloaded "), "{outcome}");
    assert_eq!(get(&mut kept, "/renamed").unwrap(), "hello three\n");
    let mut new = connect(&config, first, "localhost").unwrap();
    assert_eq!(get(&mut new, "/last").unwrap(), "hello three\n");
    drop((kept, new));
    let events = instance.stop();
    let of = |path: &str| text(events.iter().find(|event| event["path"] == path).unwrap(), "listener");
    assert_eq!(of("/last"), "three");
}

/// curl in the network of the test; whether it was answered.
fn curl(network: &Namespace, instance: &Instance, address: SocketAddr) -> bool {
    let mut command = Command::new(require("curl", "curl"));
    command.args(["-q", "--silent", "--show-error", "--fail", "--noproxy", "*", "--cacert"]);
    command.arg(instance.home.ca.certificate());
    command.args(["--connect-to", &format!("::{address}"), "https://localhost/x"]);
    command.current_dir(instance.home.path());
    ask(network.within(&command), b"", Duration::from_secs(60)).status.success()
}

#[test]
fn an_address_becomes_wider_and_narrower_and_nobody_is_refused() {
    let network = Namespace::new();
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), apps::http).unwrap();
    let at = |address: &str| {
        format!(
            "workers = 2\n{CERTIFICATE}[[listener]]\naddress = \"{address}:8443\"\n\
             [[route]]\nserver = \"unix:app.sock\"\n"
        )
    };
    let command = network.within(&offramp(home.path(), &["run", "--config"]));
    let instance = home.start(command, &at("127.0.0.1"));
    let (four, six) = ("127.0.0.1:8443".parse().unwrap(), "[::1]:8443".parse().unwrap());
    let (done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(curl(&network, &instance, four), "request {}", asked.load(Ordering::Relaxed));
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        for (address, has_six) in
            [("0.0.0.0", false), ("[::]", true), ("0.0.0.0", false), ("[::]", true), ("127.0.0.1", false)]
        {
            let outcome = reload_to(&instance, &at(address));
            assert!(outcome.contains(" reloaded "), "{outcome}");
            // The old sockets close when each worker has come to it, which a busy machine delays.
            instance.until("the addresses of this reload alone", || {
                (curl(&network, &instance, six) == has_six).then_some(())
            });
            let before = asked.load(Ordering::Relaxed);
            instance.until("more requests", || {
                (client.is_finished() || asked.load(Ordering::Relaxed) > before + 2).then_some(())
            });
        }
        done.store(true, Ordering::Relaxed);
        client.join().unwrap();
    });
    assert!(app.accepted() > asked.load(Ordering::Relaxed));
    instance.stop();
}

/// The sockets of before are kept while a change waits to be confirmed. They take no connection that the new ones would get,
/// and are there in time on the way back.
#[test]
fn an_address_that_may_go_back_becomes_wider_and_nobody_is_refused() {
    let network = Namespace::new();
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), apps::http).unwrap();
    let at = |address: &str| {
        format!(
            "workers = 2\n{CERTIFICATE}[[listener]]\naddress = \"{address}:8443\"\n\
             [[route]]\nserver = \"unix:app.sock\"\n"
        )
    };
    let command = network.within(&offramp(home.path(), &["run", "--config"]));
    let instance = home.start(command, &at("127.0.0.1"));
    let before = std::fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let ctl = |arguments: &[&str]| {
        let done = output(instance.home.path(), &[&["ctl"], arguments].concat());
        assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
    };
    let four = "127.0.0.1:8443".parse().unwrap();
    let (done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(curl(&network, &instance, four), "request {}", asked.load(Ordering::Relaxed));
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        let more = || {
            let before = asked.load(Ordering::Relaxed);
            instance.until("more requests", || {
                (client.is_finished() || asked.load(Ordering::Relaxed) > before + 2).then_some(())
            });
        };
        for (address, ends) in
            [("0.0.0.0", "rollback"), ("[::]", "rollback"), ("0.0.0.0", "confirm"), ("[::]", "confirm")]
        {
            let new = before.replace("127.0.0.1:8443", &format!("{address}:8443"));
            std::fs::write(instance.home.file("new.toml"), new).unwrap();
            ctl(&["apply", "new.toml", "--confirm", "1h"]);
            more();
            ctl(&[ends]);
            more();
        }
        done.store(true, Ordering::Relaxed);
        client.join().unwrap();
    });
    assert!(app.accepted() >= asked.load(Ordering::Relaxed));
    instance.stop();
}

/// Trials and refused changes open the sockets of what they try out, and take no connection of what is in force.
#[test]
fn what_is_only_tried_out_takes_no_connection() {
    let text = |address: &str| {
        format!(
            "[[listener]]\naddress = \"{address}\"\nmode = \"http\"\ntls = false\n[[route]]\nrespond = {{ body = \"hello\" }}\n"
        )
    };
    let instance = Home::new().run(&text("0.0.0.0:0"));
    let port = instance.address().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let head = std::fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let narrow = head.replace("0.0.0.0:0", &address.to_string());
    std::fs::write(instance.home.file("new.toml"), &narrow).unwrap();
    let broken = format!("{narrow}[[certificate]]\ncert = \"none.pem\"\n");
    std::fs::write(instance.home.file("broken.toml"), broken).unwrap();
    let ctl = |arguments: &[&str]| output(instance.home.path(), &[&["ctl"], arguments].concat());
    let (done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients = [(); 2].map(|()| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let answer = tcp(address).and_then(|mut stream| get(&mut stream, "/"));
                    assert_eq!(answer.unwrap(), "hello", "{}", asked.load(Ordering::Relaxed));
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        for _ in 0..20 {
            let planned = ctl(&["plan", "new.toml"]);
            assert!(planned.status.success(), "{}", stderr(&planned));
            let refused = ctl(&["apply", "broken.toml"]);
            assert!(stderr(&refused).contains("none.pem"), "{}", stderr(&refused));
        }
        done.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
    });
    // In earnest it takes them all.
    let applied = ctl(&["apply", "new.toml"]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    assert_eq!(get(&mut tcp(address).unwrap(), "/").unwrap(), "hello");
    instance.stop();
}

/// The new process opens the wider address beside the sockets of the old one, which closes them then.
#[test]
fn an_upgrade_makes_an_address_wider_and_narrower() {
    let network = Namespace::new();
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), apps::http).unwrap();
    let at = |address: &str| {
        format!(
            "workers = 2\n{CERTIFICATE}[[listener]]\naddress = \"{address}:8443\"\n\
             [[route]]\nserver = \"unix:app.sock\"\n"
        )
    };
    let command = network.within(&offramp(home.path(), &["run", "--config"]));
    let upgraded = Upgraded::of(home.start(command, &at("0.0.0.0")));
    let instance = &upgraded.instance;
    let (four, six) = ("127.0.0.1:8443".parse().unwrap(), "[::1]:8443".parse().unwrap());
    for (address, has_six) in [("[::]", true), ("127.0.0.1", false), ("0.0.0.0", false)] {
        instance.home.configure(&at(address));
        upgraded.upgrade();
        upgraded.until_others_ended();
        assert!(curl(&network, instance, four), "{address}");
        assert_eq!(curl(&network, instance, six), has_six, "{address}");
    }
    drop(app);
    upgraded.stop();
}

/// Started as root, Offramp has sockets of root, and the user that it has become cannot open others beside them.
#[test]
fn sockets_of_root_cannot_become_wider_and_the_reason_is_told() {
    if !is_root_or_skipped("only root can become another user") {
        return;
    }
    let network = Namespace::new();
    let home = Home::new();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = |address: &str| {
        format!(
            "state_dir = \"state\"\nuser = \"nobody\"\n[[listener]]\naddress = \"{address}:8443\"\nmode = \"http\"\n\
             tls = false\n[[route]]\nrespond = {{ body = \"a\" }}\n"
        )
    };
    let file = home.file("offramp.toml");
    std::fs::write(&file, text("0.0.0.0")).unwrap();
    std::fs::write(home.file("new.toml"), text("[::]")).unwrap();
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.arg(&file);
    let process = Process::start(network.within(&command), LIFE).unwrap();
    process.wait_for(&Ready::Line(" admin ".into()), PATIENCE).unwrap();
    let refused = output(home.path(), &["ctl", "plan", "new.toml"]);
    let said = stderr(&refused);
    assert!(refused.status.code() == Some(1), "{said}\n{}", process.transcript());
    assert!(said.contains("sockets of another user") && said.contains("restart Offramp"), "{said}");
    let stopped = output(home.path(), &["ctl", "stop"]);
    assert!(stopped.status.success(), "{}", stderr(&stopped));
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
}
