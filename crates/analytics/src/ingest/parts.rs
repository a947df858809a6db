//! Parts of compressed files, and zero padding after them, as on tapes, block devices and in some archives.

use std::io::{self, BufRead};

/// The data before the first part or after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompressedPart {
    /// Another compressed part starts here.
    Begins,
    End,
    /// This many buffered bytes are not a part; more may follow.
    Strange(usize),
}

/// Skips zeros and classifies the data after them. A part starts with one of `marks`; a prefix of a mark
/// suffices if the buffer ends within it.
pub(super) fn next_part(reader: &mut impl BufRead, marks: &[&[u8]]) -> io::Result<CompressedPart> {
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(CompressedPart::End);
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if zeros == 0 {
            let is_mark = |mark: &&[u8]| {
                let length = mark.len().min(bytes.len());
                bytes[..length] == mark[..length]
            };
            return Ok(if marks.iter().any(is_mark) {
                CompressedPart::Begins
            } else {
                CompressedPart::Strange(bytes.len())
            });
        }
        reader.consume(zeros);
    }
}
