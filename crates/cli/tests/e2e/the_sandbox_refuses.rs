//! What the process cannot do any more, tried from inside.

use std::process::Output;

use offramp_testkit::process::temp_dir;

use crate::support::instance::{Home, LIFE, ask};
use crate::support::offramp::offramp;

fn trial(head: &str) -> Output {
    let (home, outside) = (Home::new(), temp_dir());
    let path = home.configure(&format!("{head}{}", Home::one_route("127.0.0.1:1")));
    let mut command = offramp(home.path(), &["run", "--sandbox-trial"]);
    command.arg(outside.path()).arg("--config").arg(path);
    ask(command, b"", LIFE)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

/// What is tried at least.
const NAMES: [&str; 19] = [
    "start a program",
    "execve",
    "fork",
    "ptrace",
    "mount",
    "socket(AF_PACKET)",
    "bpf",
    "keyctl",
    "tgkill",
    "fcntl(F_SETOWN)",
    "fcntl(F_SETSIG)",
    "fcntl(F_SETOWN_EX)",
    "connect to an abstract socket",
    "make a set-uid file",
    "fchmod(set-uid)",
    "mkdirat(set-uid)",
    "openat(set-uid)",
    "a core dump",
    "a core dump with keys",
];

/// What the configuration does not name is not written.
const WRITING: [&str; 11] = [
    "write a file",
    "append to a file",
    "truncate a file",
    "make a file",
    "link a file",
    "make a symbolic link",
    "make a socket",
    "make a directory",
    "rename a file",
    "remove a file",
    "make a file in /dev/shm",
];

/// What it does not name is neither read nor connected, where that is strict.
const STRICT: [&str; 7] = [
    "read /etc/shadow",
    "read the directory /root",
    "read a file",
    "list a directory",
    "connect to a port that is not named",
    "connect by fast open",
    "listen on a port that is not named",
];

/// The line of an attempt.
fn line<'a>(tried: &'a [String], name: &str) -> &'a str {
    let is_it = |line: &&String| line.split(": ").nth(1) == Some(name);
    tried.iter().find(is_it).unwrap_or_else(|| panic!("{name} was not tried: {tried:?}"))
}

#[test]
fn what_no_configuration_needs() {
    for word in ["on", "required", "strict"] {
        let head = if word == "on" { String::new() } else { format!("sandbox = \"{word}\"\n") };
        let output = trial(&head);
        let (tried, log) = (lines(&output.stdout), lines(&output.stderr).join("\n"));
        assert!(output.status.success(), "{tried:?}\n{log}");
        assert_eq!(tried[0], format!("sandbox {word}"));
        assert!(!log.contains("is not available"), "{log}");
        let others = if word == "strict" { "landlock" } else { "any" };
        let parts = format!("files=landlock reading={others} ports={others} landlock=");
        assert!(log.contains(&parts) && log.contains("system_calls=seccomp"), "{log}");
        let is_free = |line: &str| word != "strict" && STRICT.iter().any(|name| line.contains(name));
        let passed: Vec<&String> =
            tried[1..].iter().filter(|line| !line.starts_with("refused: ") && !is_free(line)).collect();
        assert!(passed.is_empty(), "{word}: {passed:?}\n{log}");
        for name in NAMES.iter().chain(&WRITING).chain(&STRICT) {
            line(&tried, name);
        }
        if word != "strict" {
            for name in &STRICT[2..] {
                assert!(line(&tried, name).starts_with("not refused: "), "{word}: {name}");
            }
        }
    }
}

/// The trial would tell if nothing was refused.
#[test]
fn nothing_where_it_is_off() {
    let tried = lines(&trial("sandbox = \"off\"\n").stdout);
    let free =
        ["start a program", "execve", "ptrace", "connect to an abstract socket", "make a set-uid file"];
    for name in free.iter().chain(&["tgkill", "a core dump", "a core dump with keys"]).chain(&WRITING) {
        assert!(line(&tried, name).starts_with("not refused: "), "{name}");
    }
    for name in &STRICT[2..] {
        assert!(line(&tried, name).starts_with("not refused: "), "{name}");
    }
}
