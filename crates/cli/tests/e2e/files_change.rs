//! Files that change while they are kept, and what a request for one that is kept costs.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Process, Ready, Signal, require};

use crate::support::http_curl::{HTTP, command, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, PATIENCE, ask};
use crate::support::skipped::sees_inside_or_skipped;

/// Longer than it takes until a file is kept.
const SETTLED: Duration = Duration::from_millis(2500);

fn serve(keys: &str) -> (Instance, std::path::PathBuf) {
    let home = Home::new();
    let root = home.file("www");
    fs::create_dir(&root).unwrap();
    let route = format!("[[route]]\nroot = \"{}\"\n{keys}", root.display());
    (home.run(&format!("workers = 1\n{CERTIFICATE}{HTTP}{route}")), root)
}

#[test]
fn a_file_that_changes_is_served_anew() {
    let (instance, root) = serve("");
    for version in ["--http1.1", "--http2"] {
        // One that is kept in memory, and one that is kept open.
        for (name, size) in [("small", 1000), ("large", 100_000)] {
            let url = format!("https://localhost/{name}");
            for round in 0..3_u8 {
                let content = vec![b'a' + round; size + usize::from(round)];
                if round == 1 {
                    fs::write(root.join(name), &content).unwrap();
                } else {
                    fs::write(root.join("new"), &content).unwrap();
                    fs::rename(root.join("new"), root.join(name)).unwrap();
                }
                // A response is one state of the file, whole.
                instance.until("the new content", || {
                    let answer = get(&instance, &[version], &url);
                    let first = answer.body.first().copied().unwrap_or_default();
                    assert!(answer.body.iter().all(|&byte| byte == first), "{name} is mixed");
                    (answer.body == content).then_some(())
                });
                // The old one does not come back, and this one is kept.
                let begun = Instant::now();
                while begun.elapsed() < SETTLED {
                    assert!(get(&instance, &[version], &url).body == content, "{name} {round}");
                }
            }
            fs::remove_file(root.join(name)).unwrap();
            let gone = || (get(&instance, &[version], &url).status() == 404).then_some(());
            instance.until("that it is gone", gone);
        }
    }
    instance.stop();
}

/// The system calls of the worker that have to do with files while curl asks for one so many times.
fn calls(instance: &Instance, count: usize) -> usize {
    let trace = instance.home.file("trace");
    let mut strace = Command::new(require("strace", "strace"));
    strace.args(["-f", "-e", "trace=openat,openat2,statx,newfstatat,fstat,pread64,preadv,preadv2"]);
    strace.arg("-o").arg(&trace).args(["-p", &instance.process.id().to_string()]);
    let strace = Process::start(strace, LIFE).unwrap();
    strace.wait_for(&Ready::Line(" attached".into()), PATIENCE).unwrap();
    let mut curl = command(instance, "https");
    curl.args(["--output", "/dev/null"]).arg(format!("https://localhost/file?[1-{count}]"));
    let outcome = ask(curl, b"", PATIENCE * 2);
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    strace.signal(Signal::INT).unwrap();
    strace.wait(PATIENCE).unwrap();
    let calls = fs::read_to_string(&trace).unwrap();
    calls.lines().filter(|line| line.contains('(')).count()
}

#[test]
fn a_file_that_is_kept_is_not_looked_up_for_each_request() {
    if !sees_inside_or_skipped() {
        return;
    }
    const COUNT: usize = 500;
    let (instance, root) = serve("");
    fs::write(root.join("file"), vec![b'x'; 8192]).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < SETTLED {
        get(&instance, &[], "https://localhost/file");
    }
    let begun = Instant::now();
    let kept = calls(&instance, COUNT);
    // A look-up opens the root and the file, and asks for its state. Other threads do little.
    let looks = usize::try_from(begun.elapsed().as_secs()).unwrap() + 2;
    assert!(kept <= 4 * looks + 50, "{kept} calls in {looks} seconds");
    instance.stop();
    let (instance, root) = serve("[limits]\nfile_cache = \"0B\"\n");
    fs::write(root.join("file"), vec![b'x'; 8192]).unwrap();
    let each = calls(&instance, COUNT);
    assert!(each >= 3 * COUNT, "{each} calls: this test counts nothing");
    instance.stop();
}
