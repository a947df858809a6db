//! `rewrite` within a location.

use offramp_config::{Environment, parse};

use super::answers::Answer;
use super::servers::Site;
use super::tree::Directive;
use super::{Lowering, Scope};
use crate::draft::{DraftKeys, inline, quoted};
use crate::report::Fate;

impl<'a> Lowering<'a> {
    /// The `rewrite` of a route, from rules that stay within the location.
    pub(super) fn rewrites(&mut self, scope: &Scope<'a>, server: &Scope<'a>) -> DraftKeys {
        let mut rules = Vec::new();
        let own = [server.own("rewrite"), scope.own("rewrite")].concat();
        for one in own {
            if matches!(one.argument(2), "permanent" | "redirect") || one.argument(1).starts_with("http") {
                if !self.fates.contains_key(&one.id) {
                    self.refuse(
                        one,
                        "a redirect by a pattern does not exist",
                        "list the paths in `redirects`",
                    );
                }
                continue;
            }
            let (pattern, to) = (one.argument(0), one.argument(1));
            let (to, drops_query) = match to.strip_suffix('?') {
                Some(to) => (to.to_owned() + "?", true),
                None => (to.to_owned(), false),
            };
            let keys = [("match".to_owned(), quoted(pattern)), ("to".to_owned(), quoted(&to))];
            let rule = inline(&keys);
            let trial = format!(
                "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"unix:/a\"\nrewrite = [{rule}]\n"
            );
            if let Err(errors) = parse(&trial, "rewrite", &Environment::default()) {
                let message = errors.problems().first().map(|problem| problem.message().to_owned());
                self.refuse(one, message.unwrap_or_default(), "write `rewrite` of the route by hand");
                continue;
            }
            self.take(one);
            if one.argument(2) != "break" {
                self.note(
                    one,
                    Fate::changed("the route stays the one of the path that the client asked for"),
                );
            }
            if to.contains('?') && !drops_query {
                self.note(
                    one,
                    Fate::changed("the query of the request is dropped, because the new path has one"),
                );
            }
            rules.push(rule);
        }
        if rules.is_empty() {
            return DraftKeys::new();
        }
        vec![("rewrite".to_owned(), format!("[{}]", rules.join(", ")))]
    }

    /// A location that only redirects by `rewrite`, where the pattern takes all of it.
    pub(super) fn redirecting(
        &mut self,
        site: &Site<'a>,
        scope: &Scope<'a>,
    ) -> Option<(Answer, &'a Directive)> {
        let rule = scope.own("rewrite").into_iter().next()?;
        self.whole_redirect_of(site, rule).map(|answer| (answer, rule))
    }

    /// The paths of a server's `rewrite` with fixed texts that redirect: a route for each.
    pub(super) fn fixed_redirects(&mut self, site: &Site<'a>) {
        for one in site.scope.own("rewrite") {
            let status = match one.argument(2) {
                "permanent" => 301,
                "redirect" => 302,
                _ => continue,
            };
            let Some(path) = fixed(one.argument(0)) else { continue };
            let to = one.argument(1);
            let drops = to.ends_with('?') || to.contains('?');
            let to = to.trim_end_matches('?');
            if to.contains("$1") {
                continue;
            }
            let to = if drops { to.to_owned() } else { format!("{to}$is_args$args") };
            let Ok(to) = self.url(site, &to) else { continue };
            self.note(
                one,
                Fate::changed(
                    "paths below it are redirected too, and a `?` stays at the end where there is no query",
                ),
            );
            let answer = Answer::Redirect { to, status };
            self.route(site, &path, one, |secure| answer.keys(secure));
        }
    }
}

/// The path of a pattern that has one only.
fn fixed(pattern: &str) -> Option<String> {
    let path = pattern.strip_prefix('^')?;
    let path = path.strip_suffix("/?$").or_else(|| path.strip_suffix('$'))?;
    let path = path.replace("\\.", ".").replace("\\-", "-").replace("\\/", "/");
    let is_plain = path.len() > 1 && !path.contains(['\\', '(', '[', '*', '+', '?', '|', '{', '^', '$', ' ']);
    // A dot in a pattern is nearly always meant as one.
    is_plain.then_some(path)
}
