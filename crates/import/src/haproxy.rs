//! The language of HAProxy: `frontend`, `backend` and `listen`, as listeners, routes and backends.
//!
//! Each line gets its [`Fate`]; those that nothing uses get the one of the table of known words.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;

use crate::draft::{Draft, DraftItem, DraftKeys, quoted};
use crate::known::{ForeignLanguage, Handling};
use crate::report::{self, Fate, Finding};
use crate::source::{ImportError, SourceFiles};
use crate::written::toml_time;
use lines::{Line, Section};
use proxies::ProxySection;

mod backends;
mod binds;
mod conditions;
mod connections;
mod lines;
mod proxies;
mod routing;
mod rules;
mod values;

/// Reads and lowers files; returns the draft, and the findings by the number of their line.
pub(crate) fn lower(
    paths: &[PathBuf],
    files: &dyn SourceFiles,
) -> Result<(Draft, Vec<Finding>), ImportError> {
    if paths.is_empty() {
        return Err(ImportError::whole("no file was named", "name haproxy.cfg"));
    }
    let sections = lines::read(paths, files)?;
    let mut lowering = HaproxyLowering::default();
    lowering.global(&sections);
    lowering.sections(&sections);
    for section in lowering.proxies.clone() {
        lowering.section(&section);
    }
    let mut findings = Vec::new();
    for section in &sections {
        for line in std::iter::once(&section.head).chain(&section.lines) {
            let fate = lowering.fates.remove(&line.id).unwrap_or_else(|| unused(line, section));
            findings.push(Finding { at: line.at.clone(), text: shown(line), fate });
        }
    }
    lowering.draft.backends.sort_by_key(|(_, item)| item.id);
    Ok((lowering.draft, findings))
}

/// The state of the lowering.
#[derive(Default)]
struct HaproxyLowering<'a> {
    draft: Draft,
    fates: HashMap<usize, Fate>,
    lines: HashMap<usize, &'a Line>,
    proxies: Vec<Rc<ProxySection<'a>>>,
    /// Sections with servers, by name.
    by_name: HashMap<&'a str, Rc<ProxySection<'a>>>,
    /// The keys of routes to backends that are in the draft, by the name in the file.
    drafted: HashMap<String, Option<DraftKeys>>,
    listener_names: BTreeSet<String>,
    /// The keys of the certificates in the draft.
    pairs: HashSet<DraftKeys>,
    crt_base: PathBuf,
    ca_base: PathBuf,
}

/// The times that become `[limits]`: words, key, and the greatest in seconds.
const TIMES: [(&str, &str, u64); 3] = [
    ("timeout client", "idle_timeout", 2_592_000),
    ("timeout http-request", "request_header_timeout", 3_600),
    ("timeout http-keep-alive", "keepalive_timeout", 86_400),
];

impl<'a> HaproxyLowering<'a> {
    fn global(&mut self, sections: &'a [Section]) {
        let global = sections.iter().filter(|section| section.kind() == "global");
        for line in global.flat_map(|section| &section.lines) {
            match line.word(0) {
                "maxconn" => {
                    if let Ok(count @ 1..=10_000_000) = line.word(1).parse::<u64>() {
                        self.take(line);
                        self.set("limits", "connections", count.to_string(), line);
                    }
                }
                "nbthread" | "nbproc" => {
                    if let Ok(count @ 1..=1024) = line.word(1).parse::<u16>() {
                        self.take(line);
                        self.set("", "workers", count.to_string(), line);
                    }
                }
                "hard-stop-after" => {
                    if let Some(time) = values::bounded(line.word(1), 86_400) {
                        self.take(line);
                        self.set("limits", "drain_timeout", toml_time(time), line);
                    }
                }
                "crt-base" => {
                    self.take(line);
                    self.crt_base = line.word(1).into();
                }
                "ca-base" => {
                    self.take(line);
                    self.ca_base = line.word(1).into();
                }
                "ssl-default-bind-options" => {
                    self.take(line);
                    if let Some(at) = line.words.iter().position(|word| word == "ssl-min-ver") {
                        self.oldest_version(line, line.word(at + 1));
                    }
                    if line.words.iter().any(|word| word == "no-tls-tickets") {
                        self.set("tls", "tickets", "0".to_owned(), line);
                    }
                }
                _ => {}
            }
        }
    }

    fn section(&mut self, section: &Rc<ProxySection<'a>>) {
        if !section.accepts() {
            return;
        }
        let leads = section.has_servers || !section.rules.is_empty();
        if !leads {
            let how = "nothing but statistics, which the page of [admin] and `offramp top` show";
            section.own("bind").iter().for_each(|line| self.note(line, Fate::changed(how)));
            return;
        }
        let binds = self.binds(section);
        if binds.is_empty() {
            self.refuse(section.head(), "it has no address to listen on", "write `bind`");
            return;
        }
        for (words, key, most) in TIMES {
            if let Some(line) = section.one(words)
                && let Some(time) = values::bounded(line.word(2), most)
            {
                self.take(line);
                self.set("limits", key, toml_time(time), line);
            }
        }
        if section.is_http {
            self.routes(section, &binds);
        } else {
            self.connections(section, &binds);
        }
    }

    /// Notes the fate of a line; of several the worst counts.
    fn note(&mut self, line: &Line, fate: Fate) {
        let entry = self.fates.entry(line.id).or_insert(Fate::Taken);
        if fate > *entry {
            *entry = fate;
        }
    }

    fn take(&mut self, line: &Line) {
        self.note(line, Fate::Taken);
    }

    fn refuse(&mut self, line: &Line, why: impl Into<String>, remedy: impl Into<String>) {
        self.note(line, Fate::not(why, remedy));
    }

    /// The table for an item that comes from a line.
    fn item(&self, line: &Line, keys: DraftKeys) -> DraftItem {
        DraftItem { id: line.id, from: line.at.clone(), origin: shown(line), keys }
    }

    fn set(&mut self, table: &'static str, key: &'static str, value: String, from: &Line) {
        self.draft.set(table, key, value, Some(from.at.clone()));
    }

    /// A path of a file in TOML.
    fn path(&self, text: &str) -> String {
        quoted(text)
    }
}

/// A line without what may be a secret.
fn shown(line: &Line) -> String {
    if line.is("stats auth") {
        return "stats auth …".to_owned();
    }
    report::shown(line.word(0), line.rest(1))
}

/// The fate of a line that the lowering had no use for.
fn unused(line: &Line, section: &Section) -> Fate {
    let language = ForeignLanguage::Haproxy;
    let second = if line.word(1).starts_with("lua.") { "lua" } else { line.word(1) };
    let two = format!("{} {second}", line.word(0));
    let known = language.named(&two).or_else(|| language.named(line.word(0)));
    let Some(known) = known else {
        let is_two = matches!(line.word(0), "option" | "timeout" | "http-request" | "http-response");
        return language.unknown(if is_two { &two } else { line.word(0) });
    };
    match known.handling {
        Handling::Needless(_) => Fate::Taken,
        Handling::Changed(how) => Fate::changed(how),
        Handling::NotTaken(why, remedy) => Fate::not(why, remedy),
        Handling::Becomes(_) if matches!(section.kind(), "global" | "defaults") => {
            Fate::changed("nothing here needs it")
        }
        Handling::Becomes(_) if section.kind() == "backend" => {
            Fate::changed("no route leads to this backend, or nothing here needs it")
        }
        Handling::Becomes(keys) => {
            Fate::not("nothing that was taken needs it here", format!("elsewhere it becomes {keys}"))
        }
    }
}
