//! What a process does in the course of its life, it does within its sandbox: logs are rotated and opened anew,
//! certificates are renewed and minted, requests are stored, changes are written to the file, another process takes over.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::process::{Signal, Source, temp_dir};

use crate::support::crowd::{connect, get, trusting, until};
use crate::support::instance::{CERTIFICATE, Home, Instance};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::upgrade::Upgraded;

const TEXT: &str = r#"
[access_log]
output = "logs/events.log"
rotate_size = "64KiB"
rotate_keep = 2
hash = "client"
[log_store]
url = "sqlite:store/access.db"
[[certificate]]
cert = "certs/server.chain.pem"
key = "certs/server.key"
[[certificate]]
local = true
names = "mint.test"
[[listener]]
address = "127.0.0.1:0"
mode = "http"
[[listener]]
name = "unix"
address = "unix:run/offramp.sock"
mode = "http"
[[route]]
root = "ROOT"
error_pages = { 404 = "pages/404.html" }
[[route]]
path = "/fixed"
respond = { body = "fixed" }
"#;

/// The configuration.
fn text(home: &Home, mode: &str) -> String {
    format!("sandbox = \"{mode}\"\n{TEXT}").replace("ROOT", &home.file("www").display().to_string())
}

fn start(mode: &str) -> Upgraded {
    let home = Home::new();
    for folder in ["logs", "store", "certs", "run", "www", "pages"] {
        fs::create_dir(home.file(folder)).unwrap();
    }
    for (name, text) in [("www/page", "a page"), ("pages/404.html", "<p>nothing here</p>")] {
        fs::write(home.file(name), text).unwrap();
    }
    for name in ["server.chain.pem", "server.key"] {
        fs::rename(home.file(name), home.file("certs").join(name)).unwrap();
    }
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.env("HOME", "/nonexistent");
    let text = text(&home, mode);
    Upgraded::of(home.start(command, &text))
}

fn answer(instance: &Instance, path: &str) -> String {
    let config = trusting(&instance.home.ca.certificate());
    get(&mut connect(&config, instance.address(), "localhost").unwrap(), path).unwrap()
}

/// Asks until the file is there.
fn until_there(instance: &Instance, name: &str) {
    instance.until(name, || {
        assert_eq!(answer(instance, "/page"), "a page");
        instance.home.file(name).exists().then_some(())
    });
}

