//! Whole lines through every format; round trips through a reference formatter.

mod lines;
mod named;
mod own;
mod roundtrip;

use super::{InputFormat, Parser};

fn parser(format: &InputFormat) -> Parser {
    format.parser(0)
}
