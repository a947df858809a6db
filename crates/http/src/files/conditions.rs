//! Whether a request for a file has to be answered with the file (RFC 9110 §13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;

use crate::head::Fields;

/// What tells one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validators {
    /// The strong entity tag, in its quotes.
    pub etag: String,
    /// When the file changed, in seconds since 1970; `None`: not in the time that dates can tell.
    pub modified: Option<u64>,
}

impl Validators {
    /// Those of a file that changed at `seconds` and `nanoseconds` since 1970. The inode makes the tag another where a
    /// file takes the place of one with the same time and size.
    #[must_use]
    pub fn new((seconds, nanoseconds): (i64, u64), size: u64, inode: u64) -> Self {
        let modified = u64::try_from(seconds).ok().filter(|seconds| *seconds <= LAST);
        Self { etag: format!("\"{seconds:x}-{nanoseconds:x}-{size:x}-{inode:x}\""), modified }
    }

    /// The value of `Last-Modified`. A file of the future has no date (RFC 9110 §8.8.2.1).
    #[must_use]
    pub fn date(&self) -> Option<String> {
        self.modified.map(|seconds| httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds)))
    }
}

/// The end of the year 9999: dates have four digits for it.
pub(super) const LAST: u64 = 253_402_300_799;

/// What a request's conditions lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The file is sent; `ranges`: or the parts of it that are asked for.
    Send {
        /// Whether `Range` counts.
        ranges: bool,
    },
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Judges the conditions of a GET or HEAD in the order of RFC 9110 §13.2.2.
#[must_use]
pub fn judge(method: &Method, fields: &Fields, file: &Validators) -> Outcome {
    let mut matches = fields.named(b"if-match").peekable();
    if matches.peek().is_some() {
        if !matches.any(|list| listed(list, &file.etag, false)) {
            return Outcome::Failed;
        }
    } else if let Some(date) = date(fields, b"if-unmodified-since")
        && file.modified.is_none_or(|modified| modified > date)
    {
        return Outcome::Failed;
    }
    let mut matches = fields.named(b"if-none-match").peekable();
    if matches.peek().is_some() {
        if matches.any(|list| listed(list, &file.etag, true)) {
            return Outcome::NotModified;
        }
    } else if let Some(date) = date(fields, b"if-modified-since")
        && file.modified.is_some_and(|modified| modified <= date)
    {
        return Outcome::NotModified;
    }
    Outcome::Send { ranges: *method == Method::GET && is_in_range(fields, file) }
}

/// Whether `If-Range` lets parts be sent: it is absent, or names this very state (RFC 9110 §13.1.5).
fn is_in_range(fields: &Fields, file: &Validators) -> bool {
    let mut values = fields.named(b"if-range");
    match (values.next(), values.next()) {
        (None, _) => true,
        (Some(value), None) if value.contains(&b'"') => value == file.etag.as_bytes(),
        // Not by time: an older copy is another one, too.
        (Some(value), None) => read_date(value).is_some_and(|date| Some(date) == file.modified),
        (Some(_), Some(_)) => false,
    }
}

/// Whether a list of entity tags has this one, or is `*`. Weak ones count where `weakly`.
fn listed(list: &[u8], etag: &str, weakly: bool) -> bool {
    let mut rest = list.trim_ascii();
    if rest == b"*" {
        return true;
    }
    loop {
        rest = rest.trim_ascii_start();
        while let [b',', after @ ..] = rest {
            rest = after.trim_ascii_start();
        }
        let (weak, tag) = match rest {
            [b'W', b'/', tag @ ..] => (true, tag),
            tag => (false, tag),
        };
        let [b'"', inside @ ..] = tag else { return false };
        let Some(end) = inside.iter().position(|&byte| byte == b'"') else { return false };
        if tag[..end + 2] == *etag.as_bytes() && (weakly || !weak) {
            return true;
        }
        rest = &inside[end + 1..];
    }
}

/// The date of a field that is there once and has one.
fn date(fields: &Fields, name: &[u8]) -> Option<u64> {
    let mut values = fields.named(name);
    let value = values.next().filter(|_| values.next().is_none())?;
    read_date(value)
}

fn read_date(value: &[u8]) -> Option<u64> {
    let date: SystemTime = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn file() -> Validators {
        Validators::new((784_111_777, 5), 10, 255)
    }

    #[test]
    fn a_file_has_its_validators() {
        assert_eq!(file().etag, "\"2ebc98a1-5-a-ff\"");
        assert_eq!(file().date().unwrap(), THEN);
        assert_eq!(Validators::new((-1, 0), 0, 0).date(), None);
        assert_eq!(Validators::new((i64::MAX, 0), 0, 0).date(), None);
    }

    #[test]
    fn conditions() {
        let tag = &*file().etag;
        let weak = &*format!("W/{tag}");
        let list = &*format!("\"a\" , W/\"b,c\",{tag}");
        let long = &*format!("{}{tag}", "\"x\",".repeat(2000));
        let send = Outcome::Send { ranges: true };
        let whole = Outcome::Send { ranges: false };
        let rows: &[(&[(&str, &str)], Outcome)] = &[
            (&[], send),
            (&[("if-none-match", tag)], Outcome::NotModified),
            (&[("if-none-match", weak)], Outcome::NotModified),
            (&[("if-none-match", list)], Outcome::NotModified),
            (&[("if-none-match", long)], Outcome::NotModified),
            (&[("if-none-match", "*")], Outcome::NotModified),
            (&[("if-none-match", "\"x\""), ("if-none-match", tag)], Outcome::NotModified),
            (&[("if-none-match", "\"x\"")], send),
            (&[("if-none-match", "2ebc98a1-5-a-ff")], send),
            (&[("if-none-match", "\"2ebc98a1")], send),
            (&[("if-none-match", "")], send),
            (&[("if-none-match", "\"x\""), ("if-modified-since", THEN)], send),
            (&[("if-modified-since", THEN)], Outcome::NotModified),
            (&[("if-modified-since", AFTER)], Outcome::NotModified),
            (&[("if-modified-since", BEFORE)], send),
            (&[("if-modified-since", "yesterday")], send),
            (&[("if-match", tag)], send),
            (&[("if-match", "*")], send),
            (&[("if-match", weak)], Outcome::Failed),
            (&[("if-match", "\"x\"")], Outcome::Failed),
            (&[("if-match", tag), ("if-unmodified-since", BEFORE)], send),
            (&[("if-unmodified-since", THEN)], send),
            (&[("if-unmodified-since", BEFORE)], Outcome::Failed),
            (&[("if-unmodified-since", BEFORE), ("if-none-match", tag)], Outcome::Failed),
            (&[("if-match", tag), ("if-none-match", tag)], Outcome::NotModified),
            (&[("if-range", tag)], send),
            (&[("if-range", weak)], whole),
            (&[("if-range", "\"x\"")], whole),
            (&[("if-range", THEN)], send),
            (&[("if-range", AFTER)], whole),
            (&[("if-range", "x")], whole),
            (&[("if-range", tag), ("if-range", tag)], whole),
        ];
        for (fields, expected) in rows {
            let fields: Fields = fields.iter().copied().collect();
            assert_eq!(judge(&Method::GET, &fields, &file()), *expected, "{fields:?}");
        }
        assert_eq!(judge(&Method::HEAD, &Fields::new(), &file()), whole);
    }
}
