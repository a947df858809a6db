//! `offramp ui`: one link, one session, for as long as the page is looked at.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Process, Ready, Source, require};
use serde_json::{Value, json};

use crate::support::crowd::{connect, trusting, until};
use crate::support::instance::{Home, Instance, LIFE, PATIENCE, ask};
use crate::support::npm;
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::page_client::{PageLogin, login, open, read_to_end, read_until, send, session};
use crate::support::skipped::is_root_or_skipped;
use crate::support::venv::interpreter;

const CONFIGURATION: &str = "[admin]\naddress = \"unix:admin.sock\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
                             mode = \"http\"\ntls = false\n[[route]]\nrespond = { body = \"hello\" }\n";

/// A running `offramp ui`, with its address and its ticket.
struct Opened {
    process: Process,
    address: SocketAddr,
    ticket: String,
}

fn open_page(home: &Home, linger: &str) -> Opened {
    let command = offramp(home.path(), &["ui", "--no-open", "--linger", linger]);
    let process = Process::start(command, LIFE).unwrap();
    let link = until("the link", || process.lines(Source::Stdout).into_iter().next());
    let rest = link.strip_prefix("http://").unwrap();
    let (address, ticket) = rest.split_once("/ui/#once=").unwrap();
    Opened { address: address.parse().unwrap(), ticket: ticket.to_owned(), process }
}

impl Opened {
    fn login(&self) -> PageLogin {
        session(&login(self.address, &json!({ "once": self.ticket })))
    }
}

#[test]
fn the_link_works_once_and_what_it_opens_is_guarded() {
    let instance = Home::new().run(CONFIGURATION);
    let page = open_page(&instance.home, "60s");
    let address = page.address;
    assert!(address.ip().is_loopback());
    let files = send(address, "GET /ui/", "", "");
    let policy = files.field("content-security-policy").unwrap();
    assert!(files.status == 200 && policy.starts_with("default-src 'none'; script-src 'self';"), "{files:?}");
    assert_eq!(send(address, "GET /ui/login", "", "").field("allow"), Some("POST"));
    for (line, status) in
        [("GET /v1/status", 401), ("GET /ui/session", 401), ("GET /grafana/", 404), ("GET /v1", 404)]
    {
        assert_eq!(send(address, line, "", "").status, status, "{line}");
    }
    for wrong in
        [json!({ "once": "0" }), json!({ "token": "0123456789abcdef" }), json!({ "once": "0".repeat(64) })]
    {
        assert_eq!(login(address, &wrong).status, 401, "{wrong}");
    }
    let entered = login(address, &json!({ "once": page.ticket }));
    let told = entered.json();
    assert!(told["interface"] == "ui" && !told["name"].as_str().unwrap().is_empty(), "{told}");
    let own = session(&entered);
    let again = login(address, &json!({ "once": page.ticket }));
    assert_eq!(again.status, 401);
    assert!(again.detail().contains("run `offramp ui` again"), "{}", again.detail());
    let status = send(address, "GET /v1/status", &own.reading(), "");
    assert!(status.status == 200 && status.field("etag").is_some(), "{status:?}");
    assert!(status.field("content-security-policy").is_some());
    assert_eq!(send(address, "PUT /v1/log-level", &own.reading(), "{\"level\":\"debug\"}").status, 403);
    let changed = send(address, "PUT /v1/log-level", &own.fields(), "{\"level\":\"debug\"}");
    assert_eq!(changed.status, 200, "{changed:?}");
    let stale = format!("{}if-match: \"0-1\"\r\n", own.fields());
    assert_eq!(
        send(address, "PUT /v1/log-level", &stale, "{\"level\":\"info\"}").status,
        409,
        "If-Match passes"
    );
    for (fields, refused) in [
        ("host: evil.example\r\n", 421),
        ("origin: http://evil.example\r\n", 403),
        ("origin: http://localhost:3000\r\n", 403),
        ("sec-fetch-site: same-site\r\nsec-fetch-dest: empty\r\n", 403),
    ] {
        for line in ["GET /v1/status", "GET /ui/", "POST /ui/login", "POST /v1/reload"] {
            assert_eq!(
                send(address, line, &format!("{}{fields}", own.fields()), "").status,
                refused,
                "{line} {fields}"
            );
        }
    }
    instance.stop();
}

#[test]
fn streams_pass_as_they_come_and_the_page_lives_through_a_restart() {
    let instance = Home::new().run(CONFIGURATION);
    let page = open_page(&instance.home, "60s");
    let own = page.login();
    let events = open(page.address, "GET /v1/events", &own.reading(), "");
    read_until(&events, "HTTP/1.1 200 OK");
    let changed = send(page.address, "PUT /v1/log-level", &own.fields(), "{\"level\":\"debug\"}");
    assert_eq!(changed.status, 200);
    read_until(&events, "event: change");
    let home = stop(instance);
    let away = send(page.address, "GET /v1/status", &own.reading(), "");
    assert_eq!(away.status, 502);
    assert!(away.detail().starts_with("Offramp does not answer: "), "{}", away.detail());
    assert_eq!(send(page.address, "GET /ui/", "", "").status, 200, "the page itself is in the program");
    assert_eq!(send(page.address, "GET /ui/session", &own.reading(), "").status, 200);
    let instance = home.run(CONFIGURATION);
    assert_eq!(send(page.address, "GET /v1/status", &own.reading(), "").status, 200);
    let events = open(page.address, "GET /v1/events", &own.reading(), "");
    read_until(&events, "HTTP/1.1 200 OK");
    assert_eq!(send(page.address, "POST /ui/logout", &own.fields(), "").status, 204);
    read_to_end(&events);
    instance.stop();
}

