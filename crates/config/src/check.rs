//! Validation: from the typed sections to the model.
//!
//! Every item is checked on its own and all of its mistakes are reported; then items are compared with each
//! other. Nothing stops at the first error. An item with a mistake is left out of the model, but its name
//! stays known, so that one mistake is not reported twice.

use std::path::Path;
use std::str::FromStr;

use crate::error::{At, Problem, ProblemCollector, Span};
use crate::keys;
use crate::model::{Config, Environment, FilePath, ListenerConfig, Name};
use crate::raw::{Section, Spanned};
use crate::settings::{Bindable, Binding, ValueOrigin, WrittenValue};

mod access;
mod acme;
mod backends;
mod canary;
mod certificates;
mod conflicts;
mod files;
mod headers;
mod listeners;
mod modes;
mod never;
mod notify;
mod on_demand;
mod pages;
mod rewrites;
mod routes;
mod rules;
mod server_tls;
mod settings;
mod shared;

pub(crate) use shared::{as_written as shared, spread};

/// Builds the model. If any error was reported, the result is unusable.
pub(crate) fn check(root: &Section, environment: &Environment, report: &mut ProblemCollector<'_>) -> Config {
    let mut config = Config::for_environment(environment);
    let mut reader = ValueReader { report };
    let wrong = reader.settings(root, &mut config);
    let sorted = listeners::listeners(root, &mut reader);
    let Sorted { whole: listeners, broken: broken_listeners } = &sorted;
    let backends = backends::backends(root, &mut reader);
    let known = KnownNames {
        listeners: listeners::names_of_listeners(root),
        backends: root.named("backend").iter().map(|(name, _)| name.value.clone()).collect(),
    };
    let Sorted { whole: routes, broken: broken_routes } = routes::routes(root, &known, &mut reader);
    if let Some(defaults) = root.section("defaults").and_then(|section| section.section("route")) {
        config.error_pages = pages::of_all(defaults, &mut reader);
    }
    config.routes = routes.iter().map(|(route, _)| route.clone()).collect();
    let authorities = acme::authorities(root, &mut reader);
    config.authorities.clone_from(&authorities.whole);
    (config.certificates, config.origins.named_by_routes) =
        certificates::certificates(root, &config.route_hosts(), &authorities, &mut reader);
    config.telemetry.notify = notify::receivers(root, &mut reader);
    config.listeners = listeners.iter().map(|(listener, _)| listener.clone()).collect();
    config.backends = backends;
    config.backends.sort_by(|a, b| a.name.cmp(&b.name));
    config.fill_implied();
    acme::between(root, &sorted, &authorities, &config, &mut reader);
    settings::between(root, &wrong, &config, reader.report);
    access::countries(root, reader.report);
    conflicts::between(root, listeners, &routes, &config, reader.report);
    let complete = listeners.len() == root.sections("listener").len();
    let known: Vec<&ListenerConfig> = listeners.iter().chain(broken_listeners).map(|(one, _)| one).collect();
    if broken_routes.is_empty() {
        listeners::cancels(listeners, &config, reader.report);
    }
    modes::between(&known, complete, &routes, &config, reader.report);
    modes::of_broken(&known, &broken_routes, reader.report);
    // A configuration with mistakes is never used, but the files that its routes name are checked.
    config.routes.extend(broken_routes.into_iter().map(|(route, _)| route));
    config
}

