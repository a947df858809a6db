//! The keys of a route with static files.

use super::ValueReader;
use crate::error::Problem;
use crate::keys::{self, Key};
use crate::model::StaticFiles;
use crate::raw::{Section, Spanned};

/// Reports keys of files without `root`.
pub(super) fn only_with_root(section: &Section, reader: &mut ValueReader<'_, '_>) {
    if section.mentions("root") {
        return;
    }
    let of_files = keys::in_section("route").filter(|key| key.scope.is_of_files());
    for name in of_files.map(Key::name).filter(|name| section.mentions(name)) {
        let problem = Problem::new(format!("`{name}` has an effect only with `root`"));
        reader.report.local(section.key_span(name), problem.help("add `root`, or leave it out"));
    }
}

/// Reads the static files of a route with `root`.
pub(super) fn files(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<StaticFiles> {
    let mut files = StaticFiles::new(reader.file(section, "root")?);
    reader.fill("route", section, &mut files);
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
