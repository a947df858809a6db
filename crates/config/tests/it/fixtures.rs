//! The configurations of tests: string literals in the sources of the workspace.

use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

/// The literals that may be configurations, each as it is and, as formats, with values in their places.
pub(crate) fn texts_of_tests() -> impl Iterator<Item = [String; 4]> {
    literals().into_iter().map(|literal| {
        let [one, two, three] = ["7", "/x", "a.example"].map(|with| filled(&literal, with));
        [one, two, three, literal]
    })
}

/// Every string literal of the workspace that may be a configuration, as its program sees it.
fn literals() -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
        sources(&entry.unwrap().path(), &mut |path| {
            let text = std::fs::read_to_string(path).unwrap();
            strings(text.parse().unwrap(), &mut found);
        });
    }
    found
}

fn sources(folder: &Path, found: &mut dyn FnMut(&Path)) {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    for path in paths {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found(&path);
        }
    }
}

fn strings(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => strings(group.stream(), found),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                found.extend(text.contains(" = ").then(|| content(&text)).flatten());
            }
            _ => {}
        }
    }
}

/// The content of a literal of a string; `None` for other literals.
fn content(literal: &str) -> Option<String> {
    if let Some(raw) = literal.strip_prefix('r') {
        return Some(raw.trim_matches('#').trim_matches('"').to_owned());
    }
    let escaped = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = String::new();
    let mut letters = escaped.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next()? {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                '\n' => while letters.next_if(|next| next.is_whitespace()).is_some() {},
                other => out.push(other),
            },
            _ => out.push(letter),
        }
    }
    Some(out)
}

/// A format string with this in each place.
fn filled(text: &str, with: &str) -> String {
    let mut out = String::new();
    let mut rest = text.replace("{{", "\u{1}").replace("}}", "\u{2}");
    while let Some((before, after)) = rest.clone().split_once('{') {
        let Some((_, after)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(with);
        rest = after.to_owned();
    }
    (out + &rest).replace('\u{1}', "{").replace('\u{2}', "}")
}
