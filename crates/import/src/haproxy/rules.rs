//! The rules of a section: `http-request`, `http-response`, `redirect`, `use_backend`, each with its condition.

use offramp_config::model::{HeaderName, HeaderTemplate, RedirectTo};
use offramp_config::{Environment, parse};

use super::HaproxyLowering;
use super::conditions::{AclCondition, AclTerm, AclTest, Acls};
use super::lines::Line;
use super::values;
use crate::draft::{DraftKeys, inline, quoted};
use crate::report::Fate;

/// A rule with its condition.
#[derive(Debug)]
pub(super) struct ProxyRule<'a> {
    pub(super) line: &'a Line,
    pub(super) condition: AclCondition,
    pub(super) act: RuleAct,
}

/// The effect of a rule.
#[derive(Clone, Debug)]
pub(super) enum RuleAct {
    /// Ends with a response of these keys. A URL that begins with `//` has the scheme of the request.
    Answer(DraftKeys),
    Redirect {
        to: String,
        status: u16,
    },
    Deny(u16),
    /// Ends the rules of `http-request`.
    Allow,
    Password,
    Field(FieldChange),
    /// Changes the path that servers get.
    Path(DraftKeys),
    Backend(String),
}

/// A change of a header.
#[derive(Clone, Debug)]
pub(super) struct FieldChange {
    pub(super) of_request: bool,
    /// `set`, `add` or `remove`.
    pub(super) how: &'static str,
    pub(super) name: String,
    /// The value in TOML.
    pub(super) value: String,
}

/// The phases in which HAProxy evaluates rules.
const PHASES: usize = 5;

