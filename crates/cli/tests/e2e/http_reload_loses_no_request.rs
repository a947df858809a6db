//! SIGHUP and SIGTERM under the load of HTTP/1.1 and HTTP/2: not one request fails. A server that leaves
//! the configuration finishes what it has begun.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use offramp_testkit::process::{Process, Signal, Source, require};
use offramp_testkit::server::{Listen, Server};
use rustls::ClientConfig;
use serde_json::Value;

use crate::reload_loses_no_request::reload_to;
use crate::support::crowd::{Crowd, connect, trusting};
use crate::support::http_app::{app, respond};
use crate::support::http_curl::HTTP;
use crate::support::http_h2;
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, PATIENCE, cause, text};

/// Answers as a [`Crowd`] expects.
fn hello(listen: &Listen) -> Server {
    app(listen, |request, stream| respond(stream, 200, &[], format!("hello {}\n", request.target).as_bytes()))
}

fn configuration(server: &str) -> String {
    format!(
        "workers = 2\n[access_log]\noutput = \"./events\"\n[limits]\nhandshake_timeout = \"1m\"\n\
         {CERTIFICATE}{HTTP}[[route]]\nserver = \"{server}\"\n"
    )
}

/// The events so far, from a file: whoever reads a pipe too slowly loses some.
fn events(instance: &Instance) -> Vec<Value> {
    let text = fs::read_to_string(instance.home.file("events")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Stops it as systemd does, expects that it ends in order, and gives all events.
fn stopped(instance: &Instance) -> Vec<Value> {
    instance.process.signal(Signal::TERM).unwrap();
    let status = instance.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", instance.process.transcript());
    events(instance)
}

/// h2load with these arguments, against the instance.
fn h2load(instance: &Instance, arguments: &[&str]) -> Process {
    let mut command = Command::new(require("h2load", "nghttp2-client"));
    command.args(arguments).arg(format!("https://localhost:{}/load", instance.address().port()));
    Process::start(command, LIFE).unwrap()
}

/// Waits for its end, and gives how many requests were answered with 2xx; all must be.
#[track_caller]
fn all_well(load: &Process) -> usize {
    assert!(load.wait(PATIENCE * 2).unwrap().success(), "{}", load.transcript());
    let said = load.lines(Source::Stdout).join("\n");
    let number = |line: &str, word: &str| -> usize {
        let line = said.lines().find(|found| found.starts_with(line)).unwrap_or_else(|| panic!("{said}"));
        let part = line.split(&[':', ','][..]).map(str::trim).find(|part| part.ends_with(word));
        part.unwrap_or_else(|| panic!("{said}")).split(' ').next().unwrap().parse().unwrap()
    };
    for word in ["failed", "errored", "timeout"] {
        assert_eq!(number("requests:", word), 0, "{said}");
    }
    let well = number("status codes:", "2xx");
    assert_eq!(number("requests:", "succeeded"), well, "{said}");
    assert_eq!(
        number("status codes:", "3xx") + number("status codes:", "4xx") + number("status codes:", "5xx"),
        0
    );
    well
}

#[test]
fn h2load_finds_no_failure() {
    let home = Home::new();
    let nginx = nginx(&home);
    let instance = home.run(&configuration("unix:nginx.sock"));
    for protocol in ["--npn-list=http/1.1", "--npn-list=h2"] {
        let load = h2load(&instance, &["-n", "5000", "-c", "20", "-m", "10", "-t", "1", protocol]);
        assert_eq!(all_well(&load), 5000);
    }
    let events = stopped(&instance);
    assert!(events.iter().all(|event| cause(event) == "completed" && event["status"] == 200));
    assert_eq!(events.len(), 10_000);
    drop(nginx);
}

/// nginx as an application on `nginx.sock` that knows nothing of TLS.
fn nginx(home: &Home) -> Process {
    let text = "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\n\
        events { }\nhttp {\n access_log off;\n client_body_temp_path body;\n proxy_temp_path proxy;\n\
        fastcgi_temp_path fastcgi;\n uwsgi_temp_path uwsgi;\n scgi_temp_path scgi;\n keepalive_requests 1000;\n\
        server { listen unix:nginx.sock; location / { return 200 \"hello $uri\\n\"; } }\n}\n";
    std::fs::write(home.file("nginx.conf"), text).unwrap();
    let mut command = Command::new(require("nginx", "nginx-light"));
    command.arg("-p").arg(home.path()).args(["-c", "nginx.conf", "-e", "stderr"]).current_dir(home.path());
    let nginx = Process::start(command, LIFE).unwrap();
    nginx.wait_for(&offramp_testkit::process::Ready::Unix(home.file("nginx.sock")), PATIENCE).unwrap();
    nginx
}

#[test]
fn no_request_fails_while_the_configuration_is_swapped() {
    let home = Home::new();
    let apps = ["0", "1"].map(|name| hello(&Listen::Unix(home.file(&format!("{name}.sock")))));
    let instance = home.run(&configuration("unix:0.sock"));
    let loads = ["--npn-list=http/1.1", "--npn-list=h2"].map(|protocol| {
        h2load(&instance, &["-D", "4", "-c", "8", "-m", "4", "-t", "1", "--rps", "100", protocol])
    });
    let config = trusting(&instance.home.ca.certificate());
    let crowd = Crowd::send(4, &config, instance.address(), "localhost");
    for turn in 1..=6 {
        let outcome = reload_to(&instance, &configuration(&format!("unix:{}.sock", turn % 2)));
        assert!(outcome.contains(" reloaded "), "{outcome}");
        let before = apps[turn % 2].accepted();
        crowd.busy(5);
        assert!(before > 0 || apps[turn % 2].accepted() > 0, "the new server is used");
    }
    let tally = crowd.stop();
    assert!(tally.failures.is_empty() && tally.turned_away == 0, "{tally:?}");
    let answered: usize = loads.iter().map(all_well).sum::<usize>() + tally.answered;
    let events = stopped(&instance);
    let told = events.iter().filter(|event| text(event, "event") == "request").count();
    // h2load forgets what is under way when its time is over.
    assert!((answered..=answered + 64).contains(&told), "{answered} answered, {told} told");
    for event in &events {
        assert!(
            ["completed", "client_aborted"].contains(&cause(event)) && event["status"].as_u64() <= Some(200),
            "{event}"
        );
    }
}

#[test]
fn a_server_that_leaves_finishes_what_it_has_begun() {
    let home = Home::new();
    let leaving = app(&Listen::Unix(home.file("0.sock")), |_, stream| {
        use std::io::Write as _;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")?;
        (0..500).try_for_each(|_| stream.write_all(&[b'x'; 100_000]))
    });
    let _next = hello(&Listen::Unix(home.file("1.sock")));
    let instance = home.run(&configuration("unix:0.sock"));
    let config = trusting(&instance.home.ca.certificate());
    http_h2::run(async {
        let mut sender = http_h2::connect(&config, instance.address()).await.unwrap().ready().await.unwrap();
        let ask = |path: &str| http::Request::get(format!("https://localhost{path}")).body(()).unwrap();
        let (response, _) = sender.send_request(ask("/download"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let first = body.data().await.unwrap().unwrap();
        body.flow_control().release_capacity(first.len()).unwrap();
        let outcome = reload_to(&instance, &configuration("unix:1.sock"));
        assert!(outcome.contains(" reloaded "), "{outcome}");
        // The same connection is served by the new one from now on.
        let (response, _) = sender.send_request(ask("/next"), true).unwrap();
        let next = http_h2::body(response.await.unwrap().into_body()).await.unwrap();
        assert_eq!(next, b"hello /next\n");
        let rest = http_h2::body(body).await.unwrap();
        assert_eq!(first.len() + rest.len(), 50_000_000);
    });
    assert_eq!(leaving.accepted(), 1);
    assert!(stopped(&instance).iter().all(|event| cause(event) == "completed"));
}

/// What clients that obey the rules of HTTP live through while a server stops.
#[derive(Default)]
struct Tally {
    answered: AtomicUsize,
    failed: std::sync::Mutex<Vec<String>>,
    closing: AtomicBool,
}

/// Asks on one HTTP/2 connection after the other, until no new one is to be had.
fn ask_until_closed(config: &Arc<ClientConfig>, address: SocketAddr, tally: &Arc<Tally>) -> JoinHandle<()> {
    let (config, tally) = (Arc::clone(config), Arc::clone(tally));
    std::thread::spawn(move || {
        http_h2::run(async {
            while let Ok(mut sender) = http_h2::connect(&config, address).await {
                // An error here is the GOAWAY of a connection without requests under way.
                while let Ok(ready) = sender.ready().await {
                    sender = ready;
                    let request = http::Request::get("https://localhost/crowd").body(()).unwrap();
                    let Ok((response, _)) = sender.send_request(request, true) else { break };
                    let outcome = match response.await {
                        Ok(response) if response.status() == 200 => http_h2::body(response.into_body()).await,
                        Ok(response) => {
                            tally.failed.lock().unwrap().push(format!("{}", response.status()));
                            continue;
                        }
                        // Above the last stream of the GOAWAY: never begun (RFC 9113 §6.8).
                        Err(error)
                            if error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM) =>
                        {
                            break;
                        }
                        Err(error) => Err(error),
                    };
                    match outcome {
                        Ok(body) if body == b"hello /crowd\n" => {
                            tally.answered.fetch_add(1, Ordering::SeqCst);
                        }
                        other => tally.failed.lock().unwrap().push(format!("{other:?}")),
                    }
                }
                if tally.closing.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
    })
}

#[test]
fn stopping_fails_no_request_of_http_2() {
    let home = Home::new();
    let _app = hello(&Listen::Unix(home.file("app.sock")));
    let instance = home.run(&configuration("unix:app.sock"));
    let config = trusting(&instance.home.ca.certificate());
    let tally = Arc::new(Tally::default());
    let clients: Vec<_> = (0..4).map(|_| ask_until_closed(&config, instance.address(), &tally)).collect();
    instance.until("a crowd that is served", || (tally.answered.load(Ordering::SeqCst) > 200).then_some(()));
    tally.closing.store(true, Ordering::SeqCst);
    instance.process.signal(Signal::TERM).unwrap();
    for client in clients {
        client.join().unwrap();
    }
    let status = instance.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", instance.process.transcript());
    let failed = tally.failed.lock().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    let events = events(&instance);
    let told = events.iter().filter(|event| text(event, "event") == "request").count();
    assert_eq!(told, tally.answered.load(Ordering::SeqCst), "every request has its event, and no other");
    assert!(events.iter().all(|event| cause(event) == "completed" || text(event, "event") != "request"));
}

#[test]
fn stopping_fails_no_request_of_http_1() {
    let home = Home::new();
    let _app = hello(&Listen::Unix(home.file("app.sock")));
    let instance = home.run(&configuration("unix:app.sock"));
    let config = trusting(&instance.home.ca.certificate());
    let tally = Arc::new(Tally::default());
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (config, tally, address) = (Arc::clone(&config), Arc::clone(&tally), instance.address());
            std::thread::spawn(move || ask_1_until_closed(&config, address, &tally))
        })
        .collect();
    instance.until("a crowd that is served", || (tally.answered.load(Ordering::SeqCst) > 200).then_some(()));
    instance.process.signal(Signal::TERM).unwrap();
    for client in clients {
        client.join().unwrap();
    }
    let status = instance.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", instance.process.transcript());
    let failed = tally.failed.lock().unwrap();
    let odd: Vec<_> = events(&instance).into_iter().filter(|event| cause(event) != "completed").collect();
    assert!(failed.is_empty(), "{failed:?} {odd:?}");
}

/// Asks on one HTTP/1.1 connection after the other. A kept connection that ends before the first byte of a
/// response is no failure: the request may be repeated (RFC 9112 §9.3.1). The first request on a connection
/// whose handshake was completed must be answered.
fn ask_1_until_closed(config: &Arc<ClientConfig>, address: SocketAddr, tally: &Tally) {
    use std::io::{Read as _, Write as _};
    while let Ok(mut tls) = connect(config, address, "localhost") {
        for asked in 0.. {
            let sent =
                tls.write_all(b"GET /crowd HTTP/1.1\r\nHost: localhost\r\n\r\n").and_then(|()| tls.flush());
            let mut heard = Vec::new();
            let mut chunk = [0; 4096];
            while sent.is_ok() && !heard.ends_with(b"hello /crowd\n") {
                match tls.read(&mut chunk) {
                    Ok(length @ 1..) => heard.extend_from_slice(&chunk[..length]),
                    _ => break,
                }
            }
            if heard.is_empty() && asked > 0 {
                break;
            }
            let heard = String::from_utf8_lossy(&heard).to_ascii_lowercase();
            if !heard.starts_with("http/1.1 200 ") || !heard.ends_with("hello /crowd\n") {
                tally.failed.lock().unwrap().push(format!("request {asked}: {heard:?}"));
                break;
            }
            tally.answered.fetch_add(1, Ordering::SeqCst);
            if heard.contains("connection: close") {
                break;
            }
        }
    }
}
