//! What the process cannot do any more, tried from inside.

use std::process::Output;

use crate::instance::{Home, LIFE, ask};
use crate::offramp::offramp;

fn trial(head: &str) -> Output {
    let home = Home::new();
    let path = home.configure(&format!("{head}{}", Home::one_route("127.0.0.1:1")));
    let mut command = offramp(home.path(), &["run", "--sandbox-trial", "--config"]);
    command.arg(path);
    ask(command, b"", LIFE)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

/// What is tried at least.
const NAMES: [&str; 9] = [
    "start a program",
    "execve",
    "fork",
    "ptrace",
    "mount",
    "socket(AF_PACKET)",
    "bpf",
    "keyctl",
    "a core dump",
];

#[test]
fn what_no_configuration_needs() {
    for (head, word) in [("", "on"), ("sandbox = \"required\"\n", "required")] {
        let output = trial(head);
        let (tried, log) = (lines(&output.stdout), lines(&output.stderr).join("\n"));
        assert!(output.status.success(), "{tried:?}\n{log}");
        assert_eq!(tried[0], format!("sandbox {word}"));
        assert!(log.contains("system_calls=seccomp") && !log.contains("is not available"), "{log}");
        // Files and ports are the business of permissions.
        let is_other = |line: &str| {
            ["read ", "make a file", "a port that is not named"].iter().any(|words| line.contains(words))
        };
        let passed: Vec<&String> =
            tried[1..].iter().filter(|line| !line.starts_with("refused: ") && !is_other(line)).collect();
        assert!(passed.is_empty(), "{passed:?}\n{log}");
        for name in NAMES {
            assert!(tried.iter().any(|line| line.contains(name)), "{name} was not tried: {tried:?}");
        }
    }
}

/// The trial would tell if nothing was refused.
#[test]
fn nothing_where_it_is_off() {
    let tried = lines(&trial("sandbox = \"off\"\n").stdout);
    for name in ["start a program", "execve", "ptrace", "a core dump"] {
        let line = tried.iter().find(|line| line.contains(name)).unwrap();
        assert!(line.starts_with("not refused: "), "{line}");
    }
}
