//! Header blocks of HTTP/2, through the public interface.

mod examples;
mod faults;
mod forms;
mod laws;

use offramp_http::HpackFault;
use offramp_http::field::FieldClass;
use offramp_http::hpack::HpackDecoder;

/// A field by its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Field {
    pub(crate) fn new(name: &[u8], value: &[u8]) -> Self {
        Self { name: name.to_vec(), value: value.to_vec() }
    }
}

pub(crate) fn field(name: &str, value: &str) -> Field {
    Field::new(name.as_bytes(), value.as_bytes())
}

/// Fields of a block; checks their sizes, lines and classes against those of literals.
pub(crate) fn read(decoder: &mut HpackDecoder, block: &[u8]) -> Result<Vec<Field>, HpackFault> {
    let mut fields = Vec::new();
    decoder.decode(block, |field| {
        let (name, value) = (field.name(), field.value());
        assert_eq!(field.size(), name.len() + value.len() + 32);
        assert_eq!(field.line(), [name, b": ", value, b"\r\n"].concat());
        assert_eq!(field.kind(), FieldClass::of(name, value));
        fields.push(Field::new(name, value));
    })?;
    Ok(fields)
}

/// Content of the dynamic table, the newest entry first, read by index.
pub(crate) fn table(decoder: &mut HpackDecoder) -> Vec<Field> {
    let held: Vec<Field> =
        (62..127).map_while(|index: u8| read(decoder, &[0x80 | index]).ok()).flatten().collect();
    assert_eq!(decoder.size(), held.iter().map(|field| field.name.len() + field.value.len() + 32).sum());
    held
}
