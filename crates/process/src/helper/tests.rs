use std::io::Read as _;
use std::thread::JoinHandle;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// The helper as a thread: a process cannot be forked where tests run side by side.
fn helper(program: &str) -> (Channel, JoinHandle<()>) {
    let (own, its) = Channel::pair().unwrap();
    let arguments = vec!["-c".into(), program.into()];
    let program = Program { path: "/bin/sh".into(), arguments, state_home: None };
    (own, std::thread::spawn(move || serve(&its, program)))
}

fn say(helper: &Channel, text: &str, fds: &[&OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    helper.send(text.as_bytes(), &fds, within(PATIENCE)).unwrap();
}

fn line() -> (Channel, OwnedFd) {
    let (own, its) = Channel::pair().unwrap();
    (own, its.into())
}

fn next(line: &Channel) -> String {
    let message = line.receive(within(PATIENCE)).unwrap().expect("the line is closed");
    String::from_utf8(message.text).unwrap()
}

fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("hook");
    offramp_testkit::process::write_program(&path, &format!("#!/bin/sh\n{text}\n"));
    path
}

fn is_alive(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

fn until_dead(id: &str) {
    let deadline = Instant::now() + PATIENCE;
    while is_alive(id) {
        assert!(Instant::now() < deadline, "{id} lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_hook_gets_its_words_and_its_end_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let hook = script(folder.path(), "echo $# $*; exit 3");
    let (helper, thread) = helper("exit 0");
    say(&helper, &format!("hook {}", hook.display()), &[]);
    say(&helper, "sealed", &[]);
    let (line, its) = line();
    let (mut out, stdout) = io::pipe().unwrap();
    let stdout = OwnedFd::from(stdout);
    say(&helper, "run 0 present a.test val-ue_1", &[&stdout, &stdout, &its]);
    drop((stdout, its));
    assert!(next(&line).starts_with("started "));
    assert_eq!(next(&line), format!("ended {}", 3 << 8));
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(text, "3 present _acme-challenge.a.test val-ue_1\n");
    drop(helper);
    thread.join().unwrap();
}

#[test]
fn a_receiver_gets_its_arguments_and_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(folder.path(), "printf '%s,' $# \"$@\"; cat");
    let (helper, thread) = helper("exit 0");
    say(&helper, &format!("receiver {}\0a b\0\0", program.display()), &[]);
    say(&helper, "sealed", &[]);
    let (line, its) = line();
    let (mut out, stdout) = io::pipe().unwrap();
    let (stdin, mut message) = io::pipe().unwrap();
    let (stdin, stdout) = (OwnedFd::from(stdin), OwnedFd::from(stdout));
    say(&helper, "feed 0", &[&stdin, &stdout, &stdout, &its]);
    drop((stdin, stdout, its));
    io::Write::write_all(&mut message, b"news").unwrap();
    drop(message);
    assert!(next(&line).starts_with("started "));
    assert_eq!(next(&line), "ended 0");
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(text, "2,a b,,news");
    drop(helper);
    thread.join().unwrap();
}

#[test]
fn nothing_is_started_that_was_not_named_before() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let hook = script(folder.path(), &format!("touch {}", trace.display()));
    let known = format!("hook {}", hook.display());
    for said in [
        &["sealed", &known][..],
        &[&known, "run 0 present a.test value"],
        &[&known, "sealed", "run 1 present a.test value"],
        &[&known, "sealed", "run 0 delete a.test value"],
        &[&known, "sealed", "run 0 present a.test;b value"],
        &[&known, "sealed", "run 0 present a.test value more"],
        &[&known, "sealed", "run 0 present a.test"],
        &[&known, "sealed", "run 0 present a.test \u{1b}[2J"],
        &[&known, "sealed", "run /bin/true present a.test value"],
        &["receiver true\0", "sealed", "feed 0"],
        &["receiver ", "sealed", "feed 0"],
        &["receiver /bin/true", "sealed", "feed 0"],
        &["receiver /bin/true\0", "sealed", "feed 1"],
        &["receiver /bin/true\0", "sealed", "feed 0 --help"],
        &["sealed", "receiver /bin/true\0", "feed 0"],
        &["sealed", "sealed"],
        &["sealed", "user 0 0"],
        &["upgrade"],
        &["exec /bin/true"],
        &[""],
    ] {
        let (helper, thread) = helper("exit 0");
        let (line, its) = line();
        for text in said {
            let fds: &[&OwnedFd] = match text.split(' ').next() {
                Some("run") => &[&its; 3],
                Some("feed") => &[&its; 4],
                _ => &[],
            };
            // It may have ended by then.
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            let _ = helper.send(text.as_bytes(), &fds, within(PATIENCE));
        }
        thread.join().unwrap();
        drop(its);
        let heard = line.receive(within(PATIENCE)).unwrap();
        assert!(heard.is_none(), "{said:?}: {heard:?}");
        assert!(!trace.exists(), "{said:?}");
    }
}

#[test]
fn what_is_not_kept_ends_with_its_line_or_with_the_process() {
    for (last, lives) in [("", false), ("keep", true)] {
        let (helper, thread) = helper("exec sleep 600");
        say(&helper, "sealed", &[]);
        let (line, its) = line();
        say(&helper, "upgrade", &[&its, &its]);
        drop(its);
        let started = next(&line);
        let id = started.strip_prefix("started ").unwrap().to_owned();
        if !last.is_empty() {
            say(&line, last, &[]);
        }
        // Both at once, as when the process ends.
        drop((line, helper));
        thread.join().unwrap();
        if lives {
            assert!(is_alive(&id));
            kill_process(&id);
        }
        until_dead(&id);
    }
}

#[test]
fn one_that_is_killed_says_so() {
    let (helper, thread) = helper("exec sleep 600");
    say(&helper, "sealed", &[]);
    let (line, its) = line();
    say(&helper, "upgrade", &[&its, &its]);
    drop(its);
    let started = StartedProgram::on(line).unwrap();
    assert!(is_alive(&started.id().to_string()));
    assert_eq!(started.kill().unwrap().signal(), Some(9));
    drop(helper);
    thread.join().unwrap();
}

#[test]
fn no_more_run_at_a_time_than_are_needed() {
    let (helper, thread) = helper("exec sleep 600");
    say(&helper, "sealed", &[]);
    let mut lines = Vec::new();
    for number in 0..=MOST_RUNS {
        let (line, its) = line();
        say(&helper, "upgrade", &[&its, &its]);
        drop(its);
        let answer = next(&line);
        assert_eq!(answer.starts_with("failed"), number == MOST_RUNS, "{number}: {answer}");
        lines.push(line);
    }
    drop((lines, helper));
    thread.join().unwrap();
}

fn kill_process(id: &str) {
    let status = Command::new("kill").arg("-KILL").arg(id).status().unwrap();
    assert!(status.success());
}
