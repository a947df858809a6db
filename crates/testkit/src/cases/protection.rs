//! Records whose protection is wrong: truncated, bit-flipped, reordered, replayed, under other keys.

use super::Outcome::{Alert, Closed, Continues, Drained};
use super::{BOTH, Case, Session, TLS13};
use crate::tls_client::wire::alert::{BAD_RECORD_MAC, CLOSE_NOTIFY, DECODE_ERROR};
use crate::tls_client::wire::{HEADER, content, resize};
use crate::tls_client::{Seal, TAG, Version};

/// RFC 8446 §5.2, and §6.2.3.3 of RFC 5246 likewise: what does not open is a `bad_record_mac`.
const OPENING: (&str, &[Version]) = ("RFC 8446 §5.2, RFC 5246 §6.2.3.3", BOTH);

pub(super) fn cases() -> Vec<Case> {
    [flipped(), resized(), reordered(), other_keys(), cut_off()].into_iter().flatten().collect()
}

/// Where a bit is flipped, in words and as an index into a record of this length.
type Place = (&'static str, fn(usize) -> usize);

fn flipped() -> Vec<Case> {
    let places: [Place; 5] = [
        ("the first byte of the body", |_| HEADER),
        ("the middle of the ciphertext", |length| HEADER + (length - HEADER - TAG) / 2),
        ("the last byte before the tag", |length| length - TAG - 1),
        ("the first byte of the tag", |length| length - TAG),
        ("the last byte of the tag", |length| length - 1),
    ];
    let flip = |(place, index): Place| {
        let name = format!("a data record with one bit flipped in {place}");
        Case::established(name, OPENING, &[Alert(BAD_RECORD_MAC)], move |s| {
            let mut record = s.client.seal(&Seal::data(DATA));
            let index = index(record.len());
            record[index] ^= 1;
            s.raw(&record)
        })
    };
    let mut cases: Vec<_> = places.into_iter().map(flip).collect();
    cases.push(Case::established(
        "a damaged record right behind a good one",
        OPENING,
        &[Alert(BAD_RECORD_MAC)],
        |s| {
            let good = s.client.seal(&Seal::data(DATA));
            let mut bad = s.client.seal(&Seal::data(DATA));
            bad[HEADER + 1] ^= 0x80;
            s.raw(&[good, bad].concat())
        },
    ));
    cases
}

fn resized() -> Vec<Case> {
    let mut cases = Vec::new();
    for length in [0, 1, TAG - 1, TAG, TAG + 1, TAG + 8] {
        let name = format!("a data record whose body is cut to {length} bytes");
        cases.push(Case::established(name, OPENING, &[Alert(BAD_RECORD_MAC)], move |s| {
            let mut record = s.client.seal(&Seal::data(DATA));
            resize(&mut record, length);
            s.raw(&record)
        }));
    }
    for (name, change) in [("without the last byte", -1), ("with one byte more", 1)] {
        let name = format!("a data record {name} of its tag, its length corrected");
        cases.push(Case::established(name, OPENING, &[Alert(BAD_RECORD_MAC)], move |s| {
            let mut record = s.client.seal(&Seal::data(DATA));
            let length = (record.len() - HEADER).saturating_add_signed(change);
            resize(&mut record, length);
            s.raw(&record)
        }));
    }
    cases.push(Case::established(
        "a data record whose length field claims part of the next record",
        OPENING,
        &[Alert(BAD_RECORD_MAC)],
        |s| {
            let mut first = s.client.seal(&Seal::data(DATA));
            let second = s.client.seal(&Seal::data(DATA));
            first[HEADER - 1] += 3;
            s.raw(&[first, second].concat())
        },
    ));
    cases
}

fn reordered() -> Vec<Case> {
    vec![
        Case::established("two data records in the wrong order", OPENING, &[Alert(BAD_RECORD_MAC)], |s| {
            let first = s.client.seal(&Seal::data(b"first"));
            let second = s.client.seal(&Seal::data(b"second"));
            s.raw(&[second, first].concat())
        }),
        Case::established("a data record sent twice", OPENING, &[Alert(BAD_RECORD_MAC)], |s| {
            let record = s.client.seal(&Seal::data(DATA));
            s.raw(&record.repeat(2))
        }),
        Case::established("a data record left out", OPENING, &[Alert(BAD_RECORD_MAC)], |s| {
            s.client.seal(&Seal::data(b"never sent"));
            s.send(&Seal::data(DATA))
        }),
        Case::established("the highest sequence number", OPENING, &[Alert(BAD_RECORD_MAC)], |s| {
            s.send(&Seal::data(DATA).sequence(u64::MAX))
        }),
    ]
}

fn other_keys() -> Vec<Case> {
    vec![
        Case::established(
            "the server's own record sent back to it",
            OPENING,
            &[Alert(BAD_RECORD_MAC)],
            |s| {
                s.data(DATA)?;
                s.await_echo()?;
                let record = s.client.last_record().to_vec();
                s.raw(&record)
            },
        ),
        Case::established(
            "a data record under the handshake keys after the handshake",
            ("RFC 8446 §4.4.4", TLS13),
            &[Alert(BAD_RECORD_MAC)],
            |s| {
                let record = s.client.epochs()[0].seal(&Seal::data(DATA));
                s.raw(&record)
            },
        ),
        Case::established(
            "random bytes as the body of a data record",
            OPENING,
            &[Alert(BAD_RECORD_MAC)],
            |s| s.client.write_plain(content::APPLICATION_DATA, &[0xa5; 100]),
        ),
    ]
}

/// Truncation of the stream. What is right is an end in order; whether an alert goes out is free.
fn cut_off() -> Vec<Case> {
    let closes = [Closed, Drained, Alert(CLOSE_NOTIFY), Alert(DECODE_ERROR)];
    let mut cases = Vec::new();
    for length in [1, HEADER - 1, HEADER, HEADER + 1, HEADER + TAG] {
        let name = format!("{length} bytes of a record, then the end of the TCP stream");
        cases.push(Case::established(name, ("RFC 8446 §6.1", BOTH), &closes, move |s| {
            let record = s.client.seal(&Seal::data(DATA));
            s.raw(&record[..length])?;
            s.shutdown()
        }));
    }
    let end = Case::established(
        "the end of the TCP stream without close_notify",
        ("RFC 8446 §6.1", BOTH),
        &closes,
        Session::shutdown,
    );
    cases.push(end.lenient(
        "many clients never send close_notify; an end between two records is passed on as a half-close, \
         what the server still says is sent, and the event says that the client vanished",
    ));
    cases.push(Case::established(
        "a good record in pieces of one byte each",
        ("RFC 8446 §5.1", BOTH),
        &[Continues],
        |s| {
            let record = s.seal_data(DATA);
            record.iter().try_for_each(|&byte| s.raw(&[byte]))
        },
    ));
    cases
}

const DATA: &[u8] = b"some data of an ordinary length, so that there is something to damage";
