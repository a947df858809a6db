//! A change that nobody confirms goes back for certain: whatever happens to its port and its files meanwhile, and at last
//! when what stood in the way is gone.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;

use offramp_testkit::process::{Signal, Source, free_address};
use offramp_testkit::server::{Listen, Server, apps};
use serde_json::Value;

use crate::support::crowd::{close, connect, get, trusting};
use crate::support::instance::{CERTIFICATE, Home, Instance};
use crate::support::offramp::{output, stderr, stdout};

fn listener(address: SocketAddr) -> String {
    format!("[[listener]]\naddress = \"{address}\"\nmode = \"http\"\n")
}

fn ctl(instance: &Instance, arguments: &[&str]) -> Output {
    output(instance.home.path(), &[&["ctl", "--admin", "unix:state/admin.sock"], arguments].concat())
}

fn done(instance: &Instance, arguments: &[&str]) -> String {
    let done = ctl(instance, arguments);
    assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
    stdout(&done)
}

fn refused(instance: &Instance, arguments: &[&str]) -> String {
    let refused = ctl(instance, arguments);
    assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {}{}", stdout(&refused), stderr(&refused));
    stderr(&refused)
}

fn status(instance: &Instance) -> Value {
    serde_json::from_str(&done(instance, &["--json", "status"])).unwrap()
}

/// The configuration with what every test wants before it.
fn new(instance: &Instance, text: &str) {
    let head = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let head = head.split_inclusive('\n').take_while(|line| !line.starts_with('[')).collect::<String>();
    fs::write(instance.home.file("new.toml"), head + text).unwrap();
}

#[test]
fn nobody_takes_the_port_and_lost_files_are_remembered() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let (old, next) = (free_address(), free_address());
    let rest = format!("{CERTIFICATE}[[route]]\nserver = \"{}\"\n", app.address());
    let instance = Home::new().run(&format!("{}{rest}", listener(old)));
    let config = trusting(&instance.home.ca.certificate());
    let served = |address: SocketAddr| {
        let mut tls = connect(&config, address, "localhost").unwrap();
        assert_eq!(get(&mut tls, "/x").unwrap(), "hello /x\n");
        close(tls).unwrap();
    };
    served(old);
    new(&instance, &format!("{}{rest}", listener(next)));
    done(&instance, &["apply", "new.toml", "--confirm", "3s"]);
    served(next);
    // The files of before are gone, and the old port refuses clients, but nobody else gets it.
    for name in ["server.chain.pem", "server.key"] {
        fs::remove_file(instance.home.file(name)).unwrap();
    }
    let refuses = |address: SocketAddr| {
        instance.until("the port refuses", || {
            let refused = TcpStream::connect(address).err()?;
            (refused.kind() == ErrorKind::ConnectionRefused).then_some(())
        });
    };
    refuses(old);
    let taken = TcpListener::bind(old).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    instance.until("the way back", || status(&instance)["config"]["confirm_until"].is_null().then_some(()));
    served(old);
    refuses(next);
    let log = instance.process.lines(Source::Stderr);
    let failed =
        log.iter().any(|line| line.contains("taken back yet") || line.contains("does not come back"));
    assert!(!failed, "{}", instance.process.transcript());
    // Confirmed, the port is free for others.
    fs::write(instance.home.file("server.key"), "").unwrap();
    let plain = "tls = false\n[[route]]\nserver = ";
    new(&instance, &format!("{}{plain}\"{}\"\n", listener(next), app.address()));
    done(&instance, &["apply", "new.toml", "--confirm", "1h"]);
    done(&instance, &["confirm"]);
    instance.until("the old port is free", || TcpListener::bind(old).ok());
    instance.stop();
}

