//! The handling of each directive of a language: one readable table for each language, from which the lowering takes the
//! fate of what needs no thought, and `offramp import --list` its text.

use std::fmt::{self, Write as _};

use crate::report::Fate;

mod haproxy;
mod hitch;
mod nginx;

/// A language that is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignLanguage {
    /// The configuration of nginx: `http` and `stream`, with the files that it includes.
    Nginx,
    /// The configuration of HAProxy.
    Haproxy,
    /// The configuration of hitch.
    Hitch,
}

impl ForeignLanguage {
    /// All languages.
    pub const ALL: &[ForeignLanguage] =
        &[ForeignLanguage::Nginx, ForeignLanguage::Haproxy, ForeignLanguage::Hitch];

    /// The name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            ForeignLanguage::Nginx => "nginx",
            ForeignLanguage::Haproxy => "haproxy",
            ForeignLanguage::Hitch => "hitch",
        }
    }

    /// The language of a file, by its name.
    pub fn guess(name: &str) -> Option<Self> {
        if name.contains("haproxy") || name.ends_with(".cfg") {
            return Some(ForeignLanguage::Haproxy);
        }
        if name.contains("hitch") {
            return Some(ForeignLanguage::Hitch);
        }
        let is_nginx = name.contains("nginx") || name.ends_with(".conf") || name.contains("sites-");
        is_nginx.then_some(ForeignLanguage::Nginx)
    }

    /// The directives that are known, in the order of the table.
    pub fn known(self) -> &'static [KnownDirective] {
        match self {
            ForeignLanguage::Nginx => nginx::TABLE,
            ForeignLanguage::Haproxy => haproxy::TABLE,
            ForeignLanguage::Hitch => hitch::TABLE,
        }
    }

    /// The row of a name.
    pub(crate) fn named(self, name: &str) -> Option<&'static KnownDirective> {
        self.known().iter().find(|known| known.name == name)
    }

    /// The fate of a name that no row has.
    pub(crate) fn unknown(self, name: &str) -> Fate {
        let near = self.known().iter().map(|known| (strsim::jaro_winkler(name, known.name), known.name));
        let nearest = near.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(near, _)| *near > 0.88);
        let why = "this directive is not known";
        match nearest {
            Some((_, nearest)) => Fate::not(why, format!("if it is `{nearest}`, write that")),
            None => Fate::not(why, "look for a key of the same meaning in the reference"),
        }
    }

    /// The table as text.
    pub fn list(self) -> String {
        let mut text = String::new();
        for KnownDirective { name, handling } in self.known() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {handling}");
        }
        text
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct KnownDirective {
    /// The name.
    pub name: &'static str,
    /// The way in which it is handled.
    pub handling: Handling,
}

/// The way in which a directive is handled.
#[derive(Clone, Copy, Debug)]
pub enum Handling {
    /// Becomes these keys; the report says where one value cannot.
    Becomes(&'static str),
    /// Needs nothing: Offramp does so by itself, or has no such part.
    Needless(&'static str),
    /// Is done in another way, always the same.
    Changed(&'static str),
    /// Is not taken: the reason and the remedy.
    NotTaken(&'static str, &'static str),
}

impl fmt::Display for Handling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Handling::Becomes(keys) => write!(f, "taken as {keys}"),
            Handling::Needless(why) => write!(f, "taken: {why}"),
            Handling::Changed(how) => write!(f, "changed: {how}"),
            Handling::NotTaken(why, remedy) => write!(f, "not taken: {why}; {remedy}"),
        }
    }
}
