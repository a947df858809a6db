//! What only TLS 1.2 has: explicit nonces, renegotiation, records of a fixed version.

use super::Outcome::{Alert, Closed, Continues, Warned};
use super::{Case, TLS12};
use crate::tls_client::wire::alert::{
    BAD_RECORD_MAC, CLOSE_NOTIFY, DECODE_ERROR, HANDSHAKE_FAILURE, NO_RENEGOTIATION, UNEXPECTED_MESSAGE,
};
use crate::tls_client::wire::{HEADER, content, handshake, message};
use crate::tls_client::{Seal, Version};

const NONCE: (&str, &[Version]) = ("RFC 5288 §3", TLS12);
const RENEGOTIATION: (&str, &[Version]) = ("RFC 5246 §7.4.1.1, §7.2.2", TLS12);

pub(super) fn cases() -> Vec<Case> {
    [nonces(), renegotiation(), messages()].into_iter().flatten().collect()
}

/// The sender chooses its explicit nonces freely; ChaCha20 has none and only shows that data passes.
fn nonces() -> Vec<Case> {
    let with = |name: &str, nonces: Vec<[u8; 8]>| {
        Case::established(name, NONCE, &[Continues], move |s| {
            nonces.iter().try_for_each(|&nonce| s.echoed(b"data", &Seal::data(b"data").nonce(nonce)))
        })
    };
    let mut cases = vec![
        with("an explicit nonce of zeros", vec![[0; 8]]),
        with("an explicit nonce of all ones", vec![[255; 8]]),
        with("explicit nonces that count down", (0..10u64).map(|n| (u64::MAX - n).to_be_bytes()).collect()),
        with("explicit nonces without an order", [9u64, 1, 1 << 60, 3, 77].map(u64::to_be_bytes).to_vec()),
        with("the same explicit nonce again and again", vec![*b"the same"; 5]),
    ];
    let changed = ("RFC 5246 §6.2.3.3", TLS12);
    cases.push(Case::established(
        "an explicit nonce that was changed on the way",
        changed,
        &[Alert(BAD_RECORD_MAC)],
        |s| {
            let mut record = s.client.seal(&Seal::data(b"data, long enough to hold a nonce"));
            record[HEADER + 7] ^= 1;
            s.raw(&record)
        },
    ));
    cases
}

fn renegotiation() -> Vec<Case> {
    let refused = [
        Closed,
        Alert(UNEXPECTED_MESSAGE),
        Alert(NO_RENEGOTIATION),
        Alert(HANDSHAKE_FAILURE),
        Alert(CLOSE_NOTIFY),
    ];
    vec![
        Case::established(
            "a ClientHello that asks to renegotiate",
            RENEGOTIATION,
            &[Warned(NO_RENEGOTIATION)],
            |s| {
                let hello = s.client.hello().to_vec();
                s.send(&Seal::handshake(&hello))
            },
        ),
        Case::established(
            "a ClientHello that asks to renegotiate, in three records",
            RENEGOTIATION,
            &[Warned(NO_RENEGOTIATION)],
            |s| {
                let hello = s.client.hello().to_vec();
                hello.chunks(hello.len().div_ceil(3)).try_for_each(|piece| s.send(&Seal::handshake(piece)))
            },
        ),
        Case::established("a hundred ClientHellos that ask to renegotiate", RENEGOTIATION, &refused, |s| {
            let hello = s.client.hello().to_vec();
            let records: Vec<_> = (0..100).flat_map(|_| s.client.seal(&Seal::handshake(&hello))).collect();
            s.raw(&records)
        }),
        Case::established(
            "an unprotected ClientHello after the handshake",
            ("RFC 5246 §6.2.3.3", TLS12),
            &[Alert(BAD_RECORD_MAC)],
            |s| {
                let hello = s.client.hello().to_vec();
                s.client.write_plain(content::HANDSHAKE, &hello)
            },
        ),
    ]
}

/// Handshake messages that a server never gets after a TLS 1.2 handshake.
fn messages() -> Vec<Case> {
    let rule: (&str, &[Version]) = ("RFC 5246 §7.4", TLS12);
    let case = |kind: u8| {
        let name = format!("a handshake message of type {kind} and an empty body after the handshake");
        let allowed = [Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR)];
        Case::established(name, rule, &allowed, move |s| s.send(&Seal::handshake(&handshake(kind, b""))))
    };
    let mut cases: Vec<_> = [
        message::HELLO_REQUEST,
        message::SERVER_HELLO,
        message::NEW_SESSION_TICKET,
        message::CERTIFICATE,
        message::SERVER_HELLO_DONE,
        message::CERTIFICATE_VERIFY,
        message::CLIENT_KEY_EXCHANGE,
        message::FINISHED,
        message::KEY_UPDATE,
        99,
    ]
    .into_iter()
    .map(case)
    .collect();
    cases.push(Case::established(
        "a KeyUpdate, which TLS 1.2 does not have",
        rule,
        &[Alert(UNEXPECTED_MESSAGE)],
        |s| s.send(&Seal::handshake(&handshake(message::KEY_UPDATE, &[0]))),
    ));
    cases
}
