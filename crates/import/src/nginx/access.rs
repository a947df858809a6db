//! Rules about access: `allow` and `deny`, passwords, authentication servers.
//!
//! A rule that cannot be said closes the route: [`Refused`].

use std::net::IpAddr;

use super::servers::Site;
use super::tree::Directive;
use super::{Block, Lowering, Scope};
use crate::draft::{DraftKeys, inline, list, quoted};
use crate::report::Fate;

/// The sign that a rule cannot be said, so that its route must be closed.
#[derive(Debug)]
pub(super) struct Refused;

/// The remedy of every rule that closes a route.
const CLOSED: &str = "the route is closed (403) until you write the rule";

impl<'a> Lowering<'a> {
    /// The keys about access in a scope.
    pub(super) fn access(&mut self, site: &Site<'a>, scope: &Scope<'a>) -> Result<DraftKeys, Refused> {
        let mut keys = self.networks(scope)?;
        keys.extend(self.password(scope)?);
        keys.extend(self.asked(site, scope)?);
        if let Some(one) = scope.one("satisfy") {
            self.take(one);
            let rules = keys.iter().filter(|(key, _)| key != "deny").count();
            if one.argument(0) == "any" && rules > 1 {
                keys.push(("satisfy".to_owned(), quoted("any")));
            }
        }
        for name in ["auth_jwt", "limit_except", "secure_link", "access_by_lua_block", "access_by_lua_file"] {
            if scope.one(name).is_some_and(|one| one.argument(0) != "off") {
                return Err(Refused);
            }
        }
        self.guarded(scope)?;
        let is_secure = site.is_secure();
        if let Some(auth) = self.client_auth(&site.scope, is_secure).map_err(|()| Refused)? {
            keys.push(("client_auth".to_owned(), auth));
        }
        Ok(keys)
    }

