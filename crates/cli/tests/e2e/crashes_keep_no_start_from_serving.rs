//! `run --resume`: nothing that is wrong with the autosave prevents a start or gives it more rights, and no start takes it away.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};

use offramp_testkit::process::{Process, Ready, Signal, Source, free_address};

use crate::support::instance::{Home, LIFE, PATIENCE};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::resumed::{SERVERS, ctl, drain, resumed, rewrite, saved, state, text, told};
use crate::support::skipped::is_root_or_skipped;

/// A start that does not succeed, and any other process with the same state directory, leaves the autosave where it is.
#[test]
fn another_start_takes_no_autosave_away() {
    let address = free_address();
    let fixed = text("").replace("\"127.0.0.1:0\"\nmode", &format!("\"{address}\"\nmode"));
    let instance = resumed(Home::new(), &fixed);
    drain(&instance, 0, &[]);
    let before = saved(&instance.home);
    let same = |home: &Home| {
        assert_eq!(saved(home), before);
        assert!(!home.file("state/running.unused.toml").exists());
    };
    // Beside a process that runs: with the same file, and with others that serve as well.
    let failed = output(instance.home.path(), &["run", "--resume"]);
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    let process = format!("the process {} uses this state directory too", instance.process.id());
    assert!(stderr(&failed).contains(&process), "{}", stderr(&failed));
    same(&instance.home);
    let others = [("", "run"), ("", "--resume"), ("[admin]\nenabled = false\n", "--resume")];
    for (at, (more, flag)) in others.into_iter().enumerate() {
        let name = format!("other{at}.toml");
        let admin = if more.is_empty() { "[admin]\naddress = \"unix:other.sock\"\n" } else { more };
        let whole = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
        let whole = whole
            .replace(&address.to_string(), "127.0.0.1:0")
            .replace("[metrics]", &format!("{admin}[metrics]"));
        fs::write(instance.home.file(&name), whole).unwrap();
        let mut command = offramp(instance.home.path(), &["run", "--config", &name]);
        if flag != "run" {
            command.arg(flag);
        }
        let other = Process::start(command, LIFE).unwrap();
        other.wait_for(&Ready::Line("started".into()), PATIENCE).unwrap();
        if more.is_empty() {
            other.wait_for(&Ready::Line(process.clone()), PATIENCE).unwrap();
            let status = output(instance.home.path(), &["ctl", "--admin", "unix:other.sock", "status"]);
            assert!(
                stdout(&status).contains("not saved") && stdout(&status).contains(&process),
                "{}",
                stdout(&status)
            );
        }
        other.signal(Signal::TERM).unwrap();
        other.wait(PATIENCE).unwrap();
        same(&instance.home);
    }
    // Without one, where neither configuration can be used for a moment.
    let home = instance.crash();
    let taken = TcpListener::bind(address).unwrap();
    let failed = output(home.path(), &["run", "--resume"]);
    assert!(stderr(&failed).contains("cannot listen on"), "{}", stderr(&failed));
    same(&home);
    drop(taken);
    let broken = fixed.replace("[[route]]", "[[certificate]]\ncert = \"gone.pem\"\n[[route]]");
    home.configure(&broken);
    let failed = output(home.path(), &["run", "--resume"]);
    assert!(stderr(&failed).contains("gone.pem"), "{}", stderr(&failed));
    same(&home);
    let instance = resumed(home, &fixed);
    assert_eq!(state(&instance), ([true, false], 1));
    instance.stop();
}

/// A configuration that can be put in force no more because of its outputs is one that is not used.
#[test]
fn an_output_that_is_gone_prevents_no_start() {
    for sandbox in ["off", "on"] {
        let home = Home::new();
        fs::create_dir(home.file("logs")).unwrap();
        let file = text(&format!("sandbox = \"{sandbox}\"\n[access_log]\noutput = \"none\"\n"));
        let instance = resumed(home, &file);
        let whole = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
        fs::write(instance.home.file("new.toml"), whole.replace("\"none\"", "\"logs/second.log\"")).unwrap();
        ctl(&instance, &["apply", "new.toml"]);
        let home = instance.crash();
        fs::remove_dir_all(home.file("logs")).unwrap();
        let instance = resumed(home, &file);
        let line = told(&instance, "cannot resume");
        assert!(line.contains("second.log"), "{line}");
        let unused = instance.home.file("state/running.unused.toml");
        instance.until("it is kept", || {
            fs::read_to_string(&unused).is_ok_and(|text| text.contains("second.log")).then_some(())
        });
        instance.stop();
    }
}

