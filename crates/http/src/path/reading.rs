//! The ways in which servers read a path.

use super::escape::{Unit, is_plain, push_escaped, units};
use super::{Ambiguity, Spelling};

/// How parameters of segments are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parameters {
    /// As part of the segment.
    Keep,
    /// Cut off at `;`, before escapes are decoded, as servlet containers do.
    Cut,
    /// Cut off at `;` and at `%3B`.
    CutEscaped,
}

/// How dot segments are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dots {
    /// Dots are kept as segments.
    Keep,
    /// Removed before escapes are decoded, so that escaped ones stay.
    RemoveLiteral,
    /// Removed, however they are spelled.
    Remove,
}

/// One way to read a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Escapes of characters that need none are decoded.
    unescape: bool,
    /// Repeated slashes are one.
    merge: bool,
    dots: Dots,
    parameters: Parameters,
}

impl Reading {
    pub(super) const NORMAL: Self =
        Self { unescape: true, merge: true, dots: Dots::Remove, parameters: Parameters::Keep };

    /// Writes `path` as it is read into `out`, which is cleared, and notes its spelling.
    pub(super) fn write(self, path: &str, out: &mut String, spelling: &mut Spelling) {
        self.write_start(path, usize::MAX, out, spelling);
    }

    /// Writes what a path is read as until it is longer than `reach`, and tells how many characters that has looked at. Only
    /// where it is the whole path, no reading may have dot segments: they take off what was written.
    fn write_start(self, path: &str, reach: usize, out: &mut String, spelling: &mut Spelling) -> usize {
        out.clear();
        let Some(rest) = path.strip_prefix('/') else {
            out.push_str(path);
            return path.len();
        };
        let mut steps = 0;
        let mut segments = rest.split('/').peekable();
        while let Some(segment) = segments.next() {
            let is_last = segments.peek().is_none();
            let start = out.len();
            out.push('/');
            steps += SEGMENT + self.segment(segment, reach, out, spelling);
            let text = &out[start + 1..];
            if !text.is_empty() && out.len() > reach {
                break;
            }
            if text.is_empty() && !is_last {
                spelling.seen |= Spelling::EMPTY;
            }
            // Up to parameters, or to what others take for a query.
            let name =
                [";", "%3F", "%23"].iter().fold(text, |name, end| name.split(end).next().unwrap_or(name));
            if matches!(name, "." | "..") {
                spelling.seen |= Spelling::DOTS;
            }
            let removes = match self.dots {
                Dots::Keep => false,
                Dots::RemoveLiteral => !segment.split(';').next().unwrap_or_default().contains('%'),
                Dots::Remove => true,
            };
            match text {
                "" if self.merge && !is_last => out.truncate(start),
                "." if removes => leave(out, start, is_last),
                ".." if removes => {
                    out.truncate(start);
                    match out.rfind('/') {
                        Some(parent) => leave(out, parent, is_last),
                        None => {
                            spelling.note(Ambiguity::AboveRoot);
                            leave(out, start, is_last);
                        }
                    }
                }
                _ => {}
            }
        }
        steps
    }

    /// Writes a segment up to `reach`, and tells how many characters of it that has looked at.
    fn segment(self, segment: &str, reach: usize, out: &mut String, spelling: &mut Spelling) -> usize {
        let start = out.len();
        let (mut high, mut steps, mut has_percent) = (Vec::new(), 0, false);
        for unit in units(segment.as_bytes()) {
            steps += 1;
            let (byte, escaped) = match unit {
                Unit::Raw(byte) => (byte, false),
                Unit::Escaped(byte) => (byte, true),
                Unit::Percent => {
                    spelling.note(Ambiguity::BadEscape);
                    (b'%', false)
                }
            };
            if byte == b';' {
                let seen = if escaped { Spelling::ESCAPED_PARAMETERS } else { Spelling::PARAMETERS };
                spelling.seen |= seen;
                let is_cut = match self.parameters {
                    Parameters::Keep => false,
                    Parameters::Cut => !escaped,
                    Parameters::CutEscaped => true,
                };
                if is_cut {
                    break;
                }
            }
            match byte {
                b'/' => spelling.note(Ambiguity::EscapedSlash),
                b'%' => has_percent = true,
                b'?' | b'#' => spelling.seen |= Spelling::DELIMITERS,
                b'\\' => spelling.note(Ambiguity::Backslash),
                0x80.. => {}
                _ if byte.is_ascii_control() => spelling.note(Ambiguity::Control),
                _ => {}
            }
            if byte.is_ascii() {
                // A sequence ends where text goes on.
                high.extend((!high.is_empty()).then_some(b' '));
            } else {
                high.push(byte);
            }
            if is_plain(byte) && (!escaped || self.unescape) {
                spelling.seen |= if escaped { Spelling::ESCAPES } else { 0 };
                out.push(char::from(byte));
            } else {
                push_escaped(byte, out);
            }
            if out.len() > reach {
                break;
            }
        }
        if !high.is_empty() && std::str::from_utf8(&high).is_err() {
            spelling.note(Ambiguity::NotUtf8);
        }
        if has_percent && is_escaped_twice(&out[start..]) {
            spelling.note(Ambiguity::DoubleEscape);
        }
        steps
    }
}

