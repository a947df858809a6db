//! `offramp top`: figures of a running Offramp as text, as JSON and on a terminal.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use offramp_testkit::server::{Listen, Server, apps};
use serde_json::Value;

use crate::logs_answer_for_what_was_served::{config, fetch};
use crate::support::instance::{Home, Instance, PATIENCE};
use crate::support::offramp::{output, stderr, stdout};
use crate::support::pty::PtyShell;
use crate::support::resumed::ctl;

#[test]
fn one_reading_is_a_page_or_an_object() {
    let instance = Home::new().run(&config(""));
    fetch(&instance, "Firefox", &["https://a.example.org/[1-3]"]);
    let top = |more: &[&str]| {
        let line = [&["top", "-c", "offramp.toml", "--once", "--interval", "500ms"], more].concat();
        let output = output(instance.home.path(), &line);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let page = top(&[]);
    for part in
        ["requests     0/s, 0 open\n", "a.example.org", "HOST ", "ROUTE ", "LISTENER", "no request ended"]
    {
        assert!(page.contains(part), "{part} in\n{page}");
    }
    let object: Value = serde_json::from_str(&top(&["--json"])).unwrap();
    assert!(object["interval_s"].as_f64().unwrap() >= 0.5 && object["requests"]["total"] == 3, "{object}");
    let wrong = output(instance.home.path(), &["top", "--once", "--interval", "3s"]);
    assert!(wrong.status.code() == Some(2) && stderr(&wrong).contains("500ms"), "{}", stderr(&wrong));
    let away = output(instance.home.path(), &["top", "--once", "--admin", "unix:none.sock"]);
    assert!(
        away.status.code() == Some(1) && stderr(&away).contains("no Offramp listens"),
        "{}",
        stderr(&away)
    );
    instance.stop();
}

/// An HTTP listener without TLS before two servers, with a log store.
fn before(servers: &[&Server]) -> String {
    let servers: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.address())).collect();
    format!(
        "[log_store]\nurl = \"sqlite:access.db\"\n[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [[route]]\nhost = \"shop.example\"\nbackend = \"apps\"\n[backend.apps]\nservers = [{}]\n",
        servers.join(", ")
    )
}

/// `offramp top` on a terminal of 80 by 24, after which the shell says how it has ended.
fn at_a_terminal(instance: &Instance, more: &str) -> PtyShell {
    let top = format!(
        "sh -c 'echo $$ > top.pid; exec {} top -c offramp.toml --interval 500ms {more}'",
        env!("CARGO_BIN_EXE_offramp")
    );
    let line =
        format!("before=$(stty -g); {top}; echo code=$?; test \"$before\" = \"$(stty -g)\" && echo restored");
    PtyShell::start(instance.home.path(), &line, 24, 80)
}

/// Sends a request on a connection that stays open.
fn send(instance: &Instance, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(instance.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: shop.example\r\n\r\n").unwrap();
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    while !answer.contains("hello ") {
        let length = stream.read(&mut bytes).unwrap();
        assert!(length > 0, "{answer}");
        answer.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    stream
}

/// Waits until the shell has the terminal back as it was.
fn given_back(shell: &mut PtyShell, code: i32) {
    shell.until(&[&format!("code={code}"), "restored"]);
    assert!(shell.with(|screen| !screen.alternate_screen() && !screen.hide_cursor()), "{}", shell.text());
    assert_eq!(shell.code(), Some(0));
}

#[test]
fn traffic_appears_and_the_screen_fits_the_terminal() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = Home::new().run(&before(&[&app]));
    let mut shell = at_a_terminal(&instance, "");
    shell.until(&["offramp top unix:", "1 hosts", "? help"]);
    assert!(shell.with(|screen| screen.alternate_screen() && screen.hide_cursor()));
    let _open = send(&instance, "/first");
    shell.until(&["shop.example", "1 open"]);
    shell.press("2");
    shell.until(&["ROUTE", "LISTENER", "P95"]);
    shell.press("7");
    shell.until(&["/first", "GET", "200"]);
    shell.press("\r");
    let story = shell.until(&["took", "first_byte", "done"]);
    assert!(story.contains("/first"), "{story}");
    shell.press("\x1b");
    shell.until(&["METHOD"]);
    shell.press("/nothing-like-it\r");
    shell.until(&["none of 1 has the filter's text"]);
    shell.press("\x1b1");
    shell.until(&["HOST", "shop.example"]);

    let tops = output(instance.home.path(), &["top", "--once"]);
    assert!(stdout(&tops).contains("shop.example"), "{}", stderr(&tops));
    shell.resize(10, 20);
    shell.until(&["offramp top needs", "60 columns and 14"]);
    shell.resize(40, 120);
    let wide = shell.until(&["1 hosts", "? help"]);
    assert!(wide.lines().any(|line| line.chars().count() > 80), "{wide}");
    shell.press("q");
    given_back(&mut shell, 0);
    instance.stop();
}

/// The state of the second server, as the API tells it.
fn state(instance: &Instance) -> Value {
    ctl(instance, &["show", "backends"])["backends"][0]["servers"][1]["state"].clone()
}

#[test]
fn servers_are_drained_and_connections_closed_after_a_question() {
    let (one, other) = (Server::start(&Listen::Ipv4, apps::http), Server::start(&Listen::Ipv4, apps::http));
    let (one, other) = (one.unwrap(), other.unwrap());
    let instance = Home::new().run(&before(&[&one, &other]));
    let name = other.address().to_string();
    let mut shell = at_a_terminal(&instance, "--no-color");
    shell.until(&["1 hosts", "? help"]);
    shell.press("3");
    shell.until(&["STATE", &name]);
    // The order of servers is that of the configuration.
    shell.press("\x1b[Bd");
    shell.until(&[&format!("Drain {name} of apps?"), "y/n"]);
    shell.press("n");
    shell.until(&["nothing was changed"]);
    assert_eq!(state(&instance), "up");
    shell.press("dy");
    shell.until(&[&format!("{name} drains"), "draining"]);
    assert_eq!(state(&instance), "draining");
    shell.press("e");
    shell.until(&[&format!("Enable {name} of apps?")]);
    shell.press("y");
    shell.until(&["is enabled"]);
    instance.until("the server gets requests again", || (state(&instance) == "up").then_some(()));

    let mut open = send(&instance, "/held");
    let client = open.local_addr().unwrap().to_string();
    shell.press("5");
    shell.until(&["PROTO", &client]);
    shell.press("k");
    shell.until(&[&format!("Close the connection of {client}?")]);
    shell.press("y");
    shell.until(&[&format!("the connection of {client} is closed")]);
    assert_eq!(open.read(&mut [0; 1]).unwrap_or(0), 0, "it is closed");
    let coloured = shell.with(|screen| {
        let cells = (0..24).flat_map(|row| (0..80).filter_map(move |column| screen.cell(row, column)));
        cells.filter(|cell| cell.fgcolor() != vt100::Color::Default).count()
    });
    assert_eq!(coloured, 0);
    shell.press("\x03");
    given_back(&mut shell, 0);
    instance.stop();
}

#[test]
fn a_socket_that_vanishes_is_told_and_found_again() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = before(&[&app]);
    let instance = Home::new().run(&text);
    let mut shell = at_a_terminal(&instance, "");
    drop(send(&instance, "/before"));
    shell.until(&["shop.example"]);
    let home = instance.crash();
    shell.until(&["no answer since", "no Offramp listens at unix:", "shop.example"]);
    let instance = home.run(&text);
    let back = shell.until(&["every 500ms", "? help"]);
    assert!(!back.contains("no Offramp listens"), "{back}");
    let pid = std::fs::read_to_string(instance.home.file("top.pid")).unwrap();
    let killed = Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap();
    assert!(killed.success());
    given_back(&mut shell, 0);
    instance.stop();
}

