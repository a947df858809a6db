//! Finished: wrong, too short, too long, in pieces, in company, in the wrong place.

use super::Outcome::{Alert, Closed, Continues};
use super::{BOTH, Case, Session, TLS13};
use crate::Error;
use crate::tls_client::wire::alert::{BAD_RECORD_MAC, DECODE_ERROR, DECRYPT_ERROR, UNEXPECTED_MESSAGE};
use crate::tls_client::wire::{content, handshake, message};
use crate::tls_client::{Seal, Version};

const VERIFY: (&str, &[Version]) = ("RFC 8446 §4.4.4, RFC 5246 §7.4.9", BOTH);
const BOUNDARY: (&str, &[Version]) = ("RFC 8446 §5.1", TLS13);

pub(super) fn cases() -> Vec<Case> {
    [wrong(), shapes(), company(), place(), instead()].into_iter().flatten().collect()
}

/// The body of the Finished is changed before it is sealed.
fn changed(
    name: String,
    expect: &[super::Outcome],
    change: impl Fn(&mut Vec<u8>) + Send + Sync + 'static,
) -> Case {
    Case::fresh(name, VERIFY, expect, move |s| {
        before(s)?;
        let mut body = s.client.finished().split_off(4);
        change(&mut body);
        s.send(&Seal::handshake(&handshake(message::FINISHED, &body)))
    })
}

fn wrong() -> Vec<Case> {
    let mut cases = Vec::new();
    for at in [0, 5, 11] {
        let name = format!("a Finished with a bit flipped in byte {at}");
        cases.push(changed(name, &[Alert(DECRYPT_ERROR)], move |body| body[at] ^= 0x10));
    }
    let length = [Alert(DECODE_ERROR), Alert(DECRYPT_ERROR)];
    for cut in [1, 4, 11] {
        let name = format!("a Finished without its last {cut} bytes");
        cases.push(changed(name, &length, move |body| body.truncate(body.len() - cut)));
    }
    cases.push(changed("an empty Finished".into(), &length, Vec::clear));
    for extra in [1, 16, 1000] {
        let name = format!("a Finished with {extra} bytes more");
        cases.push(changed(name.clone() + " behind its own", &length, move |body| {
            body.resize(body.len() + extra, 0);
        }));
        cases.push(changed(name + " before its own", &length, move |body| {
            body.splice(..0, vec![0; extra]);
        }));
    }
    cases
}

fn shapes() -> Vec<Case> {
    vec![
        Case::fresh("a Finished in records of one byte each", VERIFY, &[Continues], |s| {
            before(s)?;
            let finished = s.client.finished();
            let records: Vec<_> =
                finished.iter().flat_map(|&byte| s.client.seal(&Seal::handshake(&[byte]))).collect();
            s.raw(&records)?;
            s.client.complete(&finished)
        }),
        Case::fresh("a Finished in a padded record", BOUNDARY, &[Continues], |s| {
            s.until_finished()?;
            let finished = s.client.finished();
            s.send(&Seal::handshake(&finished).padding(1000))?;
            s.client.complete(&finished)
        }),
        Case::fresh("a Finished and data behind it in one write", BOUNDARY, &[Continues], |s| {
            s.until_finished()?;
            let finished = s.client.finished();
            let first = s.client.seal(&Seal::handshake(&finished));
            s.client.complete(&finished)?;
            let data = s.seal_data(b"data that arrives with the handshake");
            s.raw(&[first, data].concat())
        }),
        Case::fresh(
            "a Finished, and data behind it that arrives in two pieces",
            BOUNDARY,
            &[Continues],
            |s| {
                s.until_finished()?;
                let finished = s.client.finished();
                let first = s.client.seal(&Seal::handshake(&finished));
                s.client.complete(&finished)?;
                let data = s.seal_data(&[b'x'; 9000]);
                s.raw(&[&first[..], &data[..4000]].concat())?;
                s.raw(&data[4000..])
            },
        ),
        Case::fresh("a Finished and a KeyUpdate behind it in one write", BOUNDARY, &[Continues], |s| {
            s.until_finished()?;
            let finished = s.client.finished();
            let first = s.client.seal(&Seal::handshake(&finished));
            s.client.complete(&finished)?;
            let update = s.client.seal_key_update(1);
            let data = s.seal_data(b"data");
            s.raw(&[first, update, data].concat())
        }),
    ]
}

