//! The language of nginx: the `http` and `stream` blocks, as listeners, certificates, routes and backends.
//!
//! Directives take effect by their scope, innermost first, as nginx inherits them. Each that is used gets its [`Fate`];
//! those that nothing uses get the one of the table of known names.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::draft::{Draft, DraftItem, DraftKeys, quoted};
use crate::known::{ForeignLanguage, Handling};
use crate::report::{self, Fate, Finding};
use crate::source::{FoundAt, ImportError, SourceFiles};
use tree::{Directive, TreeReader};

mod access;
mod answers;
mod files;
mod headers;
mod listeners;
mod locations;
mod patterns;
mod process;
mod relays;
mod rewriting;
mod servers;
mod stream;
mod tls;
mod tree;
mod upstreams;
mod values;

/// Reads and lowers files; returns the draft, and the findings by the number of their directive.
pub(crate) fn lower(
    paths: &[PathBuf],
    files: &dyn SourceFiles,
) -> Result<(Draft, Vec<Finding>), ImportError> {
    let Some(first) = paths.first() else {
        return Err(ImportError::whole("no file was named", "name nginx.conf"));
    };
    let folder = first.parent().unwrap_or(Path::new("")).to_owned();
    let mut reader = TreeReader::new(files, configuration_folder(&folder));
    let mut top = Vec::new();
    for path in paths {
        top.extend(reader.file(path)?);
    }
    let missing = std::mem::take(&mut reader.missing);
    let mut lowering = Lowering::new(configuration_folder(&folder));
    lowering.whole(&top);
    for (id, message) in missing {
        let remedy = "nginx does not start without it: remove the directive, or restore the file";
        lowering.fates.insert(id, Fate::not(message, remedy));
    }
    let mut findings = Vec::new();
    lowering.findings(&top, "", &mut findings);
    findings.sort_by_key(|(id, _)| *id);
    Ok((lowering.draft, findings.into_iter().map(|(_, finding)| finding).collect()))
}

/// The folder of nginx.conf for a file of `sites-enabled` and the like.
fn configuration_folder(folder: &Path) -> PathBuf {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_below = ["sites-enabled", "sites-available", "conf.d", "http.d"].contains(&name);
    let parent = folder.parent().filter(|_| is_below);
    parent.unwrap_or(folder).to_owned()
}

/// The blocks around a place, outermost first.
#[derive(Clone, Debug)]
struct Scope<'a> {
    blocks: Vec<Block<'a>>,
}

/// A block with an index of its directives, because that of `http` may have tens of thousands.
#[derive(Clone, Debug)]
struct Block<'a> {
    list: &'a [Directive],
    by_name: Rc<HashMap<&'a str, Vec<&'a Directive>>>,
}

impl<'a> Block<'a> {
    fn new(list: &'a [Directive]) -> Self {
        let mut by_name: HashMap<&'a str, Vec<&'a Directive>> = HashMap::new();
        for one in list {
            by_name.entry(&one.name).or_default().push(one);
        }
        Block { list, by_name: Rc::new(by_name) }
    }

    fn named(&self, name: &str) -> &[&'a Directive] {
        self.by_name.get(name).map(Vec::as_slice).unwrap_or_default()
    }
}

impl<'a> Scope<'a> {
    fn inside(&self, block: &'a [Directive]) -> Self {
        let mut blocks = self.blocks.clone();
        blocks.push(Block::new(block));
        Scope { blocks }
    }

    /// The directives of a name in the innermost block that has one: what nginx inherits.
    fn all(&self, name: &str) -> Vec<&'a Directive> {
        let found = self.blocks.iter().rev().map(|block| block.named(name)).find(|found| !found.is_empty());
        found.unwrap_or_default().to_vec()
    }

    /// The last one of [`Scope::all`].
    fn one(&self, name: &str) -> Option<&'a Directive> {
        self.blocks.iter().rev().find_map(|block| block.named(name).last().copied())
    }

    /// The directives of a name in the innermost block alone.
    fn own(&self, name: &str) -> Vec<&'a Directive> {
        self.blocks.last().map(|block| block.named(name).to_vec()).unwrap_or_default()
    }

    /// Says that a directive with `on` is in effect.
    fn is_on(&self, name: &str) -> Option<&'a Directive> {
        self.one(name).filter(|one| one.argument(0) == "on")
    }
}

/// The state of the lowering.
struct Lowering<'a> {
    draft: Draft,
    fates: HashMap<usize, Fate>,
    folder: PathBuf,
    upstreams: BTreeMap<&'a str, &'a Directive>,
    /// Names of backends by what they stand for.
    backends: BTreeMap<String, String>,
    /// The keys of the certificates in the draft.
    pairs: HashSet<DraftKeys>,
    /// The constants of `set`, by variable.
    constants: BTreeMap<&'a str, &'a Directive>,
    /// The map of server names to servers, by the variable that it sets.
    by_server_name: BTreeMap<&'a str, &'a Directive>,
    /// The size of bodies of routes that do not say otherwise; 0 for any.
    max_body: u64,
}

impl<'a> Lowering<'a> {
    fn new(folder: PathBuf) -> Self {
        Lowering {
            draft: Draft::default(),
            fates: HashMap::new(),
            folder,
            upstreams: BTreeMap::new(),
            backends: BTreeMap::new(),
            pairs: HashSet::new(),
            constants: BTreeMap::new(),
            by_server_name: BTreeMap::new(),
            max_body: process::BODY,
        }
    }

