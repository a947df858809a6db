//! Directory listings, as HTML and as JSON.
//!
//! The page is self-contained, without scripts, pictures or fonts, and follows the dark mode of the browser.
//! Names may have been chosen by strangers that uploaded files: in text they are escaped, and in links every
//! byte except unreserved ones is. Both formats are bounded in bytes, and say so if entries were omitted.

use std::fmt::Write as _;

use crate::html::escaped;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingEntry {
    /// Name within the directory.
    pub name: String,
    /// Set for directories, which have no size.
    pub is_directory: bool,
    /// Size of a file in bytes.
    pub size: u64,
    /// Modification time, in seconds since 1970.
    pub modified: i64,
}

/// Content of a directory to be rendered.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// Path of the directory in decoded form; ends with `/`.
    pub path: &'a str,
    /// Set below the root: adds a link to the parent.
    pub has_parent: bool,
    /// Entries in the order of the page; see [`sort`].
    pub entries: &'a [ListingEntry],
    /// Set if the directory has more entries.
    pub is_cut: bool,
}

/// Sorts directories first, then by name without regard to case.
pub fn sort(entries: &mut [ListingEntry]) {
    entries.sort_by_cached_key(|entry| (!entry.is_directory, entry.name.to_lowercase(), entry.name.clone()));
}

impl Listing<'_> {
    /// Renders the page, with at most `most` bytes before the closing elements.
    #[must_use]
    pub fn html(&self, most: usize) -> String {
        let path = escaped(self.path);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{path}</title>\n\
             <style>{STYLE}</style>\n<main>\n<h1>{path}</h1>\n<table>\n\
             <thead><tr><th>Name<th>Size<th>Changed (UTC)\n<tbody>\n"
        );
        if self.has_parent {
            out.push_str("<tr><td><a href=\"../\">Parent directory</a><td><td>\n");
        }
        let mut listed = 0;
        for entry in self.entries {
            let before = out.len();
            row(&mut out, entry);
            if out.len() > most {
                out.truncate(before);
                break;
            }
            listed += 1;
        }
        out.push_str("</table>\n");
        // Writing to a String cannot fail, here and below.
        let _ = match (listed, self.is_cut || listed < self.entries.len()) {
            (_, true) => writeln!(out, "<p>{listed} entries are shown. The directory has more."),
            (0, _) => writeln!(out, "<p>The directory is empty."),
            (1, _) => writeln!(out, "<p>1 entry"),
            _ => writeln!(out, "<p>{listed} entries"),
        };
        out.push_str("</main>\n</html>\n");
        out
    }

    /// Renders JSON: an object with `path`, `entries` and `truncated`. An entry has `name`, `type` (`file` or
    /// `directory`), `modified` (RFC 3339) and, for files, `size`. At most `most` bytes, as for
    /// [`Listing::html`].
    #[must_use]
    pub fn json(&self, most: usize) -> String {
        let mut out = String::from("{\"path\":");
        quote(&mut out, self.path);
        out.push_str(",\"entries\":[");
        let mut is_cut = self.is_cut;
        for (at, entry) in self.entries.iter().enumerate() {
            let before = out.len();
            out.push_str(if at == 0 { "\n{\"name\":" } else { ",\n{\"name\":" });
            quote(&mut out, &entry.name);
            let _ = match entry.is_directory {
                true => write!(out, ",\"type\":\"directory\""),
                false => write!(out, ",\"type\":\"file\",\"size\":{}", entry.size),
            };
            if let Some(time) = Time::of(entry.modified) {
                let _ = write!(out, ",\"modified\":\"{}\"", time.rfc3339());
            }
            out.push('}');
            if out.len() > most {
                out.truncate(before);
                is_cut = true;
                break;
            }
        }
        let _ = writeln!(out, "\n],\"truncated\":{is_cut}}}");
        out
    }
}

