//! Header blocks of HTTP/2, from outside.

mod examples;
mod faults;
mod forms;
mod laws;

use offramp_http::HpackFault;
use offramp_http::hpack::{Decoder, Entry, STATIC};

/// A field as its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Entry for Field {
    fn of_static(index: usize) -> Self {
        let (name, value) = STATIC[index - 1];
        Self::new(name.as_bytes(), value.as_bytes())
    }

    fn new(name: &[u8], value: &[u8]) -> Self {
        Self { name: name.to_vec(), value: value.to_vec() }
    }

    fn with_value(&self, value: &[u8]) -> Self {
        Self { name: self.name.clone(), value: value.to_vec() }
    }
}

pub(crate) fn field(name: &str, value: &str) -> Field {
    Field::new(name.as_bytes(), value.as_bytes())
}

/// The fields of a block, with their sizes looked at.
pub(crate) fn read(decoder: &mut Decoder<Field>, block: &[u8]) -> Result<Vec<Field>, HpackFault> {
    let mut fields = Vec::new();
    decoder.decode(block, |field, size| {
        assert_eq!(size, field.name.len() + field.value.len() + 32);
        fields.push(field);
    })?;
    Ok(fields)
}

/// What the dynamic table holds, the newest first, asked by index.
pub(crate) fn table(decoder: &mut Decoder<Field>) -> Vec<Field> {
    let held: Vec<Field> =
        (62..127).map_while(|index: u8| read(decoder, &[0x80 | index]).ok()).flatten().collect();
    assert_eq!(decoder.size(), held.iter().map(|field| field.name.len() + field.value.len() + 32).sum());
    held
}
