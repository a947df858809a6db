//! Arbitrary bytes as three header blocks of one connection, for tables of two sizes. Nothing panics, no table
//! grows beyond its size, what was decoded and is encoded again reads the same, and what the table says of a field is
//! what it would be if it had come as a literal. A head that is made of a block is within its bound.
//!
//! The first two bytes of the input are the lengths of the first two blocks; the third is the rest.

#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_http::field::FieldClass;
use offramp_http::head::{FieldSection, Fields, Request};
use offramp_http::hpack::{HpackDecoder, HpackEncoder, Indexing};

fuzz_target!(|data: &[u8]| {
    let Some((lengths, bytes)) = data.split_first_chunk::<2>() else { return };
    let (first, rest) = bytes.split_at(bytes.len().min(lengths[0].into()));
    let (second, third) = rest.split_at(rest.len().min(lengths[1].into()));
    for most in [4096, 64] {
        connection([first, second, third], most);
    }
});

fn connection(blocks: [&[u8]; 3], most: usize) {
    let (mut decoder, mut encoder, mut again) =
        (HpackDecoder::new(most), HpackEncoder::new(), HpackDecoder::new(most));
    encoder.limit(most);
    for block in blocks {
        let fields = match read(&mut decoder, block) {
            Ok(fields) => fields,
            Err(fault) => {
                assert!(!fault.to_string().is_empty());
                return;
            }
        };
        assert!(decoder.size() <= most);
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (at, Field(name, value)) in fields.iter().enumerate() {
            let indexing = [Indexing::Yes, Indexing::Yes, Indexing::No, Indexing::Never][at % 4];
            encoder.field(name, value, indexing, &mut out);
        }
        assert_eq!(read(&mut again, &out), Ok(fields));
        assert!(again.size() <= most);
    }
}

/// A block's fields, of which a short block can have many large ones: none beyond 64 KiB are kept.
fn read(decoder: &mut HpackDecoder, block: &[u8]) -> Result<Vec<Field>, offramp_http::HpackFault> {
    let (mut fields, mut total) = (Vec::new(), 0);
    let mut section = FieldSection::new(Fields::new(), HEAD);
    decoder.decode(block, |field| {
        let (name, value) = (field.name(), field.value());
        assert_eq!(field.size(), name.len() + value.len() + 32);
        assert_eq!(field.line(), [name, b": ", value, b"\r\n"].concat());
        assert_eq!(field.kind(), FieldClass::of(name, value));
        total += field.size();
        if total <= 65_536 {
            fields.push(Field(name.to_vec(), value.to_vec()));
        }
        section.take(field);
    })?;
    let mut head = Request::new();
    if section.request(&mut head).is_some() {
        assert!(head.fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= HEAD);
        assert!(!head.target().is_empty());
    }
    Ok(fields)
}

/// The bound of a head.
const HEAD: usize = 2048;

/// Name and value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field(Vec<u8>, Vec<u8>);