#[test]
fn a_shell_stops_it_and_goes_on_with_it() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = Home::new().run(&before(&[&app]));
    // Where no shell could go on with it, it is not stopped.
    let mut shell = at_a_terminal(&instance, "");
    shell.until(&["? help"]);
    shell.press("\x1a");
    shell.press("2");
    shell.until(&["LISTENER", "? help"]);
    // What another program has written goes away.
    shell.press("\x0c");
    shell.press("3");
    shell.until(&["BACKEND", "? help"]);
    shell.press("q");
    given_back(&mut shell, 0);

    let top = format!("{} top -c offramp.toml --interval 500ms", env!("CARGO_BIN_EXE_offramp"));
    let line =
        format!("set -m; {top}; stty -a | grep -q ' icanon' && echo stopped; read line; fg %1; echo code=$?");
    let mut shell = PtyShell::start(instance.home.path(), &line, 24, 80);
    shell.until(&["? help"]);
    shell.press("\x1a");
    shell.until(&["stopped"]);
    assert!(shell.with(|screen| !screen.alternate_screen() && !screen.hide_cursor()), "{}", shell.text());
    shell.press("\n");
    shell.until(&["offramp top unix:", "? help"]);
    assert!(shell.with(|screen| screen.alternate_screen() && screen.hide_cursor()), "{}", shell.text());
    shell.press("q");
    shell.until(&["code=0"]);
    assert_eq!(shell.code(), Some(0));
    instance.stop();
}

#[test]
fn every_signal_gives_the_terminal_back() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = Home::new().run(&before(&[&app]));
    for signal in ["-HUP", "-INT", "-QUIT"] {
        let mut shell = at_a_terminal(&instance, "");
        shell.until(&["? help"]);
        let pid = std::fs::read_to_string(instance.home.file("top.pid")).unwrap();
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
        given_back(&mut shell, 0);
    }
    instance.stop();
}

#[test]
fn what_cannot_be_shown_is_said_before_the_screen_changes() {
    let home = Home::new();
    let said = output(home.path(), &["top", "--admin", "unix:none.sock"]);
    assert!(
        said.status.code() == Some(2) && stderr(&said).contains("offramp top --once"),
        "{}",
        stderr(&said)
    );
    let top = format!("{} top --admin unix:none.sock", env!("CARGO_BIN_EXE_offramp"));
    for (line, part, code) in [
        (format!("TERM=dumb {top}; echo code=$?"), "cannot move its cursor", 2),
        (format!("{top}; echo code=$?"), "no Offramp listens at unix:", 1),
    ] {
        let mut shell = PtyShell::start(home.path(), &line, 24, 80);
        shell.until(&[part, &format!("code={code}")]);
        assert!(shell.with(|screen| !screen.alternate_screen()));
        assert_eq!(shell.code(), Some(0));
    }
}
