//! A reload or a change that needs files or ports beyond those of the first configuration is refused whole, and an upgrade
//! has them.

use std::fs;
use std::process::Command;

use offramp_testkit::process::{Signal, Source, temp_dir};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{connect, get, trusting};
use crate::support::instance::{CERTIFICATE, Home, Instance};
use crate::support::offramp::{offramp, output, stderr};
use crate::support::upgrade::Upgraded;

const LISTENER: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n";

/// As somebody's whose home is elsewhere: of a home only single files are read.
fn command(home: &Home) -> Command {
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.env("HOME", "/nonexistent");
    command
}

fn start(text: &str) -> Upgraded {
    let home = Home::new();
    let command = command(&home);
    Upgraded::of(home.start(command, text))
}

fn answer(instance: &Instance) -> String {
    let config = trusting(&instance.home.ca.certificate());
    get(&mut connect(&config, instance.address(), "localhost").unwrap(), "/x").unwrap()
}

/// Reloads, and gives the last line of the log that says that it was refused.
fn refused(upgraded: &Upgraded, text: &str) -> String {
    let instance = &upgraded.instance;
    let lines = || -> Vec<String> {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().filter(|line| line.contains("reload refused")).collect()
    };
    let before = lines().len();
    instance.home.configure(text);
    upgraded.signal(Signal::HUP);
    instance.wait_for_notification("READY=1");
    instance.until("the refusal", || lines().into_iter().nth(before))
}

#[test]
fn strict_reads_and_connects_no_more_than_it_did() {
    let (first, second) = (Listen::Ipv4, Listen::Ipv4);
    let first = Server::start(&first, apps::http).unwrap();
    let second = Server::start(&second, apps::http).unwrap();
    let outside = temp_dir();
    let page = outside.path().join("page.txt");
    fs::write(&page, "from outside").unwrap();
    let head = format!("sandbox = \"strict\"\n{CERTIFICATE}{LISTENER}");
    let to = |server: &Server| format!("{head}[[route]]\nserver = \"{}\"\n", server.address());
    let upgraded = start(&to(&first));
    let instance = &upgraded.instance;
    assert_eq!(answer(instance), "hello /x\n");
    // A port.
    let said = refused(&upgraded, &to(&second));
    let port = second.address().to_string();
    let port = port.rsplit_once(':').unwrap().1;
    assert!(
        said.contains(&format!("`route.server`: the sandbox does not let Offramp connect to port {port}"))
    );
    assert!(said.contains("offramp.toml:") && said.contains("`offramp ctl upgrade` (SIGUSR2)"), "{said}");
    // With what else is wrong, and a file that is denied is not said to be unreadable as well.
    for (more, other, faults) in [
        ("[[certificate]]\ncert = \"missing.pem\"\n".to_owned(), "missing.pem", 2),
        ("error_pages = { 404 = \"missing.html\" }\n".to_owned(), "missing.html", 2),
        (format!("error_pages = {{ 404 = {page:?}, 502 = \"missing.html\" }}\n"), "missing.html", 3),
    ] {
        let said = refused(&upgraded, &format!("{}{more}", to(&second)));
        assert!(said.contains(&format!("connect to port {port}")) && said.contains(other), "{said}");
        assert!(said.contains(&format!(" faults={faults} ")), "{said}");
    }
    // The same by the API.
    let applied = output(instance.home.path(), &["ctl", "apply", "offramp.toml"]);
    assert_eq!(applied.status.code(), Some(1));
    assert!(stderr(&applied).contains(&format!("connect to port {port}")), "{}", stderr(&applied));
    // A port to listen on.
    let busy = to(&first).replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    assert!(
        refused(&upgraded, &busy).contains("`listener.address`: the sandbox does not let Offramp listen on")
    );
    // A file, with something beside it that could be changed.
    let file = format!("{head}[[route]]\nrespond = {{ file = \"{}\" }}\n", page.display());
    let said = refused(&upgraded, &format!("{file}[limits]\nconnections = 77\n"));
    let expected = format!("`route.respond.file`: the sandbox does not let Offramp read {}", page.display());
    assert!(said.contains(&expected), "{said}");
    // An included file.
    let other = outside.path().join("other.toml");
    fs::write(&other, "").unwrap();
    let said = refused(&upgraded, &format!("include = \"{}\"\n{}", other.display(), to(&first)));
    assert!(said.contains("other.toml") && said.contains("if the sandbox denies it"), "{said}");
    assert_eq!(answer(instance), "hello /x\n", "nothing has changed");
    // A new process has a sandbox of its own.
    instance.home.configure(&file);
    upgraded.upgrade();
    assert_eq!(answer(instance), "from outside");
    upgraded.stop();
}

#[test]
fn writing_elsewhere_needs_an_upgrade() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let outside = temp_dir();
    let events = outside.path().join("events.log");
    let text = format!("{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\n", app.address());
    let upgraded = start(&text);
    let elsewhere = format!("access_log = {{ output = \"{}\" }}\n{text}", events.display());
    let said = refused(&upgraded, &elsewhere);
    let expected =
        format!("`access_log.output`: the sandbox does not let Offramp write {}", events.display());
    assert!(said.contains(&expected) && !events.exists(), "{said}");
    let socket = outside.path().join("offramp.sock");
    let listener = format!("{text}[[listener]]\nname = \"other\"\naddress = \"unix:{}\"\n", socket.display());
    let said = refused(&upgraded, &listener);
    assert!(said.contains(&format!("make the socket {}", socket.display())), "{said}");
    // What is only read may lie anywhere, and servers may be at any port.
    let second = Server::start(&Listen::Ipv4, apps::http).unwrap();
    fs::write(outside.path().join("404.html"), "<p>not here</p>").unwrap();
    let reading = text.replace(&app.address().to_string(), &second.address().to_string());
    let page = outside.path().join("404.html");
    upgraded.instance.home.configure(&format!("{reading}error_pages = {{ 404 = \"{}\" }}\n", page.display()));
    upgraded.signal(Signal::HUP);
    upgraded.instance.until("the reload", || {
        let log = upgraded.logged(" reloaded ");
        (!log.is_empty()).then_some(())
    });
    assert_eq!(answer(&upgraded.instance), "hello /x\n");
    upgraded.instance.home.configure(&elsewhere);
    upgraded.upgrade();
    assert_eq!(answer(&upgraded.instance), "hello /x\n");
    upgraded.instance.until("the event", || {
        fs::read_to_string(&events).is_ok_and(|text| text.contains("\"path\":\"/x\"")).then_some(())
    });
    upgraded.stop();
}
