//! `docs/http.md` and the pages beside it: every configuration there starts, and every command there prints what it says.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use offramp_testkit::process::{Process, Ready, Signal, Source, require};
use offramp_testkit::server::{Listen, Server, Stream};

use crate::http_app::{Request, app, respond};
use crate::http_curl::{HTTP, curl, get};
use crate::http_websockets_pass_over_both_versions::connect_to;
use crate::instance::{CERTIFICATE, Home, Instance, LIFE, PATIENCE, ask};
use crate::offramp::offramp;

/// A configuration, and the commands behind it with what they print.
#[derive(Default)]
struct Example {
    configuration: String,
    files: Vec<(String, String)>,
    commands: Vec<(String, String)>,
}

fn examples(page: &str) -> Vec<Example> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = fs::read_to_string(page).unwrap();
    let mut examples: Vec<Example> = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').unwrap();
        match kind {
            // A file, named by its first line, that the configuration before it mentions.
            "text" => {
                if let Some((name, _)) = text.split_once('\n')
                    && let Some(name) = name.strip_prefix("# /etc/offramp/")
                {
                    examples.last_mut().unwrap().files.push((name.to_owned(), format!("{text}\n")));
                }
            }
            // A file of JSON, which has no place for its name.
            json if json.starts_with("json ") => {
                let name = json.trim_start_matches("json ").to_owned();
                examples.last_mut().unwrap().files.push((name, format!("{text}\n")));
            }
            "toml" => examples.push(Example { configuration: format!("{text}\n"), ..Example::default() }),
            "console" => {
                let commands = &mut examples.last_mut().unwrap().commands;
                for command in format!("\n{text}\n").split("\n$ ").skip(1) {
                    let (line, output) = command.split_once('\n').unwrap();
                    commands.push((line.to_owned(), output.to_owned()));
                }
            }
            _ => {}
        }
    }
    examples
}

/// Answers as the page says that its applications do.
fn tell(name: &str, request: &Request, stream: &mut Stream) -> io::Result<()> {
    let mut body = format!("{name}: {} {}\n", request.method, request.target);
    if request.target == "/headers" {
        let mut fields: Vec<_> =
            request.fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        fields.sort();
        body.extend(fields);
    }
    respond(stream, 200, &["Server: app/1.0"], body.as_bytes())
}

/// Starts what the configuration names: applications on Unix sockets, and Offramp on free ports.
fn start(Example { configuration, files, .. }: &Example) -> (Vec<Server>, Instance) {
    let home = Home::new();
    for (name, text) in files {
        fs::write(home.file(name), text).unwrap();
    }
    // An authority of others, and one of its servers, which does not answer.
    fs::copy(home.ca.certificate(), home.file("idp-ca.pem")).unwrap();
    let text = configuration.replace("/etc/offramp/", "");
    let text = text.replace("jwks = \"https://idp.example.org/", "jwks = \"https://127.0.0.1:1/");
    let text = text.replace("unix:/run/", "unix:").replace("\"[::]:80\"", "\"127.0.0.1:0\"");
    // Where no address is written it is one with a port that tests must not take.
    let text = text.replace("[[listener]]\nmode", "[[listener]]\naddress = \"127.0.0.1:0\"\nmode");
    let names = text.split("unix:").skip(1).filter_map(|rest| rest.split_once(".sock").map(|(name, _)| name));
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    let servers = names.into_iter().map(|name| {
        app(&Listen::Unix(home.file(&format!("{name}.sock"))), move |request, stream| {
            tell(&name, request, stream)
        })
    });
    (servers.collect(), home.run(&text))
}

/// Whether `said` is `expected`, where `…` stands for anything within a line; empty lines at the end are none.
pub(crate) fn is_like(said: &str, expected: &str) -> bool {
    let (said, expected) = (said.trim_end(), expected.trim_end());
    let like = |(said, expected): (&str, &str)| match expected.split_once('…') {
        None => said == expected,
        Some((front, back)) => {
            said.len() >= front.len() + back.len() && said.starts_with(front) && said.ends_with(back)
        }
    };
    said.lines().count() == expected.lines().count() && said.lines().zip(expected.lines()).all(like)
}

#[test]
fn the_page_on_http_says_what_happens() {
    let (configurations, commands) = run("http.md");
    assert!(configurations >= 6 && commands >= 13, "{configurations} configurations, {commands} commands");
}

#[test]
fn the_page_on_access_says_what_happens() {
    let (configurations, commands) = run("access.md");
    assert!(configurations >= 1 && commands >= 1, "{configurations} configurations, {commands} commands");
}

#[test]
fn the_page_on_compression_says_what_happens() {
    let (configurations, commands) = run("compression.md");
    assert!(configurations >= 1 && commands >= 3, "{configurations} configurations, {commands} commands");
}

#[test]
fn the_page_on_canaries_says_what_happens() {
    let (configurations, commands) = run("canary.md");
    assert!(configurations >= 2 && commands >= 5, "{configurations} configurations, {commands} commands");
}

