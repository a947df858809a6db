//! `[backend.NAME]`: each section by itself.

use super::{ValueReader, server_tls};
use crate::error::Problem;
use crate::model::{BackendConfig, Health, Probe};
use crate::raw::Section;

/// The backends without mistakes.
pub(super) fn backends(root: &Section, reader: &mut ValueReader<'_, '_>) -> Vec<BackendConfig> {
    let mut backends = Vec::new();
    for (name, section) in root.named("backend") {
        let before = reader.report.len();
        let at = reader.at(&name.span);
        let name = reader.ok_or_report(&name.span, name.value.parse());
        let unnamed = unnamed(section, reader);
        if let (Some(name), true) = (name, reader.report.len() == before && !section.has_wrong()) {
            let backend = BackendConfig { name, at, ..unnamed };
            server_tls::compare(section, &backend, reader);
            backends.push(backend);
        }
    }
    backends
}

/// Reads everything but name and place.
fn unnamed(section: &Section, reader: &mut ValueReader<'_, '_>) -> BackendConfig {
    BackendConfig {
        tls: server_tls::server_tls(section, reader),
        health: section.section("health").map(|section| health(section, reader)),
        eject: reader.table("backend.*.eject", section),
        ..reader.filled("backend.*", section)
    }
}

fn health(section: &Section, reader: &mut ValueReader<'_, '_>) -> Health {
    Health { probe: probe(section, reader), ..reader.filled("backend.*.health", section) }
}

fn probe(section: &Section, reader: &mut ValueReader<'_, '_>) -> Probe {
    if !section.mentions("path") {
        for key in ["host", "status"].into_iter().filter(|key| section.mentions(key)) {
            let problem = Problem::new(format!("`{key}` has no effect without `path`"));
            let help = "add path = \"/\": without it, servers need only accept a connection";
            reader.report.whole(section.key_span(key), problem.help(help));
        }
        return Probe::Connect;
    }
    Probe::Http(reader.filled("backend.*.health", section))
}
