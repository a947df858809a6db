//! The first bytes of a connection: whole, in pieces, too large, and not TLS at all.

use super::Outcome::{Alert, Closed, Continues, Http400};
use super::{BOTH, Case, Outcome, Session};
use crate::Error;
use crate::tls_client::wire::alert::{
    CLOSE_NOTIFY, DECODE_ERROR, HANDSHAKE_FAILURE, ILLEGAL_PARAMETER, PROTOCOL_VERSION, RECORD_OVERFLOW,
    UNEXPECTED_MESSAGE,
};
use crate::tls_client::wire::{MAX_PLAINTEXT, VERSION_12, content, handshake, message, record};
use crate::tls_client::{Seal, Version};

const FIRST: (&str, &[Version]) = ("RFC 8446 §4.1.2, RFC 5246 §7.4.1.2", BOTH);
const FRAGMENTS: (&str, &[Version]) = ("RFC 8446 §5.1, RFC 5246 §6.2.1", BOTH);

/// Any refusal of what is no ClientHello.
const REFUSED: &[Outcome] = &[
    Alert(UNEXPECTED_MESSAGE),
    Alert(DECODE_ERROR),
    Alert(ILLEGAL_PARAMETER),
    Alert(HANDSHAKE_FAILURE),
    Alert(PROTOCOL_VERSION),
    Alert(RECORD_OVERFLOW),
    Closed,
];

pub(super) fn cases() -> Vec<Case> {
    [whole(), pieces(), malformed(), foreign(), cut_off()].into_iter().flatten().collect()
}

fn whole() -> Vec<Case> {
    let mut cases = vec![
        Case::fresh("a plain handshake", FIRST, &[Continues], Session::handshake),
        Case::fresh("a ClientHello of 12,000 bytes", FRAGMENTS, &[Continues], |s| {
            s.reconfigure(|options| options.padding = 12_000)?;
            s.handshake()
        }),
        Case::fresh("a ClientHello without a server name", FIRST, &[Continues], |s| {
            s.reconfigure(|options| options.server_name = None)?;
            s.handshake()
        }),
    ];
    for version in [[3, 0], [3, 1], [3, 2], [3, 3], [3, 4]] {
        let name = format!("a ClientHello in a record of version {:#06x}", u16::from_be_bytes(version));
        cases.push(Case::fresh(name, FRAGMENTS, &[Continues], move |s| {
            s.reconfigure(|options| options.record_version = version)?;
            s.handshake()
        }));
    }
    for version in [[0, 0], [2, 0], [4, 1], [255, 255]] {
        let name = format!("a ClientHello in a record of version {:#06x}", u16::from_be_bytes(version));
        cases.push(Case::fresh(name, FRAGMENTS, &[Alert(DECODE_ERROR), Alert(PROTOCOL_VERSION)], move |s| {
            s.reconfigure(|options| options.record_version = version)?;
            s.handshake()
        }));
    }
    cases
}

fn pieces() -> Vec<Case> {
    vec![
        Case::fresh("a ClientHello that drips in byte by byte", FRAGMENTS, &[Continues], |s| {
            let hello = record(content::HANDSHAKE, [3, 1], s.client.hello());
            hello.iter().try_for_each(|&byte| s.raw(&[byte]))?;
            go_on(s)
        }),
        Case::fresh("a ClientHello in two records", FRAGMENTS, &[Continues], |s| in_records(s, 100)),
        Case::fresh("a ClientHello in records of one byte each", FRAGMENTS, &[Continues], |s| {
            in_records(s, 1)
        }),
        Case::fresh("a ClientHello in records of three bytes each", FRAGMENTS, &[Continues], |s| {
            in_records(s, 3)
        }),
        Case::fresh("an empty handshake record before the ClientHello", FRAGMENTS, REFUSED, |s| {
            s.client.write_plain(content::HANDSHAKE, b"")?;
            s.client.send_hello()
        }),
        Case::fresh("data between two pieces of the ClientHello", FRAGMENTS, REFUSED, |s| {
            let hello = s.client.hello().to_vec();
            s.client.write_plain(content::HANDSHAKE, &hello[..50])?;
            s.client.write_plain(content::APPLICATION_DATA, b"data")?;
            s.client.write_plain(content::HANDSHAKE, &hello[50..])
        }),
        Case::fresh(
            "a ClientHello with the first byte of another message in its record",
            FRAGMENTS,
            REFUSED,
            |s| {
                let hello = [s.client.hello(), &[message::CLIENT_HELLO]].concat();
                s.client.write_plain(content::HANDSHAKE, &hello)?;
                go_on(s)
            },
        ),
    ]
}

