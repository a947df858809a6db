//! A real nginx writes a log that is followed while it is rotated, and while the follower is killed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use offramp_testkit::process::{Process, Ready, Signal, free_port, require, temp_dir};

use crate::support::instance::{LIFE, PATIENCE};
use crate::support::logs_desk::{answer, assert_counts, command, rows, until};

/// A format of somebody's own: with the time in it and its fields in another order.
const OWN: &str = "$time_iso8601|$host|$remote_addr|$request|$status|$body_bytes_sent|$request_time|$http_user_agent|$http_referer";
const VHOST: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
    \"$http_referer\" \"$http_user_agent\" \"$host\"";

/// A running nginx with two logs of the same requests.
struct Nginx {
    process: Process,
    port: u16,
    sent: u32,
}

impl Nginx {
    fn start(home: &Path) -> Self {
        let port = free_port();
        let text = format!(
            "daemon off;\nmaster_process off;\npid {home}/nginx.pid;\nerror_log {home}/error.log;\n\
             events {{ }}\nhttp {{\nlog_format own '{OWN}';\nlog_format vhost '{VHOST}';\n\
             access_log {home}/own.log own;\naccess_log {home}/vhost.log vhost;\n\
             client_body_temp_path {home}/body;\nproxy_temp_path {home}/proxy;\n\
             fastcgi_temp_path {home}/fastcgi;\nuwsgi_temp_path {home}/uwsgi;\nscgi_temp_path {home}/scgi;\n\
             server {{ listen 127.0.0.1:{port}; keepalive_requests 100000; return 200 'hello\\n'; }}\n}}\n",
            home = home.display()
        );
        fs::write(home.join("nginx.conf"), text).unwrap();
        let mut nginx = Command::new(require("nginx", "nginx-light"));
        nginx
            .arg("-p")
            .arg(home)
            .arg("-c")
            .arg(home.join("nginx.conf"))
            .arg("-e")
            .arg(home.join("error.log"));
        let process = Process::start(nginx, LIFE).unwrap();
        process.wait_for(&Ready::Tcp(([127, 0, 0, 1], port).into()), PATIENCE).unwrap();
        Self { process, port, sent: 0 }
    }

    /// Makes `count` requests, each for a path of its own.
    fn serve(&mut self, count: u32) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut request = String::new();
        for number in self.sent..self.sent + count {
            let host = ["a.test", "b.test", "c.test"][number as usize % 3];
            request += &format!(
                "GET /page/{number}?x=%22{number}%22 HTTP/1.1\r\nHost: {host}\r\nUser-Agent: agent {}\r\nReferer: https://r.test/\"{}\\\r\n{}\r\n",
                number % 5,
                number % 7,
                if number + 1 == self.sent + count { "Connection: close\r\n" } else { "" },
            );
        }
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(request.as_bytes()));
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).unwrap();
        writing.join().unwrap().unwrap();
        self.sent += count;
    }

    /// What logrotate does: rename, tell the server, compress what was before.
    fn rotate(&self, home: &Path) {
        for log in ["own.log", "vhost.log"] {
            if home.join(format!("{log}.1")).exists() {
                let gzip = Command::new(require("gzip", "gzip")).arg(home.join(format!("{log}.1"))).status();
                assert!(gzip.unwrap().success());
                let number = (2..).find(|n| !home.join(format!("{log}.{n}.gz")).exists()).unwrap();
                fs::rename(home.join(format!("{log}.1.gz")), home.join(format!("{log}.{number}.gz")))
                    .unwrap();
            }
            fs::rename(home.join(log), home.join(format!("{log}.1"))).unwrap();
        }
        self.process.signal(Signal::USR1).unwrap();
        let there = || home.join("own.log").exists() && home.join("vhost.log").exists();
        let deadline = std::time::Instant::now() + PATIENCE;
        while !there() {
            assert!(std::time::Instant::now() < deadline, "{}", self.process.transcript());
            std::thread::yield_now();
        }
    }
}

fn follow(home: &Path, log: &str, format: [&str; 2]) -> Process {
    let store = format!("sqlite:{log}.db");
    let arguments = ["ingest", "--follow", log, format[0], format[1], "--store", &store];
    Process::start(command(home, &arguments), LIFE).unwrap()
}