/// Takes off the segment that begins at `start`; a path that ends in it keeps the slash.
fn leave(out: &mut String, start: usize, is_last: bool) {
    out.truncate(start);
    if is_last {
        out.push('/');
    }
}

/// Set where an escape is left when a segment in normal form is decoded.
fn is_escaped_twice(segment: &str) -> bool {
    let mut rest = segment;
    while let Some((_, behind)) = rest.split_once("%25") {
        if behind.len() >= 2 && behind.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit) {
            return true;
        }
        rest = behind;
    }
    false
}

/// What a segment costs besides its characters.
const SEGMENT: usize = 4;
/// How many characters of one path may be looked at in all of its readings: about 100 µs.
const MOST_STEPS: usize = 32 * 1024;

/// The first way to read `path` other than its normal form that `differs`, which looks at the first `reach` bytes and the
/// one behind them. `spelling` is that of the path, and `cost` that of one look, in characters.
///
/// Those that nothing in the path calls for are left out, and none is looked at twice. Of a path in which nothing leads
/// up, no more is read than matters, so that its length does not.
///
/// # Errors
/// [`Ambiguity::TooLong`].
pub fn other_reading(
    path: &str,
    spelling: Spelling,
    (reach, cost): (usize, usize),
    mut differs: impl FnMut(&str) -> bool,
) -> Result<Option<String>, Ambiguity> {
    let mut text = String::with_capacity(path.len().min(reach) + 16);
    let mut seen = Spelling::default();
    let mut looked: Vec<Box<[u8]>> = Vec::new();
    let (mut steps, mut last) = (0, 0);
    let needed = if spelling.has(Spelling::DOTS) { usize::MAX } else { reach };
    for part in parts(path, spelling) {
        for reading in readings(spelling) {
            // The next reading costs about as much.
            if steps + last > MOST_STEPS && steps > 0 {
                return Err(Ambiguity::TooLong);
            }
            last = reading.write_start(part, needed, &mut text, &mut seen);
            let start = &text.as_bytes()[..text.len().min(reach.saturating_add(1))];
            if looked.iter().any(|other| **other == *start) {
                steps += last;
                continue;
            }
            looked.push(start.into());
            last += cost;
            steps += last;
            if differs(&text) {
                reading.write(part, &mut text, &mut seen);
                return Ok(Some(text));
            }
        }
    }
    Ok(None)
}

/// The ways to read a path that is spelled so.
fn readings(spelling: Spelling) -> impl Iterator<Item = Reading> {
    // Segments without their parameters may be empty or dots.
    let cut = spelling.has(Spelling::PARAMETERS | Spelling::ESCAPED_PARAMETERS);
    let choices = |is_open| if is_open { &[true, false][..] } else { &[true][..] };
    let parameters = match (spelling.has(Spelling::PARAMETERS), spelling.has(Spelling::ESCAPED_PARAMETERS)) {
        (false, false) => &[Parameters::Keep][..],
        (_, false) => &[Parameters::Keep, Parameters::Cut][..],
        _ => &[Parameters::Keep, Parameters::Cut, Parameters::CutEscaped][..],
    };
    let dots = match (spelling.has(Spelling::DOTS), spelling.has(Spelling::ESCAPES)) {
        (false, _) => &[Dots::Remove][..],
        (true, false) => &[Dots::Remove, Dots::Keep][..],
        (true, true) => &[Dots::Remove, Dots::RemoveLiteral, Dots::Keep][..],
    };
    let merges = choices(cut || spelling.has(Spelling::EMPTY));
    let with_dots = move |(unescape, merge)| dots.iter().map(move |&dots| (unescape, merge, dots));
    choices(spelling.has(Spelling::ESCAPES))
        .iter()
        .flat_map(move |&unescape| merges.iter().map(move |&merge| (unescape, merge)))
        .flat_map(with_dots)
        .flat_map(move |(unescape, merge, dots)| {
            parameters.iter().map(move |&parameters| Reading { unescape, merge, dots, parameters })
        })
}

