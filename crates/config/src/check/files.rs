//! The keys of a route that answers with files.

use super::Reader;
use crate::error::Problem;
use crate::model::{StaticFiles, fallback, is_below};
use crate::raw::{Section, Spanned};

/// The keys that say something of files.
const OF_FILES: [&str; 7] =
    ["index", "try", "fallback", "listing", "precompressed", "hidden", "cache_control"];

/// Whether a key says something of files.
pub(super) fn is_of_files(name: &str) -> bool {
    OF_FILES.contains(&name)
}

/// Reports keys that need files where there are none.
pub(super) fn only_with_root(section: &Section, reader: &mut Reader<'_, '_>) {
    if section.mentions("root") {
        return;
    }
    for name in OF_FILES.into_iter().filter(|name| section.mentions(name)) {
        let problem = Problem::new(format!("`{name}` has an effect only with `root`"));
        reader.report.local(section.key_span(name), problem.help("add `root`, or leave it out"));
    }
}

/// The files below `root`, which is there.
pub(super) fn files(section: &Section, reader: &mut Reader<'_, '_>) -> Option<StaticFiles> {
    let text = section.text("root")?;
    let root = reader.origin(&text.span).file(text.value);
    let root = reader.tell(&text.span, root)?;
    let mut files = StaticFiles::new(root);
    reader.not_empty(section, "index", "leave it out for index.html");
    if section.mentions("index") {
        files.index = reader.list(section, "index", |text: &Spanned<String>, _| name(&text.value));
    }
    reader.not_empty(section, "try", "leave it out to look for `{path}` alone");
    if section.mentions("try") {
        files.tries = reader.list(section, "try", |text: &Spanned<String>, _| attempt(&text.value));
    }
    if let Some(text) = section.text("fallback") {
        files.fallback = reader.tell(&text.span, fallback(text.value));
    }
    files.listing = section.bool("listing").unwrap_or_default();
    files.precompressed = section.bool("precompressed").unwrap_or_default();
    files.hidden = section.bool("hidden").unwrap_or_default();
    for (pattern, value) in section.pairs("cache_control") {
        let value = reader.parsed(&Spanned { value: value.value.as_str(), span: value.span.clone() });
        if files.cache_control.iter().any(|(other, _)| *other == pattern.value) {
            let problem = Problem::new("a pattern of `cache_control` has one value");
            reader.report.local(&pattern.span, problem.help("write it as one string, with commas"));
        } else if let Some(value) = value {
            files.cache_control.push((pattern.value.clone(), value));
        }
    }
    files.cache_control.sort_by(|(one, _), (other, _)| (other.len(), one).cmp(&(one.len(), other)));
    Some(files)
}

/// The name of a file in a directory.
fn name(text: &str) -> Result<String, Problem> {
    let sound = !text.is_empty() && !text.contains(['/', '\0']) && text != "." && text != "..";
    let wrong = || Problem::new("this is not the name of a file").help("write a name without `/`");
    if sound { Ok(text.to_owned()) } else { Err(wrong()) }
}

fn attempt(text: &str) -> Result<String, Problem> {
    let rest = text.strip_prefix('/').unwrap_or(text);
    let once = rest.matches("{path}").count() == 1;
    if once && is_below(rest) && !rest.replacen("{path}", "", 1).contains(['{', '}']) {
        return Ok(rest.to_owned());
    }
    let problem = Problem::new("this names no file for a request");
    Err(problem.help("write `{path}` once, such as \"{path}.html\"; for a fixed file there is `fallback`"))
}
