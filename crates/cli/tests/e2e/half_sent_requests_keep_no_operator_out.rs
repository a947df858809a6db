//! Clients of the admin interface that send half of a request, and as many as it has places for: operators are served.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use offramp_testkit::process::Source;

use crate::open_connections_are_shown_and_closed::ctl;
use crate::support::instance::{Home, PATIENCE};
use crate::support::offramp::{output, stderr, stdout};

const WEB: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
    [[route]]\nrespond = { body = \"hello\" }\n";

#[test]
fn half_sent_requests_keep_no_operator_out() {
    let instance = Home::new().run(&format!("[admin]\naddress = \"unix:admin.sock\"\n{WEB}"));
    let begun = Instant::now();
    let half = || {
        let mut stream = UnixStream::connect(instance.home.file("admin.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // One that is refused or had to go at once is as good.
        let _ = stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\nx-more");
        stream
    };
    // More than there are places, of the user who asks.
    let mut all: Vec<UnixStream> = (0..300).map(|_| half()).collect();
    let status = ctl(&instance, &["status"]);
    assert!(status.status.success(), "{}", stderr(&status));
    assert!(stdout(&status).contains("configuration  version 1"), "{}", stdout(&status));
    // Who made room is told, once.
    let told = || -> Vec<String> {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().filter(|line| line.contains("the admin interface closes a connection")).collect()
    };
    let line = instance.until("the log says who fills the places", || told().into_iter().next());
    assert!(line.contains("uid ") && line.contains("open=64"), "{line}");
    // The rest goes, because a first head has ten seconds.
    let mut byte = [0];
    for stream in &mut all {
        assert!(!matches!(stream.read(&mut byte), Ok(1..)));
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(9) && took < Duration::from_secs(50), "{took:?}");
    // A connection that has asked is kept for longer than that.
    let mut kept = half();
    kept.write_all(b": y\r\n\r\n").unwrap();
    let mut answer = [0; 4096];
    assert!(kept.read(&mut answer).unwrap() > 100 && answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    kept.set_read_timeout(Some(Duration::from_secs(12))).unwrap();
    loop {
        match kept.read(&mut answer) {
            Ok(0) => panic!("a connection that waits for its next request has a minute"),
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert_eq!(told().len(), 1);
    instance.stop();
}

#[test]
fn whoever_has_no_token_keeps_nobody_out_who_has_one() {
    let home = Home::new();
    fs::write(home.file("token"), "0123456789abcdef\n").unwrap();
    let instance = home.run(&format!(
        "[admin]\naddress = \"127.0.0.1:0\"\ntoken_file = \"token\"\n[log_store]\nurl = \"sqlite:access.db\"\n{WEB}"
    ));
    let address: SocketAddr = instance.until("the log says where", || {
        let lines = instance.process.lines(Source::Stderr);
        let line = lines.iter().find(|line| line.contains(" admin "))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.trim_matches('"').parse().ok()
    });
    // More than one address has places for: a whole head, and half of a body.
    let half = || {
        let mut stream = TcpStream::connect(address).unwrap();
        // One that had to go at once is as good.
        let _ = stream.write_all(b"POST /grafana/query HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{");
        stream
    };
    let mut all: Vec<TcpStream> = (0..70).map(|_| half()).collect();
    // The first had to go: so many are open as may be.
    all[0].set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(!matches!(all[0].read(&mut [0]), Ok(1..)));
    let words = ["ctl", "--admin", &address.to_string(), "--token-file", "token", "status"];
    let status = output(instance.home.path(), &words);
    assert!(status.status.success(), "{}", stderr(&status));
    instance.stop();
}
