//! The page offramp.toml(5), from the table of keys, as `docs/reference/keys.md` is.

use std::io::{self, Write};

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use offramp_config::keys::{self, Key, Reload};

use crate::version;

/// Writes the page in roff format.
///
/// # Errors
/// Errors of `out`.
pub(crate) fn write(out: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    let release = format!("offramp {}", version::NUMBER);
    roff.control("TH", ["offramp.toml", "5", "", release.as_str(), "Offramp"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("offramp.toml - configuration of Offramp")]);
    roff.control("SH", ["DESCRIPTION"]);
    for paragraph in DESCRIPTION {
        roff.control("PP", []);
        roff.text(inlines(paragraph));
    }
    roff.control("SH", ["EXAMPLE"]);
    roff.control("nf", []);
    for line in EXAMPLE.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("SH", ["TOP LEVEL"]);
    entries(&mut roff, "");
    for section in keys::sections() {
        render_section(&mut roff, section);
    }
    roff.control("SH", ["FILES"]);
    for (path, meaning) in FILES {
        roff.control("TP", []);
        roff.text([bold(*path)]);
        roff.text(inlines(meaning));
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("offramp"), roman("(1)")]);
    roff.to_writer(out)
}

fn render_section(roff: &mut Roff, section: &Key) {
    let path = section.inner();
    roff.control("SH", [keys::header(&path).replace('`', "").as_str()]);
    roff.text(inlines(&format!("{}. Absent: {}.", section.doc, section.default)));
    if keys::is_shared(&path) {
        let names: Vec<String> = keys::in_section(&path).map(|key| format!("`{}`", key.name())).collect();
        roff.control("PP", []);
        roff.text(inlines(&format!("It takes these keys of `[[route]]`: {}.", names.join(", "))));
    } else {
        entries(roff, &path);
    }
}

/// Renders the keys of a section.
fn entries(roff: &mut Roff, section: &str) {
    for key in keys::plain_in(section) {
        roff.control("TP", []);
        roff.text([bold(key.name())]);
        let after = match key.reload {
            Reload::Live => "",
            Reload::Restart => " A change needs an upgrade or a restart.",
        };
        roff.text(inlines(&format!("{}. Takes {}. Default: {}.{after}", key.doc, key.takes(), key.default)));
    }
}

/// Renders the Markdown of the table: code in bold, emphasis in italics, and of a link its text.
fn inlines(markdown: &str) -> Vec<Inline> {
    let mut inlines = Vec::new();
    for (at, part) in markdown.split('`').enumerate() {
        if at % 2 == 1 {
            inlines.push(bold(part));
            continue;
        }
        for (at, part) in part.split('*').enumerate() {
            let text = without_targets(part);
            inlines.push(if at % 2 == 1 { italic(text) } else { roman(text) });
        }
    }
    inlines
}

/// `[text](target)` becomes `text`.
fn without_targets(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((_, after)) = after.split_once(')') else { break };
        let (before, linked) = before.rsplit_once('[').unwrap_or((before, ""));
        text.push_str(before);
        text.push_str(linked);
        rest = after;
    }
    text + rest
}

const DESCRIPTION: &[&str] = &[
    "Offramp reads one file in TOML, `./offramp.toml` or else `/etc/offramp/offramp.toml`, unless `--config` names another. \
     `offramp check` reports every mistake in it, with line and key; `offramp check --print` prints it with every default. \
     An unknown, misspelt or contradictory key is a mistake: nothing is ignored.",
    "A *listener* is an address that accepts connections. A *route* says what a connection or request must match, and which \
     server it goes to: `server`, or a `backend`, which is a named group of servers. The most specific route wins.",
    "A duration is a whole number and a unit: `\"250ms\"`, `\"10s\"`, `\"5m\"`, `\"6h\"`, `\"90d\"`. A size is in powers of 1024: \
     `\"64KiB\"`, `\"10MiB\"`. A rate is `\"100/s\"`, `\"30/m\"` or `\"1000/h\"`. A key that takes a list also takes one string. \
     A relative path starts at the folder of the file in which it is written.",
    "On SIGHUP, by `offramp ctl reload` and, with `watch`, by itself Offramp reads the file again. A change of a key applies to \
     new connections and requests, unless the key says otherwise. A file with a mistake changes nothing.",
];

/// One application, and plain HTTP that leads to it.
const EXAMPLE: &str = "\
[[listener]]
name = \"web\"
address = \"[::]:443\"
mode = \"http\"

[[listener]]
name = \"plain\"
address = \"[::]:80\"
mode = \"http\"
tls = false

[[route]]
listener = \"plain\"
redirect = \"https\"

[[route]]
listener = \"web\"
host = \"app.example.org\"
server = \"127.0.0.1:3000\"
";

const FILES: &[(&str, &str)] = &[
    ("./offramp.toml", "The configuration of `run` and `check`, if it exists"),
    ("/etc/offramp/offramp.toml", "Else the configuration"),
];

#[cfg(test)]
mod tests {
    use offramp_config::{Environment, keys, parse};

    use super::{EXAMPLE, without_targets};

    fn page() -> String {
        let mut page = Vec::new();
        super::write(&mut page).unwrap();
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn the_page_names_every_section_and_key() {
        let page = page();
        let roff = |text: &str| text.replace('-', "\\-");
        let mut rest = page.as_str();
        let sections = keys::sections().map(|section| (section.inner(), keys::header(&section.inner())));
        for (path, header) in std::iter::once((String::new(), "TOP LEVEL".to_owned())).chain(sections) {
            // In the order of the page, so that a key is that of its own section.
            let title = format!(".SH {}", roff(&header.replace('`', "")));
            let quoted = format!(".SH \"{}\"", roff(&header.replace('`', "")));
            let at = rest.find(&title).or_else(|| rest.find(&quoted)).unwrap_or_else(|| panic!("{title}"));
            rest = &rest[at + 4..];
            let section = rest.split("\n.SH ").next().unwrap();
            assert!(keys::plain_in(&path).next().is_some(), "{path}");
            for key in keys::plain_in(&path) {
                assert!(
                    section.contains(&format!("\\fB{}\\fR", roff(key.name()))),
                    "{} in {section}",
                    key.path
                );
            }
        }
        for key in keys::TABLE.iter().filter(|key| !key.support.is_now()) {
            assert!(!page.contains(&format!(".TP\n\\fB{}\\fR", key.name())), "{} is planned", key.path);
        }
    }

    #[test]
    fn the_page_has_no_markdown_left() {
        let page = page();
        assert!(!page.contains('`') && !page.contains("]("), "{page}");
    }

    #[test]
    fn the_example_is_read() {
        parse(EXAMPLE, "offramp.toml", &Environment::default()).unwrap();
    }

    #[test]
    fn links_become_their_text() {
        for (markdown, text) in [
            ("see [variables](http.md#variables) here", "see variables here"),
            ("[a](b), [c](d)", "a, c"),
            ("[[route]] and [limits]", "[[route]] and [limits]"),
        ] {
            assert_eq!(without_targets(markdown), text);
        }
    }
}
