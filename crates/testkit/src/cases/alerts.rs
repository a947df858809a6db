//! Alerts: malformed, unknown, too many, and the end of the conversation.

use super::Outcome::{Alert, Closed, Continues, Drained};
use super::{BOTH, Case, NO_ALERT, TLS12, TLS13, TOO_MANY};
use crate::tls_client::wire::alert::{
    CLOSE_NOTIFY, DECODE_ERROR, FATAL, HANDSHAKE_FAILURE, ILLEGAL_PARAMETER, INTERNAL_ERROR,
    NO_RENEGOTIATION, UNEXPECTED_MESSAGE, USER_CANCELED, WARNING,
};
use crate::tls_client::wire::{content, handshake, message};
use crate::tls_client::{Seal, Version};

const SHAPE: (&str, &[Version]) = ("RFC 8446 §5.1, §6; RFC 5246 §7.2", BOTH);
const CLOSURE: (&str, &[Version]) = ("RFC 8446 §6.1, RFC 5246 §7.2.1", BOTH);
const ERRORS: (&str, &[Version]) = ("RFC 8446 §6.2", BOTH);

pub(super) fn cases() -> Vec<Case> {
    [malformed(), unknown(), warnings(), closure()].into_iter().flatten().collect()
}

fn malformed() -> Vec<Case> {
    let mut cases = vec![
        Case::established(
            "an empty alert record",
            ("RFC 8446 §5.4, RFC 5246 §6.2.1", BOTH),
            &[Alert(DECODE_ERROR), Alert(UNEXPECTED_MESSAGE)],
            |s| s.send(&Seal::alert(b"")),
        ),
        Case::established("two alerts in one record", SHAPE, &[Alert(DECODE_ERROR)], |s| {
            s.send(&Seal::alert(&[WARNING, USER_CANCELED, WARNING, CLOSE_NOTIFY]))
        }),
        Case::established("an alert in two records", SHAPE, &[Alert(DECODE_ERROR)], |s| {
            let first = s.client.seal(&Seal::alert(&[WARNING]));
            let second = s.client.seal(&Seal::alert(&[CLOSE_NOTIFY]));
            s.raw(&[first, second].concat())
        }),
        Case::established(
            "an alert between two pieces of a handshake message",
            ("RFC 8446 §5.1", TLS13),
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| {
                let update = handshake(message::KEY_UPDATE, &[0]);
                s.send(&Seal::handshake(&update[..2]))?;
                s.send(&Seal::alert(&[WARNING, USER_CANCELED]))
            },
        )
        .rustls(Closed, NO_ALERT),
    ];
    for length in [1, 3, 4, 100, 16_384] {
        let name = format!("an alert record of {length} bytes");
        cases.push(Case::established(name, SHAPE, &[Alert(DECODE_ERROR)], move |s| {
            s.send(&Seal::alert(&vec![WARNING; length]))
        }));
    }
    cases
}

fn unknown() -> Vec<Case> {
    let mut cases = Vec::new();
    for level in [0, 3, 255] {
        for description in [CLOSE_NOTIFY, USER_CANCELED, 255] {
            let name = format!("an alert of level {level} with description {description}");
            cases.push(Case::established(
                name,
                ("RFC 8446 §6", BOTH),
                &[Alert(ILLEGAL_PARAMETER)],
                move |s| s.send(&Seal::alert(&[level, description])),
            ));
        }
    }
    let ends = [Closed, Alert(CLOSE_NOTIFY), Drained];
    for description in [UNEXPECTED_MESSAGE, HANDSHAKE_FAILURE, INTERNAL_ERROR, 1, 254, 255] {
        let name = format!("a fatal alert with description {description}");
        cases.push(Case::established(name, ERRORS, &ends, move |s| {
            s.send(&Seal::alert(&[FATAL, description]))
        }));
    }
    let ends = [Alert(DECODE_ERROR), Closed, Alert(CLOSE_NOTIFY), Drained];
    for description in [INTERNAL_ERROR, NO_RENEGOTIATION, 255] {
        let name = format!("a warning alert with description {description} in TLS 1.3, where it is an error");
        cases.push(Case::established(name, ("RFC 8446 §6", TLS13), &ends, move |s| {
            s.send(&Seal::alert(&[WARNING, description]))
        }));
    }
    cases
}

