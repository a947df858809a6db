//! `docs/how-to/ctl.md` and the pages that go on with its session: an operator plans, applies, confirms and rolls back, and everything is said as it stands there.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

use crate::http_documents::is_like;
use crate::limits_have_names::tcp_from;
use crate::support::instance::{Home, Instance, PATIENCE, ask};
use crate::support::offramp::{offramp, output, stderr, stdout};

/// The pages of the session, in its order.
const PAGES: [&str; 5] =
    ["how-to/ctl", "how-to/drain", "how-to/connections", "how-to/items", "reference/api"];

/// The blocks of the pages of one kind.
fn blocks(kind: &str) -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = PAGES.map(|page| fs::read_to_string(docs.join(format!("{page}.md"))).unwrap()).concat();
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n').map(|text| format!("{text}\n")))
        .collect()
}

/// The configuration of the page on a free port.
fn started() -> Instance {
    Home::new().run(&on_a_free_port(&blocks("toml")[0]))
}

fn on_a_free_port(text: &str) -> String {
    text.replace("127.0.0.1:8080", "127.0.0.1:0")
}

/// Runs a command of the page in the home; standard error is told too.
fn run(instance: &Instance, line: &str) -> Output {
    let binary = offramp(instance.home.path(), &[]);
    let folder = Path::new(binary.get_program()).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path))).unwrap();
    let line = line.replace("/var/lib/offramp/", "state/").replace("curl ", "curl -q --silent --show-error ");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{line} 2>&1")]).current_dir(instance.home.path()).env("PATH", path);
    shell.env("HOME", instance.home.path()).env("NO_COLOR", "1").env("TZ", "UTC");
    ask(shell, b"", PATIENCE)
}

/// The rows of a table, which are in no particular order, by their second column; with single spaces, as the widths of
/// columns depend on what is in them.
fn unordered(table: &str) -> String {
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = table.lines().map(squeeze).collect();
    lines.sort_by(|one, other| one.split(' ').nth(1).cmp(&other.split(' ').nth(1)));
    lines.join("\n")
}

/// The connections of the page: one that has asked, one that has sent something, one that says nothing.
fn connections(instance: &Instance) -> [TcpStream; 3] {
    let mut all = [1, 2, 3].map(|last| tcp_from(last, instance.address_of("web")));
    let requests = ["GET / HTTP/1.1\r\n", "PUT /order HTTP/1.1\r\nContent-Length: 11\r\n"];
    for ((stream, request), body) in all.iter_mut().zip(requests).zip(["", "one teapot\n"]) {
        stream.write_all(format!("{request}Host: shop.example\r\n\r\n{body}").as_bytes()).unwrap();
        // Nothing serves the shop.
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 502");
    }
    let shown = || String::from_utf8(output(instance.home.path(), &["ctl", "conns"]).stdout).unwrap();
    instance.until("three connections, of which two rest", || {
        let shown = shown();
        (shown.lines().count() == 4 && shown.matches("shop.example").count() >= 2).then_some(())
    });
    all
}

#[test]
fn every_command_of_the_page_prints_what_stands_below_it() {
    let instance = started();
    let (mut commands, mut open) = (0, Vec::new());
    for block in blocks("console") {
        for command in format!("\n{block}").split("\n$ ").skip(1) {
            let (line, expected) = command.split_once('\n').unwrap();
            if let Some(file) = line.strip_prefix("cat ")
                && !instance.home.file(file).exists()
            {
                let head = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
                let head = head.split("[[").next().unwrap().to_owned();
                fs::write(instance.home.file(file), head + &on_a_free_port(expected)).unwrap();
                continue;
            }
            if line == "offramp ctl conns" {
                open.extend(connections(&instance));
            }
            let said = stdout(&run(&instance, line)).replace("127.0.0.1:0", "127.0.0.1:8080");
            let (said, expected) = match line.starts_with("offramp ctl conns") {
                true => (unordered(&said), unordered(expected)),
                false => (said, expected.to_owned()),
            };
            assert!(is_like(&said, &expected), "$ {line}\n{said}\ninstead of\n{expected}");
            commands += 1;
            if said == "Closed 1 connection." {
                // The second one, whose client closes, too.
                drop(open.remove(1));
                let gone =
                    || stdout(&run(&instance, "offramp ctl status")).contains(" 2 open,").then_some(());
                instance.until("its end", gone);
            }
        }
    }
    assert!(commands >= 12, "{commands}");
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    assert!(file.contains("# The machines of the shop.\n"), "{file}");
    instance.stop();
}