#[test]
fn a_damaged_autosave_prevents_no_start_and_says_where_it_is_wrong() {
    let instance = resumed(Home::new(), &text(""));
    drain(&instance, 0, &[]);
    let good = saved(&instance.home);
    let mut home = instance.crash();
    for (damaged, said) in [
        (good[..good.len() / 2].to_owned(), "it ends before its last line"),
        (String::new(), "line 3 is not `# digest"),
        (good.replace("[[route]]\nbackend", "[[route]]\nbackent"), "unknown key `backent`"),
        (good.replace("[[route]]", "[[route]"), "it was cut off or edited"),
        (good.replace("shop\"", "shed\""), "shed"),
    ] {
        fs::write(home.file("state/running.toml"), &damaged).unwrap();
        let instance = resumed(home, &text(""));
        let line = told(&instance, "cannot resume; the file of the configuration is used");
        assert!(line.contains(said) && line.contains("running.toml"), "{line}");
        assert_eq!(state(&instance), ([false, false], 0));
        let unused = instance.home.file("state/running.unused.toml");
        instance.until("it is kept", || (fs::read_to_string(&unused).ok()? == damaged).then_some(()));
        home = instance.crash();
    }
}

#[test]
fn an_autosave_reaches_no_further_than_the_sandbox_of_the_file() {
    let instance = resumed(Home::new(), &text(""));
    drain(&instance, 0, &[]);
    let reaching = |text: &str| {
        text.replacen("[metrics]", "[log]\noutput = \"/var/log/offramp-test/elsewhere.log\"\n[metrics]", 1)
            .replacen("state_dir = \"state\"\n", "state_dir = \"elsewhere\"\nsandbox = \"off\"\n", 1)
    };
    rewrite(&instance.home, reaching);
    let home = instance.crash();
    let instance = resumed(home, &text(""));
    let line = told(&instance, "changes are not in force again");
    assert!(line.contains("`log.output`") && line.contains("the sandbox does not let"), "{line}");
    assert!(!instance.home.file("elsewhere").exists());
    // What is within is in force again.
    assert_eq!(state(&instance), ([true, false], 1));
    instance.stop();
}

/// A configuration that was valid and cannot be put in force any more: its port is taken meanwhile.
#[test]
fn a_port_that_was_taken_meanwhile_prevents_no_start() {
    let instance = resumed(Home::new(), &text(""));
    let address = free_address().to_string();
    let keys = [&format!("address={address}"), "mode=http", "tls=false"];
    ctl(&instance, &["listener", "add", "name=second", keys[0], keys[1], keys[2]]);
    let instance = resumed(instance.crash(), &text(""));
    told(&instance, "are in force again");
    let home = instance.crash();
    let _taken = TcpListener::bind(&address).unwrap();
    let instance = resumed(home, &text(""));
    let line = told(&instance, "cannot resume");
    assert!(line.contains(&address) && line.contains("running.unused.toml"), "{line}");
    let lines = instance.process.lines(Source::Stderr);
    assert!(!lines.iter().any(|line| line.contains("are in force again")), "{lines:?}");
    let unused = instance.home.file("state/running.unused.toml");
    instance.until("it is kept", || unused.exists().then_some(()));
    assert_eq!(state(&instance), ([false, false], 0));
    instance.stop();
}

