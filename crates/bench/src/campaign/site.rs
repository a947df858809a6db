//! The files that servers of files are asked for.

use std::fmt::Write as _;
use std::path::Path;

use crate::error::{Result, make_dir, write_file};
use crate::scenario::Asked;

/// Bytes of each page, and of the large file.
const PAGE: usize = 8 << 10;
const LARGE: usize = 1 << 20;
/// Bytes of the document that is compressed as it leaves, about.
const DOCUMENT: usize = 20 << 10;

/// Writes them below `root`.
///
/// # Errors
/// When they cannot be written.
pub(super) fn write(root: &Path) -> Result<()> {
    let pages = make_dir(&root.join("pages"))?;
    for number in 0..Asked::PAGES {
        write_file(&pages.join(format!("{number:04}.html")), text(number, PAGE))?;
    }
    write_file(&root.join("large.bin"), text(Asked::PAGES, LARGE))?;
    write_file(&root.join("data.json"), document())
}

/// So many bytes, others in each file.
fn text(seed: usize, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 80);
    let mut line = seed;
    while text.len() < bytes {
        let _ = writeln!(text, "<p>page {seed}, line {line}: what a reader of this page would see here</p>");
        line += 1;
    }
    text.truncate(bytes);
    text
}

/// Records as an API answers with, of numbers that do not repeat and words that do.
fn document() -> String {
    let mut text = String::from("[");
    let mut number = 1_u64;
    while text.len() < DOCUMENT {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (id, price, stock) = (number >> 40, (number >> 20) % 100_000, (number >> 10) % 1_000);
        let kind = ["book", "record", "instrument", "score"][(number >> 33) as usize % 4];
        let _ = write!(
            text,
            r#"{}{{"id":{id},"kind":"{kind}","price":{}.{:02},"stock":{stock},"available":{}}}"#,
            if text.len() > 1 { "," } else { "" },
            price / 100,
            price % 100,
            stock > 0,
        );
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_sizes_that_are_told() {
        assert_eq!(text(3, PAGE).len(), PAGE);
        assert_ne!(text(3, PAGE), text(4, PAGE));
        let document = document();
        assert!((DOCUMENT..DOCUMENT + 100).contains(&document.len()));
        assert!(serde_json::from_str::<Vec<serde_json::Value>>(&document).unwrap().len() > 100);
    }
}
