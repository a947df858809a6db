//! Open connections are listed, found by filters, and closed by an operator: exactly those that are meant.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, ask};
use crate::support::offramp::{output, stderr, stdout};

/// An application that answers everything with what it has got, as long as the client stays.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut &stream, &mut writer);
            });
        }
    });
    address
}

/// A server that answers the head of each request with a small response that does not end.
fn unending() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun\n");
                let _ = (&stream).read(&mut [0; 1]);
            });
        }
    });
    address
}

pub(crate) fn ctl(instance: &Instance, arguments: &[&str]) -> std::process::Output {
    let mut all = vec!["ctl"];
    all.extend(arguments);
    output(instance.home.path(), &all)
}

pub(crate) fn conns(instance: &Instance, filter: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["--json", "conns"];
    arguments.extend(filter);
    let said = ctl(instance, &arguments);
    assert!(said.status.success(), "{}", stderr(&said));
    let answer: Value = serde_json::from_str(&stdout(&said)).unwrap();
    answer["connections"].as_array().unwrap().clone()
}

fn texts<'a>(all: &'a [Value], key: &str) -> HashSet<&'a str> {
    all.iter().filter_map(|one| one[key].as_str()).collect()
}

/// A child that is ended with the test.
struct Running(RefCell<Child>);

