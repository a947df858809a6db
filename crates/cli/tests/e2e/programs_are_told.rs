//! A program of the operator gets notifications on its standard input, whatever the sandbox.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use offramp_testkit::process::{Process, Ready, Source, write_program};
use serde_json::Value;

use crate::open_connections_are_shown_and_closed::ctl;
use crate::support::instance::{Home, Instance, LIFE, PATIENCE};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::skipped::is_root_or_skipped;
use crate::support::upgrade::Upgraded;
use crate::support::webhook::{PLAIN, Site, backend};

/// Adds each message to its first argument as a line, with the second before it. While a file `broken` lies beside it, it
/// fails.
const TELL: &str = "#!/bin/sh\n\
    if [ -e \"$(dirname \"$0\")/broken\" ]; then echo 'the pager is off' >&2; exit 3; fi\n\
    printf '%s %s\\n' \"$2\" \"$(cat)\" >> \"$1\"; echo told\n";

/// A receiver with the program of a home, which writes to the file `told`.
fn receiver(home: &Home, name: &str) -> String {
    let (program, file) = (home.file("tell"), home.file("told"));
    format!(
        "[[notify]]\nname = \"{name}\"\nprogram = [\"{}\", \"{}\", \"$(id) a  b\"]\non = [\"server\"]\n\
         group = \"0s\"\nrest = \"0s\"\n",
        program.display(),
        file.display()
    )
}

/// The messages of a file, behind the argument of the program.
fn told(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let message = line.strip_prefix("$(id) a  b ").unwrap_or_else(|| panic!("{line}"));
        serde_json::from_str(message).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    lines.collect()
}

fn logged(instance: &Instance, what: &str) -> String {
    instance.until(what, || {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().find(|line| line.contains(what))
    })
}

/// The whole life of a receiver: a failure, another try, a message for a trial, and another process.
fn life(mode: &str) {
    let app = Site::start(200);
    let home = Home::new();
    write_program(&home.file("tell"), TELL);
    fs::write(home.file("broken"), "").unwrap();
    let text = format!("sandbox = \"{mode}\"\n{PLAIN}{}{}", backend(app.address), receiver(&home, "pager"));
    let upgraded = Upgraded::of(home.run(&text));
    let instance = &upgraded.instance;
    let file = instance.home.file("told");
    app.answers(503);
    let failure = logged(instance, "cannot send notifications; will try again");
    assert!(
        failure.contains("receiver=pager") && failure.contains("exit status: 3: the pager is off"),
        "{failure}"
    );
    assert!(failure.contains(&format!("to={}", instance.home.file("tell").display())), "{failure}");
    assert!(told(&file).is_empty());
    fs::remove_file(instance.home.file("broken")).unwrap();
    let first = instance.until("the message", || told(&file).into_iter().next());
    let about = format!("app {}", app.address);
    assert_eq!((&first["source"], first["events"].as_array().map(Vec::len)), (&"offramp".into(), Some(1)));
    let event = ["kind", "state", "about"].map(|key| first["events"][0][key].as_str().unwrap().to_owned());
    assert_eq!(event, ["server", "begins", &about]);
    logged(instance, "notifications are taken again");
    let said = output(instance.home.path(), &["notify", "test", "-c", "offramp.toml", "pager"]);
    let program = instance.home.file("tell");
    assert_eq!(
        (stdout(&said), said.status.code()),
        (format!("pager: {} answered exit status: 0: told\n", program.display()), Some(0)),
        "{}",
        stderr(&said)
    );
    assert_eq!(told(&file)[1]["events"][0]["kind"], "test");
    upgraded.upgrade();
    upgraded.until_others_ended();
    app.answers(200);
    let last = upgraded.instance.until("the end", || told(&file).into_iter().nth(2));
    assert_eq!((&last["events"][0]["state"], &last["events"][0]["about"]), (&"ends".into(), &about.into()));
    upgraded.stop();
}

