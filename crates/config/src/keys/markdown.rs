//! The table of keys as pages of the book: `docs/reference/keys.md` lists all, `docs/reference/keys/` has a page for each
//! section.
//!
//! Links in the documentation of keys start at `docs/`.

use std::fmt::Write as _;

use super::{Key, Reload, Support, TABLE, header, in_section, plain_in, sharing};

/// A page below `docs/reference/`.
#[derive(Debug)]
pub struct ReferencePage {
    /// The path from `docs/reference/`.
    pub path: String,
    /// The Markdown of the page.
    pub text: String,
}

/// Writes all pages: first the list of keys, then those with each key under a heading.
pub fn pages() -> Vec<ReferencePage> {
    let mut pages: Vec<ReferencePage> = Vec::new();
    for (path, _) in sections() {
        let name = page_of(path);
        let file = format!("keys/{name}.md");
        if pages.iter().all(|page| page.path != file) {
            pages.push(ReferencePage { text: page(name), path: file });
        }
    }
    pages.insert(0, ReferencePage { path: "keys.md".to_owned(), text: list() });
    for page in &mut pages {
        page.text.truncate(page.text.trim_end().len());
        page.text.push('\n');
    }
    pages
}

const ORIGIN: &str =
    "<!-- Written by `OFFRAMP_BLESS=1 cargo test -p offramp-config` from the table of keys; do not edit. -->";

/// The sections with keys, each with the key that opens it; the top level comes first.
fn sections() -> Vec<(&'static str, Option<&'static Key>)> {
    let opened = TABLE.iter().filter(|key| key.support.is_now()).filter_map(|key| {
        let first = in_section(&key.inner()).next()?;
        // The keys of shared sections are those of a route.
        let path = if sharing(&key.inner()).is_some() { named(key) } else { first.section() };
        Some((path, Some(key)))
    });
    std::iter::once(("", None)).chain(opened).collect()
}

/// The path of a section whose keys stand elsewhere.
fn named(key: &Key) -> &'static str {
    if key.path == "policy" { "policy.*" } else { key.path }
}

/// The name of the page that has a section.
fn page_of(section: &str) -> &str {
    match section.split_once('.') {
        _ if section.is_empty() => "top-level",
        _ if section.starts_with("defaults") || section.starts_with("policy") => "policy",
        Some(("route", "client_auth" | "basic_auth" | "jwt" | "forward_auth" | "tls")) => "route-access",
        Some(("route", "split" | "mirror" | "send_proxy")) => "route-servers",
        Some(("route", _)) => "route-responses",
        Some((outer, _)) => outer,
        None => section,
    }
}

/// The title of a page.
fn title(page: &str) -> String {
    match page {
        "top-level" => "Keys at the top level".to_owned(),
        "policy" => "Shared keys of routes".to_owned(),
        "route-access" => "Tables of a route: who may enter".to_owned(),
        "route-servers" => "Tables of a route: servers".to_owned(),
        "route-responses" => "Tables of a route: requests and responses".to_owned(),
        _ => sections()
            .iter()
            .find(|(path, _)| page_of(path) == page)
            .map_or_else(String::new, |(path, _)| header(path)),
    }
}

/// Writes the page with the sections that belong to it.
fn page(name: &str) -> String {
    let own = title(name);
    let mut out = format!("# {own}\n\n{ORIGIN}\n\n");
    for (path, key) in sections().into_iter().filter(|(path, _)| page_of(path) == name) {
        let heading = header(path).replace('`', "");
        let below = path.is_empty() || heading == own;
        if !below {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "## {heading}\n");
        }
        section(&mut out, path, key, if below { "##" } else { "###" });
    }
    out
}

fn section(out: &mut String, path: &str, key: Option<&Key>, level: &str) {
    if let Some(key) = key {
        let _ = writeln!(out, "{}. Absent: {}.\n", from_keys(key.doc), key.default);
    }
    if sharing(path).is_some() {
        let names: Vec<String> = in_section(path).map(|key| link(key, "")).collect();
        let _ = writeln!(out, "It takes these keys of [[route]]: {}.\n", names.join(", "));
        return;
    }
    let tables: Vec<String> = tables(path).map(|key| link(key, "")).collect();
    if !tables.is_empty() {
        let _ = writeln!(out, "Its tables: {}.\n", tables.join(", "));
    }
    for key in plain_in(path) {
        entry(out, key, level);
    }
}

