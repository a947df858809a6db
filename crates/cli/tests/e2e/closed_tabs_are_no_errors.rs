//! A tab that is closed ends WebSockets and event streams, over both versions of HTTP. That is no error, and how long they
//! were open says nothing of the server; a response that breaks off is one.

use std::io::Write as _;
use std::time::Duration;

use h2::ext::Protocol;
use offramp_testkit::process::Signal;

use crate::http_websockets_pass_over_both_versions::head;
use crate::support::crowd::{connect, trusting};
use crate::support::http_curl::HTTP;
use crate::support::http_h2;
use crate::support::http_node::node;
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, cause, text};
use crate::support::logs_desk::{answer, rows, until};

/// Begins whatever is asked for and never ends it.
const APPLICATION: &str = r#"
const http = require('http'), crypto = require('crypto');
const kinds = {
  '/events': 'text/event-stream; charset=utf-8', '/camera': 'multipart/x-mixed-replace; boundary=b', '/report': 'text/plain',
};
const server = http.createServer((request, response) => {
  const kind = kinds[request.url];
  response.writeHead(kind ? 200 : 404, { 'content-type': kind ?? 'text/plain' });
  if (kind) response.write('half of it'); else response.end();
});
server.on('upgrade', (request, socket) => {
  const key = request.headers['sec-websocket-key'];
  const accept = crypto.createHash('sha1').update(key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.on('error', () => {}).resume();
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
    `Sec-WebSocket-Accept: ${accept}\r\n\r\n`);
});
server.listen('app.sock');
"#;

const PATHS: [&str; 4] = ["/socket", "/events", "/camera", "/report"];

fn over_http_1(instance: &Instance, path: &str) {
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    let upgrade = match path {
        "/socket" => {
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        }
        _ => "",
    };
    write!(tls, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n").unwrap();
    let head = head(&mut tls);
    assert!(head.starts_with("http/1.1 101 ") || head.starts_with("http/1.1 200 "), "{path}: {head}");
    // The tab is closed.
    drop(tls);
}

fn over_http_2(instance: &Instance, path: &str) {
    let config = trusting(&instance.home.ca.certificate());
    http_h2::run(async {
        let mut sender = http_h2::connect(&config, instance.address()).await.unwrap().ready().await.unwrap();
        while !sender.is_extended_connect_protocol_enabled() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let url = format!("https://localhost{path}");
        let request = match path {
            "/socket" => http::Request::connect(url)
                .version(http::Version::HTTP_2)
                .header("sec-websocket-version", "13")
                .extension(Protocol::from_static("websocket")),
            _ => http::Request::get(url),
        };
        let (response, mut stream) =
            sender.send_request(request.body(()).unwrap(), path != "/socket").unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        stream.send_reset(h2::Reason::CANCEL);
        // The connection goes on, as that of a browser does.
        let (beside, _) = sender
            .send_request(http::Request::get("https://localhost/none").body(()).unwrap(), true)
            .unwrap();
        assert_eq!(beside.await.unwrap().status(), 404);
    });
}

#[test]
fn closed_tabs_are_told_from_responses_that_break_off() {
    for (version, leave) in
        [("HTTP/1.1", over_http_1 as fn(&Instance, &str)), ("HTTP/2.0", over_http_2 as fn(&Instance, &str))]
    {
        let home = Home::new();
        let _application = node(&home, APPLICATION);
        let instance = home.run(&format!(
            "{CERTIFICATE}{HTTP}[log_store]\nurl = \"sqlite:access.db\"\n[[route]]\nserver = \"unix:app.sock\"\n"
        ));
        for path in PATHS {
            leave(&instance, path);
            let event = instance.event(path, |event| text(event, "path") == path);
            let expected = if path == "/report" { "client_aborted" } else { "client_left" };
            assert_eq!((cause(&event), text(&event, "protocol")), (expected, version), "{event}");
            let (method, status) = (text(&event, "method"), event["status"].as_u64());
            let expected = if path == "/socket" { 101 } else { 200 };
            assert_eq!((method, status), ("GET", Some(expected)), "{event}");
        }
        let home = instance.home.path();
        until(home, &["query", "SELECT count(*) AS n FROM requests WHERE path <> '/none'"], |rows| {
            rows[0]["n"] == 4
        });
        let errors = rows(home, &["top", "errors"]);
        let pages: Vec<&str> =
            errors.iter().filter_map(|row| row["page"].as_str()).filter(|page| *page != "/none").collect();
        assert_eq!(pages, ["/report"], "{version}");
        assert!(errors.iter().any(|row| row["cause"] == "client_aborted"), "{errors:?}");
        let slow = rows(home, &["top", "slow"]);
        let listed = |page: &str| slow.iter().any(|row| row["page"] == page);
        assert_eq!(PATHS.map(listed), [false, false, false, true], "{version}: {slow:?}");
        instance.process.signal(Signal::TERM).unwrap();
        instance.process.wait(PATIENCE).unwrap();
        let tail =
            answer(home, &["query", "SELECT path, cause FROM requests WHERE cause IS NOT NULL", "--csv"]);
        assert_eq!(tail, "path,cause\r\n/report,client_aborted\r\n", "{version}");
    }
}
