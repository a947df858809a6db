//! The text of a map of redirects, and everything that is wrong with it.

use std::borrow::Cow;
use std::ops::Range;

use offramp_http::path::normalize;
use offramp_http::target;

use super::{ENTRIES_MAX, MapFault, MapFaults, RedirectEntry, RedirectMap, TEXT_MAX};

/// Maximum number of mistakes that are listed.
const LISTED: usize = 100;
/// The longest path and the longest target: longer ones fit in no head.
const LONGEST: usize = 8192;
const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

/// Reads the text of a map.
pub(super) fn read(text: String, below: &str) -> Result<RedirectMap, MapFaults> {
    let mut faults = MapFaults::default();
    if text.len() > TEXT_MAX {
        faults.add(1, 1, format!("the file is larger than {} MiB", TEXT_MAX >> 20));
        return Err(faults);
    }
    let (mut entries, lines) = entries(&text, below, &mut faults);
    let written = text.len();
    let text = normalized(text, &mut entries);
    let slots = vec![0; (entries.len() * 2).next_power_of_two().max(2)].into_boxed_slice();
    let mut map = RedirectMap { text: text.into_boxed_str(), entries: entries.into(), slots };
    fill(&mut map, &lines, written, &mut faults);
    circles(&map, &lines, &mut faults);
    if faults.listed.is_empty() { Ok(map) } else { Err(faults.sorted()) }
}

/// Puts the normal forms of paths that have another behind the text, and has their entries name them.
fn normalized(mut text: String, entries: &mut [RedirectEntry]) -> String {
    for entry in entries {
        let Cow::Owned(normal) = normalize(&text[entry.from()]).text else { continue };
        // A byte becomes three at the most, of a text and of lines that have bounds.
        entry.from = u32::try_from(text.len()).unwrap_or(u32::MAX);
        entry.from_length = u16::try_from(normal.len()).unwrap_or(u16::MAX);
        text.push_str(&normal);
    }
    text
}

/// A line of the text.
#[derive(Clone, Copy)]
struct LineStart {
    /// Number of the line, from 1.
    number: usize,
    /// The offset of its first byte.
    start: usize,
}

/// The redirects, each with its line.
fn entries(text: &str, below: &str, faults: &mut MapFaults) -> (Vec<RedirectEntry>, Vec<LineStart>) {
    let (mut entries, mut lines) = (Vec::new(), Vec::new());
    let mut start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let begin = start;
    for (number, whole) in text[begin..].split_inclusive('\n').enumerate() {
        let line = LineStart { number: number + 1, start };
        start += whole.len();
        let content = whole.trim_end_matches(['\n', '\r']);
        if content.trim_start().is_empty() || content.trim_start().starts_with('#') {
            continue;
        }
        match entry(text, line.start..line.start + content.len(), below) {
            Ok(_) if entries.len() == ENTRIES_MAX => {
                faults.at(text, line, line.start, format!("there are more than {ENTRIES_MAX} redirects"));
                break;
            }
            Ok(entry) => {
                entries.push(entry);
                lines.push(line);
            }
            Err((at, what)) => faults.at(text, line, at, what),
        }
    }
    (entries, lines)
}

/// The redirect of a line, or what is wrong with it and where.
fn entry(text: &str, line: Range<usize>, below: &str) -> Result<RedirectEntry, (usize, String)> {
    let fields = fields(text, line.clone())?;
    let (from, to, status) = match &fields[..] {
        [from, to] => (from, to, None),
        [from, to, status] => (from, to, Some(status)),
        [_, _, _, more, ..] => return Err((more.start, format!("a line has at most 3 fields; {QUOTED}"))),
        _ => return Err((line.end, "where this leads is missing; write PATH,TARGET".to_owned())),
    };
    path(&text[from.clone()], below).map_err(|what| (from.start, what))?;
    target(&text[to.clone()]).map_err(|what| (to.start, what))?;
    let status = match status {
        None => 308,
        Some(at) => {
            text[at.clone()].parse().ok().filter(|status| STATUSES.contains(status)).ok_or_else(|| {
                let shown = shown(&text[at.clone()]);
                (
                    at.start,
                    format!("`{shown}` is not the status of a redirect; write 301, 302, 303, 307 or 308"),
                )
            })?
        }
    };
    // The bounds on lengths and on the text keep all of it far below.
    let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let length = |range: &Range<usize>| u16::try_from(range.len()).unwrap_or(u16::MAX);
    let (from_length, to_length) = (length(from), length(to));
    Ok(RedirectEntry { from: place(from.start), to: place(to.start), from_length, to_length, status })
}

const QUOTED: &str = "put a field with a comma in double quotes";

