//! change_cipher_spec: a leftover in TLS 1.3 (RFC 8446 §5, §D.4), a step of the handshake in TLS 1.2.

use super::Outcome::{Alert, Closed, Continues};
use super::{BOTH, Case, Session, TLS12, TLS13};
use crate::tls_client::wire::alert::{BAD_RECORD_MAC, DECODE_ERROR, UNEXPECTED_MESSAGE};
use crate::tls_client::wire::{VERSION_12, content, record};
use crate::tls_client::{Seal, Version};

const PLACE: (&str, &[Version]) = ("RFC 8446 §5", TLS13);
const STEP: (&str, &[Version]) = ("RFC 5246 §7.1, §7.4.9", TLS12);

pub(super) fn cases() -> Vec<Case> {
    let mut cases = after_handshake();
    cases.extend(during_handshake());
    cases.extend(tls12());
    cases
}

fn after_handshake() -> Vec<Case> {
    let bodies: [(&str, &'static [u8]); 3] = [
        ("a change_cipher_spec", &[1]),
        ("a change_cipher_spec of 2", &[2]),
        ("a change_cipher_spec twice as long", &[1, 1]),
    ];
    let mut cases = Vec::new();
    for (what, body) in bodies {
        let name = format!("{what} after the handshake");
        let rule: (&str, &[Version]) = ("RFC 8446 §5, RFC 5246 §7.1", BOTH);
        // A malformed one may be reported as such.
        let expect: &[_] = if body == [1] {
            &[Alert(UNEXPECTED_MESSAGE)]
        } else {
            &[Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR)]
        };
        cases.push(Case::established(name, rule, expect, move |s| {
            s.client.write_plain(content::CHANGE_CIPHER_SPEC, body)
        }));
    }
    cases.push(Case::established(
        "an empty change_cipher_spec after the handshake",
        PLACE,
        &[Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR)],
        |s| s.client.write_plain(content::CHANGE_CIPHER_SPEC, b""),
    ));
    cases.push(Case::established(
        "a change_cipher_spec behind data in one write",
        PLACE,
        &[Alert(UNEXPECTED_MESSAGE)],
        |s| {
            let data = s.client.seal(&Seal::data(b"data"));
            s.raw(&[data, record(content::CHANGE_CIPHER_SPEC, VERSION_12, &[1])].concat())
        },
    ));
    cases
}

fn during_handshake() -> Vec<Case> {
    let before_finished = |name: &str, body: &'static [u8]| {
        Case::fresh(name, PLACE, &[Alert(UNEXPECTED_MESSAGE)], move |s| {
            s.until_finished()?;
            s.client.write_plain(content::CHANGE_CIPHER_SPEC, body)
        })
    };
    vec![
        Case::fresh("one change_cipher_spec before Finished", PLACE, &[Continues], Session::handshake),
        Case::fresh("no change_cipher_spec before Finished", PLACE, &[Continues], |s| {
            s.until_finished()?;
            s.finish()
        }),
        before_finished("a change_cipher_spec of 2 before Finished", &[2]),
        before_finished("a change_cipher_spec twice as long before Finished", &[1, 1]),
        Case::fresh(
            "an empty change_cipher_spec before Finished",
            PLACE,
            &[Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR)],
            |s| {
                s.until_finished()?;
                s.client.write_plain(content::CHANGE_CIPHER_SPEC, b"")
            },
        ),
        Case::fresh(
            "a sealed change_cipher_spec before Finished",
            PLACE,
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| {
                s.until_finished()?;
                s.send(&Seal::new(content::CHANGE_CIPHER_SPEC, &[1]))
            },
        ),
        Case::fresh("a hundred change_cipher_specs before Finished", PLACE, super::TOO_MANY, |s| {
            s.until_finished()?;
            (0..100).try_for_each(|_| s.client.send_change_cipher_spec())
        }),
        Case::fresh(
            "a change_cipher_spec before the ClientHello",
            PLACE,
            &[Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR)],
            |s| {
                s.client.send_change_cipher_spec()?;
                s.client.send_hello()
            },
        ),
        Case::fresh(
            "a change_cipher_spec between two pieces of the ClientHello",
            PLACE,
            &[Alert(UNEXPECTED_MESSAGE), Closed],
            |s| {
                let hello = s.client.hello().to_vec();
                let (first, second) = hello.split_at(hello.len() / 2);
                s.client.write_plain(content::HANDSHAKE, first)?;
                s.client.send_change_cipher_spec()?;
                s.client.write_plain(content::HANDSHAKE, second)
            },
        ),
    ]
}

fn tls12() -> Vec<Case> {
    let step =
        |name: &str, expect: &[super::Outcome], perform: fn(&mut Session) -> Result<(), crate::Error>| {
            Case::fresh(name, STEP, expect, perform)
        };
    vec![
        step(
            "Finished without a change_cipher_spec before it",
            &[Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR), Closed],
            |s| {
                s.until_finished()?;
                let finished = s.client.finished();
                s.send(&Seal::handshake(&finished))
            },
        ),
        step("a change_cipher_spec instead of the key exchange", &[Alert(UNEXPECTED_MESSAGE)], |s| {
            s.client.send_hello()?;
            s.client.receive_server_flight()?;
            s.client.send_change_cipher_spec()
        }),
        step("a change_cipher_spec of 2", &[Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR)], |s| {
            s.until_finished()?;
            s.client.write_plain(content::CHANGE_CIPHER_SPEC, &[2])
        }),
        step(
            "a second change_cipher_spec before Finished",
            &[Alert(UNEXPECTED_MESSAGE), Alert(BAD_RECORD_MAC)],
            |s| {
                s.until_finished()?;
                s.client.send_change_cipher_spec()?;
                s.client.send_change_cipher_spec()
            },
        ),
        step("data between change_cipher_spec and Finished", &[Alert(UNEXPECTED_MESSAGE)], |s| {
            s.until_finished()?;
            s.client.send_change_cipher_spec()?;
            s.send(&Seal::data(b"data"))
        }),
        Case::established(
            "a sealed change_cipher_spec after the handshake",
            STEP,
            &[Alert(UNEXPECTED_MESSAGE), Alert(DECODE_ERROR)],
            |s| s.send(&Seal::new(content::CHANGE_CIPHER_SPEC, &[1])),
        ),
    ]
}