/// The keys that open a section within `path`.
fn tables(path: &str) -> impl Iterator<Item = &'static Key> {
    let nested = !path.is_empty();
    in_section(path)
        .filter(move |key| nested && key.support.is_now() && in_section(&key.inner()).next().is_some())
}

/// Writes a key with type, default, reload class and meaning, under a heading with its full path.
fn entry(out: &mut String, key: &Key, level: &str) {
    let mut takes = key.takes();
    if in_section(&key.inner()).next().is_some() {
        let _ = write!(takes, " with {}", link_as(key, "these keys", ""));
    }
    let reload = match key.reload {
        Reload::Live => "live",
        Reload::Restart => "upgrade",
    };
    let _ = writeln!(out, "{level} {}\n\n{}.\n", key.heading(), from_keys(key.doc));
    let _ =
        writeln!(out, "`{}` *takes* {takes}. *Default:* {}. *Change:* {reload}.\n", key.name(), key.default);
}

/// The documentation of a key with its links, which start at `docs/`, as links of a page in `docs/reference/keys/`.
fn from_keys(doc: &str) -> String {
    doc.replace("](", "](../../").replace("](../../http", "](http")
}

/// Link to the heading of a key, or of the section that it is, from a page in `folder`.
fn link(key: &Key, folder: &str) -> String {
    link_as(key, &format!("`{}`", key.name()), folder)
}

fn link_as(key: &Key, text: &str, folder: &str) -> String {
    let inner = key.inner();
    let opens = in_section(&inner).next().is_some();
    let page = page_of(if opens { inner.as_str() } else { key.section() });
    let heading = if opens { header(&inner).replace('`', "") } else { key.heading() };
    format!("[{text}]({folder}{page}.md#{})", anchor(&heading))
}

/// GitHub's anchor of a heading: lower case, with letters, digits, `-` and `_`, and `-` for blanks.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

const INTRODUCTION: &str = "\
Each section of [the configuration file](config.md) with its keys. A key links to its meaning, what it takes and its
default. *Change: live*: a reload puts a change in force for new connections. *Change: upgrade*: a change needs an upgrade
or a restart.

";

/// Writes the page that lists the keys of each section, and the planned ones.
fn list() -> String {
    let mut out = format!("# Reference of keys\n\n{ORIGIN}\n\n{INTRODUCTION}");
    out.push_str("| section | keys |\n| --- | --- |\n");
    for (path, _) in sections().into_iter().filter(|(path, _)| sharing(path).is_none()) {
        let keys = in_section(path).filter(|key| key.support.is_now());
        let keys: Vec<String> = keys
            .filter(|key| !path.is_empty() || !key.kind.is_section())
            .map(|key| link(key, "keys/"))
            .collect();
        if !keys.is_empty() {
            let page = page_of(path);
            let section = if path.is_empty() { "the top level".to_owned() } else { header(path) };
            let section = section.replace('`', "");
            let _ = writeln!(out, "| [{section}](keys/{page}.md) | {} |", keys.join(", "));
        }
    }
    let _ = writeln!(
        out,
        "\nRoutes can share keys: [defaults.route](keys/policy.md#defaultsroute), [policy.NAME](keys/policy.md#policyname).\n"
    );
    planned(&mut out);
    out
}

fn planned(out: &mut String) {
    if TABLE.iter().all(|key| key.support.is_now()) {
        return;
    }
    out.push_str(
        "## Planned\n\nThese are part of the language, and an error that says so in this version.\n\n",
    );
    out.push_str("| key | meaning |\n| --- | --- |\n");
    for key in TABLE.iter().filter(|key| key.support == Support::Planned) {
        let _ = writeln!(out, "| `{}` | {} |", key.heading(), key.doc.replace("](", "](../"));
    }
    let mut values = String::new();
    for key in TABLE.iter().filter(|key| key.support.is_now()) {
        for choice in key.kind.choices().iter().filter(|choice| choice.support == Support::Planned) {
            let _ = writeln!(values, "| `{}` | `\"{}\"` |", key.heading(), choice.word);
        }
    }
    if !values.is_empty() {
        let _ = write!(out, "\n| key | value |\n| --- | --- |\n{values}");
    }
}
