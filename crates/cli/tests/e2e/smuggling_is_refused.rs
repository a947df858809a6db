//! Requests that hide others, over TLS to the real binary in front of an application that keeps every byte.
//!
//! A bad one gets its refusal, its event, and not a byte of it reaches the application; where its head was
//! good and its body is not, the application never sees the end of it. A good one arrives once.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::h2_follows_rfc9113::http_instance;
use crate::support::crowd::{Tls, connect};
use crate::support::instance::{Instance, cause, text};
use crate::support::smuggling_backend::Backend;
use crate::support::smuggling_rows::{Bad, GOOD, SMUGGLED, chunks, codings, hosts, lengths, lines};

/// Sends bytes on a connection of their own and reads all that is said until it ends.
fn say(instance: &Instance, config: &Arc<ClientConfig>, bytes: &[u8]) -> (String, u16) {
    let mut tls = connect(config, instance.address(), "localhost").unwrap();
    let port = tls.sock.local_addr().unwrap().port();
    tls.write_all(bytes).unwrap();
    tls.flush().unwrap();
    (rest(&mut tls), port)
}

fn rest(tls: &mut Tls) -> String {
    let mut said = Vec::new();
    // It may end without close_notify where bytes were left unread.
    let _ = tls.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

fn hold(rows: Vec<Bad>, passes: bool) {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut wrong = Vec::new();
    for row in rows {
        let (answer, port) = say(&instance, &config, &[&row.bytes[..], SMUGGLED.as_bytes()].concat());
        let (raw, whole) = backend.take();
        let name = row.bytes.escape_ascii().to_string();
        let event = instance.event(&name, |event| event["client_port"] == port);
        let detail = text(&event, "detail").split(':').next().unwrap_or_default().to_owned();
        if !answer.starts_with(&format!("HTTP/1.1 {} ", row.status))
            || answer.matches("HTTP/1.1 ").count() != 1
        {
            wrong.push(format!("{name}: {answer:?} instead of {}", row.status));
        }
        if cause(&event) != "bad_request" || detail != format!("http1_{}", row.fault) {
            wrong.push(format!("{name}: {} {detail} instead of {}", cause(&event), row.fault));
        }
        let leaked = !whole.is_empty() || !passes && !raw.is_empty();
        if leaked || raw.windows(9).any(|bytes| bytes == b"/smuggled") {
            wrong.push(format!("{name}: the application got {}", raw.escape_ascii()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    instance.stop();
}

#[test]
fn lengths_have_one_form() {
    hold(lengths(), false);
}

#[test]
fn transfer_codings_have_one_form() {
    hold(codings(), false);
}

#[test]
fn hosts_have_one_form() {
    hold(hosts(), false);
}

#[test]
fn lines_have_one_form() {
    hold(lines(), false);
}

#[test]
fn chunks_have_one_form() {
    hold(chunks(), true);
}

#[test]
fn what_has_one_reading_arrives_once() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    for row in GOOD {
        let last = "GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        // Whole, and byte by byte.
        for step in [row.bytes.len(), 1] {
            let mut tls = connect(&config, instance.address(), "localhost").unwrap();
            for part in row.bytes.as_bytes().chunks(step).chain([last.as_bytes()]) {
                tls.write_all(part).unwrap();
                tls.flush().unwrap();
            }
            let answers = rest(&mut tls);
            assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{:?}: {answers:?}", row.bytes);
            let (raw, whole) = backend.take();
            assert_eq!(whole.len(), 2, "{:?}: {whole:?}", row.bytes);
            assert_eq!(whole[0].plain_head(), row.head, "{:?}", row.bytes);
            assert!(whole[1].head.starts_with("GET /last "));
            assert_eq!(raw.len(), whole.iter().map(|one| one.head.len() + one.body.len()).sum::<usize>());
            let body = String::from_utf8(whole[0].body.clone()).unwrap();
            assert_eq!(unchunked(&body), unchunked(row.body), "{:?}", row.bytes);
            if step > 1 {
                assert_eq!(body, row.body, "{:?}", row.bytes);
            }
        }
    }
    instance.stop();
}

/// The content of chunks: how they are cut is nobody's business.
fn unchunked(body: &str) -> String {
    let mut content = String::new();
    let mut rest = body;
    while let Some((size, more)) = rest.split_once("\r\n")
        && let Ok(size) = usize::from_str_radix(size, 16)
        && let Some(part) = more.get(..size)
    {
        content.push_str(part);
        rest = more[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    if content.is_empty() { body.to_owned() } else { content }
}

/// A client that stops in the middle leaves nothing behind that a later one completes.
#[test]
fn what_is_cut_short_is_not_completed_by_others() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let whole =
        format!("POST /cut HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", SMUGGLED.len() + 40);
    for cut in [10, 30, whole.len(), whole.len() + 20] {
        let mut tls = connect(&config, instance.address(), "localhost").unwrap();
        tls.write_all(&[whole.as_bytes(), &[b'x'; 40]].concat()[..cut]).unwrap();
        tls.flush().unwrap();
        tls.sock.shutdown(Shutdown::Both).unwrap();
        let (answer, _) =
            say(&instance, &config, b"GET /next HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with("ok"), "{answer}");
        let (_, requests) = backend.take();
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert!(requests[0].head.starts_with("GET /next "), "{requests:?}");
    }
    instance.stop();
}
