//! Round trips of any plaintext, under any split of the wire, for every version and suite.

use offramp_record::aead::Library;
use offramp_record::{
    ContentType, KeyMaterial, LibraryChoice, Opener, PlaintextSpan, RecordEvent, Sealer, Suite, Version,
};
use proptest::prelude::*;

pub(crate) fn keys(version: Version, suite: Suite, seed: u8) -> KeyMaterial {
    KeyMaterial::new(version, suite, &vec![seed; suite.key_len()], [seed ^ 0x55; 12], 3).unwrap()
}

/// Action of the sender.
#[derive(Clone, Debug)]
enum Act {
    Data { slot: usize, bytes: Vec<u8> },
    KeyUpdate { ask: bool },
    Warning,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1usize..=16384, proptest::collection::vec(any::<u8>(), 1..40_000))
            .prop_map(|(slot, bytes)| Act::Data { slot, bytes }),
        1 => any::<bool>().prop_map(|ask| Act::KeyUpdate { ask }),
        1 => Just(Act::Warning),
    ]
}

fn suite() -> impl Strategy<Value = Suite> {
    proptest::sample::select(Suite::ALL.to_vec())
}

fn library() -> impl Strategy<Value = LibraryChoice> {
    proptest::sample::select(Library::ALL.to_vec()).prop_map(LibraryChoice::always)
}

/// Seals `acts`; returns the wire, the plaintext, and the number of key changes.
fn send(version: Version, suite: Suite, choice: &LibraryChoice, acts: &[Act]) -> (Vec<u8>, Vec<u8>, u8) {
    let mut sealer = Sealer::new(&keys(version, suite, 1), choice);
    let (mut wire, mut plain, mut generation) = (Vec::new(), Vec::new(), 1);
    let mut block = vec![0xee; 100_000];
    let mut warnings = 0;
    for act in acts {
        match act {
            Act::Data { slot, bytes } => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let layout = sealer.layout(*slot, block.len(), 16);
                    let filled = layout.fill(&mut block, [rest]);
                    let sealed = sealer.seal(&layout, &mut block, filled);
                    wire.extend_from_slice(&block[..sealed]);
                    rest = &rest[filled..];
                }
                plain.extend_from_slice(bytes);
            }
            Act::KeyUpdate { ask } if version == Version::Tls13 => {
                sealer.seal_message(ContentType::Handshake, &[24, 0, 0, 1, u8::from(*ask)], &mut wire);
                generation += 1;
                sealer.rekey(&keys(version, suite, generation));
            }
            Act::Warning if warnings < 4 => {
                sealer.seal_message(ContentType::Alert, &[1, 90], &mut wire);
                warnings += 1;
            }
            Act::KeyUpdate { .. } | Act::Warning => {}
        }
    }
    sealer.seal_message(ContentType::Alert, &[1, 0], &mut wire);
    (wire, plain, generation)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn sealed_plaintext_is_opened(
        version in proptest::sample::select(vec![Version::Tls12, Version::Tls13]),
        suite in suite(),
        sealing in library(),
        opening in library(),
        acts in proptest::collection::vec(act(), 0..12),
        splits in proptest::collection::vec(1usize..20_000, 1..40),
        spans in 1usize..20,
    ) {
        let (wire, plain, generations) = send(version, suite, &sealing, &acts);
        let mut opener = Opener::new(&keys(version, suite, 1), &opening);
        let mut spans = vec![PlaintextSpan::default(); spans];
        let (mut buffer, mut got, mut generation) = (Vec::new(), Vec::new(), 1);
        let mut rest = &wire[..];
        let mut splits = splits.iter().cycle();
        let closed = 'outer: loop {
            let take = rest.len().min(*splits.next().unwrap());
            buffer.extend_from_slice(&rest[..take]);
            rest = &rest[take..];
            loop {
                let opened = opener.open(&mut buffer, &mut spans);
                for span in &spans[..opened.spans] {
                    prop_assert!(span.len > 0 && span.start + span.len <= opened.consumed);
                    got.extend_from_slice(span.of(&buffer));
                }
                buffer.drain(..opened.consumed);
                match opened.event {
                    RecordEvent::NeedMore(missing) => {
                        prop_assert!(missing > 0);
                        break;
                    }
                    RecordEvent::Full => {}
                    RecordEvent::KeyUpdate { .. } => {
                        generation += 1;
                        opener.rekey(&keys(version, suite, generation));
                    }
                    RecordEvent::CloseNotify => break 'outer buffer.is_empty(),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert!(!rest.is_empty(), "the wire ended before close_notify");
        };
        prop_assert!(closed);
        prop_assert_eq!(got, plain);
        prop_assert_eq!(generation, generations);
    }

    #[test]
    fn any_flipped_bit_is_detected(
        version in proptest::sample::select(vec![Version::Tls12, Version::Tls13]),
        suite in suite(),
        bytes in proptest::collection::vec(any::<u8>(), 1..200),
        at in any::<proptest::sample::Index>(),
        bit in 0u8..8,
    ) {
        let choice = LibraryChoice::always(Library::Ring);
        let mut sealer = Sealer::new(&keys(version, suite, 1), &choice);
        let mut wire = Vec::new();
        sealer.seal_message(ContentType::ApplicationData, &bytes, &mut wire);
        let at = at.index(wire.len());
        wire[at] ^= 1 << bit;
        let mut spans = [PlaintextSpan::default(); 4];
        let opened = Opener::new(&keys(version, suite, 1), &choice).open(&mut wire, &mut spans);
        let legacy_version = version == Version::Tls13 && at == 2;
        prop_assert_eq!(opened.spans, usize::from(legacy_version));
        // An increased length waits for more bytes; every other flip is a fault.
        let longer = matches!(at, 3 | 4) && matches!(opened.event, RecordEvent::NeedMore(_));
        prop_assert!(longer || legacy_version || matches!(opened.event, RecordEvent::Fault(_)), "{:?}", opened.event);
    }

    #[test]
    fn garbage_never_panics(
        version in proptest::sample::select(vec![Version::Tls12, Version::Tls13]),
        mut bytes in proptest::collection::vec(any::<u8>(), 0..600),
        header in any::<bool>(),
    ) {
        if header && bytes.len() > 5 {
            bytes[..3].copy_from_slice(&[23, 3, 3]);
            let body = (bytes.len() - 5) as u16;
            bytes[3..5].copy_from_slice(&body.to_be_bytes());
        }
        let length = bytes.len();
        let mut spans = [PlaintextSpan::default(); 2];
        let opened = Opener::new(&keys(version, Suite::Aes128Gcm, 1), &LibraryChoice::always(Library::AwsLc))
            .open(&mut bytes, &mut spans);
        prop_assert!(opened.consumed <= length && opened.spans == 0);
    }
}
