//! KeyUpdate: right, wrong in length, value, place and number (RFC 8446 §4.6.3).

use super::Outcome::{Alert, Closed, Continues, Drained};
use super::{Case, NO_ALERT, Session, TLS13, TOO_MANY};
use crate::Error;
use crate::tls_client::wire::alert::{
    BAD_RECORD_MAC, CLOSE_NOTIFY, DECODE_ERROR, ILLEGAL_PARAMETER, UNEXPECTED_MESSAGE, WARNING,
};
use crate::tls_client::wire::{handshake, message};
use crate::tls_client::{Seal, Version};

const UPDATE: (&str, &[Version]) = ("RFC 8446 §4.6.3", TLS13);
const BOUNDARY: (&str, &[Version]) = ("RFC 8446 §5.1", TLS13);

/// `update_not_requested` and `update_requested`.
const QUIET: u8 = 0;
const REQUEST: u8 = 1;

pub(super) fn cases() -> Vec<Case> {
    [good(), answered(), in_pieces(), bad_value(), bad_length(), keys(), boundaries(), interrupted(), many()]
        .into_iter()
        .flatten()
        .collect()
}

fn good() -> Vec<Case> {
    vec![
        Case::established("a KeyUpdate, then data under the new keys", UPDATE, &[Continues], |s| {
            s.data(b"old")?;
            update(s, QUIET)?;
            s.data(b"new")
        }),
        Case::established(
            "a KeyUpdate and data under the new keys in one write",
            UPDATE,
            &[Continues],
            |s| {
                let old = s.seal_data(b"old");
                let update = s.client.seal_key_update(QUIET);
                let new = s.seal_data(b"new");
                s.raw(&[old, update, new].concat())
            },
        ),
    ]
}

fn answered() -> Vec<Case> {
    vec![
        Case::established(
            "a KeyUpdate that asks for one in return, and gets it",
            UPDATE,
            &[Continues],
            |s| {
                update(s, REQUEST)?;
                s.data(b"data")?;
                s.await_echo()?;
                if s.client.read_updates() == 1 { Ok(()) } else { Err(Error::peer("no KeyUpdate came back")) }
            },
        ),
        Case::established(
            "two requests before any data, answered once or twice",
            UPDATE,
            &[Continues],
            |s| {
                update(s, REQUEST)?;
                update(s, REQUEST)?;
                s.data(b"data")?;
                s.await_echo()?;
                let updates = s.client.read_updates();
                if (1..=2).contains(&updates) {
                    Ok(())
                } else {
                    Err(Error::peer(format!("{updates} answers")))
                }
            },
        ),
        Case::established("a KeyUpdate in a padded record", UPDATE, &[Continues], |s| {
            s.send(&Seal::handshake(&handshake(message::KEY_UPDATE, &[QUIET])).padding(300))?;
            s.client.update_write_keys();
            Ok(())
        }),
        Case::established(
            "a KeyUpdate that asks for one in return, then close_notify",
            UPDATE,
            &[Drained],
            |s| {
                s.data(b"data")?;
                update(s, REQUEST)?;
                s.send(&Seal::alert(&[WARNING, CLOSE_NOTIFY]))
            },
        ),
    ]
}

fn in_pieces() -> Vec<Case> {
    let mut cases = Vec::new();
    for at in 1..5 {
        let name = format!("a KeyUpdate in two records, the first of {at} bytes");
        cases.push(Case::established(name, BOUNDARY, &[Continues], move |s| {
            let message = handshake(message::KEY_UPDATE, &[QUIET]);
            s.send(&Seal::handshake(&message[..at]))?;
            s.send(&Seal::handshake(&message[at..]))?;
            s.client.update_write_keys();
            Ok(())
        }));
    }
    cases.push(Case::established("a KeyUpdate in five records in one write", BOUNDARY, &[Continues], |s| {
        let message = handshake(message::KEY_UPDATE, &[REQUEST]);
        let records: Vec<_> =
            message.iter().flat_map(|&byte| s.client.seal(&Seal::handshake(&[byte]))).collect();
        s.client.update_write_keys();
        let data = s.seal_data(b"data");
        s.raw(&[records, data].concat())
    }));
    cases
}

fn bad_value() -> Vec<Case> {
    let case = |value: u8| {
        let name = format!("a KeyUpdate with the value {value}");
        Case::established(name, UPDATE, &[Alert(ILLEGAL_PARAMETER)], move |s| update(s, value))
    };
    (2..=255).map(case).collect()
}

fn bad_length() -> Vec<Case> {
    let case = |length: usize| {
        let name = format!("a KeyUpdate with a body of {length} bytes");
        Case::established(name, UPDATE, &[Alert(DECODE_ERROR)], move |s| {
            s.send(&Seal::handshake(&handshake(message::KEY_UPDATE, &vec![QUIET; length])))
        })
    };
    let mut cases: Vec<_> = [0, 2, 3, 4, 5, 16, 255, 256, 16_380].into_iter().map(case).collect();
    cases.push(
        Case::established(
            "the header of a KeyUpdate with a body of 2^24 - 1 bytes",
            UPDATE,
            &[Alert(DECODE_ERROR), Alert(UNEXPECTED_MESSAGE)],
            |s| s.send(&Seal::handshake(&[message::KEY_UPDATE, 255, 255, 255, 0])),
        )
        .rustls(Closed, NO_ALERT),
    );
    cases
}

