//! Application data without data: allowed, but not for ever.

use super::Outcome::Continues;
use super::{BOTH, Case, TLS12, TLS13, TOO_MANY};
use crate::tls_client::{Seal, Version};

const EMPTY: (&str, &[Version]) = ("RFC 8446 §5.1, RFC 5246 §6.2.1", BOTH);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::established("one empty data record", EMPTY, &[Continues], |s| s.send(&Seal::data(b""))),
        Case::established("ten empty data records in one write", EMPTY, &[Continues], |s| {
            let records: Vec<_> = (0..10).flat_map(|_| s.client.seal(&Seal::data(b""))).collect();
            s.raw(&records)
        }),
        Case::established(
            "two hundred empty data records, each followed by data",
            EMPTY,
            &[Continues],
            |s| {
                for _ in 0..200 {
                    s.send(&Seal::data(b""))?;
                    s.data(b"data")?;
                }
                Ok(())
            },
        ),
        Case::established("two thousand empty data records in a row", EMPTY, TOO_MANY, |s| {
            let records: Vec<_> = (0..2000).flat_map(|_| s.client.seal(&Seal::data(b""))).collect();
            s.raw(&records)
        }),
        Case::established(
            "two thousand records of padding alone in a row",
            ("RFC 8446 §5.4", TLS13),
            TOO_MANY,
            |s| {
                let seal = Seal::data(b"").padding(20);
                let records: Vec<_> = (0..2000).flat_map(|_| s.client.seal(&seal)).collect();
                s.raw(&records)
            },
        ),
        Case::established(
            "two thousand empty handshake records in a row",
            ("RFC 5246 §6.2.1", TLS12),
            TOO_MANY,
            |s| {
                let records: Vec<_> = (0..2000).flat_map(|_| s.client.seal(&Seal::handshake(b""))).collect();
                s.raw(&records)
            },
        ),
    ]
}
