//! The admin interface at bad moments: over TLS around an upgrade, with a change that waits to be confirmed, while the
//! process drains, without rights, and while its state directory is away.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::process::{Process, Signal, Source, require};
use offramp_testkit::server::{Listen, Server, apps};
use serde_json::Value;

use crate::open_connections_are_shown_and_closed::ctl;
use crate::support::crowd::{close, connect, echo, get, tcp, trusting, until};
use crate::support::instance::{Home, Instance, LIFE, PATIENCE, ask};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::skipped::is_root_or_skipped;
use crate::support::upgrade::{Upgraded, install, run_at};
use crate::upgrades_fail_without_harm::script;

const TOKEN: &str = "0123456789abcdef";
const WEB: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
    [[route]]\nrespond = { body = \"hello\" }\n";

/// The words for `offramp ctl` over TLS.
fn remote(instance: &Instance) -> Vec<String> {
    let address = instance.until("the log says where", || {
        let lines = instance.process.lines(Source::Stderr);
        let line = lines.iter().find(|line| line.contains(" admin "))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.parse::<std::net::SocketAddr>().ok()
    });
    let ca = instance.home.ca.certificate().display().to_string();
    let admin = format!("https://localhost:{}", address.port());
    ["ctl", "--json", "--admin", &admin, "--cacert", &ca, "--token-file", "token"].map(str::to_owned).into()
}

#[test]
fn over_tls_it_is_there_before_during_and_after_an_upgrade() {
    let home = Home::new();
    home.ca.issue("admin", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    fs::write(home.file("token"), TOKEN).unwrap();
    let program = home.file("bin");
    install(&program);
    let upgraded = run_at(
        home,
        &program,
        &format!(
            "[admin]\naddress = \"127.0.0.1:0\"\ntoken_file = \"token\"\n\
             certificate = \"admin.chain.pem\"\nkey = \"admin.key\"\n{WEB}"
        ),
    );
    let instance = &upgraded.instance;
    let remote = remote(instance);
    let words = |more: &[&str]| -> Vec<String> {
        remote.iter().cloned().chain(more.iter().map(|word| (*word).to_owned())).collect()
    };
    let ctl = |more: &[&str]| {
        let words = words(more);
        output(instance.home.path(), &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let pid = || -> u64 {
        let done = ctl(&["status"]);
        assert!(done.status.success(), "{}", stderr(&done));
        serde_json::from_str::<Value>(&stdout(&done)).unwrap()["pid"].as_u64().unwrap()
    };
    assert_eq!(pid(), u64::from(upgraded.current()));
    let watch = words(&["watch", "--kind", "change"]);
    let watch = offramp(instance.home.path(), &watch.iter().map(String::as_str).collect::<Vec<_>>());
    let watching = Process::start(watch, LIFE).unwrap();
    // A stream of events as others read it.
    let mut events = Command::new(require("curl", "curl"));
    events.args(["-q", "-sN", "--noproxy", "*", "--cacert", &remote[5]]);
    events.args(["-H", &format!("Authorization: Bearer {TOKEN}")]);
    events.arg(format!("{}/v1/events", remote[3]));
    let events = Process::start(events, LIFE).unwrap();
    instance.until("the stream has begun", || events.transcript().contains("from now on").then_some(()));

    script(&program, "echo $$ > child; exec sleep 600");
    upgraded.signal(Signal::USR2);
    instance.notified("RELOADING=1");
    let child = instance.until("the new process hangs", || {
        fs::read_to_string(instance.home.file("child")).ok()?.trim().parse::<i32>().ok()
    });
    assert_eq!(pid(), u64::from(upgraded.current()), "the old one answers meanwhile");
    rustix::process::kill_process(rustix::process::Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    instance.notified("READY=1");
    install(&program);
    let before = upgraded.current();
    upgraded.upgrade();
    // The stream ends in order with the process before, and whoever reads it is to connect again.
    let ended = events.wait(PATIENCE).unwrap();
    assert_eq!(ended.code(), Some(0), "{}", events.transcript());
    assert!(pid() != u64::from(before) && pid() == u64::from(upgraded.current()));
    let mut levels = ["debug", "info"].iter().cycle();
    until("a change of the new process", || {
        let done = ctl(&["log-level", levels.next().unwrap()]);
        assert!(done.status.success(), "{}", stderr(&done));
        // The old one had no change.
        (!watching.lines(Source::Stdout).is_empty()).then_some(())
    });
    drop(watching);
    upgraded.stop();
}

#[test]
fn no_upgrade_comes_between_a_change_and_its_confirmation() {
    let upgraded = Upgraded::of(Home::new().run(WEB));
    let instance = &upgraded.instance;
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let new = format!("{file}[limits]\nconnections = 77\n");
    fs::write(instance.home.file("new.toml"), &new).unwrap();
    for persist in [&[][..], &["--persist"]] {
        let apply = [&["apply", "new.toml", "--confirm", "1h"], persist].concat();
        let done = ctl(instance, &apply);
        assert!(done.status.success(), "{}", stderr(&done));
        assert!(stdout(&ctl(instance, &["show", "config"])).contains("connections = 77"));
        assert!(upgraded.fails().contains("a change waits to be confirmed"));
        assert!(stdout(&ctl(instance, &["show", "config"])).contains("connections = 77"));
        let back = ctl(instance, &["rollback"]);
        assert!(back.status.success(), "{}", stderr(&back));
        upgraded.upgrade();
        upgraded.until_others_ended();
        let shown = stdout(&ctl(instance, &["show", "config"]));
        assert!(!shown.contains("connections = 77"), "the new process has the file: {shown}");
        assert_eq!(fs::read_to_string(instance.home.file("offramp.toml")).unwrap(), file);
        let late = ctl(instance, &["confirm"]);
        assert_eq!(late.status.code(), Some(1));
        assert!(stderr(&late).contains("no change waits to be confirmed"), "{}", stderr(&late));
    }
    upgraded.stop();
}

#[test]
fn a_drain_in_a_drain_changes_nothing() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = format!(
        "[limits]\ndrain_timeout = \"2m\"\n{}",
        Home::one_route(app.address()).replace(
            "server = ",
            "backend = \"shop\"\n[backend.shop]\nservers = \"127.0.0.1:1 backup\"\n[[route]]\nhost = \"x.example.org\"\nserver = "
        )
    );
    let instance = Home::new().run(&text.replace("127.0.0.1:1 backup", &app.address().to_string()));
    let server = app.address().to_string();
    // Of a server.
    let version = |done: &Output| serde_json::from_str::<Value>(&stdout(done)).unwrap()["version"].clone();
    let drain = || ctl(&instance, &["--json", "server", "drain", "shop", &server]);
    let (first, second) = (drain(), drain());
    assert!(first.status.success() && second.status.success(), "{}", stderr(&second));
    assert_eq!((version(&first), version(&second)), (2.into(), 2.into()));
    assert!(ctl(&instance, &["server", "enable", "shop", &server]).status.success());
    // Of the process: it takes no change, and what is open goes on.
    let config = trusting(&instance.home.ca.certificate());
    let mut kept = connect(&config, instance.address(), "localhost").unwrap();
    assert_eq!(get(&mut kept, "/x").unwrap(), "hello /x\n");
    instance.process.signal(Signal::TERM).unwrap();
    instance.wait_for_notification("STOPPING=1");
    fs::write(instance.home.file("new.toml"), "[limits]\nconnections = 77\n").unwrap();
    for words in [&["apply", "new.toml"][..], &["server", "drain", "shop", &server], &["upgrade"]] {
        let refused = ctl(&instance, words);
        assert_eq!(refused.status.code(), Some(1), "{words:?}: {}", stdout(&refused));
        assert!(stderr(&refused).contains("is about to end"), "{words:?}: {}", stderr(&refused));
    }
    assert_eq!(get(&mut kept, "/x").unwrap(), "hello /x\n");
    close(kept).unwrap();
    let status = instance.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", instance.process.transcript());
}

#[test]
fn a_second_order_to_stop_shortens_no_drain_unless_it_says_so() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let limits = "[limits]\ndrain_timeout = \"1h\"\n";
    let instance = Home::new().run(&format!("{limits}{}", Home::one_route(app.address())));
    let config = trusting(&instance.home.ca.certificate());
    let mut kept = connect(&config, instance.address(), "localhost").unwrap();
    echo(&mut kept, "served").unwrap();
    let stop = |more: &[&str]| {
        let done = ctl(&instance, &[&["stop"], more].concat());
        assert!(done.status.success(), "{}", stderr(&done));
        stdout(&done)
    };
    let first = stop(&[]);
    assert!(first.starts_with("Offramp stops; 1 open connection may finish until "), "{first}");
    instance.wait_for_notification("STOPPING=1");
    let second = stop(&[]);
    assert!(second.starts_with("Offramp stops already, and nothing changes: 1 open connection"), "{second}");
    assert!(second.contains("offramp ctl stop --now"), "{second}");
    // The first signal may come from somebody who does not know of that.
    instance.process.signal(Signal::TERM).unwrap();
    for by in ["(uid ", "a signal"] {
        let line = instance.until("the log says what comes of it", || {
            let lines = instance.process.lines(Source::Stderr);
            lines
                .into_iter()
                .find(|line| line.contains("changes nothing: the drain goes on") && line.contains(by))
        });
        assert!(line.contains("connections=1"), "{line}");
    }
    echo(&mut kept, "still served").unwrap();
    assert_eq!(stop(&["--now"]), "Offramp stops and closes 1 open connection now.\n");
    let status = instance.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", instance.process.transcript());
    let log = instance.process.lines(Source::Stderr);
    let said = |what: &str| log.iter().any(|line| line.contains(what));
    assert!(said("open connections are closed now") && said("hurried=true"), "{log:?}");
}

#[test]
fn who_has_no_rights_gets_a_403() {
    if !is_root_or_skipped("only root can become another user") {
        return;
    }
    let instance = Home::new().run(&format!("[admin]\naddress = \"unix:admin.sock\"\n{WEB}"));
    let socket = instance.home.file("admin.sock");
    // That its file lets them in is not enough.
    fs::set_permissions(instance.home.path(), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    for (method, path) in
        [("GET", "/v1/status"), ("POST", "/v1/stop"), ("DELETE", "/v1/connections?older=0s")]
    {
        let mut command = Command::new(require("setpriv", "util-linux"));
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "curl", "-q", "-s", "-X", method]);
        command.args(["--write-out", "\n%{http_code}", "--unix-socket"]).arg(&socket);
        command.arg(format!("http://localhost{path}")).current_dir("/");
        let said = stdout(&ask(command, b"", PATIENCE));
        assert!(said.ends_with("\n403"), "{method} {path}: {said}");
    }
    assert_eq!(get(&mut tcp(instance.address()).unwrap(), "/").unwrap(), "hello");
    instance.stop();
}

#[test]
fn a_socket_that_was_removed_is_made_again_by_an_upgrade() {
    let upgraded = Upgraded::of(Home::new().run(WEB));
    let instance = &upgraded.instance;
    let state = instance.home.file("state");
    let socket = state.join("admin.sock");
    let remade = |how: &str, said: &str| {
        let lost = ctl(instance, &["status"]);
        assert_eq!(lost.status.code(), Some(1), "{how}");
        assert!(
            stderr(&lost).contains("an upgrade (SIGUSR2) or a restart makes it again"),
            "{}",
            stderr(&lost)
        );
        assert!(stderr(&lost).contains(said), "{how}: {}", stderr(&lost));
        upgraded.upgrade();
        upgraded.until_others_ended();
        let status = ctl(instance, &["--json", "status"]);
        assert!(status.status.success(), "{how}: {}{}", stderr(&status), instance.process.transcript());
        let status: Value = serde_json::from_str(&stdout(&status)).unwrap();
        assert_eq!(status["pid"], upgraded.current(), "{how}");
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660, "{how}");
    };
    fs::remove_file(&socket).unwrap();
    remade("the socket is gone", "there is no such socket");
    fs::remove_dir_all(&state).unwrap();
    remade("its directory is gone", "there is no such socket");
    fs::rename(&state, instance.home.file("away")).unwrap();
    fs::create_dir(&state).unwrap();
    remade("the directory is another", "there is no such socket");
    // A file of a socket on which nobody listens.
    fs::remove_file(&socket).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    remade("the socket is another", "the socket belongs to nobody");
    assert_eq!(upgraded.logged("the file of the admin socket was gone").len(), 4);
    // And one that is there passes over.
    upgraded.upgrade();
    assert!(ctl(instance, &["status"]).status.success());
    assert_eq!(upgraded.logged("the file of the admin socket was gone").len(), 4);
    upgraded.stop();
}

#[test]
fn a_state_directory_that_vanishes_is_missed_by_nobody_once_it_is_back() {
    let instance = Home::new().run(WEB);
    let (state, away) = (instance.home.file("state"), instance.home.file("away"));
    fs::rename(&state, &away).unwrap();
    let nobody = ctl(&instance, &["status"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("no Offramp listens at"), "{}", stderr(&nobody));
    let mut client = tcp(instance.address()).unwrap();
    assert_eq!(get(&mut client, "/").unwrap(), "hello");
    // A reload that needs nothing of it works, and one that does says what is missing, or makes it anew.
    let text = |limit: u32, more: &str| format!("[limits]\nconnections = {limit}\n{more}{WEB}");
    let outcome = crate::reload_loses_no_request::reload_to(&instance, &text(77, ""));
    assert!(outcome.contains(" reloaded "), "{outcome}");
    fs::rename(&away, &state).unwrap();
    let back = ctl(&instance, &["history"]);
    assert!(stdout(&back).contains("limits.connections"), "{}{}", stdout(&back), stderr(&back));
    let local = "[[certificate]]\nlocal = true\nnames = [\"a.example.org\"]\n";
    let outcome = crate::reload_loses_no_request::reload_to(&instance, &text(78, local));
    assert!(outcome.contains("new_certificates=1"), "{outcome}");
    assert_eq!(get(&mut client, "/").unwrap(), "hello");
    instance.stop();
}
