//! Locations that lead to servers: their paths, fields, times and bodies.

use super::servers::Site;
use super::tree::Directive;
use super::{Lowering, Scope, values};
use crate::draft::{DraftKeys, quoted};
use crate::report::Fate;

impl<'a> Lowering<'a> {
    /// The named location that takes what is no file: the application gets all of it.
    pub(super) fn otherwise(
        &mut self,
        site: &Site<'a>,
        scope: &Scope<'a>,
        name: &str,
        path: &str,
    ) -> Option<DraftKeys> {
        let named = site.scope.own("location").into_iter().find(|location| location.argument(0) == name);
        let pass = named.and_then(|named| named.inner().iter().find(|one| one.name == "proxy_pass"));
        let try_files = scope.one("try_files")?;
        let (Some(named), Some(pass)) = (named, pass) else {
            self.refuse(try_files, format!("`{name}` leads to no server"), "write `server` in the route");
            return None;
        };
        self.take(named);
        let why = "files and a server cannot share a route: the server gets all requests";
        self.refuse(try_files, why, "give each directory with files a route of its own, with `root`");
        self.relay(site, &site.scope.inside(named.inner()), pass, path, false)
    }

    /// The keys of a route to servers.
    pub(super) fn relay(
        &mut self,
        site: &Site<'a>,
        scope: &Scope<'a>,
        pass: &'a Directive,
        path: &str,
        exact: bool,
    ) -> Option<DraftKeys> {
        let (mut keys, uri) = self.server_keys(scope, pass)?;
        let rewrites = self.rewrites(scope, &site.scope);
        if rewrites.is_empty() {
            keys.extend(self.new_path(pass, path, uri.as_deref(), exact));
        }
        keys.extend(rewrites);
        let authority = authority(pass.argument(0));
        keys.extend(self.request_headers(scope, authority.as_deref()));
        let expires = self.expires(scope);
        keys.extend(self.response_headers(scope, expires));
        keys.extend(self.compression(scope));
        keys.extend(self.times(scope));
        keys.extend(self.body(scope));
        let pages = self.error_pages(scope, &site.scope);
        if let Some(one) = scope.is_on("proxy_intercept_errors") {
            self.take(one);
            if !pages.is_empty() {
                keys.push(("intercept_errors".to_owned(), "true".to_owned()));
            }
        }
        keys.extend(pages);
        if let Some(one) = scope.one("proxy_redirect") {
            let is_off = one.argument(0) == "off";
            let is_changed = keys.iter().any(|(key, _)| key == "strip_path" || key == "replace_path");
            self.take(one);
            if !is_off && (one.argument(0) != "default" || is_changed) {
                let how = "Offramp does not rewrite `Location`: have the application send whole paths";
                self.note(one, Fate::changed(how));
            }
        }
        self.stubs(scope);
        Some(keys)
    }

    /// `strip_path` or `replace_path` for the URI of a `proxy_pass`.
    fn new_path(&mut self, pass: &'a Directive, path: &str, uri: Option<&str>, exact: bool) -> DraftKeys {
        let Some(uri) = uri.filter(|uri| *uri != path) else { return DraftKeys::new() };
        if uri.contains(['?', '#']) {
            self.refuse(pass, "servers get the query of the request", "see `rewrite` of a route");
            return DraftKeys::new();
        }
        if !exact && path.ends_with('/') != uri.ends_with('/') {
            let how = "whole segments of the path are replaced; nginx joins the texts, which gives two slashes or none";
            self.note(pass, Fate::changed(how));
        }
        let (short, new) = (path.trim_end_matches('/'), uri.trim_end_matches('/'));
        let new = if exact { uri } else { new };
        match (short, new) {
            (short, new) if short == new => DraftKeys::new(),
            (_, "") => vec![("strip_path".to_owned(), "true".to_owned())],
            (_, new) => vec![("replace_path".to_owned(), quoted(new))],
        }
    }

    fn times(&mut self, scope: &Scope<'a>) -> DraftKeys {
        let mut keys = DraftKeys::new();
        let rows: [(&str, &[&str]); 4] = [
            ("proxy_connect_timeout", &["connect_timeout"]),
            ("grpc_connect_timeout", &["connect_timeout"]),
            ("proxy_read_timeout", &["response_timeout", "idle_timeout"]),
            ("client_body_timeout", &["request_body_timeout"]),
        ];
        for (name, wanted) in rows {
            let Some(one) = scope.one(name) else { continue };
            let Some(time) = values::time(one.argument(0)).filter(|time| !time.is_zero()) else {
                self.refuse(one, "this is no time", format!("write `{}`", wanted[0]));
                continue;
            };
            self.take(one);
            for key in wanted {
                let most = if *key == "idle_timeout" {
                    30 * 86_400
                } else if *key == "response_timeout" {
                    86_400
                } else {
                    3_600
                };
                let bounded = time.min(std::time::Duration::from_secs(most));
                if bounded < time {
                    self.note(one, Fate::changed("the time is cut to the greatest that Offramp takes"));
                }
                if !keys.iter().any(|(known, _)| known == key) {
                    keys.push(((*key).to_owned(), values::toml_time(bounded)));
                }
            }
        }
        keys
    }

    /// `max_body`, where it is not that of [defaults.route].
    fn body(&mut self, scope: &Scope<'a>) -> DraftKeys {
        let Some(one) = scope.one("client_max_body_size") else { return DraftKeys::new() };
        let Some(size) = values::size(one.argument(0)) else {
            self.refuse(one, "this is no size", "write `max_body`");
            return DraftKeys::new();
        };
        self.take(one);
        match size {
            size if size == self.max_body => DraftKeys::new(),
            0 => vec![("max_body".to_owned(), "false".to_owned())],
            size => vec![("max_body".to_owned(), values::toml_size(size))],
        }
    }
}

/// The host that `proxy_pass` names, as nginx sends it.
fn authority(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if rest.starts_with("unix:") {
        return Some("localhost".to_owned());
    }
    let host = rest.split('/').next().filter(|host| !host.contains('$'))?;
    let usual = if scheme == "https" || scheme == "grpcs" { ":443" } else { ":80" };
    Some(host.strip_suffix(usual).unwrap_or(host).to_owned())
}