/// Data under the wrong keys on either side of the change.
fn keys() -> Vec<Case> {
    vec![
        Case::established(
            "data under the old keys after a KeyUpdate",
            UPDATE,
            &[Alert(BAD_RECORD_MAC)],
            |s| {
                update(s, QUIET)?;
                let old = s.client.epochs().len() - 2;
                let record = s.client.epochs()[old].seal(&Seal::data(b"data"));
                s.raw(&record)
            },
        ),
        Case::established("data under new keys without a KeyUpdate", UPDATE, &[Alert(BAD_RECORD_MAC)], |s| {
            s.client.update_write_keys();
            s.send(&Seal::data(b"data"))
        }),
        Case::established(
            "new keys whose sequence numbers go on from the old",
            UPDATE,
            &[Alert(BAD_RECORD_MAC)],
            |s| {
                update(s, QUIET)?;
                s.send(&Seal::data(b"data").sequence(1))
            },
        ),
        Case::established(
            "a KeyUpdate under the keys that it announces",
            UPDATE,
            &[Alert(BAD_RECORD_MAC)],
            |s| {
                s.client.update_write_keys();
                s.send(&Seal::handshake(&handshake(message::KEY_UPDATE, &[QUIET])))
            },
        ),
        Case::fresh(
            "a KeyUpdate in the place of Finished",
            ("RFC 8446 §4.6.3", TLS13),
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| {
                s.until_finished()?;
                s.send(&Seal::handshake(&handshake(message::KEY_UPDATE, &[QUIET])))
            },
        ),
    ]
}

/// Nothing may straddle a change of keys, and nothing may come between pieces of a message.
fn boundaries() -> Vec<Case> {
    let update = || handshake(message::KEY_UPDATE, &[QUIET]);
    vec![
        Case::established("two KeyUpdates in one record", BOUNDARY, &[Alert(UNEXPECTED_MESSAGE)], move |s| {
            s.send(&Seal::handshake(&update().repeat(2)))
        }),
        Case::established(
            "a KeyUpdate with the first byte of another message behind it",
            BOUNDARY,
            &[Alert(UNEXPECTED_MESSAGE)],
            move |s| s.send(&Seal::handshake(&[&update()[..], &[message::KEY_UPDATE]].concat())),
        ),
        Case::established(
            "a handshake message half before and half after a change of keys",
            BOUNDARY,
            &[Alert(UNEXPECTED_MESSAGE)],
            move |s| {
                let both = update().repeat(2);
                let first = s.client.seal(&Seal::handshake(&both[..7]));
                s.client.update_write_keys();
                let second = s.client.seal(&Seal::handshake(&both[7..]));
                s.raw(&[first, second].concat())
            },
        ),
        Case::established(
            "data between two pieces of a KeyUpdate",
            BOUNDARY,
            &[Alert(UNEXPECTED_MESSAGE)],
            move |s| {
                s.send(&Seal::handshake(&update()[..3]))?;
                s.send(&Seal::data(b"data"))?;
                s.send(&Seal::handshake(&update()[3..]))
            },
        )
        .rustls(Closed, NO_ALERT),
    ]
}

/// A record without content between two pieces of a message.
fn interrupted() -> Vec<Case> {
    let update = || handshake(message::KEY_UPDATE, &[QUIET]);
    vec![
        Case::established(
            "empty data between two pieces of a KeyUpdate",
            BOUNDARY,
            &[Alert(UNEXPECTED_MESSAGE)],
            move |s| {
                s.send(&Seal::handshake(&update()[..3]))?;
                s.send(&Seal::data(b""))?;
                s.send(&Seal::handshake(&update()[3..]))
            },
        )
        .rustls(Closed, NO_ALERT),
        Case::established(
            "an empty handshake record between two pieces of a KeyUpdate",
            ("RFC 8446 §5.4", TLS13),
            &[Alert(UNEXPECTED_MESSAGE)],
            move |s| {
                s.send(&Seal::handshake(&update()[..3]))?;
                s.send(&Seal::handshake(b""))?;
                s.send(&Seal::handshake(&update()[3..]))?;
                s.client.update_write_keys();
                Ok(())
            },
        )
        .rustls(Continues, "rustls counts it with other empty records, and allows 32 in a row"),
    ]
}

fn many() -> Vec<Case> {
    let each = |name: &str, count: usize, value: u8, data: bool| {
        let expect = if data || count < 32 { &[Continues] } else { TOO_MANY };
        Case::established(name, UPDATE, expect, move |s| {
            for _ in 0..count {
                update(s, value)?;
                if data {
                    s.data(b"data")?;
                }
            }
            Ok(())
        })
    };
    vec![
        each("sixteen KeyUpdates without data", 16, QUIET, false),
        each("sixteen KeyUpdates that ask for one in return, without data", 16, REQUEST, false),
        each("three hundred KeyUpdates, each followed by data", 300, QUIET, true),
        each(
            "three hundred KeyUpdates that ask for one in return, each followed by data",
            300,
            REQUEST,
            true,
        ),
        each("five hundred KeyUpdates without data", 500, QUIET, false),
        each("five hundred KeyUpdates that ask for one in return, without data", 500, REQUEST, false),
        Case::established("five hundred KeyUpdates in one write", UPDATE, TOO_MANY, |s| {
            let records: Vec<_> = (0..500).flat_map(|_| s.client.seal_key_update(REQUEST)).collect();
            s.raw(&records)
        }),
        Case::established("a hundred KeyUpdates and data records in one write", UPDATE, &[Continues], |s| {
            let mut records = Vec::new();
            for _ in 0..100 {
                records.extend(s.client.seal_key_update(REQUEST));
                records.extend(s.seal_data(b"data"));
            }
            s.raw(&records)
        }),
    ]
}

fn update(session: &mut Session, value: u8) -> Result<(), Error> {
    let record = session.client.seal_key_update(value);
    session.raw(&record)
}