/// Ranges of the fields of a line, without blanks and quotes around them (RFC 4180; no field has a quote in it).
fn fields(text: &str, line: Range<usize>) -> Result<Vec<Range<usize>>, (usize, String)> {
    let mut fields = Vec::with_capacity(3);
    let mut at = line.start;
    loop {
        let rest = &text[at..line.end];
        at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let rest = &text[at..line.end];
        let end = if let Some(quoted) = rest.strip_prefix('"') {
            let length = quoted.find('"').ok_or_else(|| (at, "a `\"` without its end".to_owned()))?;
            fields.push(at + 1..at + 1 + length);
            let behind = at + length + 2;
            let blank = text[behind..line.end].trim_start_matches([' ', '\t']);
            let end = line.end - blank.len();
            if !blank.is_empty() && !blank.starts_with(',') {
                return Err((end, "only a comma can follow a `\"`".to_owned()));
            }
            end
        } else {
            let length = rest.find(',').unwrap_or(rest.len());
            fields.push(at..at + rest[..length].trim_end_matches([' ', '\t']).len());
            at + length
        };
        if end == line.end {
            return Ok(fields);
        }
        at = end + 1;
    }
}

/// Checks that requests of the route can ask for this path.
fn path(text: &str, below: &str) -> Result<(), String> {
    if !text.starts_with('/') {
        return Err(format!("`{}` is not a path; paths begin with `/`", shown(text)));
    }
    if text.contains(['?', '#']) {
        return Err("write the path alone, without query and fragment".to_owned());
    }
    if text.len() > LONGEST {
        return Err(format!("the path is longer than {LONGEST} bytes"));
    }
    if target::check(text.as_bytes()).is_err() {
        return Err(format!("no client can ask for `{}`; write other characters as %XX", shown(text)));
    }
    let below = if below == "/" { "" } else { below };
    let within = normalize(text).text.strip_prefix(below).is_some_and(|rest| {
        rest.is_empty() || below.is_empty() || below.ends_with('/') || rest.starts_with('/')
    });
    if within {
        Ok(())
    } else {
        Err(format!("`{}` is not below `{below}`, the path of the route", shown(text)))
    }
}

/// Checks that a client can be sent there.
fn target(text: &str) -> Result<(), String> {
    let absolute = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match absolute {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '?', '#']) => {
            return Err("the host is missing".to_owned());
        }
        None if text.starts_with("//") => {
            return Err("`//` begins a host; write `https://` before it, or one slash".to_owned());
        }
        None if !text.starts_with('/') => {
            let shown = shown(text);
            return Err(format!("`{shown}` is not where a redirect can lead; write a path or a whole URL"));
        }
        _ => {}
    }
    if text.len() > LONGEST {
        return Err(format!("the target is longer than {LONGEST} bytes"));
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    if text.bytes().all(plain) {
        Ok(())
    } else {
        Err(format!("`{}` has characters that no URL has; write them as %XX", shown(text)))
    }
}

/// Puts every entry into its slot. The text as it was written has `written` bytes.
fn fill(map: &mut RedirectMap, lines: &[LineStart], written: usize, faults: &mut MapFaults) {
    for place in 0..map.entries.len() {
        let from = map.entries[place].from();
        match map.slot(&map.text[from.clone()]) {
            // There are fewer than `ENTRIES_MAX`.
            Err(slot) => map.slots[slot] = u32::try_from(place + 1).unwrap_or(u32::MAX),
            Ok(other) => {
                let text =
                    format!("`{}` is also in line {}", shown(&map.text[from.clone()]), lines[other].number);
                // A normal form stands behind all lines.
                let at = if from.start < written { from.start } else { lines[place].start };
                faults.at(&map.text, lines[place], at, text);
            }
        }
    }
}

/// Reports each circle of redirects once. Every path leads to one other at the most, so that each is walked once.
fn circles(map: &RedirectMap, lines: &[LineStart], faults: &mut MapFaults) {
    let next = |place: usize| {
        let to = &map.text[map.entries[place].to()];
        let path = &to[..to.find(['?', '#']).unwrap_or(to.len())];
        // Whether another URL leads here is not known.
        map.place(&normalize(path).text).filter(|_| path.starts_with('/'))
    };
    // The walk that came by, from 1; 0: none yet.
    let mut seen = vec![0_u32; map.entries.len()];
    let mut walk = 0;
    for first in 0..map.entries.len() {
        if seen[first] > 0 {
            continue;
        }
        walk += 1;
        let mut at = Some(first);
        while let Some(place) = at.filter(|place| seen[*place] == 0) {
            seen[place] = walk;
            at = next(place);
        }
        if let Some(place) = at.filter(|place| seen[*place] == walk) {
            let entry = map.entries[place];
            let (from, to) = (shown(&map.text[entry.from()]), shown(&map.text[entry.to()]));
            let text = format!("`{from}` leads to `{to}`, and from there back to itself");
            faults.at(&map.text, lines[place], entry.to().start, text);
        }
    }
}

/// A part of the text as it may stand in a message.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(60).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

impl MapFaults {
    /// A mistake at an offset of a line.
    fn at(&mut self, text: &str, line: LineStart, offset: usize, what: String) {
        let column = text[line.start..offset].chars().count() + 1;
        self.add(line.number, column, what);
    }

    fn add(&mut self, line: usize, column: usize, text: String) {
        if self.listed.len() < LISTED {
            self.listed.push(MapFault { line, column, text });
        } else {
            self.more += 1;
        }
    }

    fn sorted(mut self) -> Self {
        self.listed.sort_by_key(|fault| (fault.line, fault.column));
        self
    }
}
