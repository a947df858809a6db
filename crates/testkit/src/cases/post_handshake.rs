//! Handshake messages that a TLS 1.3 server never gets after the handshake (RFC 8446 §4.6).

use super::Outcome::{Alert, Closed};
use super::{Case, NO_ALERT, TLS13};
use crate::tls_client::wire::alert::{BAD_RECORD_MAC, DECODE_ERROR, UNEXPECTED_MESSAGE};
use crate::tls_client::wire::{content, handshake, message};
use crate::tls_client::{Seal, Version};

const AFTER: (&str, &[Version]) = ("RFC 8446 §4, §4.6", TLS13);

pub(super) fn cases() -> Vec<Case> {
    let mut cases = whole();
    cases.extend(in_pieces());
    cases.extend(every_type());
    cases
}

fn whole() -> Vec<Case> {
    vec![
        Case::established(
            "a sealed ClientHello after the handshake",
            AFTER,
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| {
                let hello = s.client.hello().to_vec();
                s.send(&Seal::handshake(&hello))
            },
        ),
        Case::established(
            "an unprotected ClientHello after the handshake",
            ("RFC 8446 §5", TLS13),
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| {
                let hello = s.client.hello().to_vec();
                s.client.write_plain(content::HANDSHAKE, &hello)
            },
        )
        .rustls(Alert(BAD_RECORD_MAC), "rustls tries to open it, and looks at the type afterwards"),
        Case::established("Finished once more", AFTER, &[Alert(UNEXPECTED_MESSAGE)], |s| {
            s.send(&Seal::handshake(&handshake(message::FINISHED, &[0; 32])))
        }),
        Case::established(
            "a Certificate that nobody has asked for",
            ("RFC 8446 §4.6.2", TLS13),
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| s.send(&Seal::handshake(&handshake(message::CERTIFICATE, &[0, 0, 0, 0]))),
        ),
    ]
}

fn in_pieces() -> Vec<Case> {
    vec![
        Case::established(
            "the first half of a ClientHello, then data",
            ("RFC 8446 §5.1", TLS13),
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| {
                let hello = s.client.hello().to_vec();
                s.send(&Seal::handshake(&hello[..hello.len() / 2]))?;
                s.send(&Seal::data(b"data"))
            },
        )
        .rustls(Closed, NO_ALERT),
        Case::established(
            "a handshake message of 2^24 - 1 bytes, by the record",
            AFTER,
            &[Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR)],
            |s| {
                s.send(&Seal::handshake(&[message::NEW_SESSION_TICKET, 255, 255, 255]))?;
                (0..20).try_for_each(|_| s.send(&Seal::handshake(&[0; 16_384])))
            },
        )
        .rustls(Closed, NO_ALERT),
    ]
}

fn every_type() -> Vec<Case> {
    let case = |kind: u8| {
        let name = format!("a handshake message of type {kind} and an empty body");
        let allowed = [Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR)];
        Case::established(name, AFTER, &allowed, move |s| s.send(&Seal::handshake(&handshake(kind, b""))))
    };
    // KeyUpdate is the one that may come; it has cases of its own.
    (0..=25).chain([67, 254, 255]).filter(|&kind| kind != message::KEY_UPDATE).map(case).collect()
}