fn whole_life(mode: &str) {
    let upgraded = start(mode);
    let instance = &upgraded.instance;
    assert_eq!(answer(instance, "/page"), "a page");
    assert!(answer(instance, "/none").contains("nothing here"));
    let config = trusting(&instance.home.ca.certificate());
    // Events: by size, and as logrotate has it.
    let mut kept = connect(&config, instance.address(), "localhost").unwrap();
    until("a log that was rotated by its size", || {
        assert_eq!(get(&mut kept, "/page").unwrap(), "a page");
        instance.home.file("logs/events.log.1").exists().then_some(())
    });
    drop(kept);
    fs::rename(instance.home.file("logs/events.log"), instance.home.file("logs/away")).unwrap();
    upgraded.signal(Signal::USR1);
    until_there(instance, "logs/events.log");
    // Certificates: another in the place of the first, and one that is minted.
    let changed = |count| {
        instance.until("the certificate", || {
            (upgraded.logged("certificates changed").len() == count).then_some(())
        });
    };
    let fresh = instance.home.ca.issue("fresh", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    fs::rename(fresh.key, instance.home.file("certs/server.key")).unwrap();
    fs::rename(fresh.chain, instance.home.file("certs/server.chain.pem")).unwrap();
    changed(1);
    // The content of routes, and names of the local CA.
    fs::write(instance.home.file("pages/new"), "<p>gone away</p>").unwrap();
    fs::rename(instance.home.file("pages/new"), instance.home.file("pages/404.html")).unwrap();
    let text = text(&instance.home, mode).replace("\"mint.test\"", "[\"mint.test\", \"b.test\"]");
    instance.home.configure(&text);
    upgraded.signal(Signal::HUP);
    instance.until("the reload", || (!upgraded.logged(" reloaded ").is_empty()).then_some(()));
    assert!(answer(instance, "/none").contains("gone away"));
    // A change by the API, which is written.
    let edit = ["ctl", "log-level", "debug", "--persist"];
    let done = output(instance.home.path(), &edit);
    assert!(done.status.success(), "{}", stderr(&done));
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    assert!(file.contains("debug"), "{file}");
    // What was stored.
    let count = || {
        let done = output(
            instance.home.path(),
            &["logs", "query", "SELECT count(*) FROM requests WHERE path = '/page'"],
        );
        done.status.success().then(|| stdout(&done))
    };
    instance.until("a request in the store", || {
        count().filter(|text| text.contains(|digit: char| ('1'..='9').contains(&digit)))
    });
    upgraded.upgrade();
    upgraded.until_others_ended();
    assert_eq!(answer(instance, "/page"), "a page");
    assert!(instance.home.file("run/offramp.sock").exists());
    let log = instance.process.lines(Source::Stderr);
    let denied: Vec<&String> =
        log.iter().filter(|line| line.contains("denied") || line.contains("ERROR")).collect();
    assert!(denied.is_empty(), "{denied:?}");
    upgraded.stop();
}

/// The access log in `/dev/stdout`, which is a pipe here as it is in a container: the kernel takes no rule for it.
fn pipe_is_a_log(mode: &str, path: &str) {
    let home = Home::new();
    symlink("/dev/stdout", home.file("access.log")).unwrap();
    let text = format!(
        "sandbox = \"{mode}\"\n[access_log]\noutput = \"{path}\"\n{CERTIFICATE}\
         [[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n[[route]]\nrespond = {{ body = \"fixed\" }}\n"
    );
    let upgraded = Upgraded::of(home.run(&text));
    let instance = &upgraded.instance;
    let entered = instance.until("the sandbox", || upgraded.logged(" sandbox ").pop());
    assert!(entered.contains(" files=landlock ") && entered.contains(" system_calls=seccomp"), "{entered}");
    assert_eq!(answer(instance, "/one"), "fixed");
    upgraded.signal(Signal::USR1);
    instance.until("the logs are opened anew", || upgraded.logged("log files reopened").pop());
    assert_eq!(answer(instance, "/two"), "fixed");
    let is_there = |path: &str| {
        let lines = instance.process.lines(Source::Stdout);
        lines.iter().any(|line| line.contains(path)).then_some(())
    };
    instance.until("both events", || is_there("/one").and(is_there("/two")));
    let log = instance.process.lines(Source::Stderr);
    let is_bad = |line: &String| line.contains("ERROR") || line.contains("WARN") && line.contains("sandbox");
    assert!(!log.iter().any(is_bad), "{log:?}");
    upgraded.stop();
}

#[test]
fn a_pipe_is_a_log() {
    for mode in ["on", "required", "strict"] {
        pipe_is_a_log(mode, "/dev/stdout");
    }
    for path in ["/proc/self/fd/1", "/dev/fd/1", "./access.log"] {
        pipe_is_a_log("on", path);
    }
}

/// A pair of the CA in `archive/NAME`, and `live/NAME` with links to it, as certbot has them; `live/NAME` comes last and
/// at once.
fn lineage(home: &Home, archive: &Path, name: &str) {
    let files = home.ca.issue(name, &Leaf::server(Key::P256, &[name])).unwrap();
    let archive = archive.join(name);
    let draft = home.file(&format!("draft-{name}"));
    for folder in [&archive, &draft] {
        fs::create_dir_all(folder).unwrap();
    }
    for (file, name) in [(files.chain, "fullchain"), (files.key, "privkey")] {
        let target = archive.join(format!("{name}1.pem"));
        fs::rename(file, &target).unwrap();
        symlink(target, draft.join(format!("{name}.pem"))).unwrap();
    }
    fs::create_dir_all(home.file("letsencrypt/live")).unwrap();
    fs::rename(draft, home.file("letsencrypt/live").join(name)).unwrap();
}

#[test]
fn certificates_of_certbot_are_read_where_it_is_strict() {
    let (home, outside) = (Home::new(), temp_dir());
    let archive = home.file("letsencrypt/archive");
    lineage(&home, &archive, "a.test");
    let text = "sandbox = \"strict\"\n[[certificate]]\ndirectory = \"letsencrypt/live\"\n\
                [[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"127.0.0.1:1\"\n";
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.env("HOME", "/nonexistent");
    let upgraded = Upgraded::of(home.start(command, text));
    let instance = &upgraded.instance;
    // Another name later, and links to a folder that nothing has named.
    lineage(&instance.home, &archive, "b.test");
    instance.until("the certificate", || upgraded.logged("certificates changed").pop());
    assert!(upgraded.logged("denied").is_empty(), "{:?}", upgraded.logged("denied"));
    lineage(&instance.home, outside.path(), "c.test");
    let said = instance.until("the reason", || upgraded.logged("denied").pop());
    assert!(said.contains("c.test") && said.contains("if the sandbox denies it: "), "{said}");
    upgraded.stop();
}

#[test]
fn as_it_is_by_default() {
    whole_life("on");
}

#[test]
fn where_it_is_strict() {
    whole_life("strict");
}