fn row(out: &mut String, entry: &ListingEntry) {
    let slash = if entry.is_directory { "/" } else { "" };
    out.push_str("<tr><td><a href=\"");
    link(out, &entry.name);
    let _ = write!(out, "{slash}\">{}{slash}</a><td>", escaped(&entry.name));
    if !entry.is_directory {
        out.push_str(&size(entry.size));
    }
    out.push_str("<td>");
    if let Some(time) = Time::of(entry.modified) {
        let _ = write!(out, "<time datetime=\"{}\">{}</time>", time.rfc3339(), time.short());
    }
    out.push('\n');
}

/// Style sheet of the page. In a narrow window, a row has two lines.
const STYLE: &str = ":root{color-scheme:light dark}\
    body{font:1rem/1.5 system-ui,sans-serif;margin:0 1rem}\
    main{max-width:56rem;margin:2rem auto}h1{font-size:1.4rem;overflow-wrap:anywhere}\
    table{width:100%;border-collapse:collapse}\
    th{text-align:left;font-size:.85rem;opacity:.7}\
    th,td{padding:.35rem .5rem;border-bottom:1px solid #8883;vertical-align:top}\
    td:nth-child(2),th:nth-child(2){text-align:right;white-space:nowrap}\
    td:nth-child(3),th:nth-child(3){text-align:right;white-space:nowrap}\
    td:first-child{overflow-wrap:anywhere}td+td{opacity:.8;font-variant-numeric:tabular-nums}\
    tbody tr:hover{background:#8882}a{text-decoration:none}a:hover{text-decoration:underline}\
    p{font-size:.85rem;opacity:.7}\
    @media(max-width:32rem){thead{display:none}tr{display:grid;grid-template-columns:1fr auto;\
    border-bottom:1px solid #8883}td{border:0}td:first-child{grid-column:1/3;padding-bottom:0}\
    td:nth-child(2){text-align:left;min-height:1em}}";

