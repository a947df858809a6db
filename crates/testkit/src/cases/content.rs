//! What is inside of a record that opens: its content type, in both places where it stands.

use super::Outcome::{Alert, Closed, Continues};
use super::{BOTH, Case, NO_ALERT, Outcome, TLS12, TLS13};
use crate::tls_client::wire::alert::{
    BAD_RECORD_MAC, DECODE_ERROR, PROTOCOL_VERSION, RECORD_OVERFLOW, UNEXPECTED_MESSAGE,
};
use crate::tls_client::wire::{MAX_PLAINTEXT, VERSION_12, content, record};
use crate::tls_client::{Seal, Version};

const INNER: (&str, &[Version]) = ("RFC 8446 §5.4", TLS13);
const TYPES: (&str, &[Version]) = ("RFC 8446 §5", TLS13);
const UNKNOWN: &str = "rustls answers decode_error to a content type that it does not know";

/// For a header that no record of TLS has: `unexpected_message` as the RFCs have it, `decode_error` of
/// those who stop at the header, or `bad_record_mac` of those who open first.
const FOREIGN: &[Outcome] = &[Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR), Alert(BAD_RECORD_MAC)];

pub(super) fn cases() -> Vec<Case> {
    [inner(), plain_after_handshake(), outer_type(), versions()].into_iter().flatten().collect()
}

fn inner() -> Vec<Case> {
    let mut cases = vec![
        Case::established("an empty inner plaintext", INNER, &[Alert(UNEXPECTED_MESSAGE)], |s| {
            s.send(&Seal::bare(b""))
        })
        .rustls(Closed, NO_ALERT),
        Case::established(
            "an inner plaintext of 2^14 + 2 zeros",
            INNER,
            &[Alert(RECORD_OVERFLOW), Alert(UNEXPECTED_MESSAGE)],
            |s| s.send(&Seal::bare(&[0; MAX_PLAINTEXT + 2])),
        ),
        Case::established("a sealed change_cipher_spec", TYPES, &[Alert(UNEXPECTED_MESSAGE)], |s| {
            s.send(&Seal::new(content::CHANGE_CIPHER_SPEC, &[1]))
        }),
        Case::established(
            "a sealed handshake record without content",
            INNER,
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| s.send(&Seal::handshake(b"")),
        )
        .rustls(Continues, "rustls counts it with other empty records, and allows 32 in a row"),
        Case::established(
            "a sealed handshake record of padding alone",
            INNER,
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| s.send(&Seal::handshake(b"").padding(100)),
        )
        .rustls(Continues, "rustls counts it with other empty records, and allows 32 in a row"),
    ];
    for length in [1, 2, 100, MAX_PLAINTEXT + 1] {
        let name = format!("an inner plaintext of {length} zeros");
        let zeros = move |s: &mut super::Session| s.send(&Seal::bare(&vec![0; length]));
        cases.push(
            Case::established(name, INNER, &[Alert(UNEXPECTED_MESSAGE)], zeros).rustls(Closed, NO_ALERT),
        );
    }
    for kind in [1, 19, content::HEARTBEAT, 25, 99, 255] {
        let name = format!("a sealed record of content type {kind}");
        let case = Case::established(name, TYPES, &[Alert(UNEXPECTED_MESSAGE)], move |s| {
            s.send(&Seal::new(kind, b"content"))
        });
        cases.push(case.rustls(Alert(DECODE_ERROR), UNKNOWN));
        // In TLS 1.2 the type stands in the header.
        let name = format!("a sealed record of content type {kind}, in TLS 1.2");
        cases.push(Case::established(name, ("RFC 5246 §6", TLS12), FOREIGN, move |s| {
            s.send(&Seal::new(kind, b"content"))
        }));
    }
    cases
}

