//! The harness as a program: bad input, interrupts, and a short run with whatever is installed.

mod bad_input;
mod namespace;
mod short_run;

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program in `dir` with arguments separated by spaces.
fn bench(dir: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_offramp-bench"))
        .args(args.split_ascii_whitespace())
        .current_dir(dir)
        .output()
        .unwrap()
}

/// Both outputs in one, for assertions.
fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
