//! Patterns of `rewrite` that match no path. They see the normal form of a path (RFC 3986 §6.2.2): no empty and no dot
//! segments, escapes in upper case where one is needed and nowhere else, and no query.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind, Look, Repetition};

/// The reason why `pattern` matches no path, where its fixed parts tell. Classes and options are not looked into.
pub(super) fn why(pattern: &str) -> Option<String> {
    let parsed = ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).ok()?;
    of(&parsed)
}

fn of(hir: &Hir) -> Option<String> {
    match hir.kind() {
        HirKind::Alternation(all) => {
            let mut whys = all.iter().map(of);
            let first = whys.next()??;
            whys.all(|why| why.is_some()).then_some(first)
        }
        HirKind::Capture(capture) => of(&capture.sub),
        _ => {
            let mut fixed = Fixed::default();
            fixed.walk(hir);
            fixed.end_run();
            let wrong = fixed.runs.iter().find_map(|run| wrong(run));
            fixed.branches.or(wrong)
        }
    }
}

/// The texts that everything that matches has, each in one piece.
#[derive(Default)]
struct Fixed {
    runs: Vec<Vec<u8>>,
    now: Vec<u8>,
    /// Set once something was matched: what is left is not at the start of the path.
    is_inside: bool,
    /// The reason of an alternation within, none of whose branches can match.
    branches: Option<String>,
}

/// Marks the start and the end of the path in a run.
const START: u8 = 0;
const END: u8 = 1;

impl Fixed {
    fn walk(&mut self, hir: &Hir) {
        match hir.kind() {
            HirKind::Empty => return,
            HirKind::Literal(text) => self.now.extend_from_slice(&text.0),
            HirKind::Capture(capture) => return self.walk(&capture.sub),
            HirKind::Concat(all) => return all.iter().for_each(|one| self.walk(one)),
            HirKind::Look(Look::Start) if !self.is_inside => return self.now.push(START),
            HirKind::Look(Look::End) => return self.now.push(END),
            HirKind::Look(_) => return,
            HirKind::Repetition(Repetition { min: 1.., max, sub, .. }) => {
                self.walk(sub);
                if *max != Some(1) {
                    // The last of them is next to what follows.
                    self.end_run();
                    self.walk(sub);
                }
            }
            HirKind::Alternation(_) => {
                self.branches = self.branches.take().or_else(|| of(hir));
                self.end_run();
            }
            HirKind::Class(_) | HirKind::Repetition(_) => self.end_run(),
        }
        self.is_inside = true;
    }

    fn end_run(&mut self) {
        self.runs.push(std::mem::take(&mut self.now));
    }
}

/// The reason why no path in normal form has this text.
fn wrong(run: &[u8]) -> Option<String> {
    let has = |part: &[u8]| run.windows(part.len()).any(|window| window == part);
    if let [START, first, ..] = run
        && !matches!(first, b'/' | &START)
    {
        return Some("paths begin with `/`".to_owned());
    }
    if has(b"//") {
        return Some("repeated slashes are one in it".to_owned());
    }
    if [&b"/./"[..], b"/../", b"/.\x01", b"/..\x01"].into_iter().any(has) {
        return Some("`.` and `..` are removed from it".to_owned());
    }
    if let Some(end) = run.iter().find(|byte| matches!(byte, b'?' | b'#')) {
        return Some(format!("it ends before `{}`: a query is no part of it", char::from(*end)));
    }
    if let Some(byte) = run.iter().find(|byte| !byte.is_ascii_graphic() && !matches!(**byte, START | END)) {
        return Some(format!("this character has an escape in it: `%{byte:02X}`"));
    }
    let mut escapes = run.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    escapes.find_map(|(at, _)| escape(&run[at + 1..]))
}

/// The reason why an escape is written otherwise in a path in normal form. `rest` follows its `%`.
fn escape(rest: &[u8]) -> Option<String> {
    // A class may follow.
    let (digits, is_whole) = (&rest[..rest.len().min(2)], rest.len() >= 2);
    let written = format!("%{}", String::from_utf8_lossy(digits));
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    if is_hex && !is_whole {
        return None;
    }
    match u8::from_str_radix(&written[1..], 16).ok().filter(|_| is_hex) {
        None => Some("a `%` in it is the beginning of an escape, and one of its own is `%25`".to_owned()),
        Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
            Some(format!("it has `{}` for `{written}`", char::from(byte)))
        }
        Some(byte) if written.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            Some(format!("escapes are in upper case in it: `%{byte:02X}`"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_no_path_has_are_found() {
        for (pattern, word) in [
            ("^//a", "slashes"),
            ("//+", "slashes"),
            ("^/a/+/b$", "slashes"),
            ("^/(a)//(.*)$", "slashes"),
            ("^(/|/x/)/b$", ""),
            ("^(//a)$", "slashes"),
            ("^/./", ""),
            (r"^/\./", "`.`"),
            (r"^/a/\.\./b", "`.`"),
            (r"/\.\.$", "`.`"),
            ("^/%2f", "upper case in it: `%2F`"),
            ("^/a%2Fb", ""),
            ("^/%41", "begin"),
            ("%7Euser", "`~` for `%7E`"),
            ("^/100%$", "%25"),
            ("^/100%/", "%25"),
            (r"^/a\?b=1", "query"),
            ("/caf\u{e9}", "%C3"),
            ("^/a b$", "%20"),
            ("^a", "begin with `/`"),
            ("^$", "begin with `/`"),
            ("a", ""),
            ("^/user/(\\d+)$", ""),
            ("^/(?<year>\\d{4})/(?<rest>.*)$", ""),
            ("(?i)^/%2f", ""),
            ("^/a/?/b", ""),
            ("^/[^/]+/x", ""),
            ("^/*a", ""),
            ("", ""),
            (".*", ""),
            (r"^/\.well-known/", ""),
            (r"^/a\.\.b/", ""),
        ] {
            let said = why(pattern);
            match word {
                "" => assert_eq!(said, None, "{pattern}"),
                "begin" => assert!(said.is_some(), "{pattern}"),
                word => {
                    assert!(said.as_deref().is_some_and(|said| said.contains(word)), "{pattern}: {said:?}");
                }
            }
        }
    }
}