#[test]
fn a_refused_plan_names_every_error_and_nobody_at_the_socket_is_said() {
    let instance = started();
    let home = instance.home.path();
    fs::write(instance.home.file("bad.toml"), "wokers = 3\n[limits]\nconnections = \"many\"\n").unwrap();
    for command in ["plan", "apply"] {
        let refused = output(home, &["ctl", command, "bad.toml"]);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("bad.toml:1:1") && said.contains("bad.toml:3:"), "{said}");
    }
    // The file in use may have mistakes: it is when an operator asks.
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    fs::write(instance.home.file("offramp.toml"), format!("{file}\n[limits]\nconections = 1\n")).unwrap();
    assert!(output(home, &["ctl", "status"]).status.success());
    let refused = output(home, &["ctl", "reload"]);
    assert!(stderr(&refused).contains("conections"), "{}", stderr(&refused));
    let unknown = output(home, &["ctl", "server", "drain", "shpo", "127.0.0.1:3000"]);
    assert!(stderr(&unknown).contains("the nearest one is `shop`"), "{}", stderr(&unknown));
    let early = output(home, &["ctl", "apply", "--expect", "7", "bad.toml"]);
    assert_eq!(early.status.code(), Some(1));
    assert!(stderr(&early).contains("version 1 is in force"), "{}", stderr(&early));
    assert!(stderr(&early).contains("is not remembered"), "{}", stderr(&early));
    assert!(output(home, &["ctl", "log-level", "debug"]).status.success());
    let late = output(home, &["ctl", "apply", "--expect", "1", "bad.toml"]);
    assert_eq!(late.status.code(), Some(1));
    let said = "version 2 is in force\nWhat has changed since the expected version:\n  log.level: \"info\" -> \"debug\"";
    assert!(stderr(&late).contains(said), "{}", stderr(&late));
    let nobody = output(home, &["ctl", "--admin", "unix:none.sock", "status"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("no Offramp listens at unix:"), "{}", stderr(&nobody));
    let stopping = output(home, &["ctl", "stop"]);
    assert!(stopping.status.success(), "{}", stderr(&stopping));
    let status = instance.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", instance.process.transcript());
    assert!(!instance.home.file("state/admin.sock").exists());
}

#[test]
fn a_token_opens_a_loopback_address() {
    let home = Home::new();
    fs::write(home.file("token"), "0123456789abcdef\n").unwrap();
    fs::write(home.file("wrong"), "0123456789abcdeF\n").unwrap();
    let page = on_a_free_port(&blocks("toml")[0]);
    let instance = home.run(&format!("[admin]\naddress = \"127.0.0.1:0\"\ntoken_file = \"token\"\n{page}"));
    let log = instance.until("the log says where", || {
        let lines = instance.process.lines(offramp_testkit::process::Source::Stderr);
        let line = lines.iter().find(|line| line.contains(" admin "))?;
        Some(line.split("address=").nth(1)?.split_whitespace().next()?.trim_matches('"').to_owned())
    });
    let ctl = |token: &str| {
        output(instance.home.path(), &["ctl", "--admin", &log, "--token-file", token, "log-level", "debug"])
    };
    let wrong = stderr(&ctl("wrong"));
    assert!(
        wrong.contains("not the token of `token_file`") && wrong.contains("--token-file FILE"),
        "{wrong}"
    );
    let done = ctl("token");
    assert!(done.status.success(), "{}", stderr(&done));
    let history = output(instance.home.path(), &["ctl", "--admin", &log, "history"]);
    assert!(
        stdout(&history).contains("by token, from 127.0.0.1:"),
        "{}{}",
        stdout(&history),
        stderr(&history)
    );
    instance.stop();
}

/// A command that must be refused: its exit code and what it says.
fn refused(instance: &Instance, arguments: &[&str]) -> (i32, String) {
    let all: Vec<&str> = std::iter::once("ctl").chain(arguments.iter().copied()).collect();
    let done = output(instance.home.path(), &all);
    assert!(!done.status.success(), "{arguments:?}: {}", stdout(&done));
    (done.status.code().unwrap(), stderr(&done))
}

