//! From header blocks to fields.

use std::collections::VecDeque;
use std::ops::Range;

use super::tables::{SIZES, STATIC};
use super::{HpackFault, INITIAL, OVERHEAD, huffman, integer};

/// What a decoder keeps of a field and gives to whoever reads a block.
pub trait Entry: Clone {
    /// Entry `index` (1 to 61) of the static table (RFC 7541 Appendix A), [`STATIC`].
    fn of_static(index: usize) -> Self;

    /// A field that came as a literal. Whatever the bytes are; whether they are allowed is the implementor's
    /// business.
    fn new(name: &[u8], value: &[u8]) -> Self;

    /// The name of this one with another value.
    #[must_use]
    fn with_value(&self, value: &[u8]) -> Self;
}

/// Decodes the header blocks of one direction of a connection (RFC 7541 §3).
#[derive(Debug)]
pub struct Decoder<E> {
    /// The dynamic table, the newest entry first (RFC 7541 §2.3.2).
    table: VecDeque<Held<E>>,
    size: usize,
    /// The size that the peer has chosen, at most `most`.
    limit: usize,
    most: usize,
    /// Where strings are decoded; both strings of a field stand in it together.
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Held<E> {
    entry: E,
    name: usize,
    size: usize,
}

/// Where a string of a literal stands.
enum Text {
    Plain(Range<usize>),
    Decoded(Range<usize>),
}

/// The most bytes of room for decoded strings that stay from block to block: more than the fields of most
/// blocks need, and little enough for connections that are quiet.
const KEPT: usize = 2048;

impl<E: Entry> Decoder<E> {
    /// A decoder whose table is empty. `most` is what SETTINGS_HEADER_TABLE_SIZE says to the peer, in bytes.
    ///
    /// The table begins with 4096 bytes, or with `most` if that is less; a peer that wants more says so at the
    /// front of a block. One that has not yet read a `most` below 4096 may use more than is held here, which
    /// ends in a fault.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { table: VecDeque::new(), size: 0, limit: most.min(INITIAL), most, scratch: Vec::new() }
    }

    /// Decodes one whole header block: what HEADERS and CONTINUATION carried, put together. `take` is called
    /// per field, in order, with its size: the lengths of its name and value, and 32 (RFC 9113 §6.5.2, RFC
    /// 7541 §4.1).
    ///
    /// # Errors
    /// The first fault. The fields before it were taken; the decoder is of no use any more.
    pub fn decode(&mut self, block: &[u8], mut take: impl FnMut(E, usize)) -> Result<(), HpackFault> {
        let mut at = 0;
        while block.get(at).is_some_and(|byte| byte & 0xe0 == 0x20) {
            let limit = integer::decode(block, &mut at, 5)?;
            if limit > self.most {
                return Err(HpackFault::SizeUpdateTooLarge);
            }
            self.limit = limit;
            self.evict(limit);
        }
        while let Some(&byte) = block.get(at) {
            if byte >= 0x80 {
                let index = integer::decode(block, &mut at, 7)?;
                let (entry, size) = self.indexed(index)?;
                take(entry, size);
            } else if byte >= 0x40 {
                let held = self.literal(block, &mut at, 6)?;
                take(held.entry.clone(), held.size);
                self.insert(held);
            } else if byte < 0x20 {
                let held = self.literal(block, &mut at, 4)?;
                take(held.entry, held.size);
            } else {
                return Err(HpackFault::SizeUpdateLate);
            }
        }
        if self.scratch.len() > KEPT {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// Bytes that the dynamic table holds, as RFC 7541 §4.1 counts.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    #[inline]
    fn indexed(&self, index: usize) -> Result<(E, usize), HpackFault> {
        match index.checked_sub(1) {
            None => Err(HpackFault::IndexZero),
            Some(at) if at < STATIC.len() => Ok((E::of_static(index), usize::from(SIZES[at]))),
            Some(at) => {
                let held = self.table.get(at - STATIC.len()).ok_or(HpackFault::IndexTooLarge)?;
                Ok((held.entry.clone(), held.size))
            }
        }
    }

    /// Reads a literal whose index of a name has a prefix of `bits` bits (RFC 7541 §6.2).
    fn literal(&mut self, block: &[u8], at: &mut usize, bits: u32) -> Result<Held<E>, HpackFault> {
        let index = integer::decode(block, at, bits)?;
        let name = if index == 0 { Some(self.text(block, at, 0)?) } else { None };
        let front = if let Some(Text::Decoded(name)) = &name { name.end } else { 0 };
        let value = self.text(block, at, front)?;
        let bytes = |text: Text| match text {
            Text::Plain(range) => &block[range],
            Text::Decoded(range) => &self.scratch[range],
        };
        let value = bytes(value);
        let (entry, name) = match (name, index) {
            (Some(name), _) => {
                let name = bytes(name);
                (E::new(name, value), name.len())
            }
            (None, 1..=61) => (E::of_static(index).with_value(value), STATIC[index - 1].0.len()),
            (None, _) => {
                let held = self.table.get(index - 1 - STATIC.len()).ok_or(HpackFault::IndexTooLarge)?;
                (held.entry.with_value(value), held.name)
            }
        };
        Ok(Held { entry, name, size: name + value.len() + OVERHEAD })
    }

    /// Reads a string (RFC 7541 §5.2), and decodes it behind the first `front` bytes of the scratch.
    #[inline]
    fn text(&mut self, block: &[u8], at: &mut usize, front: usize) -> Result<Text, HpackFault> {
        let coded = block.get(*at).is_some_and(|byte| byte & 0x80 != 0);
        let length = integer::decode(block, at, 7)?;
        let from = *at;
        let bytes = block[from..].get(..length).ok_or(HpackFault::StringTooLong)?;
        *at = from + length;
        if !coded {
            return Ok(Text::Plain(from..from + length));
        }
        let room = front + huffman::room(length);
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        let length = huffman::decode(bytes, &mut self.scratch[front..])?;
        Ok(Text::Decoded(front..front + length))
    }

    /// Puts an entry in front of the others. One that is larger than the table empties it and is not kept (RFC
    /// 7541 §4.4).
    fn insert(&mut self, held: Held<E>) {
        self.evict(self.limit.saturating_sub(held.size));
        if held.size <= self.limit {
            self.size += held.size;
            self.table.push_front(held);
        }
    }

    /// Drops the oldest entries until the others have at most `size` bytes.
    #[inline]
    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(held) = self.table.pop_back()
        {
            self.size -= held.size;
        }
    }
}
