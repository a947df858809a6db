//! Listeners of HTTP: routes by request, reloads between two requests, checks of servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use offramp_testkit::server::{Listen, Server, Stream, apps};

use crate::instance::{Folder, Instance, connect};

/// The longest that anything may take to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Status, head and body of the response to a GET; its length must be known.
fn get<S: Read + Write>(stream: &mut BufReader<S>, host: &str, path: &str) -> (u16, String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "cut after {head:?}");
    }
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, String::from_utf8(body).unwrap())
}

fn plain(instance: &Instance, listener: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(instance.address(listener)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

fn wait(what: &str, mut come: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !come() {
        assert!(begun.elapsed() < PATIENCE, "{what} does not come");
        std::thread::yield_now();
    }
}

const LISTENERS: &str = r#"
[[listener]]
name = "web"
address = "127.0.0.1:0"
mode = "http"

[[listener]]
name = "plain"
address = "127.0.0.1:0"
mode = "http"
tls = false

[[certificate]]
local = true
names = ["localhost"]
"#;

#[test]
fn requests_go_by_host_and_path() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let folder = Folder::new();
    let address = app.address();
    folder.write(&format!(
        r#"{LISTENERS}
[[route]]
listener = "plain"
redirect = "https"

[[route]]
listener = "web"
host = "localhost"
server = "{address}"
hsts = true

[[route]]
listener = "web"
host = "localhost"
path = "/api"
strip_path = true
server = "{address}"
response_headers = {{ set = {{ X-Api = "1" }} }}

[[route]]
listener = "web"
host = "localhost"
path = "/gone"
respond = {{ status = 410, body = "no more\n" }}
"#
    ));
    let instance = folder.start().unwrap();
    let (status, head, _) = get(&mut plain(&instance, "plain"), "a.test", "/x?y=1");
    assert_eq!(status, 308);
    assert!(head.contains("location: https://a.test/x?y=1\r\n"), "{head}");
    let tls = connect(&folder.client(), instance.address("web"), "localhost").unwrap();
    let mut tls = BufReader::new(tls);
    let (status, head, body) = get(&mut tls, "localhost", "/a");
    assert_eq!((status, body.as_str()), (200, "hello /a\n"));
    assert!(head.contains("strict-transport-security: max-age=31536000\r\n"), "{head}");
    let (status, head, body) = get(&mut tls, "localhost", "/api/b");
    assert_eq!((status, body.as_str()), (200, "hello /b\n"));
    assert!(head.contains("x-api: 1\r\n"), "{head}");
    let (status, _, body) = get(&mut tls, "localhost", "/gone/x");
    assert_eq!((status, body.as_str()), (410, "no more\n"));
}

#[test]
fn each_request_follows_the_configuration_in_force() {
    let (one, two) = (
        Server::start(&Listen::Ipv4, apps::http).unwrap(),
        Server::start(&Listen::Ipv4, apps::http).unwrap(),
    );
    let folder = Folder::new();
    let to =
        |app: &Server| format!("{LISTENERS}[[route]]\nlistener = \"web\"\nserver = \"{}\"\n", app.address());
    folder.write(&to(&one));
    let instance = folder.start().unwrap();
    let tls = connect(&folder.client(), instance.address("web"), "localhost").unwrap();
    let mut tls = BufReader::new(tls);
    assert_eq!(get(&mut tls, "localhost", "/").0, 200);
    assert_eq!((one.accepted(), two.accepted()), (1, 0));
    folder.write(&to(&two));
    instance.reload().unwrap();
    // The connection is kept, and the server that left gets nothing more.
    assert_eq!(get(&mut tls, "localhost", "/").0, 200);
    assert_eq!((one.accepted(), two.accepted()), (1, 1));
}

/// An application whose health can be switched; it counts what it is asked but for that.
fn patient(well: &Arc<AtomicBool>, asked: &Arc<AtomicUsize>) -> Server {
    let (well, asked) = (Arc::clone(well), Arc::clone(asked));
    let app = move |stream: Stream| {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                match stream.read_line(&mut head) {
                    Ok(1..) => {}
                    _ => return,
                }
            }
            let check = head.starts_with("GET /up ");
            if !check {
                asked.fetch_add(1, Ordering::SeqCst);
            }
            let status = if check && !well.load(Ordering::SeqCst) { "503 Unwell" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    };
    Server::start(&Listen::Ipv4, app).unwrap()
}

#[test]
fn a_server_that_fails_its_checks_gets_nothing_until_it_passes_them() {
    let well = Arc::new(AtomicBool::new(true));
    let (asked, others) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let app = patient(&well, &asked);
    let other = patient(&Arc::new(AtomicBool::new(true)), &others);
    let folder = Folder::new();
    let text = format!(
        r#"{LISTENERS}
[[route]]
listener = "plain"
backend = "app"

[backend.app]
servers = ["{}", "{}"]
health = {{ path = "/up", interval = "10ms", rise = 2, fall = 2 }}
"#,
        app.address(),
        other.address()
    );
    folder.write(&text);
    let instance = folder.start().unwrap();
    let mut client = plain(&instance, "plain");
    let mut ask = |times: usize| {
        for _ in 0..times {
            assert_eq!(get(&mut client, "a.test", "/").0, 200);
        }
        (asked.load(Ordering::SeqCst), others.load(Ordering::SeqCst))
    };
    let (first, second) = ask(4);
    assert!(first > 0 && second > 0, "{first} {second}");
    well.store(false, Ordering::SeqCst);
    wait("that it is down", || folder.log().contains("a server is down"));
    assert!(folder.log().contains("503"), "{}", folder.log());
    assert_eq!(ask(6), (first, second + 6));
    // What is known outlives a reload.
    folder.write(&text.replace("rise = 2", "rise = 3"));
    instance.reload().unwrap();
    assert_eq!(ask(6), (first, second + 12));
    well.store(true, Ordering::SeqCst);
    wait("that it is up", || folder.log().contains("a server is up again"));
    assert!(ask(6).0 > first);
}

#[test]
fn a_check_says_what_a_start_says() {
    let folder = Folder::new();
    folder.write(&format!(
        "{LISTENERS}[[route]]\nhost = \"a.test\"\nserver = \"a:1\"\nlistener = \"web\"\n\
         client_auth = {{ ca = \"absent.pem\" }}\n"
    ));
    let environment = offramp_config::Environment::default();
    let (config, _) = offramp_config::load(&folder.file(), &environment).unwrap();
    let checked = offramp_control::check(&config, std::time::SystemTime::now()).unwrap_err().to_string();
    let started = folder.start().err().unwrap().to_string();
    assert!(checked.contains("absent.pem") && started.contains(&checked), "{checked}\n{started}");
}
