//! Sections that accept or forward: what they say themselves, and what `defaults` says for them.

use std::rc::Rc;

use super::HaproxyLowering;
use super::conditions::Acls;
use super::lines::{Line, Section};
use super::rules::ProxyRule;
use crate::report::Fate;

/// A `frontend`, `backend` or `listen` section.
#[derive(Debug)]
pub(super) struct ProxySection<'a> {
    section: &'a Section,
    defaults: Option<&'a Section>,
    pub(super) rules: Vec<ProxyRule<'a>>,
    pub(super) has_servers: bool,
    pub(super) is_http: bool,
}

impl<'a> ProxySection<'a> {
    pub(super) fn head(&self) -> &'a Line {
        &self.section.head
    }

    pub(super) fn name(&self) -> &'a str {
        self.section.name()
    }

    /// The lines that begin with these words, the own ones first in effect.
    pub(super) fn all(&self, words: &str) -> Vec<&'a Line> {
        let own: Vec<&'a Line> = self.own(words);
        if !own.is_empty() {
            return own;
        }
        let defaults = self.defaults.iter().flat_map(|defaults| &defaults.lines);
        defaults.filter(|line| line.is(words)).collect()
    }

    /// The lines of the section itself that begin with these words.
    pub(super) fn own(&self, words: &str) -> Vec<&'a Line> {
        self.section.lines.iter().filter(|line| line.is(words)).collect()
    }

    /// The last of [`ProxySection::all`].
    pub(super) fn one(&self, words: &str) -> Option<&'a Line> {
        self.all(words).pop()
    }

    /// Says that the section accepts connections.
    pub(super) fn accepts(&self) -> bool {
        matches!(self.section.kind(), "frontend" | "listen")
    }
}

impl<'a> HaproxyLowering<'a> {
    /// Finds the sections, with their rules.
    pub(super) fn sections(&mut self, sections: &'a [Section]) {
        let mut defaults: Option<&'a Section> = None;
        for section in sections {
            self.index(section);
            match section.kind() {
                "defaults" => {
                    self.take(&section.head);
                    defaults = Some(section);
                }
                "global" => self.take(&section.head),
                "frontend" | "backend" | "listen" => {
                    self.take(&section.head);
                    let named = section.head.words.iter().position(|word| word == "from");
                    let named = named.and_then(|at| section.head.words.get(at + 1));
                    let of = |name: &String| {
                        sections.iter().find(|one| one.kind() == "defaults" && one.name() == name)
                    };
                    let defaults = named.map_or(defaults, of);
                    let proxy = Rc::new(self.proxy(section, defaults));
                    if section.kind() != "frontend" {
                        self.by_name.entry(section.name()).or_insert_with(|| Rc::clone(&proxy));
                    }
                    self.proxies.push(proxy);
                }
                _ => {}
            }
        }
    }

    fn index(&mut self, section: &'a Section) {
        for line in std::iter::once(&section.head).chain(&section.lines) {
            self.lines.insert(line.id, line);
            if line.word(0) == "no" {
                // What is off by itself.
                self.take(line);
            }
        }
    }

    fn proxy(&mut self, section: &'a Section, defaults: Option<&'a Section>) -> ProxySection<'a> {
        let mut acls = Acls::default();
        for line in section.lines.iter().filter(|line| line.is("acl")) {
            self.take(line);
            if let Some(how) = acls.add(line) {
                self.note(line, Fate::changed(how));
            }
        }
        let mut proxy =
            ProxySection { section, defaults, rules: Vec::new(), has_servers: false, is_http: false };
        if let Some(mode) = proxy.one("mode") {
            self.take(mode);
            proxy.is_http = mode.word(1) == "http";
        }
        proxy.has_servers = section.lines.iter().any(|line| line.is("server") || line.is("server-template"));
        let mut lines: Vec<&'a Line> = section.lines.iter().collect();
        if !section.lines.iter().any(|line| line.is("default_backend")) {
            lines
                .extend(defaults.iter().flat_map(|one| &one.lines).filter(|line| line.is("default_backend")));
        }
        let inherited = defaults.iter().flat_map(|one| &one.lines);
        let inherited = inherited.filter(|line| line.is("http-request") || line.is("http-response"));
        let lines: Vec<&'a Line> = inherited.chain(lines).collect();
        proxy.rules = self.rules(&lines, &acls);
        proxy
    }

    /// The section of a backend.
    pub(super) fn backend_section(&self, name: &str) -> Option<Rc<ProxySection<'a>>> {
        self.by_name.get(name).cloned()
    }
}
