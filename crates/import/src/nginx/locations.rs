//! `location` blocks, as routes.

use offramp_config::model::RoutePath;

use super::answers::Answer;
use super::patterns::{self, PathPattern};
use super::servers::Site;
use super::tree::Directive;
use super::{Lowering, Scope};
use crate::draft::{DraftKeys, inline, quoted};
use crate::report::Fate;

/// A location, with the blocks around it.
struct Place<'a> {
    directive: &'a Directive,
    scope: Scope<'a>,
    pattern: PathPattern,
}

/// Paths that untranslatable locations keep from clients.
#[derive(Default)]
struct Unsaid {
    /// The source of programs.
    programs: bool,
    /// Anything.
    guards: bool,
}

/// The directives that hand a request to a program that does not speak HTTP.
const OTHERS: [&str; 4] = ["fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass"];

impl<'a> Lowering<'a> {
    /// The routes of a server that no `return` answers.
    pub(super) fn locations(&mut self, site: &Site<'a>) {
        self.fixed_redirects(site);
        let mut places = Vec::new();
        gather(&site.scope, &mut places);
        let mut cache = DraftKeys::new();
        for place in &places {
            if let PathPattern::Suffixes(ends) = &place.pattern {
                cache.extend(self.suffixes(place.directive, &place.scope, ends));
            }
        }
        let hidden = self.hidden_by_pattern(&places);
        for place in &places {
            self.place(site, place, &cache, &hidden);
        }
        let has_root = places.iter().any(|place| place.pattern == PathPattern::Prefix("/".to_owned()));
        if !has_root && site.scope.one("root").is_some() {
            let pattern = PathPattern::Prefix("/".to_owned());
            let around = Place { directive: site.directive, scope: site.scope.clone(), pattern };
            self.routes_of(site, &around, "/", &hidden, &cache);
        }
    }

    fn place(&mut self, site: &Site<'a>, place: &Place<'a>, cache: &DraftKeys, hidden: &Unsaid) {
        let Place { directive, scope, pattern } = place;
        let is_asked = scope.own("internal").is_empty();
        self.fates.entry(directive.id).or_insert(Fate::Taken);
        for one in scope.own("internal") {
            self.take(one);
        }
        match pattern {
            _ if !is_asked => {}
            PathPattern::Prefix(path) => {
                if path != "/" {
                    let how = match path.strip_suffix('/') {
                        Some(short) => format!(
                            "`{short}` is taken too; nginx redirects it to `{path}` where a server or a folder is behind it"
                        ),
                        None => {
                            format!("whole segments are compared: `{path}` and `{path}/x`, not `{path}x`")
                        }
                    };
                    self.note(directive, Fate::changed(how));
                }
                self.routes_of(site, place, path, hidden, cache);
            }
            PathPattern::Exact(path) if path == "/" => {
                let why = "`path` is the beginning of paths, and `/` that of all";
                self.refuse(directive, why, "let the route of `/` answer it");
            }
            PathPattern::Exact(path) => {
                if self.has_handler(scope) {
                    self.note(directive, Fate::changed("paths below it are taken too"));
                    self.routes_of(site, place, path, hidden, cache);
                } else {
                    self.note(directive, Fate::changed("the route around it answers this path too"));
                }
            }
            PathPattern::Several(paths, how) => {
                self.note(directive, Fate::changed(how.clone()));
                for path in paths {
                    self.routes_of(site, place, path, hidden, cache);
                }
            }
            PathPattern::Hidden if is_refused(scope) => {
                let how = "routes with `root` answer 404 for names that begin with a dot; servers still get such paths";
                self.note(directive, Fate::changed(how));
                for one in scope.blocks.last().map(|block| block.list).unwrap_or_default() {
                    self.take(one);
                }
            }
            PathPattern::Suffixes(_) if matches!(self.fates.get(&directive.id), Some(Fate::Changed(_))) => {}
            PathPattern::Named => {
                // The location that names it has taken it, or nothing leads there.
            }
            PathPattern::Hidden | PathPattern::Suffixes(_) | PathPattern::Unknown => {
                self.unsayable(directive, scope);
            }
        }
    }

