//! What a reload changes, what it keeps, and what it refuses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use offramp_config::Config;
use offramp_control::{Change, EventStore, NotChanged, Requester, StoreFigures, Terms};
use offramp_observe::{Event, Tap};
use offramp_testkit::ca::{Ca, Key, Leaf};
use offramp_testkit::process::free_address;
use offramp_testkit::server::{Listen, Server, apps};

use crate::instance::{Folder, PATIENCE, connect, echo};

fn listener(name: &str, address: &str) -> String {
    format!("[[listener]]\nname = \"{name}\"\naddress = \"{address}\"\n")
}

fn tail(backend: &Server) -> String {
    format!(
        "[[certificate]]\nlocal = true\nnames = [\"localhost\"]\n[[route]]\nserver = \"{}\"\n",
        backend.address()
    )
}

#[test]
fn listeners_come_and_go_while_connections_stay() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let (gone, new) = (free_address(), free_address());
    let rest = tail(&backend);
    folder.write(&(listener("web", "127.0.0.1:0") + &listener("old", &gone.to_string()) + &rest));
    let instance = folder.start().unwrap();
    let (client, web) = (folder.client(), instance.address("web"));
    let mut kept = connect(&client, web, "localhost").unwrap();
    let mut closing = connect(&client, gone, "localhost").unwrap();
    echo(&mut kept, "one");

    // `web` is renamed and keeps its port, `old` goes, `new` comes.
    folder.write(&(listener("site", "127.0.0.1:0") + &listener("new", &new.to_string()) + &rest));
    let changes = instance.reload().unwrap();
    assert!(changes.lines.contains(&"listener new: added".to_owned()), "{changes}");
    assert_eq!(changes.new_certificates, 0);
    echo(&mut kept, "two");
    echo(&mut closing, "three");
    echo(&mut connect(&client, web, "localhost").unwrap(), "four");
    echo(&mut connect(&client, new, "localhost").unwrap(), "five");
    while TcpStream::connect(gone).is_ok() {
        std::thread::yield_now();
    }
    drop((kept, closing));
    assert!(folder.log().contains("reloaded"));
}

#[test]
fn who_waits_for_a_place_gets_it_by_a_reload() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let text = |connections: u32| {
        listener("web", "127.0.0.1:0")
            + "tls = false\n"
            + &tail(&backend)
            + &format!("[limits]\nconnections = {connections}\n[metrics]\naddress = \"unix:metrics.sock\"\n")
    };
    folder.write(&text(1));
    let instance = folder.start().unwrap();
    let say = |stream: &mut TcpStream| {
        let mut back = [0; 2];
        stream.write_all(b"hi").unwrap();
        stream.read_exact(&mut back).map(|()| back)
    };
    let mut first = TcpStream::connect(instance.address("web")).unwrap();
    assert_eq!(&say(&mut first).unwrap(), b"hi");
    // The queue is of one worker only, so that one pause is all there will be.
    let mut waiting = TcpStream::connect(instance.address("web")).unwrap();
    let paused = || {
        let mut page = UnixStream::connect(folder.path().join("metrics.sock")).unwrap();
        page.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        page.read_to_string(&mut text).unwrap();
        text.contains("offramp_accept_pauses_total{reason=\"connections\"} 1\n")
    };
    while !paused() {
        std::thread::yield_now();
    }
    folder.write(&text(2));
    instance.reload().unwrap();
    waiting.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    assert_eq!(&say(&mut waiting).expect("the limit is higher now"), b"hi");
    // Nobody is thrown out by a lower one.
    folder.write(&text(1));
    instance.reload().unwrap();
    assert_eq!(&say(&mut first).unwrap(), b"hi");
    assert_eq!(&say(&mut waiting).unwrap(), b"hi");
}

