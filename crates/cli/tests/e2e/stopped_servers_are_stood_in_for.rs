//! `kill -STOP` of a server under load: the kernel still accepts for it, and nothing answers. What it had ends as its
//! timeout says, everybody else goes to the other server, and SIGCONT brings it back.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use offramp_testkit::process::{Process, Ready, Signal, Source, require};
use serde_json::Value;

use crate::open_connections_are_shown_and_closed::ctl;
use crate::support::crowd::tcp;
use crate::support::instance::{Home, Instance, LIFE, PATIENCE, cause, text};

/// Answers each request with its first argument; its queue for accepted connections is as long as the second.
const SERVER: &str = r"
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = 'HTTP/1.1', True
    def do_GET(self):
        body = sys.argv[1].encode()
        head = f'HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n'
        self.wfile.write(head.encode() + body)
    def log_message(self, *args): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size, daemon_threads = int(sys.argv[2]), True
server = Server(('127.0.0.1', 0), Handler)
print('port', server.server_address[1], flush=True)
server.serve_forever()
";

fn server(name: &str, queue: &str) -> (Process, SocketAddr) {
    let mut command = Command::new(require("python3", "python3"));
    command.args(["-c", SERVER, name, queue]);
    let process = Process::start(command, LIFE).unwrap();
    process.wait_for(&Ready::Line("port ".to_owned()), PATIENCE).unwrap();
    let lines = process.lines(Source::Stdout);
    let port = lines.iter().find_map(|line| line.strip_prefix("port ")?.parse::<u16>().ok()).unwrap();
    (process, ([127, 0, 0, 1], port).into())
}

/// The listener `web` speaks HTTP, and `blind` does not know what is spoken. Both before these servers.
fn started(servers: [SocketAddr; 2], more: &str) -> Instance {
    let backend =
        |name: &str| format!("[backend.{name}]\nservers = [\"{}\", \"{}\"]\n{more}", servers[0], servers[1]);
    Home::new().run(&format!(
        "[limits]\nresponse_timeout = \"4s\"\nconnect_timeout = \"200ms\"\n\
         [[listener]]\nname = \"web\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [[listener]]\nname = \"blind\"\naddress = \"127.0.0.1:0\"\ntls = false\n\
         [[route]]\nlistener = \"web\"\nbackend = \"web\"\n[[route]]\nlistener = \"blind\"\nbackend = \"blind\"\n{}{}",
        backend("web"),
        backend("blind"),
    ))
}

const CHECKED: &str = "\
health = { path = \"/health\", interval = \"100ms\", timeout = \"1s\", rise = 2, fall = 2 }
eject = { failures = 1000, slow_start = \"0s\" }
";

/// One request and its answer.
#[derive(Debug)]
struct Asked {
    begun: Instant,
    status: u16,
    body: String,
}

/// On a connection that is open.
fn ask(stream: &mut TcpStream) -> Asked {
    let begun = Instant::now();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (mut answer, mut piece) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = answer.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(usize::MAX) {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
                return Asked { begun, status, body: body.to_owned() };
            }
        }
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "it ends after {answer:?}");
        answer.push_str(std::str::from_utf8(&piece[..length]).unwrap());
    }
}

fn ask_anew(address: SocketAddr) -> Asked {
    ask(&mut tcp(address).unwrap())
}

/// Clients that ask again and again at a steady pace, each time on a new connection.
struct Paced {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Asked>>>,
}

