//! Chromium with a page that fetches, listens to server-sent events, and talks by WebSocket, which goes
//! over the HTTP/2 connection that is there (RFC 8441). The application is Node.js on a Unix socket.

use std::fs;
use std::path::Path;
use std::process::Command;

use offramp_testkit::process::{Process, require};
use serde_json::Value;

use crate::chromium_uses_an_application::trust;
use crate::support::http_curl::HTTP;
use crate::support::http_node;
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, cause, text};

/// Posts all that it has lived through.
const PAGE: &str = r#"<!doctype html><meta charset=utf-8><title>All of it</title><script>
const fetched = async () => {
  const body = 'x'.repeat(300000);
  const answers = await Promise.all(Array.from({ length: 20 }, (_, number) =>
    fetch('/echo', { method: 'POST', body: body + number }).then(answer => answer.text())));
  return answers.every((answer, number) => answer === body + number) ? answers.length : 'wrong';
};
const listened = () => new Promise((done, failed) => {
  const source = new EventSource('/events'), heard = [];
  source.onerror = () => failed(new Error('events'));
  source.addEventListener('tick', event => {
    if (heard.push(event.lastEventId + ':' + event.data) === 5) { source.close(); done(heard.join()); }
  });
});
const talked = () => new Promise((done, failed) => {
  const socket = new WebSocket('wss://' + location.host + '/socket'), heard = [];
  socket.binaryType = 'arraybuffer';
  socket.onerror = () => failed(new Error('socket'));
  // One after the other: of messages that are sent at once over HTTP/2, Chromium 156 now and then keeps the last
  // to itself, whatever server it talks to. Bursts are in the tests of frames.
  const messages = ['text', new Uint8Array(70000).fill(7), ''];
  socket.onopen = () => socket.send(messages[0]);
  socket.onmessage = event => {
    const bytes = typeof event.data === 'string' ? null : new Uint8Array(event.data);
    heard.push(bytes ? bytes.length + '*' + bytes[69999] : event.data);
    if (heard.length === 3) socket.close(4321, 'done'); else socket.send(messages[heard.length]);
  };
  socket.onclose = event => done(heard.join() + ' ' + event.code + ' ' + event.reason + ' ' + event.wasClean);
});
(async () => {
  const told = {};
  for (const [name, what] of Object.entries({ fetched, listened, talked })) {
    told[name] = await what().catch(String);
  }
  told.protocol = performance.getEntriesByType('navigation')[0].nextHopProtocol;
  await fetch('/report', { method: 'POST', body: JSON.stringify(told) });
})();
</script>"#;

#[test]
fn chromium_fetches_listens_and_talks() {
    let home = Home::new();
    fs::write(home.file("page.html"), PAGE).unwrap();
    let application = http_node::start(&home);
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    let told: Value = serde_json::from_str(&browse(&instance, &application)).unwrap();
    assert_eq!(told["fetched"], 20, "{told}");
    assert_eq!(told["listened"], "1:number 1,2:number 2,3:number 3,4:number 4,5:number 5", "{told}");
    assert_eq!(told["talked"], "text,70000*7, 4321 done true", "{told}");
    assert_eq!(told["protocol"], "h2", "{told}");

    let socket = instance.event("the WebSocket", |event| text(event, "path") == "/socket");
    assert_eq!((text(&socket, "method"), text(&socket, "protocol")), ("GET", "HTTP/2.0"), "{socket}");
    assert_eq!((socket["status"].as_u64(), cause(&socket)), (Some(101), "completed"), "{socket}");
    assert!(socket["bytes_from_client"].as_u64().unwrap() > 70_000, "{socket}");
    let listened = instance
        .event("the events that were not listened to any more", |event| text(event, "path") == "/events");
    assert_eq!((cause(&listened), &listened["fault"]), ("client_left", &"nobody".into()), "{listened}");
    let events = instance.stop();
    let failed = |event: &&Value| event["status"].as_u64().is_some_and(|status| status >= 500);
    assert!(!events.iter().any(|event| failed(&event)), "{events:?}");
}

/// Has the browser open the page, and gives what the page told. On a busy machine Chromium sometimes starts and
/// opens nothing at all; it is started anew then, but not once it has asked for anything.
fn browse(instance: &Instance, application: &Process) -> String {
    for attempt in 0..4 {
        let browser = instance.home.file(&format!("browser-{attempt}"));
        trust(&browser, &instance.home.ca.certificate());
        let chromium = Process::start(chromium(instance, &browser), LIFE).unwrap();
        if let Some(told) = http_node::report(application) {
            return told;
        }
        let events = instance.events();
        assert!(events.is_empty(), "the page never told: {events:?}\n{}", chromium.transcript());
    }
    panic!("Chromium asked for nothing in four attempts");
}

pub(crate) fn chromium(instance: &Instance, browser: &Path) -> Command {
    let mut chromium = Command::new(require("chromium", "chromium"));
    chromium.env("HOME", browser).env_remove("XDG_CONFIG_HOME").current_dir(browser);
    // Containers have neither the namespaces nor the shared memory that it would like.
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    chromium.args(["--no-first-run", "--disable-background-networking", "--disable-quic"]);
    // Without one of these it ends as soon as the page is there.
    chromium.arg("--remote-debugging-port=0");
    chromium.arg(format!("--user-data-dir={}", browser.join("profile").display()));
    chromium.arg(format!("https://localhost:{}/", instance.address().port()));
    chromium
}