    /// Lowers the top level. A file of one site alone has servers there.
    fn whole(&mut self, top: &'a [Directive]) {
        let of =
            |name: &str| top.iter().filter(|one| one.name == name).map(Directive::inner).collect::<Vec<_>>();
        let (http, stream) = (of("http"), of("stream"));
        for block in http.iter().chain(&stream).copied().chain([top]) {
            for one in block.iter().filter(|one| one.name == "upstream") {
                self.upstreams.entry(one.argument(0)).or_insert(one);
            }
            for one in block.iter().filter(|one| one.name == "map") {
                self.map(one);
            }
        }
        let top_scope = Scope { blocks: vec![Block::new(top)] };
        let mut scopes: Vec<Scope<'a>> = http.iter().map(|block| top_scope.inside(block)).collect();
        if top.iter().any(|one| one.name == "server") {
            scopes.push(top_scope.clone());
        }
        self.default_body(&scopes);
        self.http(&scopes);
        for block in stream {
            self.stream(&top_scope.inside(block));
        }
        self.process(&top_scope, &scopes);
    }

    fn map(&mut self, map: &'a Directive) {
        match (map.argument(0), map.argument(1)) {
            ("$http_upgrade", _) => {
                let how = "WebSockets pass by themselves: `upgrade` of a route names the protocols";
                self.note(map, Fate::changed(how));
                self.take_inside(map);
            }
            ("$ssl_preread_server_name", variable) => {
                self.by_server_name.insert(variable, map);
            }
            _ => {}
        }
    }

    /// Marks all that a block has as understood with it.
    fn take_inside(&mut self, block: &Directive) {
        for one in block.inner() {
            self.note(one, Fate::Taken);
        }
    }

    /// Notes the fate of a directive; of several the worst counts.
    fn note(&mut self, directive: &Directive, fate: Fate) {
        let entry = self.fates.entry(directive.id).or_insert(Fate::Taken);
        if fate > *entry {
            *entry = fate;
        }
    }

    fn take(&mut self, directive: &Directive) {
        self.note(directive, Fate::Taken);
    }

    fn refuse(&mut self, directive: &Directive, why: impl Into<String>, remedy: impl Into<String>) {
        self.note(directive, Fate::not(why, remedy));
    }

    /// The table for an item that comes from a directive.
    fn item(&self, directive: &Directive, keys: DraftKeys) -> DraftItem {
        let origin = report::shown(&directive.name, &directive.arguments);
        DraftItem { id: directive.id, from: directive.at.clone(), origin, keys }
    }

    fn set(&mut self, table: &'static str, key: &'static str, value: String, from: &Directive) {
        self.draft.set(table, key, value, Some(from.at.clone()));
    }

    /// A path of a file in TOML; relative ones start at the folder of nginx.conf.
    fn path(&self, text: &str) -> String {
        quoted(&self.folder.join(text).to_string_lossy())
    }

    /// The findings below a block, by number.
    fn findings(&self, block: &[Directive], around: &str, out: &mut Vec<(usize, Finding)>) {
        for one in block {
            let fate = match self.fates.get(&one.id) {
                Some(fate) => fate.clone(),
                None => unused(one, around),
            };
            let text = report::shown(&one.name, &one.arguments);
            let is_whole = matches!(fate, Fate::NotTaken { .. }) && one.block.is_some();
            out.push((one.id, Finding { at: one.at.clone(), text, fate }));
            if is_whole && one.name != "server" && one.name != "location" {
                inside_of_refused(one.inner(), &one.name, out);
            } else {
                self.findings(one.inner(), &one.name, out);
            }
        }
    }
}

/// Adds what stands in a block that was not taken.
fn inside_of_refused(block: &[Directive], name: &str, out: &mut Vec<(usize, Finding)>) {
    for one in block {
        let fate = Fate::not(format!("it stands in the `{name}` block that was not taken"), "see there");
        let text = report::shown(&one.name, &one.arguments);
        out.push((one.id, Finding { at: one.at.clone(), text, fate }));
        inside_of_refused(one.inner(), name, out);
    }
}

/// The fate of a directive that the lowering had no use for.
fn unused(directive: &Directive, around: &str) -> Fate {
    let name = directive.name.as_str();
    let language = ForeignLanguage::Nginx;
    let Some(known) = language.named(name) else { return language.unknown(name) };
    let is_off = directive.block.is_none() && matches!(directive.argument(0), "off" | "0");
    match known.handling {
        Handling::Needless(_) => Fate::Taken,
        _ if is_off => Fate::Taken,
        Handling::Changed(how) => Fate::changed(how),
        Handling::NotTaken(why, remedy) => Fate::not(why, remedy),
        Handling::Becomes(_) if matches!(around, "" | "http" | "stream") && directive.block.is_none() => {
            Fate::changed("nothing here needs it")
        }
        Handling::Becomes(keys) => {
            Fate::not("nothing that was taken needs it here", format!("elsewhere it becomes {keys}"))
        }
    }
}

/// A place for settings of the importer itself.
const NOWHERE: Option<FoundAt> = None;
