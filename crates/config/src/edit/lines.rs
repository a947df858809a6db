//! The line ends of a text, which its edits keep.

use toml_edit::DocumentMut;

/// The line ends of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnds {
    Lf,
    CrLf,
}

impl LineEnds {
    /// Those of all lines of a text; LF where they differ.
    pub(super) fn of(text: &str) -> Self {
        let all = text.matches('\n').count();
        if all > 0 && text.matches("\r\n").count() == all { Self::CrLf } else { Self::Lf }
    }

    /// Gives an edited text these line ends, as the library writes LF. A text that would have other values then, such as
    /// a new string of several lines, keeps LF.
    pub(super) fn apply(self, text: String) -> String {
        if self == Self::Lf || !text.contains('\n') {
            return text;
        }
        let converted = text.replace("\r\n", "\n").replace('\n', "\r\n");
        let values = |text: &str| text.parse::<DocumentMut>().ok().map(|document| values(&document));
        if values(&converted) == values(&text) { converted } else { text }
    }
}

/// The values of a document in a form without line ends between them.
fn values(document: &DocumentMut) -> String {
    use toml_edit::visit::Visit;
    struct Strings(String);
    impl<'doc> Visit<'doc> for Strings {
        fn visit_string(&mut self, node: &'doc toml_edit::Formatted<String>) {
            self.0.push_str(node.value());
            self.0.push('\0');
        }
    }
    let mut strings = Strings(String::new());
    strings.visit_document(document);
    strings.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_keeps_its_end_and_every_string_its_value() {
        let text = "a = 1\r\nb = '''x\r\ny'''\r\n# c\r\n[t]\r\nd = [\r\n  1,\r\n]\r\n";
        let mut document: DocumentMut = text.parse().unwrap();
        let ends = LineEnds::of(text);
        assert_ne!(document.to_string(), text, "the library keeps them now");
        assert_eq!(ends.apply(document.to_string()), text);
        document["e"] = toml_edit::value("x");
        let edited = ends.apply(document.to_string());
        assert_eq!(edited, text.replace("# c\r\n", "e = \"x\"\r\n# c\r\n"));
        // A string of several lines would become another.
        document["e"] = toml_edit::value("x\ny");
        assert_eq!(ends.apply(document.to_string()), document.to_string());
        // Mixed ends, and none.
        for other in ["a = 1\r\nb = 2\n", "a = 1\n", "a = 1", ""] {
            assert_eq!(LineEnds::of(other), LineEnds::Lf, "{other:?}");
            assert_eq!(LineEnds::of(other).apply(other.to_owned()), other);
        }
    }
}
