//! Who may enter, as routes and listeners say it.

use super::Reader;
use crate::error::Problem;
use crate::model::{ClientNetworks, Networks};
use crate::raw::{Section, Spanned};

/// `allow` and `deny` of a section.
pub(super) fn networks(section: &Section, reader: &mut Reader<'_, '_>) -> ClientNetworks {
    reader.not_empty(section, "allow", "leave it out to admit clients from anywhere");
    reader.not_empty(section, "deny", "leave it out to refuse nobody");
    let allow = reader.list(section, "allow", entry);
    let deny = reader.list(section, "deny", entry);
    ClientNetworks { allow, deny }
}

fn entry(text: &Spanned<String>, reader: &mut Reader<'_, '_>) -> Result<Networks, Problem> {
    if let Some(path) = text.value.strip_prefix("file:") {
        return reader.origin(&text.span).file(path).map(Networks::File);
    }
    if text.value.starts_with(['/', '.']) {
        let problem = Problem::new("this is a path, and not a network");
        return Err(problem.help("write file: before the path of a list of networks"));
    }
    text.value.parse().map(Networks::One)
}
