//! Conditional requests for a file (RFC 9110 §13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;

use crate::head::Fields;

/// Validators of one version of a file (RFC 9110 §8.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validators {
    /// Strong entity tag, including its quotes.
    pub etag: String,
    /// Modification time in seconds since 1970; `None` outside the range of HTTP dates.
    pub modified: Option<u64>,
}

impl Validators {
    /// Validators of a file modified at `seconds` and `nanoseconds` since 1970. The inode changes the tag
    /// when a file is replaced by one of the same time and size.
    #[must_use]
    pub fn new(seconds: i64, nanoseconds: u64, size: u64, inode: u64) -> Self {
        let modified = u64::try_from(seconds).ok().filter(|seconds| *seconds <= LAST);
        Self { etag: format!("\"{seconds:x}-{nanoseconds:x}-{size:x}-{inode:x}\""), modified }
    }

    /// Value of `Last-Modified`; `None` for a time in the future (RFC 9110 §8.8.2.1).
    #[must_use]
    pub fn date(&self) -> Option<String> {
        self.modified.map(|seconds| httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds)))
    }
}

/// End of the year 9999, in seconds since 1970: HTTP dates have four digits for the year.
pub(super) const LAST: u64 = 253_402_300_799;

/// Result of evaluating a request's conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreconditionOutcome {
    /// Send the file, or parts of it.
    Send {
        /// Set if `Range` is to be honoured.
        ranges: bool,
    },
    /// Respond with 304: the client's copy is current.
    NotModified,
    /// Respond with 412: a precondition failed.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD in the order of RFC 9110 §13.2.2.
#[must_use]
pub fn judge(method: &Method, fields: &Fields, file: &Validators) -> PreconditionOutcome {
    let mut matches = fields.named(b"if-match").peekable();
    if matches.peek().is_some() {
        if !matches.any(|list| contains_tag(list, &file.etag, false)) {
            return PreconditionOutcome::Failed;
        }
    } else if let Some(date) = date(fields, b"if-unmodified-since")
        && file.modified.is_none_or(|modified| modified > date)
    {
        return PreconditionOutcome::Failed;
    }
    let mut matches = fields.named(b"if-none-match").peekable();
    if matches.peek().is_some() {
        if matches.any(|list| contains_tag(list, &file.etag, true)) {
            return PreconditionOutcome::NotModified;
        }
    } else if let Some(date) = date(fields, b"if-modified-since")
        && file.modified.is_some_and(|modified| modified <= date)
    {
        return PreconditionOutcome::NotModified;
    }
    PreconditionOutcome::Send { ranges: *method == Method::GET && permits_ranges(fields, file) }
}

/// Returns true if `If-Range` permits parts: it is absent, or names the current version (RFC 9110 §13.1.5).
fn permits_ranges(fields: &Fields, file: &Validators) -> bool {
    let mut values = fields.named(b"if-range");
    match (values.next(), values.next()) {
        (None, _) => true,
        (Some(value), None) if value.contains(&b'"') => value == file.etag.as_bytes(),
        // Exact comparison: an older copy is a different one, too.
        (Some(value), None) => read_date(value).is_some_and(|date| Some(date) == file.modified),
        (Some(_), Some(_)) => false,
    }
}

/// Returns true if a list of entity tags contains `etag`, or is `*`. Weak tags match if `weakly` is set.
fn contains_tag(list: &[u8], etag: &str, weakly: bool) -> bool {
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

/// Date of a field that occurs once and is valid.
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
        Validators::new(784_111_777, 5, 10, 255)
    }

    #[test]
    fn validators_of_a_file() {
        assert_eq!(file().etag, "\"2ebc98a1-5-a-ff\"");
        assert_eq!(file().date().unwrap(), THEN);
        assert_eq!(Validators::new(-1, 0, 0, 0).date(), None);
        assert_eq!(Validators::new(i64::MAX, 0, 0, 0).date(), None);
    }

    #[test]
    fn conditions() {
        let tag = &*file().etag;
        let weak = &*format!("W/{tag}");
        let list = &*format!("\"a\" , W/\"b,c\",{tag}");
        let long = &*format!("{}{tag}", "\"x\",".repeat(2000));
        let send = PreconditionOutcome::Send { ranges: true };
        let whole = PreconditionOutcome::Send { ranges: false };
        let rows: &[(&[(&str, &str)], PreconditionOutcome)] = &[
            (&[], send),
            (&[("if-none-match", tag)], PreconditionOutcome::NotModified),
            (&[("if-none-match", weak)], PreconditionOutcome::NotModified),
            (&[("if-none-match", list)], PreconditionOutcome::NotModified),
            (&[("if-none-match", long)], PreconditionOutcome::NotModified),
            (&[("if-none-match", "*")], PreconditionOutcome::NotModified),
            (&[("if-none-match", "\"x\""), ("if-none-match", tag)], PreconditionOutcome::NotModified),
            (&[("if-none-match", "\"x\"")], send),
            (&[("if-none-match", "2ebc98a1-5-a-ff")], send),
            (&[("if-none-match", "\"2ebc98a1")], send),
            (&[("if-none-match", "")], send),
            (&[("if-none-match", "\"x\""), ("if-modified-since", THEN)], send),
            (&[("if-modified-since", THEN)], PreconditionOutcome::NotModified),
            (&[("if-modified-since", AFTER)], PreconditionOutcome::NotModified),
            (&[("if-modified-since", BEFORE)], send),
            (&[("if-modified-since", "yesterday")], send),
            (&[("if-match", tag)], send),
            (&[("if-match", "*")], send),
            (&[("if-match", weak)], PreconditionOutcome::Failed),
            (&[("if-match", "\"x\"")], PreconditionOutcome::Failed),
            (&[("if-match", tag), ("if-unmodified-since", BEFORE)], send),
            (&[("if-unmodified-since", THEN)], send),
            (&[("if-unmodified-since", BEFORE)], PreconditionOutcome::Failed),
            (&[("if-unmodified-since", BEFORE), ("if-none-match", tag)], PreconditionOutcome::Failed),
            (&[("if-match", tag), ("if-none-match", tag)], PreconditionOutcome::NotModified),
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