/// Waits until so many requests are in the store, and finds each there once.
fn assert_each_once(home: &Path, log: &str, requests: u32) {
    let store = format!("sqlite:{log}.db");
    let sql = "SELECT count(*) AS all_of_them, count(DISTINCT path) AS different FROM requests";
    let found = until(home, &["query", sql, "--store", &store], |rows| {
        rows[0]["all_of_them"].as_u64().unwrap_or(0) >= requests.into()
    });
    assert_eq!(found[0]["all_of_them"], requests, "{log}");
    assert_eq!(found[0]["different"], requests, "{log}");
}

#[test]
fn nothing_is_lost_or_doubled_when_logs_rotate_and_followers_die() {
    let directory = temp_dir();
    let home = directory.path();
    // nginx's workers are another user's where the test is root's.
    fs::set_permissions(home, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut nginx = Nginx::start(home);
    nginx.serve(300);
    let formats = [("own.log", ["--log-format", OWN]), ("vhost.log", ["--format", "vhost"])];
    let start = || formats.map(|(log, format)| follow(home, log, format));
    let mut followers = start();
    // Both have begun: what was rotated away before the first look is nobody's to follow.
    for (log, _) in formats {
        assert_each_once(home, log, 300);
    }
    nginx.rotate(home);
    for round in 0..4 {
        nginx.serve(2000);
        if round == 1 {
            nginx.rotate(home);
            nginx.serve(500);
        }
        // In the middle of whatever they are doing.
        followers.iter().for_each(|follower| follower.signal(Signal::KILL).unwrap());
        nginx.serve(500);
        if round == 2 {
            nginx.rotate(home);
            nginx.serve(10);
        }
        followers = start();
    }
    for (log, _) in formats {
        assert_each_once(home, log, nginx.sent);
    }
    for follower in followers {
        follower.signal(Signal::TERM).unwrap();
        assert_eq!(follower.wait(PATIENCE).unwrap().code(), Some(0), "{}", follower.transcript());
    }
    assert_questions(home);
}

/// The two logs are of the same requests, so their stores answer alike, and as all of one log together is counted.
fn assert_questions(home: &Path) {
    for list in ["hosts", "status", "agents", "clients", "referrers"] {
        let of = |log: &str| sorted(home, list, &format!("sqlite:{log}.db"));
        assert_eq!(of("own.log"), of("vhost.log"), "{list}");
    }
    let agents = rows(home, &["top", "agents", "--exact", "--store", "sqlite:own.log.db"]);
    assert_eq!(agents.len(), 5, "{agents:?}");
    // Archives with gzip are read as they are.
    let mut archives: Vec<String> = fs::read_dir(home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("vhost.log") && !name.contains(".db"))
        .collect();
    archives.sort();
    assert!(archives.iter().any(|name| name.ends_with(".gz")), "{archives:?}");
    let files: Vec<&str> = archives.iter().map(String::as_str).collect();
    let store = ["ingest", "--format", "vhost", "--store", "sqlite:again.db"];
    answer(home, &[&store[..], &files].concat());
    assert_eq!(sorted(home, "hosts", "sqlite:again.db"), sorted(home, "hosts", "sqlite:vhost.log.db"));
}

/// A list, with what is equally heavy in a fixed order.
fn sorted(home: &Path, list: &str, store: &str) -> Vec<String> {
    let mut rows: Vec<String> =
        rows(home, &["top", list, "--store", store]).iter().map(ToString::to_string).collect();
    rows.sort();
    rows
}

#[test]
fn a_log_of_nginx_counts_as_python_counts_it() {
    let directory = temp_dir();
    let home = directory.path();
    fs::set_permissions(home, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(home.join("plain.log"), PLAIN).unwrap();
    answer(home, &["ingest", "--format", "vhost", "--store", "sqlite:plain.db", "plain.log"]);
    assert_counts(home, "sqlite:plain.db", &home.join("plain.log"));
}

/// Lines that differ in everything that is counted.
const PLAIN: &str = r#"192.0.2.1 - - [22/Nov/2026:10:00:00 +0000] "GET /a?x=1 HTTP/1.1" 200 100 "-" "one" "a.test"
192.0.2.2 - bob [22/Nov/2026:10:00:00 +0000] "GET /a?x=2 HTTP/1.1" 200 50 "https://r.test/" "-" "a.test"
198.51.100.7 - - [22/Nov/2026:12:30:00 +0100] "POST /b HTTP/2.0" 404 0 "https://r.test/" "two" "b.test"
192.0.2.1 - - [31/Dec/2025:23:59:59 +0000] "GET /a HTTP/1.0" 304 0 "-" "one" "b.test"
"#;