impl Paced {
    fn send(count: usize, address: SocketAddr) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let client = |_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut all = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    all.push(ask_anew(address));
                    thread::sleep(Duration::from_millis(10));
                }
                all
            })
        };
        let clients = (0..count).map(client).collect();
        Self { stop, clients }
    }

    fn stop(self) -> Vec<Asked> {
        self.stop.store(true, Ordering::SeqCst);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

/// What `ctl` says of the first server of a backend.
fn first_of(instance: &Instance, backend: &str) -> (String, String) {
    let said = ctl(instance, &["--json", "show", "backends"]);
    let all: Value = serde_json::from_slice(&said.stdout).unwrap();
    let of = all["backends"].as_array().unwrap().iter().find(|one| one["name"] == backend).unwrap();
    let first = &of["servers"][0];
    (text(first, "state").to_owned(), text(first, "why").to_owned())
}

fn until_first_is(instance: &Instance, state: &str) {
    for backend in ["web", "blind"] {
        instance.until(&format!("the first server of {backend} is {state}"), || {
            (first_of(instance, backend).0 == state).then_some(())
        });
    }
}

/// Both answer some of these requests, or one alone answers all.
fn answered_by(address: SocketAddr, names: &[&str]) {
    let mut missing = names.to_vec();
    for _ in 0..40 {
        let asked = ask_anew(address);
        assert_eq!(asked.status, 200, "{asked:?}");
        assert!(names.contains(&&*asked.body), "{asked:?}");
        missing.retain(|name| *name != asked.body);
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn kill_stop_of_a_server_costs_what_it_had_and_nothing_that_came_later() {
    let ((first, one), (_second, other)) = (server("first", "128"), server("second", "128"));
    let instance = started([one, other], CHECKED);
    let [web, blind] = ["web", "blind"].map(|name| instance.address_of(name));
    // A blind stream to each of the servers.
    let mut streams: Vec<TcpStream> = (0..8).map(|_| tcp(blind).unwrap()).collect();
    let served: Vec<String> = streams.iter_mut().map(|stream| ask(stream).body).collect();
    assert!(["first", "second"].iter().all(|name| served.iter().any(|body| body == name)), "{served:?}");
    let (on_web, on_blind) = (Paced::send(4, web), Paced::send(4, blind));
    answered_by(web, &["first", "second"]);

    first.signal(Signal::STOP).unwrap();
    until_first_is(&instance, "down");
    let down = Instant::now();
    assert!(first_of(&instance, "web").1.contains("fails its health checks"));
    instance.until("the log says why", || {
        let lines = instance.process.lines(Source::Stderr);
        let why =
            lines.iter().find(|line| line.contains("a server is down") && line.contains("backend=web"))?;
        why.contains("took too long").then_some(())
    });
    for address in [web, blind] {
        answered_by(address, &["second"]);
    }
    let asked = on_web.stop();
    let failed: Vec<&Asked> = asked.iter().filter(|one| one.status != 200).collect();
    // Each client had one request at a time, and 4 s for its answer.
    assert!(failed.iter().all(|one| one.status == 504 && one.begun < down), "{failed:?}");
    let on_web = Paced::send(4, web);

    first.signal(Signal::CONT).unwrap();
    until_first_is(&instance, "up");
    for address in [web, blind] {
        answered_by(address, &["first", "second"]);
    }
    let after = on_web.stop();
    assert!(after.iter().all(|one| one.status == 200), "{after:?}");
    // A blind stream waits for its server and goes on: not one has failed, or lost a byte.
    let blind = on_blind.stop();
    assert!(blind.len() > 8 && blind.iter().all(|one| one.status == 200), "{blind:?}");
    for (stream, served) in streams.iter_mut().zip(&served) {
        assert_eq!(ask(stream).body, *served, "it stays with its server");
    }
    drop(streams);
    let failed = failed.len();
    let events = instance.stop();
    let timeouts: Vec<&Value> =
        events.iter().filter(|event| cause(event) == "server_response_timeout").collect();
    assert_eq!(timeouts.len(), failed, "each is told");
    assert!(timeouts.iter().all(|event| text(event, "server") == one.to_string()), "{timeouts:?}");
    let blind = events.iter().filter(|event| text(event, "listener") == "blind");
    assert!(blind.clone().all(|event| ["client_closed", "server_closed"].contains(&cause(event))));
}

/// Nothing checks them, and the kernel accepts nothing more for the one that is stopped: connecting fails, and the next
/// server is tried.
#[test]
fn kill_stop_of_a_server_whose_queue_is_full_fails_no_request() {
    let ((first, one), (_second, other)) = (server("first", "0"), server("second", "128"));
    first.signal(Signal::STOP).unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&one, Duration::from_millis(200)) {
        queue.push(stream);
        assert!(queue.len() < 1000, "the queue never fills");
    }
    let instance = started([one, other], "");
    let [web, blind] = ["web", "blind"].map(|name| instance.address_of(name));
    let (on_web, on_blind) = (Paced::send(4, web), Paced::send(4, blind));
    for address in [web, blind] {
        answered_by(address, &["second"]);
    }
    for asked in on_web.stop().into_iter().chain(on_blind.stop()) {
        assert_eq!((asked.status, &*asked.body), (200, "second"), "{asked:?}");
    }
    drop(queue);
    first.signal(Signal::CONT).unwrap();
    for address in [web, blind] {
        instance.until("the first one serves again", || (ask_anew(address).body == "first").then_some(()));
    }
    let events = instance.stop();
    let tried = events.iter().filter(|event| event["tries"].as_u64() > Some(1)).count();
    assert!(tried >= 1, "one was tried in vain before");
}
