//! Readings of a path by various servers.

use super::escape::{Unit, is_plain, push_escaped, units};
use super::{Ambiguity, Spelling};

/// Handling of segment parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentParameters {
    /// As part of the segment.
    Keep,
    /// Cut off at `;`, before escapes are decoded, as in servlet containers.
    Cut,
    /// Cut off at `;` and at `%3B`.
    CutEscaped,
}

/// Handling of dot segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dots {
    /// Kept like other segments.
    Keep,
    /// Removed before escapes are decoded, so that escaped ones stay.
    RemoveLiteral,
    /// Removed in every spelling.
    Remove,
}

/// A way to read a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathReading {
    /// Decodes escapes of characters that need none.
    unescape: bool,
    /// Merges repeated slashes into one.
    merge: bool,
    dots: Dots,
    parameters: SegmentParameters,
}

impl PathReading {
    pub(super) const NORMAL: Self =
        Self { unescape: true, merge: true, dots: Dots::Remove, parameters: SegmentParameters::Keep };

    /// Writes this reading of `path` to `out`, which is cleared, and records the spelling.
    pub(super) fn write(self, path: &str, out: &mut String, spelling: &mut Spelling) {
        self.write_start(path, usize::MAX, out, spelling);
    }

    /// Writes this reading until it is longer than `reach`; returns the number of characters examined. A
    /// `reach` below the whole path requires a reading without dot segments, since these remove text written
    /// before.
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
            // Up to parameters, or to an escaped query or fragment.
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
                "." if removes => remove_segment(out, start, is_last),
                ".." if removes => {
                    out.truncate(start);
                    match out.rfind('/') {
                        Some(parent) => remove_segment(out, parent, is_last),
                        None => {
                            spelling.note(Ambiguity::AboveRoot);
                            remove_segment(out, start, is_last);
                        }
                    }
                }
                _ => {}
            }
        }
        steps
    }

    /// Writes a segment up to `reach`; returns the number of characters examined.
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
                    SegmentParameters::Keep => false,
                    SegmentParameters::Cut => !escaped,
                    SegmentParameters::CutEscaped => true,
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
                // Other text ends a multibyte sequence.
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
        if has_percent && is_double_escaped(&out[start..]) {
            spelling.note(Ambiguity::DoubleEscape);
        }
        steps
    }
}

/// Removes the segment that begins at `start`; a path that ends in it keeps the slash.
fn remove_segment(out: &mut String, start: usize, is_last: bool) {
    out.truncate(start);
    if is_last {
        out.push('/');
    }
}

/// Returns true if decoding a segment in normal form leaves an escape.
fn is_double_escaped(segment: &str) -> bool {
    let mut rest = segment;
    while let Some((_, behind)) = rest.split_once("%25") {
        if behind.len() >= 2 && behind.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit) {
            return true;
        }
        rest = behind;
    }
    false
}

/// Cost of a segment besides its characters.
const SEGMENT: usize = 4;
/// Maximum number of characters examined in all readings of a path: about 100 µs.
const MOST_STEPS: usize = 32 * 1024;

/// Finds the first reading of `path` other than its normal form for which `differs` returns true. `differs`
/// examines the first `reach` bytes and the one behind them, at a cost of `cost` characters; `spelling` is
/// that of the path.
///
/// Readings without a cause in the spelling are skipped, and none is examined twice. If no segment leads up,
/// only the relevant prefix of the path is read, so that its length does not matter.
///
/// # Errors
/// [`Ambiguity::TooLong`] if the cost of all readings exceeds the bound.
pub fn other_reading(
    path: &str,
    spelling: Spelling,
    reach: usize,
    cost: usize,
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

/// The paths that a path is to servers which decode it and merge its slashes: first its normal form, then what it is without
/// parameters, behind a host, and up to an escaped `?` or `#`. For whoever judges one path after the other. Nothing is
/// foreseen where dot segments stand.
///
/// # Errors
/// [`Ambiguity::TooLong`] for more than `most` paths.
pub fn judged_forms(path: &str, spelling: Spelling, most: usize) -> Result<Vec<String>, Ambiguity> {
    let mut forms: Vec<String> = Vec::new();
    let (mut seen, mut steps) = (Spelling::default(), 0);
    let parameters = parameters(spelling);
    for part in parts(path, spelling) {
        for &parameters in parameters {
            let mut text = String::with_capacity(part.len());
            steps += PathReading { parameters, ..PathReading::NORMAL }.write_start(
                part,
                usize::MAX,
                &mut text,
                &mut seen,
            );
            if !forms.contains(&text) {
                forms.push(text);
            }
            if forms.len() > most || steps > MOST_STEPS {
                return Err(Ambiguity::TooLong);
            }
        }
    }
    Ok(forms)
}

/// The ways to read the parameters of a path that is spelled so.
fn parameters(spelling: Spelling) -> &'static [SegmentParameters] {
    match (spelling.has(Spelling::PARAMETERS), spelling.has(Spelling::ESCAPED_PARAMETERS)) {
        (false, false) => &[SegmentParameters::Keep],
        (_, false) => &[SegmentParameters::Keep, SegmentParameters::Cut],
        _ => &[SegmentParameters::Keep, SegmentParameters::Cut, SegmentParameters::CutEscaped],
    }
}

/// The ways to read a path with this spelling.
fn readings(spelling: Spelling) -> impl Iterator<Item = PathReading> {
    // Segments without their parameters may be empty or dots.
    let cut = spelling.has(Spelling::PARAMETERS | Spelling::ESCAPED_PARAMETERS);
    let choices = |is_open| if is_open { &[true, false][..] } else { &[true][..] };
    let parameters = parameters(spelling);
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
            parameters.iter().map(move |&parameters| PathReading { unescape, merge, dots, parameters })
        })
}

/// The whole path, and its part for servers that treat two slashes as the start of a host (RFC 3986 §4.2;
/// WHATWG URLs skip further slashes first), or an escaped `?` or `#` as the end.
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

/// Start of the path behind each segment that may be a host: a segment behind empty ones, with or without
/// parameters. `None` if nothing follows it.
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

/// Maximum rounds of decoding.
const ROUNDS: usize = 4;

/// The most permissive reading of an ambiguous path: escapes are decoded repeatedly, and backslashes are
/// separators. `None` if a server could leave the path upwards, or in unpredictable cases: dot segments,
/// parameters, `?` and `#`, two slashes at the front, control characters, overlong UTF-8, `%u`, triple
/// escapes.
///
/// Any prefix of a route that some reading begins with is a prefix of this reading, too: the routes that a
/// reading matches are between those of the normal form and those of this one.
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
    // For some servers, a host begins here.
    if text.starts_with("//") {
        return None;
    }
    let mut spelling = Spelling::default();
    let mut out = String::with_capacity(text.len());
    PathReading::NORMAL.write(&text, &mut out, &mut spelling);
    (!spelling.has(Spelling::DOTS)).then_some(out)
}

/// Returns true for the start of an overlong sequence, which lax decoders treat as ASCII.
fn is_overlong(pair: &[u8]) -> bool {
    matches!(pair, [0xC0 | 0xC1, _] | [0xE0, 0x80..=0x9F] | [0xF0, 0x80..=0x8F])
}