/// As with a file system that is away: the folder of the files and the whole state directory, with the local CA.
#[test]
fn lost_folders_are_in_the_way_of_nothing() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let (www, state) = (home.file("www"), home.file("state"));
    fs::create_dir(&www).unwrap();
    let (old, next) = (free_address(), free_address());
    let admin = "[admin]\naddress = \"unix:admin.sock\"\n";
    let before = format!(
        "{admin}[access_log]\nhash = [\"client\"]\n{}{}[[route]]\nhost = \"localhost\"\nserver = \"{}\"\n\
         [[route]]\nhost = \"localhost\"\npath = \"/files\"\nroot = \"{}\"\n",
        listener(old),
        listener(free_address()).replace("[[listener]]", "[[listener]]\nname = \"second\""),
        app.address(),
        www.display()
    );
    let instance = home.run(&before);
    let ca = instance.home.file("kept.pem");
    fs::copy(state.join("ca/ca.pem"), &ca).unwrap();
    let config = trusting(&ca);
    let served = || {
        let mut tls = connect(&config, old, "localhost").unwrap();
        assert_eq!(get(&mut tls, "/x").unwrap(), "hello /x\n");
        close(tls).unwrap();
    };
    let ctl = |arguments: &[&str]| {
        output(instance.home.path(), &[&["ctl", "--admin", "unix:admin.sock"], arguments].concat())
    };
    let done = |arguments: &[&str]| {
        let done = ctl(arguments);
        assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
        stdout(&done)
    };
    served();
    let rest = format!("{CERTIFICATE}[[route]]\nserver = \"{}\"\n", app.address());
    new(&instance, &format!("{admin}{}{rest}", listener(next)));
    let away = || {
        fs::rename(&www, instance.home.file("www.away")).unwrap();
        fs::rename(&state, instance.home.file("state.away")).unwrap();
    };
    let back = || {
        // Nothing was made in their place.
        assert!(!www.exists() && !state.join("ca").exists());
        let _ = fs::remove_dir_all(&state);
        fs::rename(instance.home.file("www.away"), &www).unwrap();
        fs::rename(instance.home.file("state.away"), &state).unwrap();
    };
    // By somebody's order, and by itself.
    done(&["apply", "new.toml", "--confirm", "1h"]);
    away();
    done(&["rollback"]);
    served();
    back();
    done(&["apply", "new.toml", "--confirm", "3s"]);
    away();
    instance.until("the way back", || {
        let status: Value = serde_json::from_str(&done(&["--json", "status"])).unwrap();
        assert!(status["config"]["not_taken_back"].is_null(), "{status}");
        status["config"]["confirm_until"].is_null().then_some(())
    });
    served();
    // Clients are hashed as before, though the key is lost.
    let events = instance.events_of(3);
    let client = events[0]["client"].as_str().unwrap();
    assert!(
        !client.contains("127.0.0.1") && events.iter().all(|event| event["client"] == client),
        "{events:?}"
    );
    // What reads the files anew is refused, and says once what is missing, however many listeners the route has.
    let refused = stderr(&ctl(&["reload"]));
    assert_eq!(refused.matches("cannot read the directory").count(), 1, "{refused}");
    back();
    done(&["reload"]);
    served();
    instance.stop();
}

#[test]
fn what_stands_in_the_way_is_told_and_the_way_back_is_tried_until_it_works() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let (old, next) = (free_address(), free_address());
    let text = |address: SocketAddr| {
        format!("[metrics]\naddress = \"{address}\"\n{}", Home::one_route(app.address()))
    };
    let instance = Home::new().run(&text(old));
    new(&instance, &text(next));
    done(&instance, &["apply", "new.toml", "--confirm", "2s"]);
    let in_the_way = instance.until("the old address is free", || TcpListener::bind(old).ok());
    let reason = instance.until("the reason in the status", || {
        status(&instance)["config"]["not_taken_back"].as_str().map(str::to_owned)
    });
    assert!(reason.contains(&format!("cannot listen on {old}")), "{reason}");
    let shown = done(&instance, &["status"]);
    assert!(shown.contains("not taken back") && shown.contains("tried again"), "{shown}");
    assert!(done(&instance, &["history", "--refused"]).contains("not confirmed in time"));
    let log = instance.process.lines(Source::Stderr);
    assert!(log.iter().any(|line| line.contains("cannot be taken back yet")), "{log:?}");
    // Others wait until it is settled.
    assert!(refused(&instance, &["log-level", "debug"]).contains("waits to be confirmed"));
    drop(in_the_way);
    instance.until("the way back", || {
        let status = status(&instance);
        (status["config"]["not_taken_back"].is_null() && status["config"]["confirm_until"].is_null())
            .then_some(())
    });
    assert!(TcpStream::connect(old).is_ok());
    let said =
        |what: &str| instance.process.lines(Source::Stderr).iter().filter(|l| l.contains(what)).count();
    assert_eq!(said("cannot be taken back yet"), 1, "the same reason is told once");
    instance.stop();
}

#[test]
fn a_change_that_was_not_confirmed_is_discarded_with_a_word_and_no_rollback_leads_to_it() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = Home::new().run(&Home::one_route(app.address()));
    let levels = |instance: &Instance| done(instance, &["show", "config"]).contains("level = \"debug\"");
    done(&instance, &["apply", "offramp.toml"]);
    done(&instance, &["log-level", "warn"]);
    done(&instance, &["log-level", "debug", "--confirm", "1h"]);
    let reloaded = ctl(&instance, &["reload"]);
    let said = stdout(&reloaded) + &stderr(&reloaded);
    assert!(reloaded.status.success() && said.contains("(version 3) waits to be confirmed"), "{said}");
    assert!(refused(&instance, &["confirm"]).contains("no change waits"));
    assert!(!levels(&instance));
    done(&instance, &["rollback"]);
    assert!(done(&instance, &["show", "config"]).contains("level = \"warn\""));
    // As it is where the time is over.
    done(&instance, &["log-level", "debug", "--confirm", "1s"]);
    instance.until("the way back", || status(&instance)["config"]["confirm_until"].is_null().then_some(()));
    done(&instance, &["rollback"]);
    assert!(!levels(&instance));
    // Who names it means it.
    done(&instance, &["rollback", "3"]);
    assert!(levels(&instance));
    instance.stop();
}