/// Records without protection where there are keys. In TLS 1.3 their type tells; in TLS 1.2 they are
/// records that do not open.
fn plain_after_handshake() -> Vec<Case> {
    let kinds: [(&str, u8, &'static [u8]); 3] = [
        ("alert (fatal)", content::ALERT, &[2, 80]),
        ("alert (close_notify)", content::ALERT, &[1, 0]),
        ("handshake message (KeyUpdate)", content::HANDSHAKE, &[24, 0, 0, 1, 0]),
    ];
    let mut cases = Vec::new();
    for (what, kind, body) in kinds {
        let perform = move |s: &mut super::Session| s.client.write_plain(kind, body);
        let name = format!("an unprotected {what} after the handshake");
        let expect = [Alert(UNEXPECTED_MESSAGE)];
        cases.push(
            Case::established(name.clone(), TYPES, &expect, perform)
                .rustls(Alert(BAD_RECORD_MAC), "rustls tries to open it, and looks at the type afterwards"),
        );
        let rule: (&str, &[Version]) = ("RFC 5246 §6.2.3.3", TLS12);
        let expect = [Alert(BAD_RECORD_MAC), Alert(UNEXPECTED_MESSAGE)];
        cases.push(Case::established(format!("{name}, in TLS 1.2"), rule, &expect, perform));
    }
    cases.push(Case::established(
        "an unprotected data record after the handshake",
        ("RFC 8446 §5.2", BOTH),
        &[Alert(BAD_RECORD_MAC)],
        |s| s.client.write_plain(content::APPLICATION_DATA, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    ));
    cases
}

/// The content type of the header, which is always 23 in TLS 1.3.
fn outer_type() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [content::ALERT, content::HANDSHAKE] {
        let name = format!("a data record that is sealed under the outer content type {kind}");
        cases.push(Case::established(
            name,
            ("RFC 8446 §5.2", TLS13),
            &[Alert(UNEXPECTED_MESSAGE), Alert(BAD_RECORD_MAC)],
            move |s| s.send(&Seal::data(b"data").outer_type(kind)),
        ));
    }
    for kind in [0, 19, content::HEARTBEAT, 25, 71, 255] {
        let name = format!("a record of the outer content type {kind}");
        cases.push(Case::established(name, ("RFC 8446 §5, RFC 5246 §6", BOTH), FOREIGN, move |s| {
            s.raw(&record(kind, VERSION_12, &[0; 40]))
        }));
    }
    cases
}

/// The version of the header: without a meaning in TLS 1.3 (but authenticated), fixed in TLS 1.2.
fn versions() -> Vec<Case> {
    let mut cases = Vec::new();
    for version in [[3, 0], [3, 1], [3, 2], [3, 4], [3, 255]] {
        let shown = u16::from_be_bytes(version);
        let free = [Continues, Alert(BAD_RECORD_MAC), Alert(PROTOCOL_VERSION), Alert(DECODE_ERROR)];
        let name = format!("a data record with the version {shown:#06x} in its header");
        let rule: (&str, &[Version]) = ("RFC 8446 §5.1, RFC 5246 §6.2.1", BOTH);
        cases.push(Case::established(name, rule, &free, move |s| {
            s.echoed(b"data", &Seal::data(b"data").version(version))
        }));
        let name = format!("a data record with the version {shown:#06x} in its header, 0x0303 authenticated");
        cases.push(Case::established(name, rule, &free, move |s| {
            let seal = Seal::data(b"data").version(version).authenticated_version(VERSION_12);
            s.echoed(b"data", &seal)
        }));
    }
    for version in [[0, 0], [2, 3], [4, 3], [255, 255]] {
        let shown = u16::from_be_bytes(version);
        let name = format!("a data record with the major version of {shown:#06x}");
        let refused = [Alert(DECODE_ERROR), Alert(PROTOCOL_VERSION), Alert(BAD_RECORD_MAC)];
        cases.push(Case::established(name, ("RFC 8446 §5.1", BOTH), &refused, move |s| {
            s.send(&Seal::data(b"data").version(version))
        }));
    }
    cases
}
