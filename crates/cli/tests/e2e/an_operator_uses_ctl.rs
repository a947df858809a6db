//! `docs/admin.md`: an operator plans, applies, confirms and rolls back, and everything is said as it stands there.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::instance::{Home, Instance, PATIENCE, ask};
use crate::offramp::{offramp, output, stderr, stdout};

/// The blocks of the page of one kind.
fn blocks(kind: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin.md");
    let page = fs::read_to_string(page).unwrap();
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

/// Whether `said` is `expected`, where `…` stands for anything within a line.
fn is_like(said: &str, expected: &str) -> bool {
    let like = |(said, expected): (&str, &str)| {
        let mut parts = expected.split('…');
        let Some(mut rest) = said.strip_prefix(parts.next().unwrap_or_default()) else { return false };
        let parts: Vec<&str> = parts.collect();
        for part in &parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.is_empty() || parts.last() == Some(&"")
    };
    let (said, expected) = (said.trim_end(), expected.trim_end());
    said.lines().count() == expected.lines().count() && said.lines().zip(expected.lines()).all(like)
}

#[test]
fn every_command_of_the_page_prints_what_stands_below_it() {
    let instance = started();
    let mut commands = 0;
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
            let said = stdout(&run(&instance, line)).replace("127.0.0.1:0", "127.0.0.1:8080");
            assert!(is_like(&said, expected), "$ {line}\n{said}instead of\n{expected}");
            commands += 1;
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
    assert!(stderr(&early).contains("version 1 is in force"), "{}", stderr(&early));
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
    assert!(stderr(&ctl("wrong")).contains("Authorization: Bearer"), "{}", stderr(&ctl("wrong")));
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