#[test]
fn a_unix_socket_goes_with_its_listener() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let rest = tail(&backend);
    let plain = "[[listener]]\nname = \"plain\"\naddress = \"unix:plain.sock\"\ntls = false\n";
    let web = listener("web", "127.0.0.1:0");
    folder.write(&format!("{web}{plain}{rest}"));
    let instance = folder.start().unwrap();
    let path = folder.path().join("plain.sock");
    let mut client = UnixStream::connect(&path).unwrap();
    let mut exchange = |text: &str| {
        client.write_all(text.as_bytes()).unwrap();
        let mut back = vec![0; text.len()];
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, text.as_bytes());
    };
    exchange("one");
    folder.write(&format!("{web}{rest}"));
    assert_eq!(instance.reload().unwrap().lines, ["listener plain: removed"]);
    assert!(!path.exists());
    exchange("two");
    folder.write(&format!("{web}{plain}{rest}"));
    instance.reload().unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn nobody_who_connects_notices_a_reload() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let rest = tail(&backend) + "[limits]\nhandshakes_per_client = \"100000/s\"\n";
    let name = |turn: usize| listener(["a", "b", "c"][turn % 3], "127.0.0.1:0");
    folder.write(&(name(0) + &rest));
    let instance = folder.start().unwrap();
    let (client, address) = (folder.client(), instance.address("a"));
    let done = AtomicBool::new(false);
    let served = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut served = 0;
            while !done.load(Ordering::Relaxed) {
                echo(&mut connect(&client, address, "localhost").unwrap(), "hello");
                served += 1;
            }
            served
        });
        for turn in 1..=20 {
            folder.write(&(name(turn) + &rest));
            instance.reload().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    assert!(served > 0);
}

#[test]
fn a_refused_reload_names_every_fault_and_changes_nothing() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let rest = tail(&backend);
    let good = listener("web", "127.0.0.1:0") + &rest;
    folder.write(&good);
    let instance = folder.start().unwrap();
    let (client, web) = (folder.client(), instance.address("web"));

    folder.write("[[route]]\nserver = \"nonsense\"\nhots = \"a.test\"\n");
    let error = instance.reload().unwrap_err();
    assert!(error.findings().len() >= 2 && error.to_string().contains("offramp.toml:"), "{error}");
    echo(&mut connect(&client, web, "localhost").unwrap(), "one");

    // The ports are ours, the certificate is nobody's, and the log has no directory. The socket could be made.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let another = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = another.local_addr().unwrap();
    let socket = folder.path().join("s.sock");
    let bad = listener("web", "127.0.0.1:0")
        + &listener("taken", &taken.to_string())
        + &listener("socket", &format!("unix:{}", socket.display()))
        + &format!("[metrics]\naddress = \"{metrics}\"\n")
        + "[log]\noutput = \"./absent/log\"\n[[certificate]]\ncert = \"absent.pem\"\n"
        + &rest;
    folder.write(&bad);
    let error = instance.reload().unwrap_err();
    assert_eq!(error.findings().len(), 4, "{error}");
    for expected in ["ss -ltnp", "metrics: cannot listen", "absent.pem", "absent/log"] {
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(!socket.exists(), "what was opened is given up");
    echo(&mut connect(&client, web, "localhost").unwrap(), "two");
    assert!(folder.log().contains("reload refused"));

    folder.write(&good);
    assert_eq!(instance.reload().unwrap().lines, Vec::<String>::new());
}

#[test]
fn changes_and_refusals_are_remembered() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let text = listener("web", "127.0.0.1:0") + &tail(&backend);
    folder.write(&text);
    let instance = folder.start().unwrap();
    assert_eq!(instance.history.applied(), (1, vec![]));
    folder.write(&format!("{text}[limits]\nconnections = 77\n"));
    let changes = instance.reload().unwrap();
    folder.write(&format!("{text}[limits]\nconections = 77\n"));
    let error = instance.reload().unwrap_err();
    let (version, applied) = instance.history.applied();
    assert_eq!((version, applied.len()), (2, 1), "what was refused makes no version");
    assert_eq!((applied[0].version, &applied[0].by), (2, &Requester::Program));
    assert_eq!(applied[0].changes, changes);
    let refused = instance.history.refused();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].reasons, error.findings().iter().map(ToString::to_string).collect::<Vec<_>>());
    assert!(applied[0].at <= refused[0].at);
}

