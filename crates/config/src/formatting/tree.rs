//! A text as the parts that its layout depends on.

use std::borrow::Cow;
use std::iter::Peekable;
use std::vec::IntoIter;

use toml_parser::decoder::Encoding;
use toml_parser::parser::{Event, EventKind, parse_document};
use toml_parser::{ParseError, Source};

use crate::literal::quoted;

/// A line of a document; a value may have several.
#[derive(Debug)]
pub(super) enum Line<'t> {
    Blank,
    /// A comment on a line of its own, with its `#`.
    Comment(&'t str),
    /// A header, without brackets.
    Header {
        name: String,
        is_list: bool,
        comment: Option<&'t str>,
    },
    Pair {
        name: String,
        value: LayoutValue<'t>,
        comment: Option<&'t str>,
    },
}

/// A value as it is written.
#[derive(Debug)]
pub(super) enum LayoutValue<'t> {
    Scalar(Cow<'t, str>),
    Array(Items<'t>),
    Table(Items<'t>),
}

/// The elements between brackets or braces.
#[derive(Debug, Default)]
pub(super) struct Items<'t> {
    pub(super) items: Vec<LayoutItem<'t>>,
    /// Set where each element has a line: comments need it, or the first element was not in the line of the bracket.
    pub(super) spread: bool,
}

impl Items<'_> {
    /// Set where there is nothing but blanks.
    pub(super) fn is_empty(&self) -> bool {
        self.items.iter().all(|item| matches!(item, LayoutItem::Blank))
    }
}

#[derive(Debug)]
pub(super) enum LayoutItem<'t> {
    Blank,
    Comment(&'t str),
    /// An element; with its name in a table.
    Element {
        name: Option<String>,
        value: LayoutValue<'t>,
        comment: Option<&'t str>,
    },
}

/// Reads a text that is valid TOML. Nothing is lost of another, but its parts may be in the wrong place.
pub(super) fn read(source: Source<'_>) -> Vec<Line<'_>> {
    let tokens = source.lex().into_vec();
    let mut events: Vec<Event> = Vec::new();
    parse_document(&tokens, &mut events, &mut |_: ParseError| {});
    EventReader { source, events: events.into_iter().peekable() }.document()
}

struct EventReader<'t> {
    source: Source<'t>,
    events: Peekable<IntoIter<Event>>,
}

impl<'t> EventReader<'t> {
    fn document(mut self) -> Vec<Line<'t>> {
        let mut lines = Vec::new();
        let mut breaks = 0;
        while let Some(event) = self.events.peek() {
            let kind = event.kind();
            match kind {
                EventKind::Newline => {
                    breaks += 1;
                    // The first ends a line.
                    if breaks == 2 {
                        lines.push(Line::Blank);
                    }
                    self.events.next();
                    continue;
                }
                EventKind::Whitespace => {
                    self.events.next();
                    continue;
                }
                EventKind::Comment => lines.extend(self.comment().map(Line::Comment)),
                EventKind::StdTableOpen | EventKind::ArrayTableOpen => {
                    self.events.next();
                    let name = self.name();
                    let is_list = kind == EventKind::ArrayTableOpen;
                    lines.push(Line::Header { name, is_list, comment: self.comment_here() });
                }
                EventKind::SimpleKey => {
                    let name = self.name();
                    let value = self.value();
                    lines.push(Line::Pair { name, value, comment: self.comment_here() });
                }
                _ => {
                    self.events.next();
                }
            }
            breaks = 0;
        }
        lines
    }

    fn text(&self, event: &Event) -> &'t str {
        self.source.get(event).map_or("", |raw| raw.as_str())
    }

    /// The comment that is next.
    fn comment(&mut self) -> Option<&'t str> {
        let event = self.events.next_if(|event| event.kind() == EventKind::Comment)?;
        Some(self.text(&event).trim_end())
    }

    /// The comment on the rest of the line.
    fn comment_here(&mut self) -> Option<&'t str> {
        while self.events.next_if(|event| event.kind() == EventKind::Whitespace).is_some() {}
        self.comment()
    }

    /// A name with dots, and what ends it.
    fn name(&mut self) -> String {
        let mut parts = Vec::new();
        for event in self.events.by_ref() {
            match event.kind() {
                EventKind::SimpleKey => parts.push(canonical_key(self.source, &event)),
                EventKind::KeySep | EventKind::Whitespace => {}
                _ => break,
            }
        }
        parts.join(".")
    }

    fn value(&mut self) -> LayoutValue<'t> {
        while let Some(event) = self.events.next() {
            match event.kind() {
                EventKind::Whitespace => {}
                EventKind::ArrayOpen => return LayoutValue::Array(self.items(EventKind::ArrayClose)),
                EventKind::InlineTableOpen => {
                    return LayoutValue::Table(self.items(EventKind::InlineTableClose));
                }
                _ => return LayoutValue::Scalar(canonical_scalar(self.text(&event), event.encoding())),
            }
        }
        LayoutValue::Scalar(Cow::Borrowed(""))
    }

    /// The elements up to this end.
    fn items(&mut self, end: EventKind) -> Items<'t> {
        let mut found = Items::default();
        // The line breaks since the last part.
        let mut breaks = 0;
        while let Some(event) = self.events.peek() {
            let kind = event.kind();
            match kind {
                EventKind::Comment => {
                    let comment = self.comment().unwrap_or_default();
                    found.spread = true;
                    match found.items.last_mut() {
                        Some(LayoutItem::Element { comment: none @ None, .. }) if breaks == 0 => {
                            *none = Some(comment);
                        }
                        _ => found.items.push(LayoutItem::Comment(comment)),
                    }
                    breaks = 0;
                    continue;
                }
                EventKind::Newline => {
                    breaks += 1;
                    found.spread |= found.items.is_empty();
                    if breaks == 2 {
                        found.items.push(LayoutItem::Blank);
                    }
                }
                EventKind::SimpleKey => {
                    let name = Some(self.name());
                    let value = self.value();
                    found.items.push(LayoutItem::Element { name, value, comment: None });
                    breaks = 0;
                    continue;
                }
                EventKind::ArrayOpen | EventKind::InlineTableOpen | EventKind::Scalar => {
                    let value = self.value();
                    found.items.push(LayoutItem::Element { name: None, value, comment: None });
                    breaks = 0;
                    continue;
                }
                _ => {}
            }
            self.events.next();
            if kind == end {
                break;
            }
        }
        found
    }
}

/// A part of a name: bare where it can be.
fn canonical_key(source: Source<'_>, event: &Event) -> String {
    let Some(raw) = source.get(event) else { return String::new() };
    let mut name = Cow::Borrowed("");
    raw.decode_key(&mut name, &mut |_: ParseError| {});
    let is_bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    match event.encoding() {
        _ if is_bare => name.into_owned(),
        Some(Encoding::LiteralString) if !name.contains(['\\', '"']) => quoted(&name),
        _ => raw.as_str().to_owned(),
    }
}

/// A scalar: a string in double quotes, unless single ones spare escapes. Anything else stays as it is.
fn canonical_scalar(text: &str, encoding: Option<Encoding>) -> Cow<'_, str> {
    let content = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match (encoding, content) {
        (Some(Encoding::LiteralString), Some(content)) if !content.contains(['\\', '"']) => {
            Cow::Owned(format!("\"{content}\""))
        }
        _ => Cow::Borrowed(text),
    }
}