#[test]
fn another_user_of_this_machine_gets_nothing_whatever_it_has() {
    if !is_root_or_skipped("only root can connect as another user") {
        return;
    }
    let instance = Home::new().run(CONFIGURATION);
    let page = open_page(&instance.home, "60s");
    // The number of `nobody` on every system.
    let ask_as_other = |arguments: &[&str], path: &str| {
        let mut setpriv = Command::new(require("setpriv", "util-linux"));
        setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(require("curl", "curl"));
        setpriv.args(["-q", "--silent", "--noproxy", "*", "--write-out", "\n%{http_code}"]).args(arguments);
        setpriv.arg(format!("http://{}{path}", page.address));
        stdout(&ask(setpriv, b"", PATIENCE))
    };
    let body = json!({ "once": page.ticket }).to_string();
    let login = ask_as_other(&["-H", "content-type: application/json", "-d", &body], "/ui/login");
    assert!(login.contains("for the user who has run `offramp ui`") && login.ends_with("\n403"), "{login}");
    let own = page.login();
    let cookie = own.reading();
    for path in ["/ui/", "/ui/session", "/v1/status"] {
        let stolen = ask_as_other(&["-H", cookie.trim_end()], path);
        assert!(stolen.ends_with("\n403"), "{path}: {stolen}");
    }
    assert_eq!(send(page.address, "GET /v1/status", &cookie, "").status, 200);
    instance.stop();
}

/// Connects five hundred times a second, says nothing, and keeps what is not closed.
const SILENT_FLOOD: &str = "import select, socket, sys
address = (sys.argv[1], int(sys.argv[2]))
held = []
while True:
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(address)
    held.append(one)
    if len(held) == 200:
        print('flood', flush=True)
        select.select([], [], [], 0.2)
        held = held[100:]
";

#[test]
fn a_flood_of_another_user_takes_no_place_from_the_owner() {
    if !is_root_or_skipped("only root can connect as another user") {
        return;
    }
    let instance = Home::new().run(CONFIGURATION);
    let page = open_page(&instance.home, "60s");
    let cookie = page.login().reading();
    let ten = || {
        let begun = Instant::now();
        for _ in 0..10 {
            assert_eq!(send(page.address, "GET /v1/status", &cookie, "").status, 200);
        }
        begun.elapsed()
    };
    let quiet = ten();
    let mut command = Command::new(require("setpriv", "util-linux"));
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(interpreter());
    command.args(["-c", SILENT_FLOOD, &page.address.ip().to_string(), &page.address.port().to_string()]);
    let flood = Process::start(command, LIFE).unwrap();
    until("the flood has begun", || flood.lines(Source::Stdout).contains(&"flood".to_owned()).then_some(()));
    // A machine that has other work is slower in both.
    let flooded = ten();
    assert!(flooded < Duration::from_secs(10) + 20 * quiet, "{flooded:?}, and {quiet:?} without a flood");
    drop(flood);
    instance.stop();
}

#[test]
fn with_a_certificate_the_link_has_its_name_and_the_cookie_needs_tls() {
    let instance = Home::new().run(CONFIGURATION);
    let words =
        ["ui", "--no-open", "--listen", "127.0.0.1:0", "--cert", "server.chain.pem", "--key", "server.key"];
    let process = Process::start(offramp(instance.home.path(), &words), LIFE).unwrap();
    let link = until("the link", || process.lines(Source::Stdout).into_iter().next());
    let (port, ticket) = link.strip_prefix("https://localhost:").unwrap().split_once("/ui/#once=").unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    let config = trusting(&instance.home.ca.certificate());
    let login = |host: &str, ticket: &str| {
        let mut tls = connect(&config, address, "localhost").unwrap();
        let body = json!({ "once": ticket }).to_string();
        let request = format!(
            "POST /ui/login HTTP/1.1\r\nhost: {host}\r\norigin: https://{host}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        tls.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // Some ends come without a close_notify.
        let _ = tls.read_to_string(&mut answer);
        answer
    };
    let foreign = login("evil.example", ticket);
    assert!(foreign.starts_with("HTTP/1.1 421 "), "{foreign}");
    let entered = login(&format!("localhost:{port}"), ticket);
    assert!(entered.starts_with("HTTP/1.1 200 ") && entered.contains("; Secure"), "{entered}");
    instance.stop();
}

/// Opens the link in Chromium, and prints what a person sees and what the browser complains of.
const VISIT: &str = r#"
const { chromium } = require('playwright-core');
const fs = require('fs');
(async () => {
    const launch = { executablePath: process.argv[2], args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] };
    const browser = await chromium.launch(launch);
    const page = await browser.newPage();
    // The test bounds the whole.
    page.setDefaultTimeout(0);
    console.log('ready');
    while (!fs.existsSync('link')) await new Promise((done) => setTimeout(done, 50));
    const faults = [];
    page.on('pageerror', (error) => faults.push(String(error)));
    page.on('console', (message) => {
        if (message.type() === 'error' && !message.text().startsWith('Failed to load')) faults.push(message.text());
    });
    await page.goto(fs.readFileSync('link', 'utf8'));
    await page.getByRole('navigation', { name: 'Views' }).waitFor();
    await page.evaluate(() => { location.hash = '#/backends'; });
    await page.getByText('127.0.0.1:9').first().waitFor();
    const found = {
        url: page.url(),
        cookies: await page.evaluate(() => document.cookie),
        session: await page.evaluate(async () => (await fetch('/ui/session')).status),
    };
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByText('offramp ui').first().waitFor();
    found.after = await page.evaluate(async () => (await fetch('/ui/session')).status);
    console.log(JSON.stringify({ ...found, faults }));
    await browser.close();
})();
"#;

