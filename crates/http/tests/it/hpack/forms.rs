//! Representations that the encoder chooses.

use offramp_http::hpack::{HpackDecoder, HpackEncoder, Indexing};

use super::{field, read, table};

fn one(encoder: &mut HpackEncoder, name: &str, value: &str, indexing: Indexing) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut out);
    out
}

fn status(encoder: &mut HpackEncoder, status: u16) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    encoder.status(status, &mut out);
    out
}

#[test]
fn a_field_is_an_index_once_it_was_sent() {
    let mut encoder = HpackEncoder::new();
    // `xx` and `||` are no shorter in Huffman code.
    assert_eq!(one(&mut encoder, "xx", "||", Indexing::Yes), b"\x40\x02xx\x02||");
    assert_eq!(one(&mut encoder, "xx", "||", Indexing::Yes), [0xbe]);
    assert_eq!(one(&mut encoder, "xx", "||", Indexing::No), [0xbe]);
    assert_eq!(one(&mut encoder, "xx", "||", Indexing::Never), b"\x1f\x2f\x02||");
    assert_eq!(one(&mut encoder, "xx", "|", Indexing::No), b"\x0f\x2f\x01|");
    assert_eq!(one(&mut encoder, "xx", "|", Indexing::Yes), b"\x7e\x01|");
    assert_eq!(one(&mut encoder, "xx", "||", Indexing::Yes), [0xbf]);
    // The static table has precedence for names.
    assert_eq!(one(&mut encoder, "age", "|", Indexing::Yes), b"\x55\x01|");
    assert_eq!(one(&mut encoder, "age", "||", Indexing::No), b"\x0f\x06\x02||");
    assert_eq!(one(&mut encoder, "age", "", Indexing::Yes), [0x95]);
    assert_eq!(one(&mut encoder, "accept-encoding", "gzip, deflate", Indexing::No), [0x90]);
    assert_eq!(one(&mut encoder, ":path", "/index.html", Indexing::Yes), [0x85]);
    assert_eq!(one(&mut encoder, ":path", "/index.html", Indexing::Never)[..1], [0x14]);
    assert_eq!(one(&mut encoder, "", "", Indexing::Never), [0x10, 0, 0]);
}

#[test]
fn the_usual_statuses_are_one_byte() {
    let mut encoder = HpackEncoder::new();
    let usual = [200, 204, 206, 304, 400, 404, 500].map(|code| status(&mut encoder, code));
    assert_eq!(usual.concat(), [0x88, 0x89, 0x8a, 0x8b, 0x8c, 0x8d, 0x8e]);
    assert_eq!(status(&mut encoder, 302), b"\x48\x03302");
    assert_eq!(status(&mut encoder, 302), [0xbe]);
    assert_eq!(status(&mut encoder, 999), b"\x48\x03999");
    assert_eq!(status(&mut encoder, 302), [0xbf]);
    encoder.limit(0);
    assert_eq!(status(&mut encoder, 302), b"\x20\x08\x03302");
    assert_eq!(status(&mut encoder, 302), b"\x08\x03302");
}

/// Limits between two blocks, and the front of the next block.
#[test]
fn limits_are_announced_once() {
    let cases: [(&[usize], &[u8]); 8] = [
        (&[], &[]),
        (&[4096], &[]),
        (&[65_536, 5000], &[]),
        (&[0], &[0x20]),
        (&[0, 4096], &[0x20, 0x3f, 0xe1, 0x1f]),
        (&[256, 0, 100], &[0x20, 0x3f, 69]),
        (&[100, 30], &[0x3e]),
        (&[8192, 30, 8192], &[0x3e, 0x3f, 0xe1, 0x1f]),
    ];
    for (limits, front) in cases {
        let mut encoder = HpackEncoder::new();
        limits.iter().for_each(|&limit| encoder.limit(limit));
        let mut out = Vec::new();
        encoder.begin(&mut out);
        assert_eq!(out, front, "{limits:?}");
        encoder.begin(&mut out);
        assert_eq!(out, front, "{limits:?}");
    }
}

#[test]
fn a_limit_evicts_entries_with_the_next_block() {
    let mut encoder = HpackEncoder::new();
    one(&mut encoder, "xx", "||", Indexing::Yes);
    one(&mut encoder, "yy", "||", Indexing::Yes);
    encoder.limit(36);
    let mut out = Vec::new();
    // The current block continues with the table that it began with.
    encoder.field(b"xx", b"||", Indexing::Yes, &mut out);
    assert_eq!(out, [0xbf]);
    assert_eq!(one(&mut encoder, "yy", "||", Indexing::Yes), [0x3f, 5, 0xbe]);
    assert_eq!(one(&mut encoder, "xx", "|||", Indexing::Yes), b"\x00\x02xx\x03|||");
    assert_eq!(one(&mut encoder, "yy", "||", Indexing::Yes), [0xbe]);
}

#[test]
fn a_field_larger_than_the_table_does_not_change_it() {
    let (mut encoder, mut decoder) = (HpackEncoder::new(), HpackDecoder::new(4096));
    let fits = "v".repeat(4096 - 32 - 2);
    for (value, held) in [("||", 1), (&format!("{fits}v")[..], 1), (&fits[..], 1)] {
        let block = one(&mut encoder, "xx", value, Indexing::Yes);
        assert_eq!(read(&mut decoder, &block), Ok(vec![field("xx", value)]));
        assert_eq!(table(&mut decoder).len(), held);
    }
    assert_eq!(decoder.size(), 4096);
}

#[test]
fn a_table_that_is_always_full_stays_in_step() {
    let (mut encoder, mut decoder) = (HpackEncoder::new(), HpackDecoder::new(4096));
    for turn in 0..2000 {
        // A few large entries, then many of the smallest.
        let value = if turn % 500 < 200 { "x".repeat(turn * 7 % 3000) } else { (turn % 9).to_string() };
        let block = one(&mut encoder, "", &format!("{turn}{value}"), Indexing::Yes);
        assert_eq!(read(&mut decoder, &block), Ok(vec![field("", &format!("{turn}{value}"))]));
        let block = one(&mut encoder, "", &format!("{turn}{value}"), Indexing::Yes);
        assert_eq!(block, [0xbe]);
    }
}