/// Writes a name as a path segment of a URL: every byte except unreserved characters is escaped (RFC 3986
/// §2.3).
fn link(out: &mut String, name: &str) {
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

/// Writes text as a JSON string (RFC 8259 §7).
fn quote(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
}

/// Formats a number of bytes with a binary unit.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // In tenths of the unit.
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// A calendar date and time in UTC.
struct Time {
    year: i64,
    month: i64,
    day: i64,
    second: i64,
}

impl Time {
    /// The time `seconds` after 1970; `None` before that, and after the year 9999.
    fn of(seconds: i64) -> Option<Self> {
        if !(0..=super::conditions::LAST.cast_signed()).contains(&seconds) {
            return None;
        }
        // Days since the first of March of the year 0: years that begin in March have their leap day at the
        // end.
        let days = seconds / 86_400 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + i64::from(month <= 2);
        Some(Self { year, month, day, second: seconds % 86_400 })
    }

    fn clock(&self) -> (i64, i64, i64) {
        (self.second / 3600, self.second / 60 % 60, self.second % 60)
    }

    fn rfc3339(&self) -> String {
        let (hour, minute, second) = self.clock();
        let Self { year, month, day, .. } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    fn short(&self) -> String {
        let (hour, minute, _) = self.clock();
        format!("{:04}-{:02}-{:02} {hour:02}:{minute:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, is_directory: bool) -> ListingEntry {
        ListingEntry { name: name.to_owned(), is_directory, size: 1536, modified: 784_111_777 }
    }

    fn listing(entries: &[ListingEntry]) -> Listing<'_> {
        Listing { path: "/a & b/", has_parent: true, entries, is_cut: false }
    }

    const PLENTY: usize = 1 << 20;

    #[test]
    fn directories_come_first_then_names() {
        let mut entries =
            [entry("b", false), entry("Z", true), entry("A", false), entry("a", false), entry("c", true)];
        sort(&mut entries);
        assert_eq!(entries.map(|entry| entry.name), ["c", "Z", "A", "a", "b"]);
    }

    #[test]
    fn a_page_has_links_sizes_and_times() {
        let page = listing(&[entry("sub", true), entry("file.txt", false)]).html(PLENTY);
        for part in [
            "<title>/a &amp; b/</title>",
            "<a href=\"../\">Parent directory</a>",
            "<a href=\"sub/\">sub/</a><td><td><time",
            "<a href=\"file.txt\">file.txt</a><td>1.5 KiB<td>\
             <time datetime=\"1994-11-06T08:49:37Z\">1994-11-06 08:49</time>",
            "<p>2 entries",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        let root = Listing { has_parent: false, ..listing(&[]) }.html(PLENTY);
        assert!(!root.contains("../") && root.contains("The directory is empty."), "{root}");
        assert!(!page.contains("<script"));
    }

    #[test]
    fn names_are_text_and_never_markup() {
        let evil = "<script>alert(\"1\")</script>'&%2e?#:\u{202e}";
        let page = listing(&[entry(evil, false)]).html(PLENTY);
        assert!(!page.contains("<script") && !page.contains('\u{202e}'), "{page}");
        assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)"), "{page}");
        assert!(page.contains("href=\"%3Cscript%3Ealert%28%221%22%29%3C%2Fscript%3E%27%26%252e%3F%23%3A%E2"));
        let text = listing(&[entry("a\"b\\c\n\u{7f}", false)]).json(PLENTY);
        assert!(
            text.contains("{\"name\":\"a\\\"b\\\\c\\u000a\\u007f\",\"type\":\"file\",\"size\":1536,"),
            "{text}"
        );
    }

    #[test]
    fn json_has_the_entries_of_the_page() {
        let text = listing(&[entry("sub", true), entry("a", false)]).json(PLENTY);
        assert_eq!(
            text,
            "{\"path\":\"/a & b/\",\"entries\":[\n\
             {\"name\":\"sub\",\"type\":\"directory\",\"modified\":\"1994-11-06T08:49:37Z\"},\n\
             {\"name\":\"a\",\"type\":\"file\",\"size\":1536,\"modified\":\"1994-11-06T08:49:37Z\"}\n\
             ],\"truncated\":false}\n"
        );
        assert!(listing(&[]).json(PLENTY).contains("\"entries\":[\n],"));
    }

    #[test]
    fn both_formats_are_bounded_and_say_so() {
        let entries: Vec<ListingEntry> = (0..1000).map(|at| entry(&format!("{at:0200}"), false)).collect();
        let page = listing(&entries).html(100_000);
        assert!(
            page.len() < 100_200 && page.contains("entries are shown. The directory has more."),
            "{page}"
        );
        let text = listing(&entries).json(100_000);
        assert!(text.len() < 100_200 && text.ends_with("\n],\"truncated\":true}\n"), "{text}");
        let cut = Listing { is_cut: true, ..listing(&entries[..1]) };
        assert!(cut.html(PLENTY).contains("1 entries are shown."));
        assert!(cut.json(PLENTY).ends_with("\"truncated\":true}\n"));
    }

    #[test]
    fn sizes() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1_048_575, "1023.9 KiB"),
            (1_048_576, "1.0 MiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn times() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Time::of(seconds).unwrap().rfc3339(), expected);
        }
        assert!(Time::of(-1).is_none() && Time::of(i64::MAX).is_none() && Time::of(i64::MIN).is_none());
    }

    proptest! {
        /// `httpdate` is the oracle.
        #[test]
        fn times_agree_with_httpdate(seconds in 0..=253_402_300_799_i64) {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs()));
            let time = Time::of(seconds).unwrap();
            let (hour, minute, second) = time.clock();
            let clock = format!("{hour:02}:{minute:02}:{second:02}");
            prop_assert_eq!(&date[5..7], format!("{:02}", time.day));
            prop_assert_eq!(&date[12..16], format!("{:04}", time.year));
            prop_assert_eq!(&date[17..25], clock);
            let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
            prop_assert_eq!((months.find(&date[8..11]).unwrap() / 3 + 1) as i64, time.month);
        }

        /// A link of the page leads to the file of its name.
        #[test]
        fn links_lead_to_files_of_their_names(name in "[^/\\\\\\x00-\\x1f\\x7f]{1,20}") {
            let mut path = String::from("/");
            link(&mut path, &name);
            match super::super::path::decode(&path, true) {
                Ok(decoded) if decoded == name => {}
                // No file has these names.
                _ => prop_assert!(name == "." || name == "..", "{}", name),
            }
        }
    }
}
