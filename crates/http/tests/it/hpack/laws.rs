//! Encoded blocks are decoded after any history, and no block is harmful.

use offramp_http::hpack::{HpackDecoder, HpackEncoder, Indexing, STATIC};
use proptest::prelude::*;

use super::{Field, read};

/// Operation on an encoder.
#[derive(Debug, Clone)]
enum Turn {
    Limit(usize),
    Block(Vec<Sent>),
}

#[derive(Debug, Clone)]
enum Sent {
    Status(u16),
    Field(Vec<u8>, Vec<u8>, Indexing),
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => (0..STATIC.len()).prop_map(|at| STATIC[at].0.as_bytes().to_vec()),
        2 => "x-[ab]{1,2}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => (0..STATIC.len()).prop_map(|at| STATIC[at].1.as_bytes().to_vec()),
        2 => "[ab]{1,2}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..300),
        1 => (any::<u8>(), 0_usize..5000).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let indexing = prop_oneof![4 => Just(Indexing::Yes), 1 => Just(Indexing::No), 1 => Just(Indexing::Never)];
    let sent = prop_oneof![
        1 => (100_u16..1000).prop_map(Sent::Status),
        6 => (names(), values(), indexing).prop_map(|(name, value, indexing)| Sent::Field(name, value, indexing)),
    ];
    let limit = prop_oneof![Just(0), 0_usize..200, 0_usize..6000];
    let turn = prop_oneof![
        1 => limit.prop_map(Turn::Limit),
        3 => prop::collection::vec(sent, 0..20).prop_map(Turn::Block),
    ];
    prop::collection::vec(turn, 0..16)
}

fn encode(encoder: &mut HpackEncoder, block: &[Sent]) -> (Vec<u8>, Vec<Field>) {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    let fields = block.iter().map(|sent| match sent {
        Sent::Status(status) => {
            encoder.status(*status, &mut out);
            Field::new(b":status", status.to_string().as_bytes())
        }
        Sent::Field(name, value, indexing) => {
            encoder.field(name, value, *indexing, &mut out);
            Field::new(name, value)
        }
    });
    let fields = fields.collect();
    (out, fields)
}

/// Blocks that are valid more often than random bytes: their parts in any order.
fn blocks() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        (0x80_u8..=0xff).prop_map(|byte| vec![byte]),
        (prop::sample::select(vec![0x00_u8, 0x10, 0x40, 0x41, 0x7e]), values()).prop_map(|(kind, value)| {
            let mut part = vec![kind];
            let value = &value[..value.len().min(126)];
            if kind.trailing_zeros() >= 4 {
                part.extend([1, b'n']);
            }
            part.push(value.len() as u8);
            part.extend(value);
            part
        }),
        prop::collection::vec(any::<u8>(), 1..4),
    ];
    let front = prop_oneof![Just(vec![]), (0x20_u8..0x3f).prop_map(|byte| vec![byte])];
    (front, prop::collection::vec(part, 0..12)).prop_map(|(front, parts)| [front, parts.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn blocks_round_trip(turns in turns()) {
        let (mut encoder, mut decoder) = (HpackEncoder::new(), HpackDecoder::new(4096));
        let mut limit = 4096;
        for turn in turns {
            match turn {
                Turn::Limit(peers) => {
                    encoder.limit(peers);
                    limit = peers.min(4096);
                }
                Turn::Block(block) => {
                    let (block, fields) = encode(&mut encoder, &block);
                    prop_assert_eq!(read(&mut decoder, &block), Ok(fields));
                    prop_assert!(decoder.size() <= limit);
                }
            }
        }
    }

    #[test]
    fn any_block_is_harmless(
        most in prop_oneof![Just(0_usize), Just(64), Just(4096), 0_usize..20_000],
        blocks in prop::collection::vec(
            prop_oneof![blocks(), prop::collection::vec(any::<u8>(), 0..200)],
            0..6,
        ),
    ) {
        let (mut decoder, mut again) = (HpackDecoder::new(most), HpackDecoder::new(4096));
        let mut encoder = HpackEncoder::new();
        for block in blocks {
            // A decoder with a fault is unusable, but still harmless.
            let Ok(fields) = read(&mut decoder, &block) else { continue };
            prop_assert!(decoder.size() <= most);
            let sent: Vec<Sent> = fields
                .iter()
                .map(|field| Sent::Field(field.name.clone(), field.value.clone(), Indexing::Yes))
                .collect();
            let (block, _) = encode(&mut encoder, &sent);
            prop_assert_eq!(read(&mut again, &block), Ok(fields));
        }
    }
}