/// The path, and what of it is the path to those who take two slashes for the beginning of a host (RFC 3986 §4.2; a URL
/// of WHATWG skips further slashes first), or an escaped `?` or `#` for the end.
fn parts(path: &str, spelling: Spelling) -> Vec<&str> {
    let mut starts = vec![Some(0)];
    starts.extend(behind_hosts(path));
    let mut end = path.len();
    if spelling.has(Spelling::DELIMITERS) {
        let is_end =
            |at: &usize| matches!(path.as_bytes()[*at + 1..], [b'3', b'f' | b'F', ..] | [b'2', b'3', ..]);
        end = path.match_indices('%').map(|(at, _)| at).find(is_end).unwrap_or(path.len());
    }
    let mut parts = Vec::new();
    for start in starts {
        // A host alone has the path `/` (RFC 3986 §6.2.3).
        parts.push(start.map_or("/", |start| &path[start..]));
        parts.extend(start.filter(|start| end < path.len() && *start < end).map(|start| &path[start..end]));
    }
    parts
}

/// Where the path begins behind each segment that may be a host: one behind segments that are empty, perhaps without
/// their parameters. `None` where nothing is behind it.
fn behind_hosts(path: &str) -> Vec<Option<usize>> {
    let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
    let segment = |at: usize| {
        let start = slashes.get(at)? + 1;
        path.get(start..slashes.get(at + 1).copied().unwrap_or(path.len()))
    };
    let has_parameters = |segment: &str| {
        segment.starts_with(';') || segment.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("%3b"))
    };
    let is_blank = |segment: &str| segment.is_empty() || has_parameters(segment);
    let blank = (0..slashes.len()).take_while(|&at| segment(at).is_some_and(is_blank)).count();
    if blank == 0 {
        return Vec::new();
    }
    let mut hosts = vec![1];
    hosts.extend((2..blank).filter(|&at| segment(at).is_some_and(has_parameters)));
    hosts.extend((blank > 1).then_some(blank));
    hosts.into_iter().map(|host| slashes.get(host + 1).copied()).collect()
}

/// How often escapes are decoded at the most.
const ROUNDS: usize = 4;

/// The reading of an ambiguous path that separates most: escapes are decoded until none is left, and backslashes
/// separate. `None` where a server could leave the path upwards, or see what cannot be foreseen: dot segments,
/// parameters, `?` and `#`, two slashes at the front, control characters, overlong forms of UTF-8, `%u`, escapes of
/// escapes of escapes.
///
/// A prefix of a route that some reading begins with, this one begins with too: the routes that a reading matches lie
/// between those of the normal form and those of this one.
#[must_use]
pub fn loosest(path: &str) -> Option<String> {
    let mut bytes = path.as_bytes().to_vec();
    for _ in 0..ROUNDS {
        if bytes.windows(2).any(|pair| matches!(pair, b"%u" | b"%U")) {
            return None;
        }
        let decoded = |unit| match unit {
            Unit::Raw(byte) | Unit::Escaped(byte) => byte,
            Unit::Percent => b'%',
        };
        bytes = units(&bytes).map(decoded).collect();
    }
    let is_odd = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'?' | b'#' | b';');
    let is_foreseen = !units(&bytes).any(|unit| matches!(unit, Unit::Escaped(_)))
        && !bytes.iter().any(is_odd)
        && !bytes.windows(2).any(is_overlong);
    if !is_foreseen {
        return None;
    }
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        match byte {
            b'/' | b'\\' => text.push('/'),
            _ if is_plain(byte) => text.push(char::from(byte)),
            _ => push_escaped(byte, &mut text),
        }
    }
    // To some, a host begins here.
    if text.starts_with("//") {
        return None;
    }
    let mut spelling = Spelling::default();
    let mut out = String::with_capacity(text.len());
    Reading::NORMAL.write(&text, &mut out, &mut spelling);
    (!spelling.has(Spelling::DOTS)).then_some(out)
}

/// Set for the beginning of a longer form than a character needs, which lax decoders take for ASCII, and for the last
/// byte alone of none.
fn is_overlong(pair: &[u8]) -> bool {
    matches!(pair, [0xC0 | 0xC1, _] | [0xE0, 0x80..=0x9F] | [0xF0, 0x80..=0x8F])
}
