//! `rewrite` of a route: path patterns and their replacements.

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;

use super::{ValueReader, never};
use crate::error::{Problem, Span, shown};
use crate::model::PathRewrite;
use crate::raw::{Section, Spanned};

/// The maximum number of rules per route: each is tried for each request.
const RULES_MAX: usize = 100;
/// The maximum size of a compiled pattern, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// The maximum number of groups in a replacement: a request must not grow without bound.
const NAMED_MAX: usize = 20;

/// The rules of a route in order.
pub(super) fn rewrites(section: &Section, reader: &mut ValueReader<'_, '_>) -> Vec<PathRewrite> {
    let rules = section.sections("rewrite");
    for name in ["strip_path", "replace_path"].into_iter().filter(|name| section.mentions(name)) {
        if !rules.is_empty() {
            let problem = Problem::new(format!("`{name}` cannot go with `rewrite`"));
            let help = "leave it out, and write the whole new path in the rules";
            reader.report.local(section.key_span(name), problem.help(help));
        }
    }
    if let Some(rule) = rules.get(RULES_MAX) {
        let problem = Problem::new(format!("a route has at most {RULES_MAX} rules for rewriting"));
        let help = "divide it into routes with paths of their own, or use `redirects`";
        reader.report.local(&rule.span, problem.help(help));
        return Vec::new();
    }
    rules.iter().filter_map(|rule| rewrite(rule, reader)).collect()
}

fn rewrite(rule: &Section, reader: &mut ValueReader<'_, '_>) -> Option<PathRewrite> {
    let (pattern, to) = (rule.text("match")?, rule.text("to")?);
    let compiled = match compile(pattern.value) {
        Ok(compiled) => Some(compiled),
        Err((within, problem)) => {
            let span = place(&pattern, within, reader);
            reader.report.local(&span, problem);
            None
        }
    };
    if let Some(compiled) = &compiled
        && let Err((within, problem)) = target(to.value, compiled)
    {
        let span = place(&to, within, reader);
        reader.report.local(&span, problem);
        return None;
    }
    if compiled.is_some()
        && let Some(why) = never::why(pattern.value)
    {
        let problem = Problem::new("this pattern matches no path");
        let help = format!("patterns see the normal form of a path: {why}");
        reader.report.warn(&pattern.span, problem.help(help));
    }
    compiled.and_then(|_| reader.whole("route.rewrite", rule))
}

/// The place of a part of a value, if the value is written without escapes.
fn place(text: &Spanned<&str>, within: Span, reader: &ValueReader<'_, '_>) -> Span {
    let written = reader.report.source.slice(&text.span);
    let plain = |quote| written.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    if plain('\'').or_else(|| plain('"')) == Some(text.value) {
        return text.span.start + 1 + within.start..text.span.start + 1 + within.end;
    }
    text.span.clone()
}

/// Compiles a pattern; an error names the faulty part.
fn compile(pattern: &str) -> Result<Regex, (Span, Problem)> {
    let wrong = |span: &regex_syntax::ast::Span, what: String| {
        let (start, end) = (span.start.offset, span.end.offset);
        let at = pattern[..start].chars().count() + 1;
        let problem = Problem::new(format!("this is no pattern, at character {at}: {what}"));
        (start..end.max(start + 1), problem.help("write a regular expression such as '^/user/(\\d+)$'"))
    };
    match ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern) {
        Ok(_) => {}
        Err(regex_syntax::Error::Parse(error)) => return Err(wrong(error.span(), error.kind().to_string())),
        Err(regex_syntax::Error::Translate(error)) => {
            return Err(wrong(error.span(), error.kind().to_string()));
        }
        Err(error) => return Err((0..pattern.len(), Problem::new(format!("this is no pattern: {error}")))),
    }
    RegexBuilder::new(pattern).unicode(false).size_limit(SIZE_MAX).build().map_err(|_| {
        let problem = Problem::new("this pattern is too large when it is compiled");
        (0..pattern.len(), problem.help("repeat less: `\\d+` is smaller than `\\d{1,1000}`"))
    })
}

/// Checks a replacement against its pattern.
fn target(to: &str, pattern: &Regex) -> Result<(), (Span, Problem)> {
    let all = 0..to.len();
    if !to.starts_with('/') {
        let problem = Problem::new(format!("`{}` is not a path", shown(to)));
        return Err((all, problem.help("paths begin with `/`: \"/new/$1\"")));
    }
    if let Some(at) = to.bytes().position(|byte| !byte.is_ascii_graphic() || b"\"#<>\\^`".contains(&byte)) {
        let problem = Problem::new("this character is in no path or query");
        return Err((at..at + 1, problem.help("write it as %XX")));
    }
    let (mut at, mut named) = (0, 0);
    while let Some(found) = to[at..].find('$') {
        let start = at + found;
        let rest = &to[start + 1..];
        if rest.starts_with('$') {
            at = start + 2;
            continue;
        }
        let word = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
        let (name, length) = match rest.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((name, _)) => (name, name.len() + 2),
                None => return Err((start..to.len(), Problem::new("a `${` without its `}`").help("add it"))),
            },
            None => {
                let name = &rest[..rest.find(|letter| !word(letter)).unwrap_or(rest.len())];
                (name, name.len())
            }
        };
        let span = start..start + 1 + length;
        if name.is_empty() {
            let problem = Problem::new("`$` stands before the number or the name of a group");
            return Err((span, problem.help("write `$1` or `${name}`, and `$$` for the character")));
        }
        let known = match name.parse::<usize>() {
            Ok(number) => number < pattern.captures_len(),
            Err(_) => pattern.capture_names().flatten().any(|known| known == name),
        };
        if !known {
            let problem = Problem::new(format!("the pattern has no group `{}`", shown(name)));
            let help =
                "groups are `(…)`, counted from 1, and `(?<name>…)`; write `${1}` before a letter or a digit";
            return Err((span, problem.help(help)));
        }
        named += 1;
        at = span.end;
    }
    if named > NAMED_MAX {
        let problem = Problem::new(format!("this names groups more than {NAMED_MAX} times"));
        return Err((all, problem.help("name fewer")));
    }
    Ok(())
}