#[test]
fn refusals_say_what_to_do_and_lead_to_places_that_exist() {
    let instance = started();
    let shadowed = refused(&instance, &["route", "add", "--host", "shop.example", "--to", "127.0.0.1:4000"]);
    assert_eq!(shadowed.0, 1);
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let line = file.lines().position(|line| line == "[[route]]").unwrap() + 1;
    let earlier = format!("offramp.toml:{line}): make listener");
    assert!(
        shadowed.1.contains("it is route `shop.example` (") && shadowed.1.contains(&earlier),
        "{shadowed:?}"
    );
    assert!(!shadowed.1.contains("admin API"), "{shadowed:?}");
    let nowhere = refused(&instance, &["route", "add", "--host", "x.example"]);
    assert!(nowhere.0 == 2 && nowhere.1.contains("--to ADDRESS"), "{nowhere:?}");
    for wrong in [
        &["log-level", "debug", "--confirm", "5"][..],
        &["conns", "--client", "foo"],
        &["conns", "--older", "abc"],
        &["--admin", "http://127.0.0.1:9", "status"],
        &["conns", "--client", "127.0.0.3/30"],
    ] {
        assert_eq!(refused(&instance, wrong).0, 2, "{wrong:?}");
    }
    let web = instance.address_of("web").to_string();
    let other = refused(&instance, &["--admin", &web, "status"]);
    assert!(other.1.contains("no admin interface"), "{other:?}");
    let plain = refused(&instance, &["--admin", &format!("https://{web}"), "status"]);
    assert!(plain.1.contains(&format!("without TLS it is --admin {web}")), "{plain:?}");
    fs::write(instance.home.file("bad.toml"), "wokers = 3\n").unwrap();
    for (arguments, said) in [
        (&["plan", "bad.toml", "--json"][..], "wokers"),
        (&["plan", "none.toml", "--json"], "none.toml"),
        (&["server", "drain", "shpo", "x", "--json"], "nearest"),
    ] {
        let all: Vec<&str> = std::iter::once("ctl").chain(arguments.iter().copied()).collect();
        let answer = stdout(&output(instance.home.path(), &all));
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert!(answer["detail"].as_str().unwrap().contains(said), "{answer}");
    }
    instance.stop();
}

#[test]
fn what_changes_nothing_waits_for_nobody_and_warns_of_nothing_old() {
    let instance = started();
    let ctl = |arguments: &[&str]| {
        let all: Vec<&str> = ["ctl", "--json"].iter().chain(arguments).copied().collect();
        let done = output(instance.home.path(), &all);
        assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
        serde_json::from_str::<serde_json::Value>(&stdout(&done)).unwrap()
    };
    let same = ctl(&["log-level", "info", "--confirm", "1h"]);
    assert_eq!(
        (&same["changes"], &same["confirm_until"]),
        (&serde_json::json!([]), &serde_json::Value::Null)
    );
    // Both leave: the second one is the last.
    let first = ctl(&["server", "drain", "shop", "127.0.0.1:3000"]);
    assert_eq!(first["warnings"], serde_json::json!([]), "{first}");
    let last = ctl(&["server", "disable", "shop", "127.0.0.1:3001"]);
    let warning = last["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("no server of the backend `shop`"), "{last}");
    assert_eq!(ctl(&["log-level", "debug"])["warnings"], serde_json::json!([]), "it is known");
    ctl(&["reload", "--dry-run"]);
    ctl(&["reload"]);
    ctl(&["reload"]);
    let history = ctl(&["history"]);
    let how: Vec<&str> =
        history["changes"].as_array().unwrap().iter().map(|one| one["how"].as_str().unwrap()).collect();
    assert_eq!(how, ["reload", "edit", "edit", "edit"], "{history}");
    // From standard input, as a file would be.
    let text = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let piped = run(&instance, "sed s/3001/3002/ offramp.toml | offramp ctl plan -");
    assert!(
        text.contains("3001") && stdout(&piped).contains("server 127.0.0.1:3002: added"),
        "{}",
        stdout(&piped)
    );
    let log = instance.process.transcript();
    assert!(log.contains("configuration changed") && log.contains(" reloaded "), "{log}");
    instance.stop();
}

#[test]
fn without_tls_nothing_is_sent_to_another_machine() {
    let instance = started();
    fs::write(instance.home.file("token"), "0123456789abcdef\n").unwrap();
    // This leads to the same machine, and could be told from no other.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    for address in [format!("0.0.0.0:{port}"), "192.0.2.2:9901".to_owned(), "[2001:db8::1]:9901".to_owned()] {
        let (code, said) = refused(&instance, &["--admin", &address, "--token-file", "token", "status"]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("--admin https://HOST:") && said.contains("ssh HOST offramp ctl"), "{said}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    instance.stop();
}

#[test]
fn the_printed_command_confirms_from_any_directory() {
    let instance = started();
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let new = format!("{file}[limits]\nidle_timeout = \"2m\"\n");
    fs::write(instance.home.file("new.toml"), new).unwrap();
    fs::create_dir(instance.home.file("a directory")).unwrap();
    fs::copy(instance.home.file("offramp.toml"), instance.home.file("a directory/its own.toml")).unwrap();
    std::os::unix::fs::symlink("../state", instance.home.file("a directory/state")).unwrap();
    let apply = "cd 'a directory' && offramp ctl -c 'its own.toml' apply ../new.toml --confirm 1h";
    let applied = stdout(&run(&instance, apply));
    let (_, printed) = applied.trim_end().rsplit_once("unless you confirm it: ").unwrap();
    let confirmed = run(&instance, &format!("cd / && {printed}"));
    assert!(stdout(&confirmed).contains("Version 2 stays in force"), "{applied}{}", stdout(&confirmed));
    instance.stop();
}
