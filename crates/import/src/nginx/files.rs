//! `root`, `alias`, `try_files` and what else is about files.

use super::tree::Directive;
use super::{Lowering, Scope, values};
use crate::draft::{DraftKeys, inline, list, quoted};
use crate::report::Fate;

/// The outcome of `try_files`.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    pub(super) keys: DraftKeys,
    /// The named location that takes what is no file.
    pub(super) otherwise: Option<String>,
}

impl<'a> Lowering<'a> {
    /// The keys of a route of files below a directory; `path` is that of the location.
    pub(super) fn file_keys(&mut self, scope: &Scope<'a>, path: &str) -> Option<DraftKeys> {
        let alias = scope.own("alias").pop();
        let directive = alias.or_else(|| scope.one("root"))?;
        let text = directive.argument(0);
        if text.contains('$') {
            self.refuse(directive, "directories are fixed", "write a route for each");
            return None;
        }
        let how = "names that begin with a dot are not served (`hidden = true` serves them), nor links that lead out";
        self.note(directive, Fate::changed(how));
        let text = text.trim_end_matches('/');
        let mut keys: DraftKeys =
            vec![("root".to_owned(), self.path(if text.is_empty() { "/" } else { text }))];
        if alias.is_some() && path != "/" {
            keys.push(("strip_path".to_owned(), "true".to_owned()));
        }
        if let Some(index) = scope.one("index") {
            let names: Vec<&str> = index.arguments.iter().map(String::as_str).collect();
            let names: Vec<&str> = names
                .into_iter()
                .filter(|name| !name.contains(['$', '/']) && !name.ends_with(".php"))
                .collect();
            self.take(index);
            if names.len() < index.arguments.len() {
                self.note(index, Fate::changed("names with variables, folders or of PHP are left out"));
            }
            if !names.is_empty() && names != ["index.html"] {
                keys.push(("index".to_owned(), list(&names)));
            }
        }
        if let Some(one) = scope.is_on("autoindex") {
            self.take(one);
            keys.push(("listing".to_owned(), "true".to_owned()));
        }
        for name in ["gzip_static", "brotli_static"] {
            if let Some(one) = scope.is_on(name) {
                self.take(one);
                if !keys.iter().any(|(key, _)| key == "precompressed") {
                    keys.push(("precompressed".to_owned(), "true".to_owned()));
                }
            }
        }
        Some(keys)
    }

    /// `try_files` as `try` and `fallback`; `path` is taken off by `strip_path` where `is_alias`.
    pub(super) fn attempts(&mut self, scope: &Scope<'a>, path: &str, is_alias: bool) -> Attempts {
        let Some(one) = scope.one("try_files") else { return Attempts::default() };
        let mut attempts = Attempts::default();
        let Some((last, names)) = one.arguments.split_last() else { return attempts };
        self.take(one);
        let mut tries: Vec<String> = Vec::new();
        for name in names {
            match name.as_str() {
                "$uri" => tries.push("{path}".to_owned()),
                // A directory is found by its path with `index`.
                "$uri/" => {}
                name if name.starts_with("$uri") && !name[4..].contains('$') => {
                    tries.push(format!("{{path}}{}", &name[4..]));
                }
                _ => self.note(
                    one,
                    Fate::changed(format!("`{name}` is left out: `try` has the path of the request only")),
                ),
            }
        }
        if !tries.is_empty() && tries != ["{path}"] {
            attempts.keys.push(("try".to_owned(), list(&tries)));
        }
        match last.as_str() {
            "=404" => {}
            last if last.starts_with('@') => attempts.otherwise = Some(last.to_owned()),
            last if last.starts_with('/') => {
                let file = last.split(['?', '$']).next().unwrap_or_default();
                let file = match file.strip_prefix(path).filter(|_| is_alias && path != "/") {
                    Some(rest) => format!("/{}", rest.trim_start_matches('/')),
                    None => file.to_owned(),
                };
                if file.ends_with(".php") {
                    let remedy = "let the application serve HTTP, or keep a web server for it behind Offramp";
                    self.refuse(one, "Offramp runs no PHP", remedy);
                } else if file.ends_with('/') {
                    self.refuse(one, "`fallback` is a file", "write its name");
                } else {
                    attempts.keys.push(("fallback".to_owned(), quoted(&file)));
                }
            }
            "$uri" | "$uri/" => {}
            last => self.refuse(
                one,
                format!("`{last}` is no file and no status 404"),
                "see `fallback` of a route",
            ),
        }
        attempts
    }

