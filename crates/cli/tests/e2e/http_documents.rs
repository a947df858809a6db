//! Pages of the book: every configuration there starts, and every command there prints what it says.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Process, Ready, Signal, Source, require};
use offramp_testkit::server::{Listen, Server, Stream};

use crate::http_websockets_pass_over_both_versions::connect_to;
use crate::support::http_app::{Request, app, respond};
use crate::support::http_curl::{HTTP, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, PATIENCE, ask};
use crate::support::offramp::offramp;

/// A configuration, and the commands behind it with what they print.
#[derive(Default)]
struct Example {
    /// Empty where the commands need no running Offramp.
    configuration: String,
    files: Vec<(String, String)>,
    commands: Vec<(String, String)>,
}

fn examples(page: &str) -> Vec<Example> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{page}.md"));
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
            // A file that is named beside its language.
            file if file.starts_with("json ") || file.starts_with("toml ") => {
                let name = file.split_once(' ').unwrap().1.to_owned();
                if examples.is_empty() {
                    examples.push(Example::default());
                }
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

/// The programs that run for an example.
enum Stage {
    /// A directory with its files.
    Files(Home),
    /// Applications, and Offramp before them.
    Proxy(Vec<Server>, Instance),
}

impl Stage {
    fn home(&self) -> &Home {
        match self {
            Self::Files(home) => home,
            Self::Proxy(_, instance) => &instance.home,
        }
    }

    /// The command as it is run here: directories and ports of the machine are those of the test.
    fn here(&self, line: &str) -> String {
        let line = in_home(line.strip_prefix("sudo ").unwrap_or(line));
        let Self::Proxy(_, instance) = self else { return line };
        let ca = instance.home.file("state/ca/ca.pem");
        if line.contains(METRICS) {
            let line = line.replace("curl ", "curl -q --silent --noproxy '*' ");
            return line.replace(METRICS, &instance.metrics().to_string());
        }
        if !line.contains("curl ") {
            return line;
        }
        let listener = if line.contains("http://") { "plain" } else { "default" };
        let port = instance.address_of(listener).port();
        let curl = format!(
            "curl -q --silent --show-error --noproxy '*' --cacert {} --connect-to ::127.0.0.1:{port} ",
            ca.display()
        );
        line.replacen("curl ", &curl, 1)
    }

    /// Runs a command, again while it may not have all to say yet.
    fn run(&self, line: &str, expected: &str) {
        let command = self.here(line);
        // Requests and changes count: only what looks is asked again.
        let acts = ["https://", "http://example.org", " apply "].iter().any(|word| line.contains(word));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = ask(shell(self.home(), &command), b"", PATIENCE);
            let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
            if is_like(&said, expected) {
                return;
            }
            let complaint = String::from_utf8_lossy(&output.stderr);
            let is_late = acts || Instant::now() >= deadline;
            assert!(!is_late, "{line}\n{said}{complaint}instead of\n{expected}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The address of the metrics in the pages.
const METRICS: &str = "127.0.0.1:9902";

/// The text with the directories of the machine in the home of a test.
fn in_home(text: &str) -> String {
    ["/etc/offramp/", "/var/log/offramp/", "/var/lib/offramp/"]
        .iter()
        .fold(text.to_owned(), |text, folder| text.replace(folder, ""))
}

/// A shell in the home, with the binary under test as `offramp`; that says what it has to say in one stream.
fn shell(home: &Home, command: &str) -> Command {
    let binary = offramp(home.path(), &[]);
    let folder = Path::new(binary.get_program()).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path))).unwrap();
    let mut shell = Command::new("sh");
    let both = if command.starts_with("offramp ") { " 2>&1" } else { "" };
    shell.arg("-c").arg(format!("{{ {command}\n}}{both}")).current_dir(home.path()).env("PATH", path);
    shell.env("HOME", home.path()).env("NO_COLOR", "1").env("TZ", "UTC");
    shell
}

/// Starts what the configuration names: applications on Unix sockets, and Offramp on free ports.
fn start(Example { configuration, files, .. }: &Example) -> Stage {
    let home = Home::new();
    for (name, text) in files {
        fs::write(home.file(name), text).unwrap();
    }
    if configuration.is_empty() {
        return Stage::Files(home);
    }
    // An authority of others, and one of its servers, which does not answer.
    fs::copy(home.ca.certificate(), home.file("idp-ca.pem")).unwrap();
    let text = in_home(configuration).replace("user = \"offramp\"\n", "").replace(METRICS, "127.0.0.1:0");
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
    Stage::Proxy(servers.collect(), home.run(&text))
}

/// Returns `true` if `said` is `expected`, where `…` stands for anything within a line; empty lines at the end do not
/// count.
pub(crate) fn is_like(said: &str, expected: &str) -> bool {
    let (said, expected) = (said.trim_end(), expected.trim_end());
    let like = |(said, expected): (&str, &str)| {
        let mut parts: Vec<&str> = expected.split('…').collect();
        let last = parts.pop().unwrap_or_default();
        if parts.is_empty() {
            return said == last;
        }
        let Some(mut rest) = said.strip_prefix(parts.remove(0)) else { return false };
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    };
    said.lines().count() == expected.lines().count() && said.lines().zip(expected.lines()).all(like)
}

#[test]
fn the_page_on_http_says_what_happens() {
    let pages =
        ["how-to/http", "how-to/headers", "how-to/balancing", "how-to/grpc-and-websocket", "reference/http"];
    let (configurations, commands) = run(&pages);
    assert!(configurations >= 6 && commands >= 13, "{configurations} configurations, {commands} commands");
}

#[test]
fn the_page_on_access_says_what_happens() {
    let pages = ["access", "paths", "networks", "passwords", "tokens", "authentication-servers"];
    let (configurations, commands) = run(&pages.map(|page| format!("how-to/{page}")));
    assert!(configurations >= 6 && commands >= 10, "{configurations} configurations, {commands} commands");
}

#[test]
fn the_page_on_compression_says_what_happens() {
    let (configurations, commands) = run(&["how-to/compression"]);
    assert!(configurations >= 1 && commands >= 3, "{configurations} configurations, {commands} commands");
}

#[test]
fn the_page_on_canaries_says_what_happens() {
    let (configurations, commands) = run(&["how-to/canary"]);
    assert!(configurations >= 2 && commands >= 5, "{configurations} configurations, {commands} commands");
}

#[test]
fn the_pages_by_symptom_say_what_happens() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages: Vec<String> = names.map(|name| format!("operate/{}", name.trim_end_matches(".md"))).collect();
    let (configurations, commands) = run(&pages);
    assert!(configurations >= 8 && commands >= 30, "{configurations} configurations, {commands} commands");
}

#[test]
fn the_pages_to_begin_with_say_what_happens() {
    let (configurations, commands) = run(&["start/real-name", "start/first-errors", "hardening"]);
    assert!(configurations >= 3 && commands >= 4, "{configurations} configurations, {commands} commands");
}

/// Runs the examples of pages, and gives how many configurations and commands there were.
fn run<Page: AsRef<str>>(pages: &[Page]) -> (usize, usize) {
    let (mut configurations, mut commands) = (0, 0);
    // What has no listener is a part of a configuration.
    let is_whole =
        |example: &Example| !example.commands.is_empty() || example.configuration.contains("[[listener]]");
    for example in pages.iter().flat_map(|page| examples(page.as_ref())).filter(is_whole) {
        configurations += 1;
        let stage = start(&example);
        for (line, expected) in &example.commands {
            commands += 1;
            stage.run(line, expected);
        }
        if let Stage::Proxy(apps, instance) = stage {
            instance.stop();
            drop(apps);
        }
    }
    (configurations, commands)
}

/// Each entry of the list on the page is tried: what is supported by now has no place there.
#[test]
fn what_the_page_calls_unsupported_is_so() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/http.md");
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
    assert_eq!(get(&instance, &upgrade, "https://localhost/").status(), 501);
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
