//! What the first page of the book has one type, on the ports that it names, and the questions for `jq`.

use std::fs;
use std::path::Path;
use std::process::Command;

use offramp_testkit::process::{require, temp_dir};

use crate::support::instance::{PATIENCE, ask};
use crate::support::offramp::{offramp, stderr, stdout};

/// The blocks of a kind on a page.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{page}.md"));
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    blocks.filter(|(language, _)| *language == kind).map(|(_, text)| text.to_owned()).collect()
}

/// The surroundings of a block: a machine of its own, with a loopback, without state and without the user `offramp`.
const BEFORE: &str = "\
ip link set lo up
mount -t tmpfs tmpfs /var/lib
grep -v '^offramp:' /etc/passwd > passwd; mount --bind passwd /etc/passwd
mkdir www; echo 'a page' > www/index.html
again() { i=0; until \"$@\"; do i=$((i + 1)); [ $i -lt 300 ] || { cat said; exit 1; }; sleep 0.1; done; }
";

/// The block as a script: programs that stay go to the background, and the others wait for them.
fn script(block: &str) -> String {
    let mut script = String::new();
    let mut is_last = false;
    for line in block.lines().filter(|line| !line.starts_with("make ")) {
        let stays =
            ["to ", "serve ", "demo", "run"].iter().any(|word| line.starts_with(&format!("offramp {word}")));
        let asks = ["curl ", "redis-cli "].iter().any(|word| line.starts_with(word));
        let line = line.replace("~/.local/state/offramp", "/var/lib/offramp").replace("/tmp/", "");
        let line = line.replace("man -l -", "groff -man -Tascii > /dev/null");
        if stays {
            let line = line.split(" #").next().unwrap();
            script += &format!("{line} > out 2> said &\nagain grep -qsE ' try |started' said\n");
        } else if asks {
            script += &format!("again {line}\n");
        } else {
            script += &format!("{line}\n");
        }
        is_last = stays && !line.contains(" run");
    }
    if is_last {
        // The command that Offramp itself has told.
        script += "sed -n 's/^ *try  *//p' said > told\nagain sh told\n";
    }
    script
}

/// Runs a script on a machine of its own, as its root, and gives what it has printed.
fn typed(script: &str) -> String {
    let home = temp_dir();
    let binary = offramp(home.path(), &[]);
    let folder = Path::new(binary.get_program()).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path))).unwrap();
    let mut machine = Command::new(require("unshare", "util-linux"));
    if !rustix::process::geteuid().is_root() {
        machine.args(["--user", "--map-root-user"]);
    }
    machine.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc"]);
    machine.arg(format!("{BEFORE}{script}")).current_dir(home.path());
    machine
        .env_remove("SUDO_USER")
        .env("PATH", path)
        .env("HOME", home.path())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "200");
    let ran = ask(machine, b"", PATIENCE);
    assert!(ran.status.success(), "{script}\n{}{}", stdout(&ran), stderr(&ran));
    stdout(&ran)
}

#[test]
fn the_quick_start_is_typed() {
    for (program, package) in [
        ("node", "nodejs"),
        ("python3", "python3"),
        ("redis-server", "redis-server"),
        ("redis-cli", "redis-tools"),
        ("groff", "groff-base"),
        ("ip", "iproute2"),
    ] {
        let _ = require(program, package);
    }
    let pages = blocks("start/quickstart", "sh");
    let node = pages.iter().find(|block| block.contains("hello from node")).unwrap();
    let mut found = Vec::new();
    for block in &pages {
        let before = if block.contains("redis-cli") {
            "redis-server --port 6379 --save '' > /dev/null &\n".to_owned()
        } else if block.contains("NODE_EXTRA_CA_CERTS") || block.trim() == "offramp to 3000 --http" {
            // The page goes on with the application that it has begun with.
            let application = node.lines().next().unwrap();
            let offramp = if block.contains("NODE_EXTRA_CA_CERTS") { script(node) } else { String::new() };
            if offramp.is_empty() { format!("{application}\n") } else { offramp }
        } else {
            String::new()
        };
        found.push(typed(&(before + &script(block))));
    }
    let all = found.concat();
    for expected in [
        "hello from node",
        "Directory listing",
        "PONG",
        "a page",
        "PROXY TCP4 127.0.0.1 127.0.0.1",
        "good: 1 listener",
    ] {
        assert!(all.contains(expected), "{expected}\n{all}");
    }
    assert!(all.matches("hello from node").count() >= 5, "{all}");
}

#[test]
fn the_questions_for_jq_have_answers() {
    let _ = require("jq", "jq");
    let home = temp_dir();
    let log: String = blocks("reference/events", "json").iter().map(|event| format!("{event}\n")).collect();
    fs::write(home.path().join("access.log"), log).unwrap();
    let mut answers = 0;
    let questions = blocks("how-to/jq", "sh");
    for question in &questions {
        let mut shell = Command::new("sh");
        shell.args(["-euc", question]).current_dir(home.path());
        let answer = ask(shell, b"", PATIENCE);
        assert!(answer.status.success() && answer.stderr.is_empty(), "{question}\n{}", stderr(&answer));
        answers += usize::from(!answer.stdout.is_empty());
    }
    // Nothing failed at a server there, and none was slow to connect.
    assert_eq!(answers, questions.len() - 2, "{questions:?}");
}
