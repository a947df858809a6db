//! The text of a configuration, with the conversion of byte offsets to places.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Place;

/// A range of bytes of a [`SourceText`].
pub(crate) type Span = std::ops::Range<usize>;

/// The texts of a configuration, concatenated: the main file, then the files that it includes.
///
/// One offset identifies a place in any of them, so that all problems have one order.
#[derive(Debug)]
pub(crate) struct SourceText {
    text: String,
    /// The files in order; at least one.
    files: Vec<SourceFile>,
    line_starts: Vec<usize>,
}

/// One file within the text.
#[derive(Debug)]
struct SourceFile {
    /// The name in messages.
    name: Arc<str>,
    /// The directory that relative paths start from.
    folder: PathBuf,
    start: usize,
    /// The number of lines before this file.
    first_line: usize,
}

impl SourceText {
    /// The source of one file.
    pub(crate) fn new(name: &str, folder: &Path, text: &str) -> Self {
        let file = SourceFile { name: name.into(), folder: folder.to_owned(), start: 0, first_line: 0 };
        let mut source = SourceText { text: String::new(), files: vec![file], line_starts: vec![0] };
        source.extend(text);
        source
    }

    pub(crate) fn add(&mut self, name: &str, folder: &Path, text: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.extend("\n");
        }
        let (start, first_line) = (self.text.len(), self.line_starts.len() - 1);
        self.files.push(SourceFile { name: name.into(), folder: folder.to_owned(), start, first_line });
        self.extend(text);
    }

    fn extend(&mut self, text: &str) {
        let base = self.text.len();
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        self.line_starts.extend(newlines.map(|(at, _)| base + at + 1));
        self.text.push_str(text);
    }

    /// The name of the main file.
    pub(crate) fn name(&self) -> &str {
        &self.files[0].name
    }

    /// Each file with its start offset.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &str)> {
        let ends = self.files.iter().skip(1).map(|file| file.start).chain([self.text.len()]);
        self.files.iter().zip(ends).map(|(file, end)| (file.start, &self.text[file.start..end]))
    }

    /// The directory that relative paths at an offset start from.
    pub(crate) fn folder(&self, offset: usize) -> &Path {
        &self.file(offset).folder
    }

    fn file(&self, offset: usize) -> &SourceFile {
        &self.files[self.files.partition_point(|file| file.start <= offset).max(1) - 1]
    }

    /// The line of an offset, from 0, over all files.
    pub(crate) fn line(&self, offset: usize) -> usize {
        let offset = self.floor(offset);
        self.line_starts.partition_point(|start| *start <= offset) - 1
    }

    pub(crate) fn place(&self, offset: usize) -> Place {
        let offset = self.floor(offset);
        let (line, file) = (self.line(offset), self.file(offset));
        let column = self.text[self.line_starts[line]..offset].chars().count() + 1;
        Place { file: file.name.clone(), line: line - file.first_line + 1, column }
    }

    /// The text of the line of an offset.
    pub(super) fn line_at(&self, offset: usize) -> &str {
        let line = self.line(offset);
        let end = self.line_starts.get(line + 1).copied().unwrap_or(self.text.len());
        self.text[self.line_starts[line]..end].trim_end_matches(['\n', '\r'])
    }

    /// The text of a range, cut to the source.
    pub(crate) fn slice(&self, span: &Span) -> &str {
        &self.text[self.floor(span.start)..self.floor(span.end.max(span.start))]
    }

    /// The nearest character boundary at or before the offset.
    fn floor(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_names_a_file_and_its_line() {
        let mut source = SourceText::new("a", Path::new("/a"), "one\ntwo");
        source.add("b", Path::new("/b"), "");
        source.add("c", Path::new("/c"), "x = 1\ny = 2\n");
        let starts: Vec<_> = source.files().collect();
        assert_eq!(starts, [(0, "one\ntwo\n"), (8, ""), (8, "x = 1\ny = 2\n")]);
        let at =
            |offset| (source.place(offset).to_string(), source.folder(offset).to_str().unwrap().to_owned());
        assert_eq!(at(5), ("a:2:2".into(), "/a".into()));
        assert_eq!(at(8), ("c:1:1".into(), "/c".into()));
        assert_eq!(at(16), ("c:2:3".into(), "/c".into()));
        assert_eq!((source.line_at(5), source.line_at(16)), ("two", "y = 2"));
        assert_eq!(source.slice(&(14..999)), "y = 2\n");
    }
}
