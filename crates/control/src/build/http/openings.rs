//! Ways around the rules of a route that another route of the host opens, without rules of its own: `check` warns of them.
//!
//! An operator that writes `path = "/admin"` with a rule expects that no other client gets to `/admin` of the application, or to these files,
//! without it. Spellings of that path do not lead there ([`offramp_proxy`] refuses them), but `strip_path`, `replace_path` and
//! a second `root` do, by a path that is nothing like it. A path below the guarded one is taken to be opened on purpose.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use offramp_config::Config;
use offramp_config::model::{self, PrefixRewrite, RelayTarget, RouteConfig, RouteTarget};
use offramp_process::{Finding, Findings};

use super::super::routes::name;
use super::closed::{folder, has_same_entry, is_above, is_in, patterns, real, winner};
use super::prefix;

/// Adds the warnings for the routes of a listener.
pub(super) fn look(config: &Config, listener: &model::ListenerConfig, report: &mut Findings) {
    let (guards, open): (Vec<&RouteConfig>, Vec<&RouteConfig>) =
        config.routes_of(listener).partition(|route| route.is_guard());
    let mut look = Look { config, listener, roots: HashMap::new() };
    for guard in guards {
        for route in open.iter().filter(|route| !has_same_entry(route, guard)) {
            report.warnings.extend(look.opening(route, guard));
        }
    }
}

struct Look<'c> {
    config: &'c Config,
    listener: &'c model::ListenerConfig,
    /// The real places of directories, each of which is looked for once.
    roots: HashMap<&'c Path, PathBuf>,
}

impl<'c> Look<'c> {
    /// The warning about an open route, if it leads past the rules of `guard`.
    fn opening(&mut self, route: &'c RouteConfig, guard: &'c RouteConfig) -> Option<Finding> {
        let (at, text) = match (&route.target, &guard.target) {
            (RouteTarget::Relay(one), RouteTarget::Relay(other)) if one.to == other.to => {
                (&route.at, self.of_server(route, guard, &one.to)?)
            }
            (RouteTarget::Files(one), RouteTarget::Files(other)) => {
                (&one.root.at, self.of_files(route, guard, &one.root.path, &other.root.path)?)
            }
            _ => return None,
        };
        Some(Finding::new(at, text))
    }

    /// An open route that makes the path of a guarded one for the same server.
    fn of_server(&self, route: &RouteConfig, guard: &RouteConfig, to: &RelayTarget) -> Option<String> {
        let theirs = made_of(guard, &prefix(guard));
        // All of an application that is guarded by another path says nothing about its own paths.
        if theirs == "/" || matches!(to, RelayTarget::Split(_)) {
            return None;
        }
        let own = prefix(route);
        if route.http.plain.keep_original_url && self.is_open(route, guard, &own) {
            return Some(format!(
                "clients of this route name any path in `X-Original-URL` and its like (`keep_original_url`), also `{theirs}`, \
                 which the route `{}` guards: some frameworks serve that one; leave the key out, or name the proxies that \
                 set these fields as `trusted_proxies`",
                name(guard)
            ));
        }
        let path = asked_for(route, &theirs)?;
        self.is_open(route, guard, &path).then(|| {
            format!(
                "`{path}` of this route is `{theirs}` to the server, which the route `{}` guards, and comes there without its \
                 rules; give this route the same rules, or add a route with them for `path = \"{path}\"`",
                name(guard)
            )
        })
    }

    /// An open route with the files of a guarded one.
    fn of_files(
        &mut self,
        route: &'c RouteConfig,
        guard: &'c RouteConfig,
        root: &'c Path,
        other: &'c Path,
    ) -> Option<String> {
        let (root, other) = (self.real(root), self.real(other));
        let (own, theirs) = (folder(&root, route), folder(&other, guard));
        let shown = theirs.display();
        if own.starts_with(&theirs) {
            let path = prefix(route);
            return self.is_open(route, guard, &path).then(|| {
                format!(
                    "this route serves files of {shown}, which the route `{}` guards, without its rules; give this route \
                     the same rules, or another `root`",
                    name(guard)
                )
            });
        }
        // Its name below the root is the path to it, unless characters of it need an escape.
        let below = theirs.strip_prefix(&root).ok()?.to_str()?;
        let path = asked_for(route, &offramp_http::path::normalize(&format!("/{below}")).text)?;
        self.is_open(route, guard, &path).then(|| {
            format!(
                "`{path}` of this route has the files of {shown}, which the route `{}` guards: it does not serve them, and \
                 answers 404; give this route the same rules if it is to",
                name(guard)
            )
        })
    }

