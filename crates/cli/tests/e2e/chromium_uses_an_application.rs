//! A browser uses an application that knows nothing of TLS: Python's file server on a Unix socket, with a
//! page that needs a style sheet and a script, which fetches more. Without the CA the browser refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, require};
use serde_json::Value;

use crate::support::instance::{Home, Instance, LIFE, PATIENCE, ask, cause, text};

/// Serves the files of the directory `site` on the Unix socket `app.sock`.
const APPLICATION: &str = r#"
import http.server, socket, socketserver

class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def __init__(self, *arguments):
        super().__init__(*arguments, directory="site")
    def address_string(self):
        return "unix"

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

Server("app.sock", Handler).serve_forever()
"#;

const SITE: [(&str, &str); 4] = [
    (
        "index.html",
        "<!doctype html><meta charset=utf-8><title>Real</title><link rel=stylesheet href=style.css>\
         <h1>From a file</h1><p id=told>nothing yet</p><script src=app.js></script>",
    ),
    ("style.css", "h1 { color: rgb(1, 2, 3) }"),
    (
        "app.js",
        "const colour = () => getComputedStyle(document.querySelector('h1')).color;\
         fetch('data.json').then(answer => answer.json()).then(data => {\
         document.querySelector('#told').textContent =\
         data.length + ' items, ' + colour() + ', ' + location.protocol + ', ' + isSecureContext; });",
    ),
    ("data.json", "[1, 2, 3, 4, 5, 6, 7]"),
];

/// The application and Offramp before it; a browser has its home there too.
fn served() -> (Process, Instance) {
    let home = Home::new();
    fs::create_dir(home.file("site")).unwrap();
    for (name, content) in SITE {
        fs::write(home.file("site").join(name), content).unwrap();
    }
    let mut python = Command::new(require("python3", "python3"));
    python.args(["-c", APPLICATION]).current_dir(home.path());
    let application = Process::start(python, LIFE).unwrap();
    application.wait_for(&Ready::Unix(home.file("app.sock")), PATIENCE).unwrap();
    (application, home.run(&Home::one_route("unix:app.sock")))
}

/// Has the browser show the page of the application, with a fresh profile whose home is at `home`.
fn browse(instance: &Instance, home: &Path) -> Output {
    let mut chromium = Command::new(require("chromium", "chromium"));
    chromium.env("HOME", home).env_remove("XDG_CONFIG_HOME").current_dir(home);
    // Containers have neither the namespaces nor the shared memory that it would like.
    chromium.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    ]);
    chromium.args(["--disable-background-networking", "--disable-quic", "--virtual-time-budget=10000"]);
    chromium.arg(format!("--user-data-dir={}", home.join("profile").display())).arg("--dump-dom");
    chromium.arg(format!("https://localhost:{}/", instance.address().port()));
    ask(chromium, b"", Duration::from_secs(90))
}

/// Makes the CA one that the browser trusts, as `offramp ca` says.
pub(crate) fn trust(home: &Path, ca: &Path) {
    let database = home.join(".pki/nssdb");
    fs::create_dir_all(&database).unwrap();
    fs::set_permissions(&database, fs::Permissions::from_mode(0o700)).unwrap();
    let certutil = |arguments: &[&str]| {
        let mut command = Command::new(require("certutil", "libnss3-tools"));
        command.arg("-d").arg(format!("sql:{}", database.display())).args(arguments);
        let output = ask(command, b"", PATIENCE);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    certutil(&["-N", "--empty-password"]);
    certutil(&["-A", "-t", "C,,", "-n", "Test CA", "-i", &ca.display().to_string()]);
}

#[test]
fn chromium_uses_an_application() {
    let (_application, instance) = served();
    let browser = instance.home.file("browser");
    trust(&browser, &instance.home.ca.certificate());
    let shown = browse(&instance, &browser);
    let page = String::from_utf8_lossy(&shown.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.status.success(), "{complaint}");
    for part in ["<title>Real</title>", "From a file", "7 items, rgb(1, 2, 3), https:, true"] {
        assert!(page.contains(part), "{part} in {page}\n{complaint}");
    }
    let events = instance.stop();
    let used = |event: &&Value| event["bytes_to_client"].as_u64().is_some_and(|bytes| bytes > 0);
    let used: Vec<_> = events.iter().filter(used).collect();
    assert!(!used.is_empty(), "{events:?}");
    for event in used {
        assert_eq!((text(event, "sni"), text(event, "tls_version")), ("localhost", "TLSv1.3"), "{event}");
        assert_eq!(text(event, "tls_group"), "X25519MLKEM768", "{event}");
    }
}

#[test]
fn chromium_refuses_a_ca_that_it_does_not_trust() {
    let (_application, instance) = served();
    let browser = instance.home.file("browser");
    fs::create_dir(&browser).unwrap();
    let shown = browse(&instance, &browser);
    let page = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(!page.contains("From a file"), "{page}");
    let refused = instance.event("a refused certificate", |event| cause(event) == "handshake_alert");
    assert_eq!(
        (text(&refused, "alert_received"), text(&refused, "fault")),
        ("certificate_unknown", "client")
    );
    let events = instance.stop();
    assert!(events.iter().all(|event| event["bytes_to_client"] == 0), "{events:?}");
}
