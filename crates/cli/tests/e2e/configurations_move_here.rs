//! Configurations of other proxies, imported: the real proxy and Offramp with the result get the same requests, and their
//! responses are compared field by field. Each file below `tests/moved` is one configuration with the requests that it gets
//! and a table of what differs on purpose; the pages "Move here from …" name the same.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use offramp_testkit::process::{Process, Ready, free_port, require};

use crate::support::instance::{Home, LIFE, PATIENCE};
use crate::support::offramp::{offramp, stderr};
use echo::EchoApplication;
use exchange::{MovedClient, MovedRequest};
use moved::{MovedConfiguration, MovedPlace};

mod echo;
mod exchange;
mod moved;

/// The addresses of the other proxy and of Offramp. They differ in the address alone, so that both have the same ports.
const THEIRS: Ipv4Addr = Ipv4Addr::new(127, 20, 0, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(127, 20, 0, 2);

/// Configurations that are tried at a time.
const AT_A_TIME: usize = 3;

/// The fewest requests to each of two proxies that say something about a configuration.
const FEWEST: usize = 20;

#[test]
fn nginx_configurations_answer_the_same() {
    all("nginx", 25, start_nginx);
}

#[test]
fn haproxy_configurations_answer_the_same() {
    all("haproxy", 15, start_haproxy);
}

/// Tries all configurations of a language.
fn all(language: &str, least: usize, start: fn(&Home, &str) -> Process) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/moved").join(language);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= least, "{} configurations of {language}", paths.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            wrong.extend(one(path, language, start));
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tries one configuration; returns what is not as expected.
fn one(path: &Path, language: &str, start: fn(&Home, &str) -> Process) -> Vec<String> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let home = Home::new();
    let echo = EchoApplication::start();
    moved::files(&home);
    let place = MovedPlace { home: home.path(), app: echo.port, http: free_port(), https: free_port() };
    let moved = MovedConfiguration::read(path, &place);
    let rows = moved.rows();
    assert!(rows.len() >= FEWEST, "{name}: {} requests", rows.len());
    let theirs = start(&home, &moved.text);
    let wait = |port: u16| theirs.wait_for(&Ready::Tcp(SocketAddr::from((THEIRS, port))), PATIENCE).unwrap();
    [place.http, place.https].into_iter().filter(|port| moved.has(*port)).for_each(wait);
    let toml = import(&home, language, &moved, name);
    let (http, https) = (place.http, place.https);
    let exchange = MovedClient::trusting(&home);
    let instance = home.run(&toml);
    let mut wrong = Vec::new();
    let mut used = vec![false; moved.decisions.len()];
    let mut seen = vec![false; moved.leeways.len()];
    for row in rows {
        let port = if row.is_secure { https } else { http };
        let ask = |address| exchange.ask(SocketAddr::from((address, port)), &row);
        let (ours, theirs) = (ask(OURS), ask(THEIRS));
        let mut found = exchange::differences(&ours, &theirs, &row, [http, https]);
        let title = row.title();
        let decided: Vec<usize> = (0..used.len()).filter(|at| moved.decisions[*at].is_of(&title)).collect();
        let mut expected: Vec<&str> =
            decided.iter().flat_map(|at| moved.decisions[*at].parts.split(' ')).collect();
        expected.sort_unstable();
        expected.dedup();
        found.retain(|part| {
            let may = |at: &usize| moved.leeways[*at].allows(&title, part);
            let allowed: Vec<usize> = (0..seen.len()).filter(may).collect();
            if expected.contains(&part.as_str()) || allowed.is_empty() {
                return true;
            }
            allowed.into_iter().for_each(|at| seen[at] = true);
            false
        });
        if found != expected {
            wrong.push(format!(
                "{name}: {title}: {found:?} instead of {expected:?}\n  ours   {}\n  theirs {}",
                ours.told(),
                theirs.told()
            ));
        }
        decided.into_iter().for_each(|at| used[at] = true);
    }
    let unused = moved.decisions.iter().zip(used).filter(|(_, used)| !used);
    wrong.extend(unused.map(|(decision, _)| format!("{name}: no request is of {:?}", decision.requests)));
    let unseen = (0..seen.len()).filter(|at| !seen[*at]);
    wrong.extend(unseen.map(|at| format!("{name}: nothing differs as line {} of `may` says", at + 1)));
    if !wrong.is_empty() {
        wrong.push(format!("{name}: the import is\n{toml}"));
    }
    instance.stop();
    wrong
}

/// The configuration of Offramp, from the command.
fn import(home: &Home, language: &str, moved: &MovedConfiguration, name: &str) -> String {
    let file = home.file(file_of(language));
    let mut command = offramp(home.path(), &["import", "--output", "imported.toml", "--from", language]);
    if moved.is_partial {
        command.arg("--partial");
    }
    let output = command.arg(&file).output().unwrap();
    assert!(output.status.success(), "{name}: {}", stderr(&output));
    let toml = fs::read_to_string(home.file("imported.toml")).unwrap();
    let (theirs, ours) = (THEIRS.to_string(), OURS.to_string());
    assert!(toml.contains(&theirs), "{name}:\n{toml}");
    toml.replace(&theirs, &ours)
}

fn file_of(language: &str) -> &'static str {
    match language {
        "haproxy" => "haproxy.cfg",
        _ => "nginx.conf",
    }
}

/// Starts nginx with a whole configuration, or with the servers of one.
fn start_nginx(home: &Home, text: &str) -> Process {
    // Without a key of its own, nginx opens a log in /var/log.
    let own = "access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; \
               uwsgi_temp_path uwsgi; scgi_temp_path scgi;";
    let text = if text.contains("http {") {
        let events = if text.contains("events {") { "" } else { "events { }\n" };
        events.to_owned() + &text.replacen("http {", &format!("http {{ {own}"), 1)
    } else {
        fs::write(home.file("site.conf"), text).unwrap();
        format!("events {{ }}\nhttp {{ {own} include site.conf; }}\n")
    };
    fs::write(home.file("nginx.conf"), text).unwrap();
    let mut command = Command::new(require("nginx", "nginx-light"));
    command.arg("-p").arg(home.path()).args(["-c", "nginx.conf", "-e", "stderr", "-g"]);
    command.arg("daemon off; master_process off; pid nginx.pid;").current_dir(home.path());
    Process::start(command, LIFE).unwrap()
}

fn start_haproxy(home: &Home, text: &str) -> Process {
    // HAProxy wants the chain and its key in one file.
    let read = |path| fs::read_to_string(path).unwrap();
    let both = read(home.file("server.chain.pem")) + &read(home.file("server.key"));
    fs::write(home.file("server.both.pem"), both).unwrap();
    fs::write(home.file("haproxy.cfg"), text).unwrap();
    let mut command = Command::new(require("haproxy", "haproxy"));
    command.args(["-db", "-f"]).arg(home.file("haproxy.cfg")).current_dir(home.path());
    Process::start(command, LIFE).unwrap()
}