    fn real(&mut self, root: &'c Path) -> PathBuf {
        self.roots.entry(root).or_insert_with(|| real(root)).clone()
    }

    /// Set where requests for `path` come to `route` on a host where `guard` has its own path, and `path` is not below that.
    fn is_open(&self, route: &RouteConfig, guard: &RouteConfig, path: &str) -> bool {
        let own = prefix(guard);
        if is_above(&own, path) {
            return false;
        }
        let (ours, theirs) = (patterns(route), patterns(guard));
        let both = ours.iter().chain(&theirs).map(|host| Some(host.as_str()));
        let mut hosts = both.chain([None]).filter(|host| is_in(&ours, *host) && is_in(&theirs, *host));
        let of = |host, path: &str| winner(self.config, self.listener, host, path);
        hosts.any(|host| {
            of(host, path) == Some(std::ptr::from_ref(route))
                && of(host, &own) == Some(std::ptr::from_ref(guard))
        })
    }
}

/// The path that the server of a route gets for a `path` below that of the route.
fn made_of(route: &RouteConfig, path: &str) -> String {
    let own = prefix(route);
    let rest = if own == "/" { path } else { path.strip_prefix(own.as_str()).unwrap_or(path) };
    let made = match &route.http.rewrite {
        PrefixRewrite::Keep => return path.to_owned(),
        PrefixRewrite::Strip => rest.to_owned(),
        PrefixRewrite::Replace(with) if with.is_root() => rest.to_owned(),
        PrefixRewrite::Replace(with) => format!("{}{}", with.as_str(), rest.trim_end_matches('/')),
    };
    if made.is_empty() { "/".to_owned() } else { made }
}

/// The path of a request for which the route makes `made`; `None`: it makes that of no request.
fn asked_for(route: &RouteConfig, made: &str) -> Option<String> {
    let own = prefix(route);
    let outer = if own == "/" { "" } else { own.as_str() };
    let rest = match &route.http.rewrite {
        // Files and servers have one path then, and the guarded route has it.
        PrefixRewrite::Keep => return is_above(&own, made).then(|| made.to_owned()),
        PrefixRewrite::Replace(with) if !with.is_root() => {
            if is_above(made, with.as_str()) {
                // All that the route makes lies there.
                return Some(own);
            }
            made.strip_prefix(with.as_str()).filter(|rest| rest.starts_with('/'))?
        }
        PrefixRewrite::Strip | PrefixRewrite::Replace(_) => made,
    };
    Some(format!("{outer}{rest}"))
}

#[cfg(test)]
mod tests {
    use offramp_config::{Environment, parse};

    use super::*;

    fn told(routes: &str) -> Vec<String> {
        let text = format!("[[listener]]\nmode = \"http\"\n{routes}");
        let (config, _) =
            parse(&text, "/x/f.toml", &Environment::default()).unwrap_or_else(|e| panic!("{e}"));
        let mut report = Findings::default();
        look(&config, &config.listeners[0], &mut report);
        report.warnings.iter().map(ToString::to_string).collect()
    }

    fn route(keys: &str) -> String {
        format!("[[route]]\n{}\n", keys.replace("; ", "\n"))
    }