impl<'a> HaproxyLowering<'a> {
    /// The rules of lines, in the order of their evaluation.
    pub(super) fn rules(&mut self, lines: &[&'a Line], acls: &Acls) -> Vec<ProxyRule<'a>> {
        let mut phases: [Vec<ProxyRule<'a>>; PHASES] = Default::default();
        for line in lines {
            let line: &'a Line = line;
            let (phase, start) = match line.word(0) {
                "tcp-request" if line.word(1) == "connection" || line.word(1) == "content" => (0, 2),
                "monitor-uri" => {
                    phases[0].extend(self.monitor(line));
                    continue;
                }
                "block" => (1, 0),
                "http-request" | "http-response" => (1, 1),
                "redirect" => (2, 0),
                "use_backend" => (3, 0),
                "default_backend" => (4, 0),
                _ => continue,
            };
            let (words, condition) = divided(line.rest(start));
            let condition = acls.condition(condition);
            let Some(act) = self.act(line, words) else { continue };
            let of_request = |term: &AclTerm| matches!(term.test, AclTest::Hosts(_) | AclTest::Paths(_));
            if line.is("http-response") && condition.terms().any(of_request) {
                let how = "it has no effect in HAProxy either: a response has no path and no host";
                self.note(line, Fate::changed(how));
                continue;
            }
            self.judge(line, &condition, &act);
            phases[phase].push(ProxyRule { line, condition, act });
        }
        phases.into_iter().flatten().collect()
    }

    /// The path that HAProxy answers itself.
    fn monitor(&mut self, line: &'a Line) -> Option<ProxyRule<'a>> {
        let path = line.word(1).trim_end_matches('/');
        if !path.starts_with('/') {
            return None;
        }
        self.note(line, Fate::changed("paths below it are answered too"));
        let test = AclTest::Paths(vec![path.to_owned()]);
        let condition = AclCondition(vec![vec![AclTerm { test, negated: false }]]);
        let body = "<html><body><h1>200 OK</h1>\nService ready.\n</body></html>\n";
        let keys = [("body".to_owned(), quoted(body)), ("content_type".to_owned(), quoted("text/html"))];
        let fields = [("Cache-Control".to_owned(), quoted("no-cache"))];
        let fields = inline(&[("set".to_owned(), inline(&fields))]);
        let act = RuleAct::Answer(vec![
            ("respond".to_owned(), inline(&keys)),
            ("response_headers".to_owned(), fields),
        ]);
        Some(ProxyRule { line, condition, act })
    }

    /// Notes the fate of a rule with a known effect.
    fn judge(&mut self, line: &'a Line, condition: &AclCondition, act: &RuleAct) {
        self.take(line);
        if matches!(act, RuleAct::Password) {
            let remedy = "write `basic_auth` with a file of users (offramp password); the routes are closed (403) until then";
            self.refuse(line, "passwords of a `userlist` are not taken", remedy);
        }
        let of_client = |term: &AclTerm| matches!(term.test, AclTest::Clients(_) | AclTest::Password);
        if !act.refuses() && !matches!(act, RuleAct::Allow) && condition.terms().any(of_client) {
            let why = "routes do not choose by the network or the password of the client";
            self.refuse(line, why, "decide in the application, or write `allow` in the route");
        }
        let Some((fetch, guards)) = condition.unknown() else { return };
        let remedy = match act {
            act if act.refuses() && guards => {
                "the routes that it guards are closed (403) until you write the rule"
            }
            act if act.refuses() => "see `requests_per_client` of [limits], or decide in the application",
            RuleAct::Backend(_) => "write a route by host and path, or decide in the application",
            _ => "decide in the application",
        };
        self.refuse(line, format!("routes do not choose by `{fetch}`"), remedy);
    }

    /// The effect of a line; notes why there is none.
    fn act(&mut self, line: &'a Line, words: &'a [String]) -> Option<RuleAct> {
        let word = |index: usize| words.get(index).map(String::as_str).unwrap_or_default();
        let is_response = line.word(0) == "http-response";
        match (line.word(0), word(0)) {
            ("use_backend" | "default_backend", _) if word(1).contains('%') => {
                self.refuse(line, "the name of a backend is fixed", "write a route for each");
                None
            }
            ("use_backend" | "default_backend", _) => Some(RuleAct::Backend(word(1).to_owned())),
            ("tcp-request", "reject") => Some(RuleAct::Deny(403)),
            ("tcp-request", "accept") => {
                // Offramp reads what it has to know by itself.
                self.take(line);
                None
            }
            ("tcp-request", _) => None,
            ("block", _) | (_, "reject" | "silent-drop" | "tarpit") if !is_response => {
                self.note(line, Fate::changed("such clients get 403"));
                Some(RuleAct::Deny(403))
            }
            (_, "deny") if !is_response => Some(RuleAct::Deny(status_of(words).unwrap_or(403))),
            (_, "allow") if !is_response => Some(RuleAct::Allow),
            (_, "auth") if !is_response => Some(RuleAct::Password),
            ("redirect", _) => self.redirect(line, words.get(1..).unwrap_or_default()),
            (_, "redirect") if !is_response => self.redirect(line, words.get(1..).unwrap_or_default()),
            (_, "return") if !is_response => self.returned(line, words.get(1..).unwrap_or_default()),
            (_, "set-header" | "add-header" | "del-header") => self.field(line, words, !is_response),
            (_, "replace-path") if !is_response => self.rewrite(line, word(1), word(2)),
            (_, "set-path") if !is_response => match word(1) {
                path if path.starts_with('/') && !path.contains('%') => self.rewrite(line, "^.*$", path),
                _ => {
                    self.refuse(line, "new paths come from patterns", "write `rewrite` or `strip_path`");
                    None
                }
            },
            _ => None,
        }
    }

    fn redirect(&mut self, line: &'a Line, words: &[String]) -> Option<RuleAct> {
        let option = |name: &str| {
            words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).map(String::as_str)
        };
        let status = option("code").and_then(|code| code.parse().ok()).unwrap_or(302);
        let drops = words.iter().any(|word| word == "drop-query");
        let uri = if drops { "{path}" } else { "{uri}" };
        for name in ["append-slash", "set-cookie", "clear-cookie"] {
            if words.iter().any(|word| word == name) {
                self.note(line, Fate::changed(format!("`{name}` is left out")));
            }
        }
        let format = |text: &str| values::template(text);
        let to = if let Some(scheme) = option("scheme") {
            Ok(format!("{scheme}://{{host}}{uri}"))
        } else if let Some(prefix) = option("prefix") {
            format(prefix).map(|prefix| format!("{}{uri}", prefix.trim_end_matches('/')))
        } else if let Some(location) = option("location") {
            format(location)
        } else {
            Err("nothing".to_owned())
        };
        let to = to.map(|to| if to.starts_with('/') { format!("//{{host}}{to}") } else { to });
        let checked = to.and_then(|to| {
            let whole = if to.starts_with("//") { format!("https:{to}") } else { to.clone() };
            whole.parse::<RedirectTo>().map(|_| to).map_err(|problem| problem.message().to_owned())
        });
        match checked {
            Ok(to) => Some(RuleAct::Redirect { to, status }),
            Err(why) => {
                self.refuse(line, format!("redirects have no {why}"), "write the redirect by hand");
                None
            }
        }
    }

    fn returned(&mut self, line: &'a Line, words: &[String]) -> Option<RuleAct> {
        let option = |name: &str| {
            words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).map(String::as_str)
        };
        let mut keys = vec![("status".to_owned(), status_of(words).unwrap_or(200).to_string())];
        let lf = option("lf-string").or_else(|| option("lf-file"));
        if lf.is_some_and(|text| text.contains('%')) {
            self.refuse(line, "the body of `respond` has no variables", "write a fixed text");
            return None;
        }
        if let Some(body) = option("string").or(lf).filter(|body| !body.is_empty()) {
            keys.push(("body".to_owned(), quoted(body)));
        } else if let Some(file) = option("file") {
            keys.push(("file".to_owned(), self.path(file)));
        }
        if let Some(media) = option("content-type") {
            keys.push(("content_type".to_owned(), quoted(media)));
        }
        for name in ["hdr", "errorfile", "errorfiles", "default-errorfiles"] {
            if words.iter().any(|word| word == name) {
                self.note(
                    line,
                    Fate::changed(format!("`{name}` is left out; see `response_headers` and `error_pages`")),
                );
            }
        }
        Some(RuleAct::Answer(vec![("respond".to_owned(), inline(&keys))]))
    }

    fn field(&mut self, line: &'a Line, words: &[String], of_request: bool) -> Option<RuleAct> {
        let name = words.get(1).cloned().unwrap_or_default();
        if let Err(problem) = name.parse::<HeaderName>() {
            self.refuse(line, problem.message(), "leave it out");
            return None;
        }
        let how = match words[0].as_str() {
            "set-header" => "set",
            "add-header" => "add",
            _ => "remove",
        };
        let format = words.get(2).cloned().unwrap_or_default();
        let lower = name.to_ascii_lowercase();
        let own =
            ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-real-ip"];
        if of_request && how != "remove" && own.contains(&lower.as_str()) {
            self.note(line, Fate::changed("Offramp sends this field by itself, as it is true"));
            return None;
        }
        let template = match values::template(&format) {
            Ok(template) => template,
            Err(sample) => {
                let why = format!("fields have no variable {sample}");
                self.refuse(line, why, "see the variables of header fields in the book");
                return None;
            }
        };
        if let Err(problem) = template.parse::<HeaderTemplate>() {
            let remedy = problem.remedy().unwrap_or("write another value").to_owned();
            self.refuse(line, problem.message(), remedy);
            return None;
        }
        let value = quoted(&template);
        Some(RuleAct::Field(FieldChange { of_request, how, name, value }))
    }

    fn rewrite(&mut self, line: &'a Line, pattern: &str, to: &str) -> Option<RuleAct> {
        let mut target = String::new();
        let mut letters = to.chars().peekable();
        while let Some(letter) = letters.next() {
            match (letter, letters.peek()) {
                ('\\', Some(digit)) if digit.is_ascii_digit() => target.push_str(&format!("${{{digit}}}")),
                ('$', _) => target.push_str("$$"),
                (letter, _) => {
                    target.push(letter);
                    continue;
                }
            }
            if letter == '\\' {
                letters.next();
            }
        }
        let rule = inline(&[("match".to_owned(), quoted(pattern)), ("to".to_owned(), quoted(&target))]);
        let trial =
            format!("[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"unix:/a\"\nrewrite = [{rule}]\n");
        if target.contains('%') {
            self.refuse(line, "new paths come from patterns", "write `rewrite` of the route by hand");
            return None;
        }
        if let Err(errors) = parse(&trial, "rewrite", &Environment::default()) {
            let message = errors.problems().first().map(|problem| problem.message().to_owned());
            self.refuse(line, message.unwrap_or_default(), "write `rewrite` of the route by hand");
            return None;
        }
        Some(RuleAct::Path(vec![("rewrite".to_owned(), format!("[{rule}]"))]))
    }
}

/// The words of a rule before its condition, and the condition.
fn divided(words: &[String]) -> (&[String], &[String]) {
    let at = words.iter().position(|word| word == "if" || word == "unless").unwrap_or(words.len());
    words.split_at(at)
}

fn status_of(words: &[String]) -> Option<u16> {
    let at = words.iter().position(|word| word == "status" || word == "deny_status")?;
    words.get(at + 1)?.parse().ok().filter(|status| (200..=599).contains(status))
}

impl RuleAct {
    /// Says that it keeps requests from servers with an error.
    pub(super) fn refuses(&self) -> bool {
        match self {
            RuleAct::Deny(_) | RuleAct::Password => true,
            RuleAct::Answer(keys) => {
                keys.iter().any(|(_, value)| value.contains("status = 4") || value.contains("status = 5"))
            }
            _ => false,
        }
    }

    /// The keys of an answer, which may depend on TLS.
    pub(super) fn answer(&self, secure: bool) -> Option<DraftKeys> {
        match self {
            RuleAct::Answer(keys) => Some(keys.clone()),
            RuleAct::Redirect { to, status } => {
                let scheme = if secure { "https:" } else { "http:" };
                let to = if to.starts_with("//") { format!("{scheme}{to}") } else { to.clone() };
                let to = if !secure && to == "https://{host}{uri}" { "https" } else { &to };
                let keys = [("to".to_owned(), quoted(to)), ("status".to_owned(), status.to_string())];
                Some(vec![("redirect".to_owned(), inline(&keys))])
            }
            _ => None,
        }
    }
}