#[test]
fn renewed_files_are_read_although_the_configuration_did_not_change() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let ca = Ca::new(folder.path()).unwrap();
    ca.issue("leaf", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    folder.write(&format!(
        "{}[[certificate]]\ncert = \"leaf.pem\"\nkey = \"leaf.key\"\n[[route]]\nserver = \"{}\"\n",
        listener("web", "127.0.0.1:0"),
        backend.address()
    ));
    let instance = folder.start().unwrap();
    assert_eq!(instance.reload().unwrap().new_certificates, 0);
    ca.issue("leaf", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    let changes = instance.reload().unwrap();
    assert_eq!((changes.new_certificates, changes.lines.len()), (1, 0));
    std::fs::write(folder.path().join("leaf.key"), "half a key").unwrap();
    assert!(instance.reload().unwrap_err().to_string().contains("leaf"));
}

#[test]
fn what_needs_an_upgrade_is_told_and_the_rest_applies() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let text = listener("web", "127.0.0.1:0") + &tail(&backend);
    folder.write(&text);
    let instance = folder.start().unwrap();
    folder.write(&(text + "[limits]\nconnections = 77\n[log]\nlevel = \"error\"\noutput = \"./other\"\n[admin]\naddress = \"127.0.0.1:9\"\n"));
    let changed = std::fs::read_to_string(folder.file()).unwrap().replace("workers = 2", "workers = 5");
    std::fs::write(folder.file(), changed).unwrap();
    let changes = instance.reload().unwrap();
    assert_eq!(changes.needs_restart, ["workers", "admin.address"]);
    assert!(changes.lines.iter().any(|line| line.starts_with("limits.connections")), "{changes}");
    let told = |key: &str| changes.lines.iter().any(|line| line.starts_with(key));
    assert!(!told("workers") && !told("admin"), "{changes}");
    assert!(folder.path().join("other").exists());
}