fn malformed() -> Vec<Case> {
    let message = |name: &str, build: fn(&[u8]) -> Vec<u8>| {
        Case::fresh(name, FIRST, REFUSED, move |s| {
            let bytes = build(s.client.hello());
            s.client.write_plain(content::HANDSHAKE, &bytes)
        })
    };
    vec![
        message("a ClientHello with an empty body", |_| handshake(message::CLIENT_HELLO, b"")),
        message("a ClientHello without its last byte, its length corrected", |hello| {
            handshake(message::CLIENT_HELLO, &hello[4..hello.len() - 1])
        }),
        message("a ClientHello with one byte more, its length corrected", |hello| {
            handshake(message::CLIENT_HELLO, &[&hello[4..], &[0]].concat())
        }),
        message("a ClientHello of random bytes", |_| handshake(message::CLIENT_HELLO, &[0xa5; 300])),
        message("a ClientHello that claims 2^24 - 1 bytes", |hello| {
            [&[message::CLIENT_HELLO, 255, 255, 255], &hello[4..]].concat()
        }),
        message("a ServerHello instead of a ClientHello", |hello| {
            handshake(message::SERVER_HELLO, &hello[4..])
        }),
        message("a Finished instead of a ClientHello", |_| handshake(message::FINISHED, &[0; 32])),
        message("a KeyUpdate instead of a ClientHello", |_| handshake(message::KEY_UPDATE, &[0])),
        message("a handshake message of an unknown type instead of a ClientHello", |_| {
            handshake(99, b"what")
        }),
        Case::fresh("a first record over 2^14 bytes", ("RFC 8446 §5.1", BOTH), &flexible_overflow(), |s| {
            s.reconfigure(|options| options.padding = MAX_PLAINTEXT)?;
            s.client.send_hello()?;
            go_on(s)
        }),
        Case::fresh("a first record that claims 65,535 bytes", ("RFC 8446 §5.1", BOTH), REFUSED, |s| {
            s.raw(&record(content::HANDSHAKE, VERSION_12, &[message::CLIENT_HELLO; 65_535]))
        }),
    ]
}

/// An oversized but whole ClientHello: refused, or read by a server that is generous before there are
/// keys.
fn flexible_overflow() -> Vec<Outcome> {
    [REFUSED, &[Continues]].concat()
}

fn foreign() -> Vec<Case> {
    let knows_no_http = "rustls knows nothing of HTTP, and answers the unknown content type";
    let bytes = |name: &str, bytes: &'static [u8]| Case::fresh(name, FIRST, REFUSED, move |s| s.raw(bytes));
    let http = |name: &str, request: &'static [u8]| {
        Case::fresh(name, ("RFC 9110 §15.5.1", BOTH), &[Http400], move |s| s.raw(request))
            .rustls(Alert(DECODE_ERROR), knows_no_http)
    };
    let first = |name: &str, kind: u8, body: &'static [u8]| {
        Case::fresh(name, FIRST, &[REFUSED, &[Alert(CLOSE_NOTIFY)]].concat(), move |s| {
            s.client.write_plain(kind, body)
        })
    };
    vec![
        http("plain HTTP: GET", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        http("plain HTTP: POST with a body", b"POST /form HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\na=b"),
        http("plain HTTP: the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        bytes("a hundred bytes of 0xff", &[0xff; 100]),
        bytes("a hundred zeros", &[0; 100]),
        bytes("the greeting of SSH", b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"),
        bytes("a hello of SSL 2", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80\x02\x00\x80\x03\x00\x80\x04\x00\x80\x05\x00\x80\x06\x00\x40\x07\x00\xc00123456789abcdef"),
        first("data instead of a ClientHello", content::APPLICATION_DATA, b"data"),
        first("empty data instead of a ClientHello", content::APPLICATION_DATA, b""),
        first("a fatal alert instead of a ClientHello", content::ALERT, &[2, 40]),
        first("an alert of three bytes instead of a ClientHello", content::ALERT, &[2, 40, 0]),
        Case::fresh("close_notify and the end of the TCP stream instead of a ClientHello", FIRST, &[Closed], |s| {
            s.client.write_plain(content::ALERT, &[1, 0])?;
            s.shutdown()
        }),
        first("a heartbeat instead of a ClientHello", content::HEARTBEAT, &[1, 0, 0]),
    ]
}

/// The client goes away before there are keys.
fn cut_off() -> Vec<Case> {
    let mut cases =
        vec![Case::fresh("the end of the TCP stream and nothing before it", FIRST, &[Closed], |s| {
            s.shutdown()
        })];
    for length in [1, 5, 50] {
        let name = format!("{length} bytes of a ClientHello, then the end of the TCP stream");
        cases.push(Case::fresh(name, FIRST, &[Closed], move |s| {
            let hello = record(content::HANDSHAKE, [3, 1], s.client.hello());
            s.raw(&hello[..length])?;
            s.shutdown()
        }));
    }
    cases.push(Case::fresh("a ClientHello, then the end of the TCP stream", FIRST, &[Closed], |s| {
        s.client.send_hello()?;
        s.shutdown()?;
        s.client.receive_server_flight()
    }));
    cases
}

fn in_records(session: &mut Session, size: usize) -> Result<(), Error> {
    let hello = session.client.hello().to_vec();
    let records: Vec<_> =
        hello.chunks(size).flat_map(|piece| record(content::HANDSHAKE, [3, 1], piece)).collect();
    session.raw(&records)?;
    go_on(session)
}

/// The rest of the handshake, once the ClientHello is out.
fn go_on(session: &mut Session) -> Result<(), Error> {
    session.client.receive_server_flight()?;
    session.client.send_key_exchange()?;
    session.client.send_change_cipher_spec()?;
    let finished = session.client.finished();
    session.client.send(&Seal::handshake(&finished))?;
    session.client.complete(&finished)
}
