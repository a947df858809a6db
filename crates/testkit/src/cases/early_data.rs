//! Garbage in the place of 0-RTT data: skipped up to a limit (RFC 8446 §4.2.10).
//!
//! Plain rustls sets the limit at 16,384 bytes of record bodies where it offers no early data itself, but
//! counts a record again each time that more bytes arrive before the next handshake message. So what
//! must be skipped stays well below the limit and arrives at once, and at the limit both is right.

use super::Outcome::{Alert, Continues};
use super::{Case, Session, TLS13};
use crate::Error;
use crate::tls_client::wire::alert::{BAD_RECORD_MAC, RECORD_OVERFLOW, UNEXPECTED_MESSAGE};
use crate::tls_client::wire::{MAX_CIPHERTEXT_13, VERSION_12, content, record};
use crate::tls_client::{Seal, Version};

const SKIP: (&str, &[Version]) = ("RFC 8446 §4.2.10", TLS13);

pub(super) fn cases() -> Vec<Case> {
    let mut cases = amounts();
    cases.extend(places());
    cases
}

fn amounts() -> Vec<Case> {
    let either = [Continues, Alert(BAD_RECORD_MAC)];
    let skipped = |name: &str, sizes: &'static [usize], expect: &[super::Outcome]| {
        Case::fresh(name, SKIP, expect, move |s| {
            garbage(s, sizes)?;
            s.client.receive_server_flight()?;
            s.client.send_key_exchange()?;
            s.finish()
        })
    };
    let refused = |name: &str, sizes: &'static [usize], expect: &[super::Outcome]| {
        Case::fresh(name, SKIP, expect, move |s| {
            garbage(s, sizes)?;
            s.client.receive_server_flight()
        })
    };
    vec![
        skipped("early_data announced and none sent", &[], &[Continues]),
        skipped("a record of garbage where 0-RTT data was announced", &[100], &[Continues]),
        skipped("a record of 1 byte where 0-RTT data was announced", &[1], &[Continues]),
        skipped("ten records of garbage where 0-RTT data was announced", &[400; 10], &[Continues]),
        skipped("garbage of exactly 16,384 bytes where 0-RTT data was announced", &[16_384], &either)
            .lenient("rustls refuses what is within its limit if TCP delivers it in pieces"),
        refused("garbage over the limit, in two records", &[16_384, 17], &[Alert(BAD_RECORD_MAC)]),
        refused("a hundred kilobytes of garbage", &[10_000; 10], &[Alert(BAD_RECORD_MAC)]),
        refused(
            "an oversized record of garbage",
            &[MAX_CIPHERTEXT_13 + 1],
            &[Alert(BAD_RECORD_MAC), Alert(RECORD_OVERFLOW)],
        ),
    ]
}

fn places() -> Vec<Case> {
    vec![
        Case::fresh(
            "change_cipher_spec and garbage where 0-RTT data was announced",
            SKIP,
            &[Continues],
            |s| {
                s.reconfigure(|options| options.early_data = true)?;
                s.client.send_hello()?;
                s.client.send_change_cipher_spec()?;
                s.client.write_plain(content::APPLICATION_DATA, &[0x5a; 500])?;
                s.client.receive_server_flight()?;
                s.client.send_key_exchange()?;
                s.finish()
            },
        ),
        Case::fresh("garbage that was not announced", SKIP, &[Alert(BAD_RECORD_MAC)], |s| {
            s.client.send_hello()?;
            s.client.write_plain(content::APPLICATION_DATA, &[0x5a; 500])?;
            s.client.receive_server_flight()
        }),
        Case::fresh(
            "garbage after Finished, where 0-RTT data was announced",
            SKIP,
            &[Alert(BAD_RECORD_MAC)],
            |s| {
                garbage(s, &[100])?;
                s.client.receive_server_flight()?;
                s.client.send_key_exchange()?;
                s.finish()?;
                s.client.write_plain(content::APPLICATION_DATA, &[0x5a; 500])
            },
        ),
        Case::fresh(
            "data under the handshake keys behind skipped garbage",
            SKIP,
            &[Alert(UNEXPECTED_MESSAGE)],
            |s| {
                garbage(s, &[100])?;
                s.client.receive_server_flight()?;
                s.send(&Seal::data(b"data"))
            },
        ),
    ]
}

/// A ClientHello that announces 0-RTT data, and records of nonsense with bodies of these sizes, in one
/// write.
fn garbage(session: &mut Session, sizes: &[usize]) -> Result<(), Error> {
    session.reconfigure(|options| options.early_data = true)?;
    let hello = record(content::HANDSHAKE, [3, 1], session.client.hello());
    let body = |&size: &usize| record(content::APPLICATION_DATA, VERSION_12, &vec![0x5a; size]);
    let bytes: Vec<_> = hello.into_iter().chain(sizes.iter().flat_map(body)).collect();
    session.raw(&bytes)
}