fn warnings() -> Vec<Case> {
    let mut cases = Vec::new();
    for description in [NO_RENEGOTIATION, 41, 255] {
        let name = format!("a warning alert with description {description} in TLS 1.2");
        cases.push(Case::established(name, ("RFC 5246 §7.2.2", TLS12), &[Continues], move |s| {
            s.send(&Seal::alert(&[WARNING, description]))
        }));
    }
    let flood = |name: &str, description| {
        Case::established(name, ERRORS, TOO_MANY, move |s| {
            let seal = Seal::alert(&[WARNING, description]);
            let records: Vec<_> = (0..200).flat_map(|_| s.client.seal(&seal)).collect();
            s.raw(&records)
        })
    };
    cases.push(flood("two hundred user_canceled in a row", USER_CANCELED));
    cases.push(Case {
        versions: TLS12,
        ..flood("two hundred warnings in a row in TLS 1.2", NO_RENEGOTIATION)
    });
    cases.push(Case::established("one user_canceled", CLOSURE, &[Continues], |s| {
        s.send(&Seal::alert(&[WARNING, USER_CANCELED]))
    }));
    cases.push(Case::established("user_canceled, then close_notify", CLOSURE, &[Drained], |s| {
        s.data(b"data")?;
        s.send(&Seal::alert(&[WARNING, USER_CANCELED]))?;
        s.send(&Seal::alert(&[WARNING, CLOSE_NOTIFY]))
    }));
    cases
}

fn closure() -> Vec<Case> {
    vec![
        Case::established("close_notify after the handshake", CLOSURE, &[Drained], |s| {
            s.send(&Seal::alert(&[WARNING, CLOSE_NOTIFY]))
        }),
        Case::established("close_notify at the level fatal", CLOSURE, &[Drained, Closed], |s| {
            s.send(&Seal::alert(&[FATAL, CLOSE_NOTIFY]))
        }),
        Case::established("data and close_notify in one write", CLOSURE, &[Drained], |s| {
            let data = s.seal_data(&[b'x'; 16_000]);
            let close = s.client.seal(&Seal::alert(&[WARNING, CLOSE_NOTIFY]));
            s.raw(&[data, close].concat())
        }),
        Case::established("close_notify, then data, which is ignored", CLOSURE, &[Drained], |s| {
            let close = s.client.seal(&Seal::alert(&[WARNING, CLOSE_NOTIFY]));
            let data = s.client.seal(&Seal::data(b"too late"));
            s.raw(&[close, data].concat())
        }),
        Case::established(
            "close_notify, then bytes that are no record, which are ignored",
            CLOSURE,
            &[Drained],
            |s| {
                let close = s.client.seal(&Seal::alert(&[WARNING, CLOSE_NOTIFY]));
                s.raw(&[&close[..], &[0xff; 4000]].concat())
            },
        ),
        Case::established(
            "close_notify, then a record that does not open, which is ignored",
            CLOSURE,
            &[Drained],
            |s| {
                s.send(&Seal::alert(&[WARNING, CLOSE_NOTIFY]))?;
                s.client.write_plain(content::APPLICATION_DATA, &[0; 100])
            },
        ),
        Case::established("close_notify twice", CLOSURE, &[Drained], |s| {
            let record = s.client.seal(&Seal::alert(&[WARNING, CLOSE_NOTIFY]));
            let again = s.client.seal(&Seal::alert(&[WARNING, CLOSE_NOTIFY]));
            s.raw(&[record, again].concat())
        }),
        Case::established("close_notify, then the end of the TCP stream", CLOSURE, &[Drained], |s| {
            s.data(b"data")?;
            s.send(&Seal::alert(&[WARNING, CLOSE_NOTIFY]))?;
            s.shutdown()
        }),
    ]
}
