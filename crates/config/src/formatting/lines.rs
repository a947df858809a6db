//! The lines of a document: where they break, what stands between them, and where their comments begin.

use super::tree::{Items, LayoutItem, LayoutValue, Line};

/// The width in characters up to which an array stays on one line; comments do not count.
const WIDTH: usize = 100;

/// The indentation of the elements of an array.
const INDENT: usize = 4;

/// The lines so far.
#[derive(Default)]
struct LaidOutLines<'t> {
    lines: Vec<FinishedLine<'t>>,
}

/// A line with the comment at its end.
struct FinishedLine<'t> {
    text: String,
    comment: Option<&'t str>,
    /// Set where the line is the last of a value with several: its comment stands alone.
    ends_value: bool,
}

/// The text of a document.
pub(super) fn of_document(document: &[Line<'_>]) -> String {
    let mut out = LaidOutLines::default();
    for (at, line) in document.iter().enumerate() {
        match line {
            Line::Blank => {
                let after_header = at > 0 && matches!(document[at - 1], Line::Header { .. });
                if !after_header {
                    out.blank();
                }
            }
            Line::Comment(comment) => {
                // Comments right above a header belong to it.
                let begins = at == 0 || !matches!(document[at - 1], Line::Comment(_));
                let below = document[at..].iter().find(|line| !matches!(line, Line::Comment(_)));
                if begins && matches!(below, Some(Line::Header { .. })) {
                    out.blank();
                }
                out.push((*comment).to_owned(), None);
            }
            Line::Header { name, is_list, comment } => {
                if at == 0 || !matches!(document[at - 1], Line::Comment(_)) {
                    out.blank();
                }
                let text = if *is_list { format!("[[{name}]]") } else { format!("[{name}]") };
                out.push(text, *comment);
            }
            Line::Pair { name, value, comment } => {
                let begin = format!("{name} = ");
                out.value(begin, value, "", 0);
                out.lines.last_mut().into_iter().for_each(|last| last.comment = *comment);
            }
        }
    }
    out.finish()
}

impl<'t> LaidOutLines<'t> {
    /// A blank line between others; never two.
    fn blank(&mut self) {
        if self.lines.last().is_some_and(|last| !last.is_blank()) {
            self.push(String::new(), None);
        }
    }

    fn push(&mut self, text: String, comment: Option<&'t str>) {
        self.lines.push(FinishedLine { text, comment, ends_value: false });
    }

    /// Writes a value after `begin`, which has the indentation, and before `end`, a comma perhaps.
    fn value(&mut self, begin: String, value: &LayoutValue<'t>, end: &str, indent: usize) {
        if let Some(flat) = flat(value) {
            let line = format!("{begin}{flat}{end}");
            let is_short = line.chars().count() <= WIDTH;
            if is_short || !matches!(value, LayoutValue::Array(_)) {
                self.push(line, None);
                return;
            }
        }
        match value {
            LayoutValue::Scalar(text) => self.push_text(&format!("{begin}{text}{end}")),
            LayoutValue::Array(items) => self.spread(begin, items, ["[", "]"], end, indent),
            LayoutValue::Table(items) if items.spread => self.spread(begin, items, ["{", "}"], end, indent),
            LayoutValue::Table(items) => self.table(begin, items, end, indent),
        }
    }

    /// Pushes a text of several lines, as it is.
    fn push_text(&mut self, text: &str) {
        self.push(text.to_owned(), None);
        self.lines.last_mut().into_iter().for_each(|last| last.ends_value = text.contains('\n'));
    }

    /// Writes each element on a line of its own.
    fn spread(&mut self, begin: String, items: &Items<'t>, brackets: [&str; 2], end: &str, indent: usize) {
        self.push(begin + brackets[0], None);
        let first = self.lines.len();
        let inner = " ".repeat(indent + INDENT);
        for item in &items.items {
            match item {
                LayoutItem::Blank if self.lines.len() > first => self.blank(),
                LayoutItem::Blank => {}
                LayoutItem::Comment(comment) => self.push(format!("{inner}{comment}"), None),
                LayoutItem::Element { name, value, comment } => {
                    let begin =
                        name.as_ref().map_or_else(|| inner.clone(), |name| format!("{inner}{name} = "));
                    self.value(begin, value, ",", indent + INDENT);
                    self.lines.last_mut().into_iter().for_each(|last| last.comment = *comment);
                }
            }
        }
        if self.lines.len() > first && self.lines.last().is_some_and(FinishedLine::is_blank) {
            self.lines.pop();
        }
        let last = format!("{}{}{end}", " ".repeat(indent), brackets[1]);
        self.push(last, None);
        self.lines.last_mut().into_iter().for_each(|last| last.ends_value = true);
    }

    /// Writes a table whose values have several lines, and which itself has one.
    fn table(&mut self, begin: String, items: &Items<'t>, end: &str, indent: usize) {
        let mut open = begin + "{ ";
        let mut between = "";
        for item in &items.items {
            let LayoutItem::Element { name, value, .. } = item else { continue };
            let name = name.as_deref().unwrap_or_default();
            let begin = format!("{open}{between}{name} = ");
            between = ", ";
            match flat(value) {
                Some(flat) => open = begin + &flat,
                None => {
                    self.value(begin, value, "", indent);
                    // What follows stands on the last line of the value.
                    open = self.lines.pop().map(|last| last.text).unwrap_or_default();
                }
            }
        }
        self.push_text(&format!("{open} }}{end}"));
        self.lines.last_mut().into_iter().for_each(|last| last.ends_value = true);
    }

    /// The text, with the comments at the ends of adjacent lines in one column.
    fn finish(mut self) -> String {
        while self.lines.last().is_some_and(FinishedLine::is_blank) {
            self.lines.pop();
        }
        let mut out = String::new();
        let mut column = 0;
        for (at, line) in self.lines.iter().enumerate() {
            let goes_on = at > 0 && self.lines[at - 1].is_aligned() && line.is_aligned();
            if !goes_on {
                let run = self.lines[at..].iter().enumerate();
                let run = run.take_while(|(ahead, line)| *ahead == 0 || line.is_aligned());
                column = run.map(|(_, line)| line.width()).max().unwrap_or(0) + 1;
            }
            out.push_str(&line.text);
            if let Some(comment) = line.comment {
                let gap = if line.is_aligned() { column - line.width() } else { 1 };
                out.push_str(&" ".repeat(gap));
                out.push_str(comment);
            }
            out.push('\n');
        }
        out
    }
}

impl FinishedLine<'_> {
    fn is_blank(&self) -> bool {
        self.text.is_empty() && self.comment.is_none()
    }

    /// Set where the comment is in a column with those of adjacent lines.
    fn is_aligned(&self) -> bool {
        self.comment.is_some() && !self.ends_value
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// The value on one line; `None` where it needs several.
fn flat(value: &LayoutValue<'_>) -> Option<String> {
    match value {
        LayoutValue::Scalar(text) => (!text.contains('\n')).then(|| text.to_string()),
        LayoutValue::Array(items) if items.is_empty() => Some("[]".to_owned()),
        LayoutValue::Table(items) if items.is_empty() => Some("{}".to_owned()),
        LayoutValue::Array(items) => Some(format!("[{}]", flat_items(items)?)),
        LayoutValue::Table(items) => Some(format!("{{ {} }}", flat_items(items)?)),
    }
}

fn flat_items(items: &Items<'_>) -> Option<String> {
    if items.spread {
        return None;
    }
    let mut texts = Vec::new();
    for item in &items.items {
        let LayoutItem::Element { name, value, .. } = item else { continue };
        let value = flat(value)?;
        texts.push(name.as_ref().map_or_else(|| value.clone(), |name| format!("{name} = {value}")));
    }
    Some(texts.join(", "))
}