/// The items of one kind, each with its section.
struct Sorted<'s, T> {
    /// Items without a mistake.
    whole: Vec<(T, &'s Section)>,
    /// Items with reported mistakes, of which enough is known to compare others with them.
    broken: Vec<(T, &'s Section)>,
}

/// The names that routes may refer to, of items with mistakes too.
struct KnownNames {
    listeners: Vec<String>,
    backends: Vec<String>,
}

/// Converts values and reports invalid ones.
struct ValueReader<'a, 'r> {
    report: &'a mut ProblemCollector<'r>,
}

impl<'r> ValueReader<'_, 'r> {
    /// Reads the plain values; returns the sections with an invalid one.
    fn settings(&mut self, root: &Section, config: &mut Config) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        for (key, binding) in keys::settings() {
            let section = if key.section().is_empty() { Some(root) } else { root.section(key.section()) };
            let Some(section) = section else { continue };
            match self.set(section, key.name(), binding, config) {
                Some(at) => config.origins.set(key.path, Some(at)),
                None if section.mentions(key.name()) => wrong.push(key.section()),
                None => {}
            }
        }
        wrong
    }

    /// Reads the keys of a section that are bound to fields of `item`; `path` is that of the section in the table.
    fn fill<T: Bindable>(&mut self, path: &str, section: &Section, item: &mut T) {
        for (key, binding) in keys::bound(path) {
            self.set(section, key.name(), binding, item);
        }
    }

    /// The struct that a table within an item describes.
    fn filled<T: Bindable>(&mut self, path: &str, section: &Section) -> T {
        let mut item = T::blank();
        self.fill(path, section, &mut item);
        item
    }

    /// The struct of a table of the section `outer`, if it is on: `true` stands for a table without keys.
    fn table<T: Bindable>(&mut self, path: &str, outer: &Section) -> Option<T> {
        let name = path.rsplit('.').next().unwrap_or(path);
        match outer.section(name) {
            Some(details) => Some(self.filled(path, details)),
            None => outer.bool(name)?.then(T::blank),
        }
    }

    /// Like [`ValueReader::filled`]; nothing if a key that must be written is missing or wrong, as the field
    /// has a placeholder then.
    fn whole<T: Bindable>(&mut self, path: &str, section: &Section) -> Option<T> {
        let (mut item, mut is_whole) = (T::blank(), true);
        for (key, binding) in keys::bound(path) {
            let is_set = self.set(section, key.name(), binding, &mut item).is_some();
            is_whole &= is_set || key.default != keys::Default::Required;
        }
        is_whole.then_some(item)
    }

    /// Sets the field of a key, and reports the mistakes of its value. Gives the place of a value without mistakes.
    fn set<T>(&mut self, section: &Section, name: &str, binding: &Binding<T>, item: &mut T) -> Option<At> {
        let value = section.setting(name)?;
        let elements = section.list(name).unwrap_or_default();
        let span =
            |at: Option<usize>| at.and_then(|at| elements.get(at)).map_or(&value.span, |text| &text.span);
        let source = self.report.source;
        let origin = |at: Option<usize>| ValueOrigin {
            folder: source.folder(span(at).start),
            at: source.place(span(at).start).into(),
        };
        let misfits = (binding.set)(item, Some(&WrittenValue { name, value: &value.value, origin: &origin }));
        let sound = misfits.is_empty().then(|| self.at(&value.span));
        for misfit in misfits {
            self.report.local(span(misfit.element), misfit.problem);
        }
        sound
    }

    fn at(&self, span: &Span) -> At {
        self.report.source.place(span.start).into()
    }

    /// The directory that relative paths written here start from: that of the file.
    fn folder(&self, span: &Span) -> &'r Path {
        self.report.source.folder(span.start)
    }

    fn origin(&self, span: &Span) -> ValueOrigin<'r> {
        ValueOrigin { folder: self.folder(span), at: self.at(span) }
    }

    /// Returns the value, or reports the problem.
    fn ok_or_report<T>(&mut self, span: &Span, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.report.local(span, problem)).ok()
    }

    /// The file that a key names.
    fn file(&mut self, section: &Section, name: &str) -> Option<FilePath> {
        let text = section.text(name)?;
        let file = self.origin(&text.span).file(text.value);
        self.ok_or_report(&text.span, file)
    }

    fn parsed<T: FromStr<Err = Problem>>(&mut self, text: &Spanned<&str>) -> Option<T> {
        self.ok_or_report(&text.span, text.value.parse())
    }

    /// Parses every string of a list, and leaves out invalid and repeated ones. An absent list is empty.
    fn list<T>(
        &mut self,
        section: &Section,
        name: &str,
        parse: impl Fn(&Spanned<String>, &mut Self) -> Result<T, Problem>,
    ) -> Vec<T>
    where
        T: PartialEq,
    {
        let mut values = Vec::new();
        for text in section.list(name).unwrap_or_default() {
            let value = parse(text, self);
            let Some(value) = self.ok_or_report(&text.span, value) else {
                continue;
            };
            if values.contains(&value) {
                let problem = Problem::new(format!("`{name}` contains this twice"));
                self.report.local(&text.span, problem.help("keep one of the two"));
            } else {
                values.push(value);
            }
        }
        values
    }
}

/// Checks that a name is one of the known ones.
fn reference(text: &str, kind: &str, known: &[String]) -> Result<Name, Problem> {
    let name: Name = text.parse()?;
    is_known(&name, kind, known)?;
    Ok(name)
}

/// Like [`reference`], for a name that has been read.
fn is_known(name: &Name, kind: &str, known: &[String]) -> Result<(), Problem> {
    let text = name.as_str();
    if known.iter().any(|other| other == text) {
        return Ok(());
    }
    let problem = Problem::new(format!("there is no {kind} named `{name}`"));
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = crate::suggest::nearest(text, known.iter().copied());
    Err(match (near, known.is_empty()) {
        (None, true) => problem.help(format!("add a {kind} of this name")),
        _ => problem.suggest(kind, near, &known),
    })
}