    /// Refuses a scope in which an `if` guards: it answers 401 or 403.
    fn guarded(&mut self, scope: &Scope<'a>) -> Result<(), Refused> {
        let conditions = scope.blocks.iter().flat_map(|block| block.named("if")).copied();
        let guards = |one: &&'a Directive| {
            one.inner()
                .iter()
                .any(|inner| inner.name == "return" && matches!(inner.argument(0), "401" | "403"))
        };
        let guards: Vec<&'a Directive> = conditions.filter(guards).collect();
        for one in &guards {
            self.refuse(one, "routes do not choose by this", CLOSED);
        }
        if guards.is_empty() { Ok(()) } else { Err(Refused) }
    }

    /// `allow` and `deny`: nginx takes the first that matches, Offramp `deny` before `allow`.
    pub(super) fn networks(&mut self, scope: &Scope<'a>) -> Result<DraftKeys, Refused> {
        let of = |block: &Block<'a>| {
            let mut rules = [block.named("allow"), block.named("deny")].concat();
            rules.sort_by_key(|one| one.id);
            rules
        };
        let rules = scope.blocks.iter().rev().map(of).find(|rules| !rules.is_empty()).unwrap_or_default();
        let (mut allow, mut deny) = (Vec::new(), Vec::new());
        let mut rest = None;
        let mut is_ordered = true;
        for one in &rules {
            let network = one.argument(0);
            if rest.is_some() {
                self.note(
                    one,
                    Fate::changed("it has no effect in nginx either: a rule for all comes before"),
                );
                continue;
            }
            if network == "all" {
                self.take(one);
                rest = Some(one.name.as_str());
                continue;
            }
            if network.split('/').next().is_none_or(|address| address.parse::<IpAddr>().is_err()) {
                self.refuse(one, "rules are of addresses and networks", CLOSED);
                return Err(Refused);
            }
            self.take(one);
            if one.name == "allow" {
                allow.push(network);
            } else {
                is_ordered &= allow.is_empty();
                deny.push(network);
            }
        }
        let closed = rest == Some("deny");
        // An exception from a wider `deny` has no words in Offramp; one within a closed whole has.
        if !is_ordered || !closed && !allow.is_empty() && !deny.is_empty() {
            for one in &rules {
                self.refuse(one, "`deny` goes before `allow` in Offramp, whatever their order", CLOSED);
            }
            return Err(Refused);
        }
        let mut keys = DraftKeys::new();
        if !deny.is_empty() {
            keys.push(("deny".to_owned(), list(&deny)));
        }
        if closed && allow.is_empty() {
            return Err(Refused);
        }
        if closed {
            keys.push(("allow".to_owned(), list(&allow)));
        }
        Ok(keys)
    }

    fn password(&mut self, scope: &Scope<'a>) -> Result<DraftKeys, Refused> {
        let Some(realm) = scope.one("auth_basic") else { return Ok(DraftKeys::new()) };
        if realm.argument(0) == "off" {
            self.take(realm);
            return Ok(DraftKeys::new());
        }
        let file = scope.one("auth_basic_user_file");
        let Some(file) = file.filter(|file| !file.argument(0).contains('$')) else {
            self.refuse(realm, "there is no fixed file of users", CLOSED);
            return Err(Refused);
        };
        if realm.argument(0).contains('$') {
            self.note(realm, Fate::changed("the realm has no variables"));
        } else {
            self.take(realm);
        }
        let how = "hashes must be bcrypt (htpasswd -B) or argon2id (offramp password); others are refused at the start";
        self.note(file, Fate::changed(how));
        let keep = ("keep_authorization".to_owned(), "true".to_owned());
        let mut keys: DraftKeys = vec![("file".to_owned(), self.path(file.argument(0)))];
        if !realm.argument(0).contains(['$', '"', '\\']) && !realm.argument(0).is_empty() {
            keys.push(("realm".to_owned(), quoted(realm.argument(0))));
        }
        keys.push(keep);
        Ok(vec![("basic_auth".to_owned(), inline(&keys))])
    }

    /// `auth_request` with a location that leads to a server.
    fn asked(&mut self, site: &Site<'a>, scope: &Scope<'a>) -> Result<DraftKeys, Refused> {
        let Some(one) = scope.one("auth_request") else { return Ok(DraftKeys::new()) };
        let path = one.argument(0);
        if path == "off" {
            self.take(one);
            return Ok(DraftKeys::new());
        }
        let location = site
            .scope
            .own("location")
            .into_iter()
            .find(|location| location.arguments.last().map(String::as_str) == Some(path));
        let pass = location.and_then(|location| location.inner().iter().find(|one| one.name == "proxy_pass"));
        let (Some(location), Some(pass)) = (location, pass) else {
            self.refuse(one, "its location leads to no server", CLOSED);
            return Err(Refused);
        };
        let inside = site.scope.inside(location.inner());
        let Some((mut keys, uri)) = self.server_keys(&inside, pass) else {
            self.refuse(one, "its server is not taken", CLOSED);
            return Err(Refused);
        };
        keys.push(("path".to_owned(), quoted(uri.as_deref().unwrap_or(path))));
        let mut fields: Vec<String> = Vec::new();
        for set in scope.all("auth_request_set") {
            match set.argument(1).strip_prefix("$upstream_http_") {
                Some(field) => {
                    fields.push(field.replace('_', "-"));
                    let how = "servers get the field of the authentication server under its own name";
                    self.note(set, Fate::changed(how));
                }
                None => self.refuse(
                    set,
                    "only fields of its response pass",
                    "name them in `forward_auth.headers`",
                ),
            }
        }
        if !fields.is_empty() {
            fields.dedup();
            keys.push(("headers".to_owned(), list(&fields)));
        }
        let how =
            "the authentication server gets X-Forwarded-Method, -Proto, -Host and -Uri, and may redirect";
        self.note(one, Fate::changed(how));
        self.take(location);
        for inner in location.inner() {
            let how = "it belongs to `forward_auth`, which sends the fields of the request by itself";
            self.note(inner, if inner.id == pass.id { Fate::Taken } else { Fate::changed(how) });
        }
        Ok(vec![("forward_auth".to_owned(), inline(&keys))])
    }
}