/// Something else in the same record, or between pieces.
fn company() -> Vec<Case> {
    let behind = |name: &str, extra: &'static [u8]| {
        Case::fresh(name, BOUNDARY, &[Alert(UNEXPECTED_MESSAGE)], move |s| {
            s.until_finished()?;
            let finished = s.client.finished();
            s.send(&Seal::handshake(&[&finished[..], extra].concat()))
        })
    };
    vec![
        behind("a Finished with one more byte in its record", &[message::KEY_UPDATE]),
        behind("a Finished with a whole KeyUpdate in its record", &[message::KEY_UPDATE, 0, 0, 1, 0]),
        behind("a Finished with half a KeyUpdate in its record", &[message::KEY_UPDATE, 0, 0]),
        Case::fresh("a Finished twice in one record", BOUNDARY, &[Alert(UNEXPECTED_MESSAGE)], |s| {
            s.until_finished()?;
            let finished = s.client.finished();
            s.send(&Seal::handshake(&finished.repeat(2)))
        }),
        Case::fresh(
            "data under the handshake keys between two pieces of Finished",
            BOUNDARY,
            &[Alert(UNEXPECTED_MESSAGE), Closed],
            |s| {
                s.until_finished()?;
                let finished = s.client.finished();
                s.send(&Seal::handshake(&finished[..10]))?;
                s.send(&Seal::data(b"data"))
            },
        ),
        Case::fresh(
            "a message half in the record of Finished and half under the next keys",
            BOUNDARY,
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| {
                s.until_finished()?;
                let finished = s.client.finished();
                let update = handshake(message::KEY_UPDATE, &[0]);
                let first = s.client.seal(&Seal::handshake(&[&finished[..], &update[..2]].concat()));
                s.client.complete(&finished)?;
                let second = s.client.seal(&Seal::handshake(&update[2..]));
                s.raw(&[first, second].concat())
            },
        ),
    ]
}

fn place() -> Vec<Case> {
    let rule: (&str, &[Version]) = ("RFC 8446 §4.4.4", TLS13);
    vec![
        Case::fresh(
            "a Finished without protection",
            rule,
            &[Alert(UNEXPECTED_MESSAGE), Alert(BAD_RECORD_MAC)],
            |s| {
                s.until_finished()?;
                let finished = s.client.finished();
                s.client.write_plain(content::HANDSHAKE, &finished)
            },
        ),
        Case::fresh("a Finished under the application keys", rule, &[Alert(BAD_RECORD_MAC)], |s| {
            s.until_finished()?;
            let finished = s.client.finished();
            s.client.complete(&finished)?;
            s.send(&Seal::handshake(&finished))
        }),
        Case::fresh(
            "data under the application keys instead of Finished",
            rule,
            &[Alert(BAD_RECORD_MAC)],
            |s| {
                s.until_finished()?;
                let finished = s.client.finished();
                s.client.complete(&finished)?;
                s.send(&Seal::data(b"data"))
            },
        ),
        Case::fresh(
            "data under the handshake keys instead of Finished",
            rule,
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| {
                s.until_finished()?;
                s.send(&Seal::data(b"data"))
            },
        ),
        Case::fresh("the bytes of Finished as data", rule, &[Alert(UNEXPECTED_MESSAGE)], |s| {
            s.until_finished()?;
            let finished = s.client.finished();
            s.send(&Seal::data(&finished))
        }),
    ]
}

/// Something else altogether.
fn instead() -> Vec<Case> {
    let rule: (&str, &[Version]) = ("RFC 8446 §4.4.4", TLS13);
    vec![
        Case::fresh("an unprotected alert instead of Finished", ("RFC 8446 §6.2", TLS13), &[Closed], |s| {
            s.until_finished()?;
            s.client.write_plain(content::ALERT, &[2, 42])
        }),
        Case::fresh(
            "a second ClientHello instead of Finished",
            rule,
            &[Alert(UNEXPECTED_MESSAGE), Alert(BAD_RECORD_MAC)],
            |s| {
                s.client.send_hello()?;
                s.client.receive_server_flight()?;
                s.client.send_hello()
            },
        ),
        Case::fresh(
            "the end of the TCP stream instead of Finished",
            ("RFC 8446 §6.1", BOTH),
            &[Closed],
            |s| {
                s.until_finished()?;
                s.shutdown()
            },
        ),
    ]
}

/// Everything before Finished, the change_cipher_spec included.
fn before(session: &mut Session) -> Result<(), Error> {
    session.until_finished()?;
    session.client.send_change_cipher_spec()
}