#[test]
fn by_the_process_itself() {
    life("off");
}

#[test]
fn by_the_helper_where_the_sandbox_is_strict() {
    life("strict");
}

#[test]
fn a_program_that_the_start_did_not_know_needs_an_upgrade() {
    let app = Site::start(200);
    let home = Home::new();
    write_program(&home.file("tell"), TELL);
    let more = receiver(&home, "pager");
    let upgraded = Upgraded::of(home.run(&format!("{PLAIN}{}", backend(app.address))));
    let file = upgraded.instance.home.file("offramp.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}{more}")).unwrap();
    let refused = ctl(&upgraded.instance, &["reload"]);
    let said = stderr(&refused) + &stdout(&refused);
    assert!(!refused.status.success() && said.contains("the sandbox does not let Offramp start"), "{said}");
    assert!(said.contains("offramp ctl upgrade"), "{said}");
    upgraded.upgrade();
    upgraded.until_others_ended();
    app.answers(503);
    let told_to = upgraded.instance.home.file("told");
    upgraded.instance.until("the message", || told(&told_to).into_iter().next());
    upgraded.stop();
}

#[test]
fn a_program_that_cannot_run_is_told_by_check() {
    let home = Home::new();
    let program = home.file("tell");
    fs::write(&program, TELL).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    for (path, mistake) in [
        (program.display().to_string(), "is not executable; run chmod +x"),
        (home.path().display().to_string(), "no regular file"),
        (home.file("missing").display().to_string(), "No such file"),
        ("tell".to_owned(), "no absolute path"),
    ] {
        let receiver = format!("[[notify]]\nname = \"pager\"\nprogram = [\"{path}\"]\n");
        home.configure(&format!("{PLAIN}[[route]]\nrespond = {{ status = 204 }}\n{receiver}"));
        let check = output(home.path(), &["check", "-c", "offramp.toml"]);
        let said = stderr(&check) + &stdout(&check);
        assert!(!check.status.success() && said.contains(mistake), "{path}: {said}");
    }
}

/// Root hands its programs to the user of the configuration.
#[test]
fn a_program_has_the_rights_of_the_user() {
    if !is_root_or_skipped("only root can become another user") {
        return;
    }
    for mode in ["off", "strict"] {
        let home = Home::new();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let show = "#!/bin/sh\ngrep -E '^(Uid|Gid|Groups|Cap(Prm|Eff|Amb)):' /proc/self/status\n";
        write_program(&home.file("show"), show);
        let text = format!(
            "state_dir = \"state\"\nuser = \"nobody\"\nsandbox = \"{mode}\"\n{PLAIN}[[route]]\nrespond = {{ status = 204 }}\n\
             [[notify]]\nname = \"pager\"\nprogram = \"{}\"\n",
            home.file("show").display()
        );
        let configuration = home.file("offramp.toml");
        fs::write(&configuration, text).unwrap();
        let mut command = offramp(home.path(), &["run", "--config"]);
        command.arg(configuration);
        let process = Process::start(command, LIFE).unwrap();
        process.wait_for(&Ready::Line(" admin ".into()), PATIENCE).unwrap();
        let said = output(home.path(), &["notify", "test", "-c", "offramp.toml"]);
        let words: Vec<String> = stdout(&said).split_whitespace().map(str::to_owned).collect();
        let after = |name: &str| {
            let at =
                words.iter().position(|word| word == name).unwrap_or_else(|| panic!("{name}: {words:?}"));
            words[at + 1].clone()
        };
        for name in ["Uid:", "Gid:", "Groups:"] {
            assert_eq!(after(name), "65534", "{mode}: {words:?}");
        }
        for name in ["CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(after(name), "0000000000000000", "{mode}: {words:?}");
        }
        let stopped = output(home.path(), &["ctl", "stop"]);
        assert!(stopped.status.success(), "{}", stderr(&stopped));
        assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
    }
}