/// A trial only looks at the file: what it has found is still to be put in force.
#[test]
fn a_trial_hides_no_change_from_watch() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let watched = |text: &str| {
        folder.write(text);
        let text = std::fs::read_to_string(folder.file()).unwrap();
        std::fs::write(folder.file(), format!("watch = true\n{text}")).unwrap();
    };
    let text = listener("web", "127.0.0.1:0") + &tail(&backend);
    watched(&text);
    let instance = folder.start().unwrap();
    watched(&format!("{text}[limits]\nconnections = 77\n"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let terms = Terms { dry_run: true, ..Terms::default() };
    let trial = instance.handle.change(Change::Reload, terms, Requester::Program);
    runtime.block_on(trial).unwrap();
    let begun = Instant::now();
    while instance.history.applied().0 < 2 {
        assert!(begun.elapsed() < PATIENCE, "{}", folder.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(instance.history.applied().1[0].by, Requester::Watch);
}

/// A reload by a program, as by SIGHUP, is a change like any other, and has the same consequences for one that waits.
#[test]
fn a_reload_replaces_a_change_that_waits_or_takes_it_back() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let text = listener("web", "127.0.0.1:0") + &tail(&backend);
    folder.write(&text);
    let instance = folder.start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let change = |count: u32| {
        folder.write(&format!("{text}[limits]\nconnections = {count}\n"));
        let text = std::fs::read_to_string(folder.file()).unwrap();
        let document = Change::Document { name: "document".to_owned(), folder: None, text };
        let terms = Terms { confirm: Some(Duration::from_secs(3600)), ..Terms::default() };
        runtime.block_on(instance.handle.change(document, terms, Requester::Program))
    };
    for (count, file, replaced) in [(77, "connections = 78\n", true), (79, "connections = 78\n", false)] {
        assert!(change(count).unwrap().confirm_until.is_some());
        assert!(matches!(change(80), Err(NotChanged::Unconfirmed { .. })));
        folder.write(&format!("{text}[limits]\n{file}"));
        let report = instance.handle.reload().blocking_recv().unwrap().unwrap();
        assert!(report.warnings.iter().any(|line| line.contains("waits to be confirmed")), "{report:?}");
        assert!(report.confirm_until.is_none());
        let log = folder.log();
        let last = log.rfind("another change replaces the one that nobody has confirmed");
        assert_eq!(last > log.rfind("how=apply"), replaced, "{log}");
    }
    assert!(matches!(
        runtime.block_on(instance.handle.confirm(Requester::Program)),
        Err(NotChanged::NothingToConfirm)
    ));
}

/// A log store that takes nothing, and panics once when it is asked for a tap while it is armed.
struct Panicking(Arc<AtomicBool>);

struct NoTap;

impl Tap for NoTap {
    fn take(&mut self, _: &Event) {}
    fn flush(&mut self) {}
}

impl EventStore for Panicking {
    fn tap(&self, _: &Config) -> Box<dyn Tap> {
        assert!(!self.0.swap(false, Ordering::Relaxed), "a tap that cannot be had");
        Box::new(NoTap)
    }

    fn figures(&self) -> StoreFigures {
        Arc::new(Vec::new)
    }

    fn stop(self: Box<Self>) -> u64 {
        0
    }
}

/// The body of an answer without TLS.
fn body(address: SocketAddr) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer.rsplit("\r\n").next().unwrap().to_owned()
}

/// A panic while a change is made ends neither the process nor the configuration before, and leaves no text in the file.
#[test]
fn a_change_that_panics_is_taken_back_and_the_next_one_works() {
    let folder = Folder::new();
    let other = free_address();
    let text = |body: &str, listeners: &str, anonymize: &str| {
        format!(
            "anonymize = \"{anonymize}\"\n[log]\noutput = \"./log\"\n[log_store]\nurl = \"sqlite:events.db\"\n{listeners}\
             [[route]]\nrespond = {{ body = \"{body}\" }}\n"
        )
    };
    let web = "[[listener]]\nname = \"web\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n";
    let two = format!("{web}{}", web.replace("web", "other").replace("127.0.0.1:0", &other.to_string()));
    folder.write(&text("old", web, "none"));
    let armed = Arc::new(AtomicBool::new(false));
    let of_store = Arc::clone(&armed);
    let instance =
        folder.start_with(Some(Box::new(move |_, _| Ok(Some(Box::new(Panicking(of_store))))))).unwrap();
    let address = instance.address("web");
    let has_kept_all = |refusals: usize| {
        assert_eq!(body(address), "old");
        while TcpStream::connect(other).is_ok() {
            std::thread::yield_now();
        }
        let (version, applied) = instance.history.applied();
        assert_eq!((version, applied.len(), instance.history.refused().len()), (1, 0, refusals));
    };
    folder.write(&text("new", &two, "ip"));
    armed.store(true, Ordering::Relaxed);
    let refused = instance.reload().unwrap_err().to_string();
    assert!(
        refused.contains("a tap that cannot be had") && refused.contains("please report it"),
        "{refused}"
    );
    has_kept_all(1);

    // Written over the file as it was read, and taken back from it.
    folder.write(&text("old", web, "none"));
    let written = std::fs::read_to_string(folder.file()).unwrap();
    folder.write(&text("persisted", &two, "ip"));
    let persisted = std::fs::read_to_string(folder.file()).unwrap();
    folder.write(&text("old", web, "none"));
    let change = Change::Document { name: "new".to_owned(), folder: None, text: persisted };
    let terms = Terms { persist: true, ..Terms::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    armed.store(true, Ordering::Relaxed);
    let refused = runtime.block_on(instance.handle.change(change, terms, Requester::Program)).unwrap_err();
    assert!(refused.to_string().contains("please report it"), "{refused}");
    has_kept_all(2);
    assert_eq!(std::fs::read_to_string(folder.file()).unwrap(), written);

    folder.write(&text("new", &two, "ip"));
    // The store is sound now.
    instance.reload().unwrap();
    assert_eq!((body(address), body(other)), ("new".to_owned(), "new".to_owned()));
    drop(instance);
    let log = folder.log();
    assert!(!log.contains("cannot be taken back") && !log.contains("keeps the text"), "{log}");
}