    /// The value of `Cache-Control` by `expires`.
    pub(super) fn expires(&mut self, scope: &Scope<'a>) -> Option<String> {
        let one = scope.one("expires")?;
        self.take(one);
        match one.argument(0) {
            "off" => None,
            "max" => Some("max-age=315360000".to_owned()),
            "epoch" => Some("no-cache".to_owned()),
            text if text.starts_with('-') => Some("no-cache".to_owned()),
            text => match values::time(text) {
                Some(time) => {
                    self.note(one, Fate::changed("Cache-Control is sent, and no Expires"));
                    Some(format!("max-age={}", time.as_secs()))
                }
                None => {
                    self.refuse(one, "this is no fixed time", "write `cache_control`");
                    None
                }
            },
        }
    }

    /// A location by the ends of names that only says how long files are kept: rules of `cache_control`.
    pub(super) fn suffixes(
        &mut self,
        location: &'a Directive,
        scope: &Scope<'a>,
        ends: &[String],
    ) -> DraftKeys {
        let cache = self.expires(scope).or_else(|| {
            let is_cache = |one: &&&Directive| one.argument(0).eq_ignore_ascii_case("cache-control");
            let one = scope.own("add_header").iter().find(is_cache).copied()?;
            self.take(one);
            Some(one.argument(1).to_owned())
        });
        let Some(cache) = cache else { return DraftKeys::new() };
        self.note(
            location,
            Fate::changed("it becomes `cache_control` of the routes with files, by the ends of names"),
        );
        ends.iter().map(|end| (format!("*.{end}"), quoted(&cache))).collect()
    }

    /// `error_page` with pages that are files; `of_files` says that the route has a root itself.
    pub(super) fn error_pages(&mut self, scope: &Scope<'a>, server: &Scope<'a>) -> DraftKeys {
        let mut pages = DraftKeys::new();
        for one in scope.all("error_page") {
            let Some((page, statuses)) = one.arguments.split_last() else { continue };
            self.take(one);
            let changes = statuses.iter().any(|status| status.starts_with('='));
            let place = if page.starts_with('/') && !changes && !page.contains('$') {
                self.place_of(page, server)
            } else {
                None
            };
            let Some(place) = place else {
                self.refuse(one, "pages of errors are files", "write `error_pages` with the file");
                continue;
            };
            for status in statuses {
                let is_error = status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status));
                if is_error && !pages.iter().any(|(known, _)| known == status) {
                    pages.push((status.clone(), place.clone()));
                }
            }
        }
        if pages.is_empty() { pages } else { vec![("error_pages".to_owned(), inline(&pages))] }
    }

    /// The file that a path leads to, in TOML.
    fn place_of(&self, path: &str, server: &Scope<'a>) -> Option<String> {
        let exact = server.own("location").into_iter().find(|location| {
            let path_of = location.arguments.last().map(String::as_str);
            path_of == Some(path) && location.arguments.len() <= 2
        });
        let scope = exact.map_or_else(|| server.clone(), |location| server.inside(location.inner()));
        if let Some(alias) = scope.own("alias").pop() {
            return Some(self.path(alias.argument(0)));
        }
        let root = scope.one("root").filter(|root| !root.argument(0).contains('$'))?;
        Some(self.path(&format!("{}{path}", root.argument(0).trim_end_matches('/'))))
    }
}
