//! The patterns of locations: what of them a route can say.

/// The paths that a location takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathPattern {
    /// All paths that begin so.
    Prefix(String),
    /// This path alone.
    Exact(String),
    /// Paths that begin in several ways, for a regular expression, and what differs from it.
    Several(Vec<String>, String),
    /// Names that end so.
    Suffixes(Vec<String>),
    /// Names that begin with a dot.
    Hidden,
    /// A location that others name.
    Named,
    /// A regular expression that no route has.
    Unknown,
}

/// The pattern of the words after `location`.
pub(super) fn of(words: &[String]) -> PathPattern {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["=", path] => PathPattern::Exact(path.to_owned()),
        ["~" | "~*", pattern] => expression(pattern),
        ["^~", path] => PathPattern::Prefix(path.to_owned()),
        [word] if word.starts_with('@') => PathPattern::Named,
        [word] => match word.strip_prefix('=') {
            Some(path) => PathPattern::Exact(path.to_owned()),
            None if word.starts_with('~') => expression(word.trim_start_matches('~').trim_start_matches('*')),
            None => PathPattern::Prefix(word.strip_prefix("^~").unwrap_or(word).to_owned()),
        },
        _ => PathPattern::Unknown,
    }
}

fn expression(pattern: &str) -> PathPattern {
    let is_hidden = ["/\\.", "(^|/)\\.", "(?:^|/)\\.", "^/\\.", "\\.ht", "^.*/\\.", ".*/\\."]
        .iter()
        .any(|start| pattern.starts_with(start));
    if is_hidden {
        return PathPattern::Hidden;
    }
    if let Some(ends) = suffixes(pattern) {
        return PathPattern::Suffixes(ends);
    }
    beginnings(pattern).unwrap_or(PathPattern::Unknown)
}

/// The ends of names in `\.(css|js)$`.
fn suffixes(pattern: &str) -> Option<Vec<String>> {
    let pattern = pattern
        .trim_start_matches("^.+")
        .trim_start_matches("^.*")
        .trim_start_matches(".*")
        .trim_start_matches(".+");
    let ends = pattern.strip_prefix("\\.")?.strip_suffix('$')?;
    let ends = match ends.strip_prefix("(?:").or_else(|| ends.strip_prefix('(')) {
        Some(inner) => inner.strip_suffix(')')?,
        None => ends,
    };
    let mut found = Vec::new();
    for end in ends.split('|') {
        match end.split_once('?') {
            None => found.push(end.to_owned()),
            Some((before, after)) => {
                found.push(format!("{before}{after}"));
                let mut letters = before.chars();
                letters.next_back()?;
                found.push(format!("{}{after}", letters.as_str()));
            }
        }
    }
    let is_plain = |end: &String| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_alphanumeric());
    found.iter().all(is_plain).then_some(found)
}

/// The paths at the beginning of `^/(a|b)/`.
fn beginnings(pattern: &str) -> Option<PathPattern> {
    let rest = pattern.strip_prefix('^')?;
    let mut text = rest.replace("\\/", "/").replace("\\.", ".").replace("\\-", "-");
    for tail in ["$", "(.*)", "(.+)", ".*", ".+", "(/|$)", "(?:/|$)", "($|/)", "(?:$|/)", "/?", "/"] {
        if let Some(short) = text.strip_suffix(tail) {
            text = short.to_owned();
        }
    }
    let special = |text: &str| text.contains(['\\', '(', ')', '[', '*', '+', '?', '|', '{', '^', '$']);
    let paths = match text.split_once('(') {
        None => vec![text],
        Some((before, after)) => {
            let (choices, after) = after.split_once(')')?;
            if !before.ends_with('/') || !after.is_empty() && !after.starts_with('/') {
                return None;
            }
            let choices = choices.strip_prefix("?:").unwrap_or(choices);
            choices.split('|').map(|choice| format!("{before}{choice}{after}")).collect()
        }
    };
    let fits = |path: &String| path.len() > 1 && path.starts_with('/') && !special(path);
    let how = "whole segments at the beginning of the path are compared, and case counts".to_owned();
    paths.iter().all(fits).then_some(PathPattern::Several(paths, how))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_become_what_routes_can_say() {
        let several = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            move |found: PathPattern| matches!(found, PathPattern::Several(is, _) if is == paths)
        };
        assert!(several(&["/api"])(expression("^/api/")));
        assert!(several(&["/api"])(expression("^/api(/|$)")));
        assert!(several(&["/a", "/b"])(expression("^/(a|b)/")));
        assert!(several(&["/a", "/b"])(expression("^/(?:a|b)(?:$|/)")));
        assert!(several(&["/x.y"])(expression(r"^/x\.y$")));
        for (pattern, is) in [
            (r"\.(css|jpe?g)$", PathPattern::Suffixes(vec!["css".into(), "jpeg".into(), "jpg".into()])),
            (r"/\.(?!well-known)", PathPattern::Hidden),
            (r"^/v[0-9]+/", PathPattern::Unknown),
            (r"/download/", PathPattern::Unknown),
            ("^/", PathPattern::Unknown),
        ] {
            assert_eq!(expression(pattern), is, "{pattern}");
        }
    }
}