/// Runs the examples of a page, and gives how many configurations and commands there were.
fn run(page: &str) -> (usize, usize) {
    let (mut configurations, mut commands) = (0, 0);
    for example in examples(page) {
        configurations += 1;
        let (_apps, instance) = start(&example);
        for (line, expected) in example.commands {
            commands += 1;
            let listener = if line.contains("http://") { "plain" } else { "default" };
            let port = instance.address_of(listener).port();
            let ca = instance.home.file("state/ca/ca.pem");
            let curl = format!(
                "curl -q --silent --show-error --noproxy '*' --cacert {} --connect-to ::127.0.0.1:{port} ",
                ca.display()
            );
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(line.replacen("curl ", &curl, 1)).current_dir(instance.home.path());
            let output = ask(shell, b"", PATIENCE);
            let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(is_like(&said, &expected), "{line}\n{said}{complaint}instead of\n{expected}");
        }
        instance.stop();
    }
    (configurations, commands)
}

/// Each entry of the list on the page is tried: what is supported by now has no place there.
#[test]
fn what_the_page_calls_unsupported_is_so() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http.md");
    let page = fs::read_to_string(page).unwrap();
    let list = page.split_once("## What is not supported").unwrap().1;
    let entries: Vec<&str> = list.split("\n- ").skip(1).collect();
    // Keys that somebody would write for it, and nobody can.
    let keys: [(&str, &[&str]); 6] = [
        ("HTTP/3", &["http3 = true", "quic = true"]),
        ("A cache of responses", &["cache = true", "proxy_cache = \"x\""]),
        ("Changes to bodies", &["replace_body = \"x\"", "sub_filter = \"x\""]),
        ("Routes by method", &["method = \"GET\"", "header = \"X-A\"", "query = \"a=b\""]),
        ("FastCGI", &["fastcgi_pass = \"unix:x\"", "protocol = \"fastcgi\""]),
        ("Rules for CORS", &["cors = true"]),
    ];
    let live = ["WebSocket and `Upgrade` to servers", "`CONNECT` to hosts"];
    let tried = || keys.iter().map(|(entry, _)| *entry).chain(live);
    for entry in &entries {
        assert!(tried().any(|tried| entry.starts_with(tried)), "this entry is not tried: {entry}");
    }
    assert_eq!(entries.len(), tried().count(), "an entry is gone");
    for (entry, keys) in keys {
        for key in keys {
            let text = format!("{HTTP}[[route]]\nserver = \"127.0.0.1:1\"\n{key}\n");
            let environment = offramp_config::Environment::default();
            let errors = offramp_config::parse(&text, "offramp.toml", &environment).expect_err(entry);
            assert!(errors.to_string().contains("unknown key"), "{entry}: {errors}");
        }
    }
    let home = Home::new();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n[backend.app]\nservers = \"unix:app.sock\"\nprotocol = \"h2\"\n"
    ));
    assert_eq!(connect_to(&instance, "websocket", "/"), 501);
    let upgrade = ["--http1.1", "--header", "Connection: Upgrade", "--header", "Upgrade: websocket"];
    assert_eq!(get(&instance, &upgrade, "https://localhost/").status(), 502, "a request like any other");
    for version in ["--http1.1", "--http2"] {
        let arguments = [version, "--request", "CONNECT", "--request-target", "example.org:443"];
        let answer = curl(&instance, &arguments, "https://localhost/");
        assert!(!(200..300).contains(&answer.status()), "{version} {answer:?}");
    }
    instance.stop();
}

#[test]
fn one_command_serves_one_application_over_http() {
    let home = Home::new();
    let _app = app(&Listen::Unix(home.file("app.sock")), |request, stream| tell("app", request, stream));
    let arguments = ["to", "unix:app.sock", "--http", "--listen", "127.0.0.1:0", "--state-dir", "state"];
    let offramp = Process::start(offramp(home.path(), &arguments), LIFE).unwrap();
    offramp.wait_for(&Ready::Line("  try  ".to_owned()), PATIENCE).unwrap();
    let lines = offramp.lines(Source::Stderr);
    let told = lines.iter().find_map(|line| line.trim().strip_prefix("try ")).unwrap();
    let told = told.trim().strip_prefix("curl ").unwrap();
    for (version, protocol) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let mut curl = Command::new(require("curl", "curl"));
        curl.args(["-q", "--silent", "--noproxy", "*", version]).args(told.split_whitespace());
        curl.current_dir(home.path());
        let output = ask(curl, b"", PATIENCE);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "app: GET /\n", "{told}");
        offramp.wait_for(&Ready::Line(format!("\"protocol\":\"{protocol}\"")), PATIENCE).unwrap();
    }
    offramp.signal(Signal::TERM).unwrap();
    assert_eq!(offramp.wait(PATIENCE).unwrap().code(), Some(0), "{}", offramp.transcript());
}