#[test]
fn chromium_opens_the_page_by_the_link() {
    let home = Home::new();
    fs::write(home.file("visit.cjs"), VISIT).unwrap();
    let instance =
        home.run(&CONFIGURATION.replace("respond = { body = \"hello\" }", "server = \"127.0.0.1:9\""));
    let mut node = Command::new(require("node", "nodejs"));
    node.arg("visit.cjs").arg(require("chromium", "chromium")).current_dir(instance.home.path());
    node.env("NODE_PATH", npm::modules("playwright-core", "1.56.1")).env("HOME", instance.home.path());
    let visit = Process::start(node, LIFE).unwrap();
    // A browser may take a minute to start on a busy machine, and the link is good for one: it is made last.
    visit.wait_for(&Ready::Line("ready".into()), PATIENCE * 2).unwrap();
    let page = open_page(&instance.home, "10m");
    let link = format!("http://{}/ui/#once={}", page.address, page.ticket);
    fs::write(instance.home.file("link.new"), link).unwrap();
    fs::rename(instance.home.file("link.new"), instance.home.file("link")).unwrap();
    visit.wait(PATIENCE * 2).unwrap_or_else(|error| panic!("{error}: {}", visit.transcript()));
    let seen = visit.lines(Source::Stdout).pop().unwrap_or_default();
    let seen: Value = serde_json::from_str(&seen).unwrap_or_else(|_| panic!("{}", visit.transcript()));
    assert_eq!(seen["faults"], json!([]), "{seen}");
    assert!(!seen["url"].as_str().unwrap().contains("once"), "the ticket stays in the history: {seen}");
    assert_eq!((&seen["cookies"], &seen["session"], &seen["after"]), (&json!(""), &json!(200), &json!(401)));
    instance.stop();
}

/// Stops an Offramp, and keeps its home for the next.
fn stop(instance: Instance) -> Home {
    let socket = instance.home.file("admin.sock");
    let home = instance.crash();
    // What a crash leaves behind belongs to nobody.
    let _ = std::fs::remove_file(socket);
    home
}

#[test]
fn it_ends_when_the_page_was_closed() {
    let instance = Home::new().run(CONFIGURATION);
    let unopened = open_page(&instance.home, "1s");
    assert!(unopened.process.wait(LIFE).unwrap().success(), "nobody has opened it");
    let page = open_page(&instance.home, "2s");
    let own = page.login();
    let events = open(page.address, "GET /v1/events", &own.reading(), "");
    read_until(&events, "HTTP/1.1 200 OK");
    assert!(page.process.wait(Duration::from_secs(4)).is_err(), "the page is open");
    drop(events);
    assert!(page.process.wait(LIFE).unwrap().success());
    let lines = page.process.lines(Source::Stderr);
    assert!(lines.iter().any(|line| line.contains("The page is closed")), "{lines:?}");
    instance.stop();
}

#[test]
fn it_listens_for_other_machines_with_tls_alone() {
    let instance = Home::new().run(CONFIGURATION);
    for listen in ["0.0.0.0:0", "[::]:0", "*:0", "192.0.2.7:0"] {
        let refused = output(instance.home.path(), &["ui", "--no-open", "--listen", listen]);
        assert_eq!(refused.status.code(), Some(2), "{listen}");
        let said = stderr(&refused);
        assert!(said.contains("--cert FILE") && said.contains("ssh -L"), "{said}");
    }
    let refused = output(instance.home.path(), &["ui", "--no-open", "--listen", "unix:page.sock"]);
    assert_eq!(refused.status.code(), Some(2));
    instance.stop();
    let away = output(Home::new().path(), &["ui", "--no-open", "--admin", "unix:/nonexistent/admin.sock"]);
    assert_eq!(away.status.code(), Some(1));
    assert!(stderr(&away).contains("no Offramp listens"), "{}", stderr(&away));
}
