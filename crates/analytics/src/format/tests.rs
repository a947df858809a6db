//! Whole lines through every format; round trips through a reference formatter.

mod lines;
mod named;
mod own;
mod roundtrip;

use super::{LogFormat, Parser};

fn parser(format: &LogFormat) -> Parser {
    format.parser(0)
}
