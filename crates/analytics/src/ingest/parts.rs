//! Compressed files of several parts, and zeros behind them: tapes, block devices and some archives pad with those.

use std::io::{self, BufRead};

/// The place behind a part, or in front of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Another compressed part begins here.
    Begins,
    End,
    /// So many bytes are in the reader's buffer, which are no part; more may follow them.
    Strange(usize),
}

/// Steps over zeros, and says what is behind them. A part begins with one of some marks; of a mark that the buffer has
/// not whole, its beginning is enough.
pub(super) fn next_part(reader: &mut impl BufRead, marks: &[&[u8]]) -> io::Result<Part> {
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(Part::End);
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if zeros == 0 {
            let is_mark = |mark: &&[u8]| {
                let length = mark.len().min(bytes.len());
                bytes[..length] == mark[..length]
            };
            return Ok(if marks.iter().any(is_mark) { Part::Begins } else { Part::Strange(bytes.len()) });
        }
        reader.consume(zeros);
    }
}