/// The user of the file owns the autosave, and may not have root open more for it than the file names.
#[test]
fn root_resumes_only_what_the_user_could_reach() {
    if !is_root_or_skipped("only root can become another user") {
        return;
    }
    let home = Home::new();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = home.file("offramp.toml");
    // Without a sandbox nothing else would stop it.
    fs::write(&path, format!("state_dir = \"state\"\nuser = \"nobody\"\nsandbox = \"off\"\n{}", text("")))
        .unwrap();
    let start = || {
        let mut command = offramp(home.path(), &["run", "--resume", "--config"]);
        command.arg(&path);
        let process = Process::start(command, LIFE).unwrap();
        process.wait_for(&Ready::Line("started".into()), PATIENCE).unwrap();
        process
    };
    let change = |server: &str| {
        let done = output(home.path(), &["ctl", "server", "drain", "shop", server]);
        assert!(done.status.success(), "{}", stderr(&done));
    };
    let end = |process: Process| {
        process.signal(Signal::KILL).unwrap();
        let _ = process.wait(PATIENCE);
        process.lines(Source::Stderr)
    };
    let process = start();
    change(SERVERS[0]);
    end(process);
    let file = home.file("state/running.toml");
    assert_eq!(fs::metadata(&file).unwrap().uid(), 65534);
    let process = start();
    change(SERVERS[1]);
    let lines = end(process);
    assert!(lines.iter().any(|line| line.contains("are in force again")), "{lines:?}");
    // Also what the user could swap for a link after a check, and what the file names for another use.
    fs::write(home.file("state/mine"), "mine\n").unwrap();
    for (secret, key) in [
        ("[[route]]\npath = \"/secret\"\nrespond = { file = \"/etc/shadow\" }\n", "route.respond.file"),
        ("[[route]]\npath = \"/secret\"\nrespond = { file = \"state/mine\" }\n", "route.respond.file"),
        ("[[route]]\npath = \"/secret\"\nrespond = { file = \"server.key\" }\n", "route.respond.file"),
        ("[[certificate]]\ncert = \"state/mine\"\n", "certificate.cert"),
        ("[access_log]\noutput = \"state/link\"\n", "access_log.output"),
        ("[log]\noutput = \"state/link\"\n", "log.output"),
        (
            "[[listener]]\nname = \"x\"\naddress = \"unix:state/x.sock\"\nmode = \"http\"\ntls = false\n",
            "listener.address",
        ),
    ] {
        let made = home.file("made-by-root");
        let link = home.file("state/link");
        let _ = fs::remove_file(&link);
        symlink(&made, &link).unwrap();
        lchown(&link, Some(65534), Some(65534)).unwrap();
        rewrite(&home, |text| text.replace("[metrics]", &format!("{secret}[metrics]")));
        chown(&file, Some(65534), Some(65534)).unwrap();
        let process = start();
        let lines = end(process);
        let refused =
            |line: &&String| line.contains("kept=") && line.contains(&format!("`{key}`: root does not open"));
        assert!(lines.iter().any(|line| refused(&line)), "{secret}: {lines:?}");
        assert!(!made.exists(), "{secret}");
        let process = start();
        change(SERVERS[0]);
        end(process);
    }
    // A file of root's in the folder of another user may have been put there by that user.
    chown(&file, Some(0), Some(0)).unwrap();
    rewrite(&home, |text| {
        text.replace("[metrics]", "[[route]]\npath = \"/s\"\nrespond = { file = \"server.key\" }\n[metrics]")
    });
    let lines = end(start());
    assert!(lines.iter().any(|line| line.contains("kept=") && line.contains("server.key")), "{lines:?}");
}

/// A start that used it and ended, in whatever way, before it served is followed by one that uses the file.
#[test]
fn an_autosave_that_a_start_did_not_survive_is_not_tried_for_ever() {
    let instance = resumed(Home::new(), &text(""));
    drain(&instance, 0, &[]);
    let before = saved(&instance.home);
    let home = instance.crash();
    let tried = home.file("state/running.tried");
    fs::write(&tried, "").unwrap();
    // A start that fails with the file as well says nothing about the autosave.
    home.configure(&text("[[certificate]]\ncert = \"gone.pem\"\n"));
    assert!(!output(home.path(), &["run", "--resume"]).status.success());
    assert!(!tried.exists() && saved(&home) == before);
    let instance = resumed(home, &text(""));
    assert_eq!(state(&instance), ([true, false], 1));
    assert!(!tried.exists());
    let home = instance.crash();
    fs::write(&tried, "").unwrap();
    let instance = resumed(home, &text(""));
    assert!(told(&instance, "cannot resume").contains("did not end well"));
    assert_eq!(state(&instance), ([false, false], 0));
    let unused = instance.home.file("state/running.unused.toml");
    instance.until("it is kept", || (fs::read_to_string(&unused).ok()? == before).then_some(()));
    assert!(!tried.exists());
    instance.stop();
}

/// As root: a log behind a link of the user that root becomes is neither opened nor made.
#[test]
fn root_makes_no_log_behind_a_link_of_the_user() {
    if !is_root_or_skipped("only root can become another user") {
        return;
    }
    for section in ["log", "access_log"] {
        let home = Home::new();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(home.file("state")).unwrap();
        let (made, link) = (home.file("made-by-root"), home.file("state/link"));
        symlink(&made, &link).unwrap();
        for path in [&home.file("state"), &link] {
            lchown(path, Some(65534), Some(65534)).unwrap();
        }
        let log = format!("[{section}]\noutput = \"state/link\"\n");
        let file = format!("state_dir = \"state\"\nuser = \"nobody\"\n{}", text(&log));
        fs::write(home.file("offramp.toml"), file).unwrap();
        let refused = output(home.path(), &["run", "--resume"]);
        assert!(
            !refused.status.success() && stderr(&refused).contains("there is a symbolic link"),
            "{}",
            stderr(&refused)
        );
        assert!(!made.exists(), "{section}");
    }
}
