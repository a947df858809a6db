//! From what was typed to what is meant.
//!
//! Every item is read on its own and all of its mistakes are reported; then the items are held against each
//! other. Nothing stops at the first error. An item with a mistake is left out of the model, but its name
//! stays known, so that one mistake is not reported twice.

use std::path::Path;
use std::str::FromStr;

use crate::error::{At, Problem, Report, Span};
use crate::model::{Config, Environment, Listener, Name};
use crate::raw::{Section, Spanned};
use crate::settings::{BINDINGS, Origin};

mod access;
mod acme;
mod backends;
mod canary;
mod certificates;
mod compress;
mod conflicts;
mod files;
mod headers;
mod listeners;
mod modes;
mod on_demand;
mod pages;
mod rewrites;
mod routes;
mod rules;
mod server_tls;
mod settings;
mod shared;

pub(crate) use shared::{as_written as shared, spread};

/// Reads the model from what was typed. Where there are errors the result is only good for being dropped.
pub(crate) fn check(root: &Section, environment: &Environment, report: &mut Report<'_>) -> Config {
    let mut config = Config::for_environment(environment);
    let mut reader = Reader { report };
    let wrong = reader.settings(root, &mut config);
    let sorted = listeners::listeners(root, &mut reader);
    let Sorted { whole: listeners, broken: broken_listeners } = &sorted;
    let backends = backends::backends(root, &mut reader);
    let known = Known {
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
    config.listeners = listeners.iter().map(|(listener, _)| listener.clone()).collect();
    config.backends = backends;
    config.backends.sort_by(|a, b| a.name.cmp(&b.name));
    config.fill_implied();
    acme::between(root, &sorted, &authorities, &config, &mut reader);
    settings::between(root, &wrong, &config, reader.report);
    access::countries(root, reader.report);
    conflicts::between(root, listeners, &routes, &config, reader.report);
    let complete = listeners.len() == root.sections("listener").len();
    let known: Vec<&Listener> = listeners.iter().chain(broken_listeners).map(|(one, _)| one).collect();
    if broken_routes.is_empty() {
        listeners::cancels(listeners, &config, reader.report);
    }
    modes::between(&known, complete, &routes, &config, reader.report);
    modes::of_broken(&known, &broken_routes, reader.report);
    // Nobody uses a configuration with mistakes, but the files that its routes name are looked at.
    config.routes.extend(broken_routes.into_iter().map(|(route, _)| route));
    config
}

/// The items of one kind, each with what was typed.
struct Sorted<'s, T> {
    /// Those without a mistake.
    whole: Vec<(T, &'s Section)>,
    /// Those with mistakes, which were reported, of which enough is known to hold others against them.
    broken: Vec<(T, &'s Section)>,
}

/// The names that routes may refer to, of items with mistakes too.
struct Known {
    listeners: Vec<String>,
    backends: Vec<String>,
}

/// Reads values and reports what is wrong with them.
struct Reader<'a, 'r> {
    report: &'a mut Report<'r>,
}

impl<'r> Reader<'_, 'r> {
    /// Reads the plain values, and names the sections in which one is wrong.
    fn settings(&mut self, root: &Section, config: &mut Config) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        for binding in BINDINGS {
            let (section, name) = match binding.path.split_once('.') {
                Some((section, name)) => (root.section(section), name),
                None => (Some(root), binding.path),
            };
            let Some(value) = section.and_then(|section| section.setting(name)) else {
                if section.is_some_and(|section| section.is_wrong(name)) {
                    wrong.push(section_of(binding.path));
                }
                continue;
            };
            let origin = self.origin(&value.span);
            if let Err(problem) = (binding.set)(config, Some(&value.value), &origin) {
                self.report.local(&value.span, problem);
                wrong.push(section_of(binding.path));
            } else {
                config.origins.set(binding.path, Some(origin.at));
            }
        }
        wrong
    }

    fn at(&self, span: &Span) -> At {
        self.report.source.place(span.start).into()
    }

    /// Where relative paths start that are written here: the folder of the file.
    fn folder(&self, span: &Span) -> &'r Path {
        self.report.source.folder(span.start)
    }

    fn origin(&self, span: &Span) -> Origin<'r> {
        Origin { folder: self.folder(span), at: self.at(span) }
    }

    /// The value, or a report.
    fn tell<T>(&mut self, span: &Span, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.report.local(span, problem)).ok()
    }

    /// A string that is parsed.
    fn parsed<T: FromStr<Err = Problem>>(&mut self, text: &Spanned<&str>) -> Option<T> {
        self.tell(&text.span, text.value.parse())
    }

    /// Every string of a list parsed, without those that are wrong; each may stand there once. An absent
    /// list is empty.
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
            let Some(value) = self.tell(&text.span, value) else {
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

    /// Reports a list that is there but empty.
    fn not_empty(&mut self, section: &Section, name: &str, help: &str) {
        if section.list(name).is_some_and(<[_]>::is_empty) {
            let problem = Problem::new(format!("`{name}` is empty"));
            self.report.local(section.key_span(name), problem.help(help));
        }
    }
}

/// The section of a plain key; empty for the top.
fn section_of(path: &'static str) -> &'static str {
    path.split_once('.').map_or("", |(section, _)| section)
}

/// A name that must be one of those that are known.
fn reference(text: &str, kind: &str, known: &[String]) -> Result<Name, Problem> {
    let name: Name = text.parse()?;
    if known.iter().any(|other| other == text) {
        return Ok(name);
    }
    let problem = Problem::new(format!("there is no {kind} named `{name}`"));
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = crate::suggest::nearest(text, known.iter().copied());
    Err(match (near, known.is_empty()) {
        (None, true) => problem.help(format!("add a {kind} of this name")),
        _ => problem.suggest(kind, near, &known),
    })
}
