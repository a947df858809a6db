//! `compress` of a route.

use super::Reader;
use crate::error::Problem;
use crate::model::{Algorithm, Compress, Size};
use crate::raw::{Section, Spanned};

/// How responses are compressed, if they are.
pub(super) fn compress(section: &Section, reader: &mut Reader<'_, '_>) -> Option<Compress> {
    let Some(details) = section.section("compress") else {
        return section.bool("compress")?.then(Compress::default);
    };
    let default = Compress::default();
    reader.not_empty(details, "algorithms", "leave it out for all of them");
    let algorithms = reader.list(details, "algorithms", |text: &Spanned<String>, _| {
        Algorithm::from_word(&text.value).ok_or_else(|| {
            let words: Vec<&str> = Algorithm::ALL.iter().map(|one| one.word()).collect();
            Problem::new("responses cannot be compressed in this way").suggest("algorithm", None, &words)
        })
    });
    reader.not_empty(details, "types", "leave it out for the usual ones");
    let types = reader.list(details, "types", |text: &Spanned<String>, _| text.value.parse());
    Some(Compress {
        algorithms: if algorithms.is_empty() { default.algorithms } else { algorithms },
        min_size: details.size("min_size").map_or(default.min_size, Size::new),
        types: if types.is_empty() { default.types } else { types },
        level: details.integer("level").and_then(|level| u8::try_from(level).ok()),
        secrets: details.bool("secrets").unwrap_or_default(),
    })
}
