//! Arbitrary bytes as three header blocks of one connection, for tables of two sizes. Nothing panics, no table
//! grows beyond its size, and what was decoded and is encoded again reads the same.
//!
//! The first two bytes of the input are the lengths of the first two blocks; the third is the rest.

#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_http::hpack::{Decoder, Encoder, Entry, Indexing, STATIC};

fuzz_target!(|data: &[u8]| {
    let Some((lengths, bytes)) = data.split_first_chunk::<2>() else { return };
    let (first, rest) = bytes.split_at(bytes.len().min(lengths[0].into()));
    let (second, third) = rest.split_at(rest.len().min(lengths[1].into()));
    for most in [4096, 64] {
        connection([first, second, third], most);
    }
});

fn connection(blocks: [&[u8]; 3], most: usize) {
    let (mut decoder, mut encoder, mut again) = (Decoder::new(most), Encoder::new(), Decoder::new(most));
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
fn read(decoder: &mut Decoder<Field>, block: &[u8]) -> Result<Vec<Field>, offramp_http::HpackFault> {
    let (mut fields, mut total) = (Vec::new(), 0);
    decoder.decode(block, |field: Field, size| {
        assert_eq!(size, field.0.len() + field.1.len() + 32);
        total += size;
        if total <= 65_536 {
            fields.push(field);
        }
    })?;
    Ok(fields)
}

/// Name and value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field(Vec<u8>, Vec<u8>);

impl Entry for Field {
    fn of_static(index: usize) -> Self {
        let (name, value) = STATIC[index - 1];
        Self::new(name.as_bytes(), value.as_bytes())
    }

    fn new(name: &[u8], value: &[u8]) -> Self {
        Self(name.to_vec(), value.to_vec())
    }

    fn with_value(&self, value: &[u8]) -> Self {
        Self(self.0.clone(), value.to_vec())
    }
}