#[test]
fn a_file_that_cannot_be_written_is_found_out_in_time() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = Home::new().run(&Home::one_route(app.address()));
    let apply = ["log-level", "debug", "--persist", "--confirm", "1h"];
    // In the place of what the file is written to first.
    fs::create_dir(instance.home.file(".offramp.toml.new")).unwrap();
    assert!(refused(&instance, &apply).contains("cannot write "));
    assert_eq!(status(&instance)["config"]["version"], 1);
    fs::remove_dir(instance.home.file(".offramp.toml.new")).unwrap();
    done(&instance, &apply);
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    fs::write(instance.home.file("offramp.toml"), format!("# edited\n{file}")).unwrap();
    for _ in 0..2 {
        let said = refused(&instance, &["confirm"]);
        assert!(said.contains("was changed meanwhile"), "{said}");
        assert!(
            said.contains("still waits to be confirmed, until 20") && said.contains("--no-persist"),
            "{said}"
        );
    }
    done(&instance, &["confirm", "--no-persist"]);
    let status = status(&instance);
    assert_eq!((&status["config"]["version"], &status["config"]["confirm_until"]), (&2.into(), &Value::Null));
    assert_eq!(status["config"]["unwritten"].as_array().unwrap().len(), 1, "{status}");
    assert!(fs::read_to_string(instance.home.file("offramp.toml")).unwrap().starts_with("# edited\n"));
    instance.stop();
}

#[test]
fn an_empty_file_takes_nothing_down() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = Home::one_route(app.address());
    let instance = Home::new().run(&text);
    let config = trusting(&instance.home.ca.certificate());
    let served = || {
        let mut tls = connect(&config, instance.address(), "localhost").unwrap();
        assert_eq!(get(&mut tls, "/x").unwrap(), "hello /x\n");
        close(tls).unwrap();
    };
    let is_told = |said: &str| {
        assert!(said.contains("has no [[route]] (1 in force)"), "{said}");
        assert!(said.contains("--force"), "{said}");
    };
    for arguments in
        [&["plan", "/dev/null"][..], &["apply", "/dev/null"], &["apply", "/dev/null", "--dry-run"]]
    {
        is_told(&refused(&instance, arguments));
    }
    // By the file: cut short, with `watch` and by SIGHUP.
    let whole = fs::read_to_string(instance.home.configure(&text)).unwrap();
    let cut = whole.split("[[route]]").next().unwrap();
    fs::write(instance.home.file("offramp.toml"), cut).unwrap();
    is_told(&refused(&instance, &["reload"]));
    instance.process.signal(Signal::HUP).unwrap();
    instance.until("the log says why", || {
        let lines = instance.process.lines(Source::Stderr);
        let line = lines.iter().find(|line| line.contains("reload refused") && line.contains("by=SIGHUP"))?;
        line.contains("has no [[route]]").then_some(())
    });
    is_told(&refused(&instance, &["upgrade"]));
    served();
    assert_eq!(status(&instance)["config"]["version"], 1);
    // An empty file would listen on port 443, which not everybody may.
    let bare = instance.home.file("bare.toml");
    fs::write(&bare, cut).unwrap();
    let plan = done(&instance, &["plan", &bare.display().to_string(), "--force"]);
    assert!(plan.contains("route default: removed"), "{plan}");
    // Who removes the only route by its name means it.
    assert!(done(&instance, &["route", "remove", "default", "--dry-run"]).contains("removed"));
    done(&instance, &["reload", "--force"]);
    assert_eq!(status(&instance)["routes"], 0);
    // One that has none may stay so.
    done(&instance, &["reload"]);
    instance.stop();
}

#[test]
fn with_watch_an_empty_file_takes_nothing_down_either() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = format!("watch = true\n{}", Home::one_route(app.address()));
    let instance = Home::new().run(&text);
    fs::write(instance.home.file("offramp.toml"), "").unwrap();
    instance.until("the log says why", || {
        let lines = instance.process.lines(Source::Stderr);
        let line = lines.iter().find(|line| line.contains("reload refused") && line.contains("by=watch"))?;
        line.contains("no [[listener]] (1 in force)").then_some(())
    });
    assert_eq!(status(&instance)["routes"], 1);
    instance.stop();
}
