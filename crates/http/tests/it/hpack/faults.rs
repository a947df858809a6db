//! Faulty blocks, each with its reason, and valid ones close to them.

use std::collections::HashSet;

use offramp_http::HpackFault;
use offramp_http::hpack::HpackDecoder;

use super::{Field, field, read, table};

/// Result of a new decoder, with a table of 4096 bytes, for a block.
fn fault(block: &[u8]) -> Result<Vec<Field>, HpackFault> {
    read(&mut HpackDecoder::new(4096), block)
}

#[test]
fn every_fault_has_a_block() {
    let cases: [(&[u8], HpackFault); 30] = [
        // A missing integer, string, and value.
        (&[0xff], HpackFault::Truncated),
        (&[0xff, 0x80], HpackFault::Truncated),
        (&[0x3f], HpackFault::Truncated),
        (&[0x40], HpackFault::Truncated),
        (&[0x40, 0x01, b'a'], HpackFault::Truncated),
        (&[0x00, 0x81, 0x07], HpackFault::Truncated),
        (&[0x44], HpackFault::Truncated),
        (&[0x82, 0x40, 0x7f], HpackFault::Truncated),
        (&[0x40, 0x02, b'a'], HpackFault::StringTooLong),
        (&[0x44, 0x01], HpackFault::StringTooLong),
        (&[0x14, 0x81], HpackFault::StringTooLong),
        (&[0x04, 0x7f, 0xff, 0xff, 0xff, 0x7f], HpackFault::StringTooLong),
        (&[0xff, 0x80, 0x00], HpackFault::Integer),
        (&[0xff, 0x80, 0x80, 0x80, 0x80, 0x01], HpackFault::Integer),
        (&[0x04, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], HpackFault::Integer),
        (&[0x3f, 0xff, 0xff, 0xff, 0xff, 0x0f], HpackFault::Integer),
        (&[0x80], HpackFault::IndexZero),
        (&[0x82, 0x80], HpackFault::IndexZero),
        (&[0xbe], HpackFault::IndexTooLarge),
        (&[0xff, 0xff, 0xff, 0xff, 0x7f], HpackFault::IndexTooLarge),
        (&[0x7e, 0x01, b'a'], HpackFault::IndexTooLarge),
        (&[0x0f, 0x2f, 0x01, b'a'], HpackFault::IndexTooLarge),
        (&[0x82, 0x20], HpackFault::SizeUpdateLate),
        (&[0x82, 0x3f, 0xe1, 0x1f], HpackFault::SizeUpdateLate),
        (&[0x3f, 0xe2, 0x1f], HpackFault::SizeUpdateTooLarge),
        (&[0x20, 0x3f, 0xff, 0xff, 0xff, 0x7f], HpackFault::SizeUpdateTooLarge),
        (&[0x44, 0x84, 0xff, 0xff, 0xff, 0xff], HpackFault::HuffmanEnd),
        (&[0x44, 0x81, 0xff], HpackFault::HuffmanPaddingTooLong),
        (&[0x00, 0x82, 0x1f, 0xff, 0x01, b'a'], HpackFault::HuffmanPaddingTooLong),
        (&[0x44, 0x81, 0x00], HpackFault::HuffmanPadding),
    ];
    for (block, expected) in cases {
        assert_eq!(fault(block), Err(expected), "{block:x?}");
    }
    let seen: HashSet<HpackFault> = cases.iter().map(|&(_, fault)| fault).collect();
    assert_eq!(seen.len(), HpackFault::ALL.len());
}

#[test]
fn faults_have_distinct_names_and_sentences() {
    let names: HashSet<&str> = HpackFault::ALL.iter().map(|fault| fault.name()).collect();
    let sentences: HashSet<String> = HpackFault::ALL.iter().map(ToString::to_string).collect();
    assert_eq!((names.len(), sentences.len()), (HpackFault::ALL.len(), HpackFault::ALL.len()));
    assert!(names.iter().all(|name| name.starts_with("hpack_")));
}

#[test]
fn valid_blocks_next_to_faults() {
    let cases: [(&[u8], Vec<Field>); 8] = [
        (&[], vec![]),
        (&[0x20, 0x3f, 0xe1, 0x1f], vec![]),
        (&[0x20, 0x20, 0x20, 0x82], vec![field(":method", "GET")]),
        (&[0xbd], vec![field("www-authenticate", "")]),
        (&[0x40, 0x00, 0x00], vec![field("", "")]),
        (&[0x40, 0x80, 0x80], vec![field("", "")]),
        (&[0x04, 0x00], vec![field(":path", "")]),
        (&[0x40, 0x01, b'a', 0x81, 0x1f, 0xbe], vec![field("a", "a"), field("a", "a")]),
    ];
    for (block, expected) in cases {
        assert_eq!(fault(block), Ok(expected), "{block:x?}");
    }
}

/// A literal for the table, with a name and a value of one repeated byte, both below 127 bytes.
fn literal(name: usize, value: usize) -> Vec<u8> {
    let string = |byte: u8, length: usize| [vec![length as u8], vec![byte; length]].concat();
    [vec![0x40], string(b'n', name), string(b'v', value)].concat()
}

#[test]
fn entries_are_evicted() {
    let mut decoder = HpackDecoder::new(128);
    for _ in 0..3 {
        read(&mut decoder, &literal(5, 5)).unwrap();
    }
    assert_eq!((decoder.size(), table(&mut decoder).len()), (3 * 42, 3));
    // A name may be that of the entry that is evicted for it (§4.4).
    let fields = read(&mut decoder, &[0x7f, 0x01, 0x01, b'x']).unwrap();
    assert_eq!(fields, [field("nnnnn", "x")]);
    assert_eq!(table(&mut decoder), [field("nnnnn", "x"), field("nnnnn", "vvvvv"), field("nnnnn", "vvvvv")]);
    // An entry as large as the table is alone; a larger one empties it.
    read(&mut decoder, &literal(48, 48)).unwrap();
    assert_eq!((decoder.size(), table(&mut decoder).len()), (128, 1));
    read(&mut decoder, &literal(48, 49)).unwrap();
    assert_eq!((decoder.size(), table(&mut decoder)), (0, vec![]));
}

#[test]
fn the_peer_chooses_the_size_up_to_the_offer() {
    let mut decoder = HpackDecoder::new(100);
    assert_eq!(read(&mut decoder, &[0x3f, 70]), Err(HpackFault::SizeUpdateTooLarge));
    let mut decoder = HpackDecoder::new(100);
    read(&mut decoder, &literal(5, 5)).unwrap();
    read(&mut decoder, &literal(5, 6)).unwrap();
    assert_eq!(read(&mut decoder, &[0x3f, 43 - 31, 0xbe]), Ok(vec![field("nnnnn", "vvvvvv")]));
    assert_eq!((decoder.size(), table(&mut decoder).len()), (43, 1));
    assert_eq!(read(&mut decoder, &[0x20, 0x3f, 69, 0xbe]), Err(HpackFault::IndexTooLarge));
    // More than 4096 bytes are available once the peer has said so.
    let mut decoder = HpackDecoder::new(10_000);
    let large = [&[0x40, 1, b'n', 0x7f, 0x81, 0x27][..], &[b'v'; 5120]].concat();
    read(&mut decoder, &large).unwrap();
    assert_eq!(decoder.size(), 0);
    read(&mut decoder, &[&[0x3f, 0xf1, 0x4d][..], &large].concat()).unwrap();
    assert_eq!(decoder.size(), 5153);
}
