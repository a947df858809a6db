//! Records at and over the limits of length.

use super::Outcome::{Alert, Continues};
use super::{Case, TLS12, TLS13};
use crate::tls_client::wire::alert::{BAD_RECORD_MAC, DECODE_ERROR, RECORD_OVERFLOW};
use crate::tls_client::wire::{
    MAX_CIPHERTEXT_12, MAX_CIPHERTEXT_13, MAX_PLAINTEXT, VERSION_12, content, header, record, resize,
};
use crate::tls_client::{Seal, TAG, Version};

const LIMIT_13: (&str, &[Version]) = ("RFC 8446 §5.2", TLS13);
const PLAIN_13: (&str, &[Version]) = ("RFC 8446 §5.1, §5.4", TLS13);
const LIMIT_12: (&str, &[Version]) = ("RFC 5246 §6.2.3", TLS12);
const PLAIN_12: (&str, &[Version]) = ("RFC 5246 §6.2.1", TLS12);
const OPENS_FIRST: &str = "rustls opens the record first, and checks the length of the plaintext only";
const OTHER_LIMIT: &str = "rustls answers decode_error at its own limit of 2^14 + 2048 bytes";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = allowed();
    cases.extend(plaintext());
    cases.extend(ciphertext_13());
    cases.extend(ciphertext_12());
    cases
}

fn allowed() -> Vec<Case> {
    let mut cases = Vec::new();
    for (length, padding) in [(MAX_PLAINTEXT, 0), (MAX_PLAINTEXT - 10, 10), (1, MAX_PLAINTEXT - 1)] {
        let name = format!("{length} bytes of data with {padding} bytes of padding");
        cases.push(Case::established(name, PLAIN_13, &[Continues], move |s| {
            let data = vec![b'x'; length];
            s.echoed(&data, &Seal::data(&data).padding(padding))
        }));
    }
    cases.push(Case::established("a record of padding alone", PLAIN_13, &[Continues], |s| {
        s.send(&Seal::data(b"").padding(MAX_PLAINTEXT))
    }));
    cases.push(Case::established("2^14 bytes of data", PLAIN_12, &[Continues], |s| {
        s.data(&[b'x'; MAX_PLAINTEXT])
    }));
    let both = ("RFC 8446 §5.1", super::BOTH);
    cases.push(Case::established("fifty records in one write", both, &[Continues], |s| {
        let records: Vec<_> = (0..50).flat_map(|byte| s.seal_data(&[byte; 100])).collect();
        s.raw(&records)
    }));
    cases.push(Case::established(
        "a whole record and a piece of the next in each write",
        both,
        &[Continues],
        |s| {
            let stream: Vec<_> = (0..40).flat_map(|byte| s.seal_data(&[byte; 300])).collect();
            stream.chunks(401).try_for_each(|piece| s.raw(piece))
        },
    ));
    cases
}

fn plaintext() -> Vec<Case> {
    let mut cases = Vec::new();
    for (length, padding) in
        [(MAX_PLAINTEXT + 1, 0), (MAX_PLAINTEXT, 1), (1, MAX_PLAINTEXT), (0, MAX_PLAINTEXT + 1)]
    {
        let name = format!("an inner plaintext over 2^14 + 1: {length} bytes of data, {padding} of padding");
        cases.push(Case::established(name, PLAIN_13, &[Alert(RECORD_OVERFLOW)], move |s| {
            s.send(&Seal::data(&vec![b'x'; length]).padding(padding))
        }));
    }
    for length in [MAX_PLAINTEXT + 1, MAX_PLAINTEXT + 1024] {
        let name = format!("{length} bytes of data in one record");
        cases.push(Case::established(name, PLAIN_12, &[Alert(RECORD_OVERFLOW)], move |s| {
            s.send(&Seal::data(&vec![b'x'; length]))
        }));
    }
    cases
}

fn ciphertext_13() -> Vec<Case> {
    // One byte of every body is the content type.
    let content_of = |body: usize| vec![b'x'; body - TAG - 1];
    let largest = content_of(MAX_CIPHERTEXT_13);
    let over = content_of(MAX_CIPHERTEXT_13 + 1);
    vec![
        Case::established(
            "a body of 2^14 + 256 bytes that opens",
            LIMIT_13,
            &[Alert(RECORD_OVERFLOW)],
            move |s| s.send(&Seal::data(&largest)),
        ),
        Case::established(
            "a body of 2^14 + 256 bytes that does not open",
            LIMIT_13,
            &[Alert(BAD_RECORD_MAC)],
            |s| s.client.write_plain(content::APPLICATION_DATA, &[0; MAX_CIPHERTEXT_13]),
        ),
        Case::established(
            "a body of 2^14 + 257 bytes that opens",
            LIMIT_13,
            &[Alert(RECORD_OVERFLOW)],
            move |s| s.send(&Seal::data(&over)),
        ),
        over_13(MAX_CIPHERTEXT_13 + 1).rustls(Alert(BAD_RECORD_MAC), OPENS_FIRST),
        over_13(MAX_CIPHERTEXT_12 - 1).rustls(Alert(BAD_RECORD_MAC), OPENS_FIRST),
        over_13(MAX_CIPHERTEXT_12).rustls(Alert(DECODE_ERROR), OTHER_LIMIT),
        over_13(usize::from(u16::MAX)).rustls(Alert(DECODE_ERROR), OTHER_LIMIT),
        Case::established(
            "the header of a record of 65,535 bytes, and nothing behind it",
            LIMIT_13,
            &[Alert(RECORD_OVERFLOW)],
            |s| s.raw(&header(content::APPLICATION_DATA, VERSION_12, u16::MAX)),
        )
        .rustls(Alert(DECODE_ERROR), OTHER_LIMIT),
    ]
}

/// A body of this length, which does not open.
fn over_13(length: usize) -> Case {
    let name = format!("a body of {length} bytes that does not open");
    Case::established(name, LIMIT_13, &[Alert(RECORD_OVERFLOW)], move |s| {
        s.raw(&record(content::APPLICATION_DATA, VERSION_12, &vec![0; length]))
    })
}

fn ciphertext_12() -> Vec<Case> {
    let over = |length: usize| {
        let name = format!("a body of {length} bytes, over 2^14 + 2048, that does not open");
        Case::established(name, LIMIT_12, &[Alert(RECORD_OVERFLOW)], move |s| {
            let mut record = s.client.seal(&Seal::data(b"x"));
            resize(&mut record, length);
            s.raw(&record)
        })
        .rustls(Alert(DECODE_ERROR), OTHER_LIMIT)
    };
    vec![
        Case::established(
            "a body of 2^14 + 1000 bytes that does not open",
            LIMIT_12,
            &[Alert(BAD_RECORD_MAC), Alert(RECORD_OVERFLOW)],
            |s| s.client.write_plain(content::APPLICATION_DATA, &[0; MAX_PLAINTEXT + 1000]),
        ),
        over(MAX_CIPHERTEXT_12 + 1),
        over(usize::from(u16::MAX)),
        Case::established(
            "the header of a record of 65,535 bytes, and nothing behind it",
            LIMIT_12,
            &[Alert(RECORD_OVERFLOW)],
            |s| s.raw(&header(content::APPLICATION_DATA, VERSION_12, u16::MAX)),
        )
        .rustls(Alert(DECODE_ERROR), OTHER_LIMIT),
    ]
}