    #[test]
    fn a_path_that_is_made_for_a_server_is_told() {
        const ADMIN: &str = "path = \"/admin\"; server = \"a:1\"; basic_auth = \"/users\"";
        for (open, guard, expected) in [
            ("path = \"/app\"; server = \"a:1\"; strip_path = true", ADMIN, Some("`/app/admin`")),
            ("path = \"/app\"; server = \"a:1\"; replace_path = \"/\"", ADMIN, Some("`/app/admin`")),
            ("path = \"/app\"; server = \"a:1\"; replace_path = \"/admin/x\"", ADMIN, Some("`/app`")),
            ("path = \"/app\"; server = \"a:1\"; replace_path = \"/v1\"", ADMIN, None),
            (
                "path = \"/app\"; server = \"a:1\"; replace_path = \"/v1\"",
                "path = \"/v1/keys\"; server = \"a:1\"; deny = [\"10.0.0.0/8\"]",
                Some("`/app/keys`"),
            ),
            (
                "server = \"a:1\"",
                "path = \"/old\"; server = \"a:1\"; replace_path = \"/admin\"; maintenance = true",
                Some("`/admin`"),
            ),
            // A path that clients name in another field.
            ("server = \"a:1\"; keep_original_url = true", ADMIN, Some("`/admin`")),
            ("server = \"b:1\"; keep_original_url = true", ADMIN, None),
            ("path = \"/app\"; server = \"a:1\"; keep_original_url = true", ADMIN, Some("`X-Original-URL`")),
            // The ordinary pattern, and all of an application.
            ("server = \"a:1\"", ADMIN, None),
            (
                "server = \"a:1\"",
                "path = \"/in\"; server = \"a:1\"; strip_path = true; allow = [\"::1\"]",
                None,
            ),
            // Another server, other hosts, below the guarded path on purpose.
            ("path = \"/app\"; server = \"b:1\"; strip_path = true", ADMIN, None),
            (
                "host = \"b.x\"; path = \"/app\"; server = \"a:1\"; strip_path = true",
                "host = \"a.x\"; path = \"/admin\"; server = \"a:1\"; allow = [\"::1\"]",
                None,
            ),
            // A guard for any host is one for this host.
            (
                "host = \"b.x\"; path = \"/app\"; server = \"a:1\"; strip_path = true",
                ADMIN,
                Some("`/app/admin`"),
            ),
            ("path = \"/admin/open\"; server = \"a:1\"; strip_path = true", ADMIN, None),
            ("path = \"/app\"; server = \"a:1\"; strip_path = true; allow = [\"::1\"]", ADMIN, None),
        ] {
            let routes = [route(open), route(guard)].concat();
            let told = told(&routes);
            match expected {
                None => assert_eq!(told, [""; 0], "{routes}"),
                Some(path) => {
                    assert!(told.len() == 1 && told[0].contains(path), "{routes}{told:?}");
                    assert!(told[0].starts_with("/x/f.toml:3:1: "), "{told:?}");
                }
            }
        }
        // A third route that takes the path with a rule closes it.
        let open = route("path = \"/app\"; server = \"a:1\"; strip_path = true");
        let closes = route("path = \"/app/admin\"; server = \"a:1\"; strip_path = true; allow = [\"::1\"]");
        assert_eq!(told(&[open, route(ADMIN), closes].concat()), [""; 0]);
    }

    #[test]
    fn files_that_another_route_guards_are_told() {
        const PRIVATE: &str = "path = \"/p\"; root = \"/w\"; allow = [\"::1\"]";
        const MOUNTED: &str = "path = \"/p\"; root = \"/w/q\"; strip_path = true; allow = [\"::1\"]";
        let served = Some("serves files of");
        let not_served = Some("answers 404");
        for (open, guard, expected) in [
            ("path = \"/o\"; root = \"/w/p\"; strip_path = true", PRIVATE, served),
            ("path = \"/o\"; root = \"/w/p/sub\"; strip_path = true", PRIVATE, served),
            ("path = \"/o\"; root = \"/w/q\"; strip_path = true", MOUNTED, served),
            ("root = \"/w/q\"", MOUNTED, served),
            ("path = \"/o\"; root = \"/w\"; strip_path = true", PRIVATE, not_served),
            ("root = \"/w\"", MOUNTED, not_served),
            // The ordinary pattern: the path is that of the guarded route.
            ("root = \"/w\"", PRIVATE, None),
            ("path = \"/p/open\"; root = \"/w\"", PRIVATE, None),
            ("root = \"/v\"", PRIVATE, None),
            (
                "host = \"b.x\"; path = \"/o\"; root = \"/w/p\"; strip_path = true",
                "host = \"a.x\"; path = \"/p\"; root = \"/w\"; allow = [\"::1\"]",
                None,
            ),
        ] {
            let routes = [route(open), route(guard)].concat();
            let told = told(&routes);
            match expected {
                None => assert_eq!(told, [""; 0], "{routes}"),
                Some(text) => assert!(told.len() == 1 && told[0].contains(text), "{routes}{told:?}"),
            }
        }
    }
}
