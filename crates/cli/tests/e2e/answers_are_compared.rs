//! `offramp compare`: an old server and a new one are asked for what was recorded, and each difference is found and named.

mod bad_input;
mod kinds;
mod recorded;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Output;

use offramp_testkit::process::free_address;
use offramp_testkit::server::{Listen, Server, Stream};
use serde_json::Value;

use crate::support::instance::{CERTIFICATE, Home, LISTENER};
use crate::support::nginx::nginx;
use crate::support::offramp::{offramp, stderr, stdout};

/// Lines of an access log in the format `combined`.
fn log(targets: &[&str]) -> String {
    targets.iter().fold(String::new(), |mut text, target| {
        let line = if target.contains(' ') { (*target).to_owned() } else { format!("GET {target}") };
        writeln!(
            text,
            "192.0.2.1 - - [28/Nov/2026:10:00:00 +0000] \"{line} HTTP/1.1\" 200 5 \"-\" \"Firefox\""
        )
        .unwrap();
        text
    })
}

/// A request as a server of these tests sees it.
struct SeenRequest {
    method: String,
    target: String,
    head: String,
}

/// A server that answers each request by `answer`, whose text ends the connection unless it has a length.
fn site(answer: impl Fn(&SeenRequest) -> Vec<u8> + Send + Sync + 'static) -> Server {
    Server::start(&Listen::Ipv4, move |mut stream: Stream| {
        let mut read = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            while let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&read[..end]).into_owned();
                read.drain(..end + 4);
                let mut words = head.split(' ').map(str::to_owned);
                let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let text = answer(&SeenRequest { method, target, head });
                let is_kept = text.windows(15).any(|part| part.eq_ignore_ascii_case(b"content-length:"));
                if stream.write_all(&text).is_err() || !is_kept {
                    return;
                }
            }
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(more) => read.extend_from_slice(&chunk[..more]),
            }
        }
    })
    .unwrap()
}

/// A whole answer.
fn reply(status: &str, fields: &[&str], body: &str) -> Vec<u8> {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}

/// Runs a comparison, whose exit code must be `code`.
fn compare(home: &Path, arguments: &[&str], code: i32) -> Output {
    let mut arguments = [&["compare"], arguments].concat();
    // Time is compared only where a test is about it: a machine may be busy.
    if !arguments.contains(&"--slower") {
        arguments.extend(["--slower", "100s"]);
    }
    let output = offramp(home, &arguments).output().unwrap();
    let said = format!("{arguments:?}:\n{}\n{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(code), "{said}");
    output
}

/// Like [`compare`], with the report.
fn report(home: &Path, arguments: &[&str], code: i32) -> Value {
    let output = compare(home, &[arguments, &["--json"]].concat(), code);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stdout(&output)))
}

/// The kinds and names of all differences, in order.
fn found(report: &Value) -> Vec<String> {
    let all = report["differences"].as_array().unwrap().iter();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    all.map(|one| format!("{} {}", text(one, "kind"), text(one, "name")).trim().to_owned()).collect()
}

#[test]
fn nginx_and_offramp_with_one_site_answer_the_same() {
    let home = Home::new();
    fs::create_dir_all(home.file("www/dir")).unwrap();
    for (name, text) in
        [("index.html", "<p>home"), ("a.css", "p{}"), ("dir/index.html", "<p>dir"), ("b.png", "png")]
    {
        fs::write(home.file("www").join(name), text).unwrap();
    }
    let port = free_address().port();
    let servers = format!(
        "include /etc/nginx/mime.types; charset utf-8; charset_types text/css; ssl_protocols TLSv1.2 TLSv1.3;\nserver {{ listen unix:old.sock; listen 127.0.0.1:{port} ssl http2; root {};\n\
         ssl_certificate server.chain.pem; ssl_certificate_key server.key; }}\n",
        home.file("www").display()
    );
    let _old = nginx(&home, &servers, "old.sock");
    let targets = ["/", "/a.css", "/a.css?v=2", "/dir/", "/dir/index.html", "HEAD /b.png", "/b.png"];
    fs::write(home.file("access.log"), log(&targets)).unwrap();
    let new = home.run(&format!("{CERTIFICATE}{LISTENER}mode = \"http\"\n[[route]]\nroot = \"www\"\n"));
    let folder = new.home.path();
    let [old, url] = [port, new.address().port()].map(|port| format!("https://localhost:{port}"));
    let ca = new.home.ca.certificate();
    let sides = ["--old", &old, "--new", &url, "--ca", ca.to_str().unwrap(), "--log", "access.log"];
    for more in [&[][..], &["--http2"]] {
        let output = compare(folder, &[&sides[..], more].concat(), 0);
        let text = stdout(&output);
        assert!(text.ends_with("\nOld and new answer the same: 7 requests compared.\n"), "{text}");
        assert!(text.contains("7 requests compared: 7 the same, 0 different"), "{text}");
    }
    // Over a Unix socket the old side has no TLS, which is said; the pages are the same.
    let socket = format!("unix:{}", new.home.file("old.sock").display());
    let output = compare(
        folder,
        &[
            "--old",
            &socket,
            "--new",
            &url,
            "--ca",
            ca.to_str().unwrap(),
            "--log",
            "access.log",
            "--host",
            "localhost",
        ],
        0,
    );
    assert!(stdout(&output).contains("certificates were not compared"), "{}", stdout(&output));
    // Their pages of errors are their own, which is named.
    let targets = targets.map(|target| target.replace("/b.png", "/none.png"));
    fs::write(folder.join("access.log"), log(&targets.each_ref().map(String::as_str))).unwrap();
    let report = report(folder, &sides, 1);
    assert_eq!((&report["same"], &report["different"]), (&5.into(), &2.into()), "{report:#}");
    // Offramp's has the number of the request, so that its body differs each time.
    let expected = ["header cache-control", "header content-type", "header content-length"];
    assert_eq!(found(&report), expected, "{report:#}");
    new.stop();
}
