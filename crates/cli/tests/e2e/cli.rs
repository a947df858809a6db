//! The command line itself: what it teaches, generates and refuses.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use offramp_testkit::process::{require, temp_dir};

use crate::support::offramp::{offramp, output, stderr, stdout};

const COMMANDS: [&str; 13] = [
    "setup",
    "to",
    "run",
    "check",
    "fmt",
    "schema",
    "demo",
    "ca",
    "cert",
    "password",
    "version",
    "completions",
    "man",
];

/// Runs it and gives what it printed, which must be without error.
fn printed(arguments: &[&str]) -> String {
    printed_in(temp_dir().path(), arguments)
}

fn printed_in(home: &Path, arguments: &[&str]) -> String {
    let output = output(home, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Runs it and gives what it complained about, which must be a fault of the user.
fn refused(home: &Path, arguments: &[&str]) -> String {
    let output = output(home, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    stderr(&output)
}

#[test]
fn help_teaches() {
    let help = printed(&["--help"]);
    for title in ["Examples:", "Exit codes:", "Signals:", "Environment:", "Files:"] {
        assert!(help.contains(title), "{title} in {help}");
    }
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command} in {help}");
        assert!(printed(&[command, "--help"]).contains("Usage: offramp"), "{command}");
    }
    assert!(printed(&["to", "--help"]).contains("[default: localhost:8443]"));
}

#[test]
fn version_says_its_number() {
    let number = format!("offramp {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(printed(&["-V"]), number);
    let all = printed(&["--version"]);
    assert_eq!(printed(&["version"]), all);
    let lines: Vec<_> = all.lines().collect();
    let [first, commit, build] = lines[..] else { panic!("{all}") };
    assert_eq!(first, number.trim_end());
    // A development build is not made anew with each commit, unless it is told one.
    let told = if env!("OFFRAMP_COMMIT").is_empty() { "not known" } else { env!("OFFRAMP_COMMIT") };
    assert!(commit.starts_with(&format!("commit: {told}")), "{all}");
    assert!(build.starts_with("build:  development build for ") && build.contains("-linux-"), "{all}");
}

#[test]
fn completions_are_scripts_of_their_shell() {
    let home = temp_dir();
    for (shell, word) in [("zsh", "#compdef offramp"), ("fish", "complete -c offramp"), ("elvish", "offramp")]
    {
        assert!(printed(&["completions", shell]).contains(word), "{shell}");
    }
    let script = home.path().join("completions.bash");
    std::fs::write(&script, printed(&["completions", "bash"])).unwrap();
    let check = Command::new("bash").arg("-n").arg(&script).output().unwrap();
    assert!(check.status.success(), "{}", stderr(&check));
    // What bash would offer after `offramp c`.
    let ask = format!(
        "source {}; COMP_WORDS=(offramp c); COMP_CWORD=1; _offramp offramp c offramp; echo ${{COMPREPLY[@]}}",
        script.display()
    );
    let offered = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
    assert_eq!(
        stdout(&offered).split_whitespace().collect::<Vec<_>>(),
        ["check", "compare", "ca", "cert", "ctl", "completions"]
    );
}

#[test]
fn the_man_page_formats_without_a_warning() {
    let page = printed(&["man"]);
    for part in
        [".TH", ".SH SYNOPSIS", ".SH COMMANDS", ".SS to", ".SS check", ".SH \"EXIT CODES\"", ".SH FILES"]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    let text = formatted(&page);
    for command in COMMANDS {
        assert!(text.contains(&format!("offramp {command}")), "{command} in {text}");
    }
    assert!(text.contains("--send-proxy VERSION"), "{text}");
    assert!(text.contains("offramp check [-c, --config FILE] [--print]"), "{text}");
    assert!(text.contains("XDG_STATE_HOME"), "{text}");
    assert_eq!(page, printed(&["man", "offramp"]));
    // The tests of the page itself ask for every key.
    let text = formatted(&printed(&["man", "offramp.toml"]));
    for part in ["offramp.toml(5)", "[[listener]]", "[backend.NAME]", "drain_timeout"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// The page as `man` shows it; groff is what `man` formats with.
fn formatted(page: &str) -> String {
    let groff = require("groff", "groff-base");
    let mut child = Command::new(groff)
        .args(["-man", "-Tascii", "-ww", "-P-cbou"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn five_mistakes_give_five_errors_with_carets() {
    let home = temp_dir();
    let text = "\
workers = \"many\"

[limits]
idle_timout = \"5m\"
connect_timeout = 5

[[listener]]
address = \":443\"

[[route]]
host = \"example.org\"
server = \"http://127.0.0.1:3000\"
";
    std::fs::write(home.path().join("offramp.toml"), text).unwrap();
    let said = refused(home.path(), &["check"]);
    assert_eq!(said.matches("\nerror: ").count() + usize::from(said.starts_with("error: ")), 5, "{said}");
    for line in [1, 4, 5, 8, 12] {
        assert!(said.contains(&format!("offramp.toml:{line}:")), "line {line} in {said}");
    }
    assert_eq!(
        said.lines().filter(|line| line.trim_start().trim_start_matches("| ").contains("^")).count(),
        5
    );
    assert!(said.contains("the nearest one is `idle_timeout`"), "{said}");
    assert!(said.trim_end().ends_with("5 errors"), "{said}");
    // `run` refuses the same file in the same words.
    assert_eq!(refused(home.path(), &["run"]), said);
}

#[test]
fn a_missing_configuration_is_told_where_it_was_looked_for() {
    let home = temp_dir();
    for command in ["run", "check"] {
        let said = refused(home.path(), &[command, "-c", "nowhere.toml"]);
        assert!(said.contains("nowhere.toml"), "{said}");
    }
}

#[test]
fn a_wrong_target_is_refused_with_what_to_write() {
    let home = temp_dir();
    for (target, remedy) in [
        ("http://localhost:3000/x", "write localhost:3000"),
        ("https://app.internal", "write app.internal:443"),
        ("/run/app.sock", "unix:/run/app.sock"),
        ("localhost", "localhost:3000"),
        ("0", "1 to 65535"),
        ("127.0.0.1:x", "1 to 65535"),
    ] {
        let said = refused(home.path(), &["to", target]);
        assert!(said.contains(remedy), "{target}: {said}");
    }
    for (listen, remedy) in [("127.0.0.1", "127.0.0.1:443"), ("localhost", "localhost:8443"), ("/a", "unix:")]
    {
        let said = refused(home.path(), &["to", "3000", "--listen", listen]);
        assert!(said.contains(remedy), "{listen}: {said}");
    }
    let said = refused(home.path(), &["to", "3000", "--public", "--listen", "127.0.0.1:0"]);
    assert!(said.contains("omit --public"), "{said}");
    let said = refused(home.path(), &["to", "3000", "--name", "a b"]);
    assert!(said.contains("a b"), "{said}");
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    let home = temp_dir();
    let mut child = offramp(home.path(), &["man"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_local_ca_is_minted_once_and_its_place_is_told() {
    let home = temp_dir();
    let told = || {
        let output = output(home.path(), &["ca", "--state-dir", "state"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let first = told();
    let file = home.path().join("state/ca/ca.pem");
    assert!(first.contains(&format!("curl --cacert {}", file.display())), "{first}");
    let minted = std::fs::read(&file).unwrap();
    assert_eq!(told(), first);
    assert_eq!(std::fs::read(&file).unwrap(), minted);
    // The same CA by way of a configuration.
    std::fs::write(home.path().join("offramp.toml"), "state_dir = \"state\"\n").unwrap();
    assert_eq!(printed_in(home.path(), &["ca", "-c", "offramp.toml"]), first);
}