impl Running {
    fn has_ended(&self) -> bool {
        self.0.borrow_mut().try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let child = self.0.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn start(program: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; install it"));
    Running(RefCell::new(child))
}

#[test]
fn they_are_found_by_filters_and_exactly_those_that_are_meant_are_closed() {
    let (echo, unending) = (echo(), unending());
    let instance = Home::new().run(&format!(
        "workers = 2\n[access_log]\nformat = \"json\"\n{CERTIFICATE}\
         [[listener]]\nname = \"web\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n\
         [[listener]]\nname = \"blind\"\naddress = \"127.0.0.1:0\"\nmode = \"tcp\"\n\
         [[route]]\nlistener = \"web\"\nhost = \"a.example.org\"\nserver = \"{unending}\"\n\
         [[route]]\nlistener = \"blind\"\nhost = \"b.example.org\"\nserver = \"{echo}\"\n\
         [[route]]\nlistener = \"blind\"\nhost = \"c.example.org\"\npassthrough = \"{echo}\"\n"
    ));
    let (web, blind) = (instance.address_of("web"), instance.address_of("blind"));
    let to = format!("a.example.org:{}:{}", web.port(), web.ip());
    let url = format!("https://a.example.org:{}/", web.port());
    let fixed = ["-q", "--noproxy", "*", "-skN", "--resolve", &to, "--max-time", "120"];
    let _h1 = start("curl", &[&fixed[..], &["--http1.1", &url]].concat());
    let _h2 = start("curl", &[&fixed[..], &["--http2", &url]].concat());
    let connect = blind.to_string();
    let openssl = ["b", "b"].map(|name| {
        let name = format!("{name}.example.org");
        start("openssl", &["s_client", "-quiet", "-connect", &connect, "-servername", &name])
    });
    for one in &openssl {
        one.0.borrow_mut().stdin.as_mut().unwrap().write_all(&[b'x'; 3000]).unwrap();
    }
    let all = instance.until("all four are there, and have moved something", || {
        let all = conns(&instance, &[]);
        let moved = all.iter().all(|one| one["bytes_to_client"].as_u64() > Some(0));
        (all.len() == 4 && moved).then_some(all)
    });
    assert_eq!(texts(&all, "protocol"), HashSet::from(["http/1.1", "h2", "tcp"]), "{all:?}");
    assert_eq!(texts(&all, "route"), HashSet::from(["a.example.org", "b.example.org"]));
    assert_eq!(texts(&all, "name"), HashSet::from(["a.example.org", "b.example.org"]));
    assert_eq!(texts(&all, "tls"), HashSet::from(["TLSv1.3"]));
    let echoed = echo.to_string();
    let blind_ones: Vec<_> = all.iter().filter(|one| one["listener"] == "blind").collect();
    assert!(
        blind_ones.iter().all(|one| one["bytes_from_client"] == 3000 && one["server"] == *echoed),
        "{all:?}"
    );
    for (filter, found) in [
        (&["--listener", "web"][..], 2),
        (&["--route", "b.example.org"], 2),
        (&["--name", "*.example.org"], 4),
        (&["--name", "c.example.org"], 0),
        (&["--client", "127.0.0.0/8"], 4),
        (&["--client", "192.0.2.1"], 0),
        (&["--larger", "3KiB"], 2),
        (&["--larger", "1GiB"], 0),
        (&["--older", "1h"], 0),
        (&["--listener", "web", "--route", "b.example.org"], 0),
    ] {
        assert_eq!(conns(&instance, filter).len(), found, "{filter:?}");
    }
    assert_eq!(conns(&instance, &["--limit", "3"]).len(), 3);
    let table = stdout(&ctl(&instance, &["conns", "--limit", "1"]));
    assert!(table.starts_with("ID ") && table.contains("There are more"), "{table}");
    let unmeant = ctl(&instance, &["conns", "--kill"]);
    assert_eq!(unmeant.status.code(), Some(2), "{}", stderr(&unmeant));
    // What a change touches is said before.
    let file = std::fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let other = file.replace(
        &format!("b.example.org\"\nserver = \"{echo}\""),
        "b.example.org\"\nserver = \"127.0.0.1:1\"",
    );
    std::fs::write(instance.home.file("new.toml"), other).unwrap();
    let plan = stdout(&ctl(&instance, &["plan", "new.toml"]));
    assert!(plan.contains("Open connections on what changes: 2 of 4; they stay open"), "{plan}");

    let id = blind_ones[0]["id"].as_str().unwrap();
    assert_eq!(stdout(&ctl(&instance, &["conns", id, "--kill"])), "Closed 1 connection.\n");
    for arguments in [&["conns", id][..], &["conns", id, "--kill"]] {
        let gone = ctl(&instance, arguments);
        assert!(
            !gone.status.success() && stderr(&gone).contains("there is no open connection"),
            "{arguments:?}"
        );
    }
    // One of the two clients sees an orderly end, and the other does not notice.
    let ended = instance.until("one openssl ends", || openssl.iter().position(Running::has_ended));
    assert!(!openssl[1 - ended].has_ended());
    assert_eq!(conns(&instance, &[]).len(), 3);
    assert_eq!(stdout(&ctl(&instance, &["conns", "--listener", "web", "--kill"])), "Closed 2 connections.\n");
    let rest = conns(&instance, &[]);
    assert_eq!((rest.len(), rest[0]["listener"].as_str()), (1, Some("blind")), "{rest:?}");
    let events = instance.until("each closed connection has its event", || {
        let lines = instance.process.lines(offramp_testkit::process::Source::Stdout);
        let events = lines.iter().filter(|line| line.contains("closed_by_operator")).count();
        (events >= 3).then_some(events)
    });
    assert!(events <= 5, "{events}");
    let history = stdout(&ctl(&instance, &["history"]));
    assert!(history.contains("connections closed: 2,") && history.contains("(listener web)"), "{history}");
    instance.stop();
}

#[test]
fn five_thousand_are_paged_through_while_some_come_and_go() {
    const STAYING: usize = 5000;
    const FLEETING: usize = 200;
    let (soft, hard) = {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        (current, maximum)
    };
    assert!(
        hard.is_none_or(|hard| hard > 12_000),
        "this test needs 12,000 open files, not {soft:?} of {hard:?}"
    );
    let instance = Home::new().run(
        "workers = 2\n[access_log]\noutput = \"none\"\n[limits]\nconnections = 20000\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [[route]]\nrespond = { status = 204 }\n",
    );
    let address = instance.address();
    // The head of a request is not complete, for a while.
    let connect = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 204");
        stream
    };
    let staying: Vec<TcpStream> = (0..STAYING).map(|_| connect()).collect();
    let mut fleeting: Vec<TcpStream> = (0..FLEETING).map(|_| connect()).collect();
    let addresses: HashSet<String> =
        staying.iter().map(|stream| stream.local_addr().unwrap().to_string()).collect();
    let (mut ids, mut clients, mut after, mut pages) = (HashSet::new(), HashSet::new(), String::new(), 0);
    loop {
        let mut command = Command::new("curl");
        command
            .args(["-q", "-s", "--noproxy", "*", "--unix-socket"])
            .arg(instance.home.file("state/admin.sock"));
        command.arg(format!("http://localhost/v1/connections?limit=700{after}"));
        let page: Value = serde_json::from_slice(&ask(command, b"", PATIENCE).stdout).unwrap();
        let connections = page["connections"].as_array().unwrap();
        assert!(connections.len() <= 700);
        for one in connections {
            assert!(ids.insert(one["id"].as_str().unwrap().to_owned()), "{one} came twice");
            clients.insert(one["client"].as_str().unwrap().to_owned());
        }
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
        // Some go, and others come in their places.
        fleeting.drain(..20);
        fleeting.extend((0..20).map(|_| connect()));
    }
    assert!(pages >= 8, "{pages}");
    let missing = addresses.difference(&clients).count();
    assert_eq!(missing, 0, "of those that stayed");
    drop(staying);
    instance.stop();
}