    /// Paths that locations with patterns without a route would have kept from clients.
    fn hidden_by_pattern(&self, places: &[Place<'a>]) -> Unsaid {
        let mut hidden = Unsaid::default();
        for Place { directive, scope, pattern } in places {
            let is_said = matches!(self.fates.get(&directive.id), Some(Fate::Changed(_)));
            let is_unsayable = matches!(pattern, PathPattern::Suffixes(_) | PathPattern::Unknown) && !is_said;
            if is_unsayable {
                hidden.programs |= OTHERS.iter().any(|name| !scope.own(name).is_empty());
                let rules = ["allow", "deny", "auth_basic", "auth_request", "auth_jwt"];
                hidden.guards |= is_refused(scope) || rules.iter().any(|name| !scope.own(name).is_empty());
            }
        }
        hidden
    }

    /// Notes a location with a pattern that no route has.
    fn unsayable(&mut self, directive: &'a Directive, scope: &Scope<'a>) {
        let others = OTHERS.iter().any(|name| !scope.own(name).is_empty());
        if others {
            let remedy = "let the application serve HTTP, or keep a web server for it behind Offramp";
            self.refuse(directive, "Offramp speaks HTTP to servers", remedy);
            return;
        }
        let remedy = if is_refused(scope) {
            "the routes around it are closed (403) until you write a rule for the first segments of these paths"
        } else {
            "write a route for the first segments of these paths"
        };
        self.refuse(directive, "routes match the first segments of a path, and no patterns", remedy);
    }

    /// Says that a location answers itself, or that there are files.
    fn has_handler(&self, scope: &Scope<'a>) -> bool {
        let own = ["return", "proxy_pass", "grpc_pass", "alias", "deny", "rewrite"];
        own.iter().chain(&OTHERS).any(|name| !scope.own(name).is_empty()) || scope.one("root").is_some()
    }

    /// The routes for one path.
    fn routes_of(
        &mut self,
        site: &Site<'a>,
        place: &Place<'a>,
        path: &str,
        hidden: &Unsaid,
        cache: &DraftKeys,
    ) {
        let Place { directive: from, scope, pattern } = place;
        let exact = matches!(pattern, PathPattern::Exact(_));
        let short = if path == "/" { path } else { path.trim_end_matches('/') };
        let parsed = match short.parse::<RoutePath>() {
            Ok(parsed) => parsed.as_str().to_owned(),
            Err(problem) => {
                let remedy = problem.remedy().unwrap_or("write `path` by hand").to_owned();
                self.refuse(from, problem.message(), remedy);
                return;
            }
        };
        if let Some(one) = scope.own("return").into_iter().next() {
            let answer = self.returned(site, scope, one).unwrap_or(Answer::CLOSED);
            let headers = self.response_headers(scope, None);
            self.route(site, &parsed, from, |secure| [answer.keys(secure), headers.clone()].concat());
            return;
        }
        if let Some((answer, rule)) = self.redirecting(site, scope) {
            self.take(rule);
            self.route(site, &parsed, from, |secure| answer.keys(secure));
            return;
        }
        let is_files = scope.own("proxy_pass").is_empty() && scope.own("grpc_pass").is_empty();
        // nginx looks at no regular expression behind `=` and `^~`.
        let is_final = exact || from.argument(0) == "^~";
        if !is_final && (hidden.guards || hidden.programs && is_files && has_files(scope)) {
            let why = if hidden.guards {
                "a location by a pattern guards a part of these paths"
            } else {
                "the source of the programs below it would be sent as text"
            };
            self.refuse(from, why, "the route is closed (403) until you write the rule");
            self.route(site, &parsed, from, |secure| Answer::CLOSED.keys(secure));
            return;
        }
        let Ok(access) = self.access(site, scope) else {
            self.route(site, &parsed, from, |secure| Answer::CLOSED.keys(secure));
            return;
        };
        let keys = self.target(site, scope, from, path, exact, cache);
        if let Some(keys) = keys {
            self.route(site, &parsed, from, |_| [keys.clone(), access.clone()].concat());
        }
    }

    /// The keys that say where a path leads, and how.
    fn target(
        &mut self,
        site: &Site<'a>,
        scope: &Scope<'a>,
        from: &'a Directive,
        path: &str,
        exact: bool,
        cache: &DraftKeys,
    ) -> Option<DraftKeys> {
        let pass = [scope.own("proxy_pass"), scope.own("grpc_pass")].concat().into_iter().next();
        if let Some(pass) = pass {
            return self.relay(site, scope, pass, path, exact);
        }
        if let Some(other) = OTHERS.iter().find_map(|name| scope.own(name).pop()) {
            let remedy = "let the application serve HTTP, or keep a web server for it behind Offramp";
            self.refuse(from, format!("Offramp does not speak the protocol of `{}`", other.name), remedy);
            return None;
        }
        let is_alias = !scope.own("alias").is_empty();
        let attempts = self.attempts(scope, path, is_alias);
        if let Some(name) = &attempts.otherwise {
            return self.otherwise(site, scope, name, path);
        }
        let Some(mut keys) = self.file_keys(scope, path) else {
            let why = "it has no server and no `root`";
            self.refuse(from, why, "write `server` or `root`, or leave the route out");
            return None;
        };
        keys.extend(attempts.keys);
        let expires = self.expires(scope);
        let mut rules = cache.clone();
        rules.extend(expires.map(|value| ("*".to_owned(), quoted(&value))));
        let mut unique = DraftKeys::new();
        for (name, value) in rules {
            if !unique.iter().any(|(known, _)| *known == name) {
                unique.push((name, value));
            }
        }
        if !unique.is_empty() {
            keys.push(("cache_control".to_owned(), inline(&unique)));
        }
        keys.extend(self.rewrites_unless(&keys, site, scope));
        keys.extend(self.error_pages(scope, &site.scope));
        keys.extend(self.compression(scope));
        keys.extend(self.response_headers(scope, None));
        self.stubs(scope);
        Some(keys)
    }

    fn rewrites_unless(&mut self, keys: &DraftKeys, site: &Site<'a>, scope: &Scope<'a>) -> DraftKeys {
        let rules = self.rewrites(scope, &site.scope);
        let is_taken = keys.iter().any(|(key, _)| key == "strip_path" || key == "replace_path");
        if is_taken && !rules.is_empty() {
            for one in scope.own("rewrite") {
                let remedy = "write the whole new path in `rewrite`, without `strip_path`";
                self.refuse(one, "`strip_path` cannot go with `rewrite`", remedy);
            }
            return DraftKeys::new();
        }
        rules
    }

    /// Notes what a location has that Offramp shows elsewhere.
    pub(super) fn stubs(&mut self, scope: &Scope<'a>) {
        for one in scope.own("access_log") {
            if one.argument(0) == "off" {
                self.note(
                    one,
                    Fate::changed("requests are logged; `log_one_in` of a route writes one in so many"),
                );
            }
        }
    }
}

/// The locations below a block, with those within them.
fn gather<'a>(scope: &Scope<'a>, places: &mut Vec<Place<'a>>) {
    for directive in scope.own("location") {
        let inside = scope.inside(directive.inner());
        let pattern = patterns::of(&directive.arguments);
        gather(&inside, places);
        places.push(Place { directive, scope: inside, pattern });
    }
}

/// Says that a location can lead to files.
fn has_files(scope: &Scope<'_>) -> bool {
    scope.one("root").is_some() || !scope.own("alias").is_empty()
}

/// Says that a location refuses all requests.
fn is_refused(scope: &Scope<'_>) -> bool {
    let denies = scope.own("deny").iter().any(|one| one.argument(0) == "all");
    let returns = scope.own("return").iter().any(|one| matches!(one.argument(0), "403" | "404" | "444"));
    denies || returns
}
