//! The arrows between the modules of a crate: in no circle.
//!
//! A module here is a top-level one with all that is below it. An arrow is a path from one to another, in `use` or in code,
//! macros included. A re-export is no arrow: a path through it leads to the module that has the item, so that a re-export
//! hides nothing. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Crates that still have circles, with the most modules that are in them. A bound may only shrink; a crate without circles
/// leaves the list.
const TOLERATED: [(&str, usize); 1] = [("bench", 11)];

#[test]
fn modules_of_a_crate_are_in_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut crates: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    crates.sort();
    assert!(crates.len() > TOLERATED.len());
    let mut found = String::new();
    for folder in crates {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let graph = Graph::of(&sources(&folder.join("src")));
        let circles = graph.circles();
        let modules: usize = circles.iter().map(BTreeSet::len).sum();
        let most = TOLERATED.iter().find(|(tolerated, _)| *tolerated == name).map_or(0, |(_, most)| *most);
        if modules > most {
            let _ = writeln!(found, "crate {name}: {modules} modules in circles, {most} are tolerated");
            circles.iter().for_each(|circle| found.push_str(&graph.describe(circle)));
        }
    }
    assert!(
        found.is_empty(),
        "{found}Move what ties a circle to a lower module, or to one of its own, by its meaning."
    );
}

/// A file of a crate.
struct File {
    /// The path in messages.
    shown: String,
    /// The names of the module and of those around it; none for the root.
    module: Vec<String>,
    text: String,
}

/// The files below `root`, by the modules that they are.
fn sources(root: &Path) -> Vec<File> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let within = path.strip_prefix(root).unwrap().with_extension("");
                let mut module: Vec<String> =
                    within.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                module.pop_if(|last| matches!(last.as_str(), "lib" | "main" | "mod"));
                let text = fs::read_to_string(&path).unwrap();
                files.push(File { shown: path.display().to_string(), module, text });
            }
        }
    }
    files
}

/// A path as it is written, by its parts.
struct Mention {
    parts: Vec<String>,
    line: usize,
    /// The name that it gets, where that is another than the last part.
    alias: Option<String>,
}

/// The paths of a file.
#[derive(Default)]
struct Paths {
    /// Those of `use`, and those in code that begin with `crate`, `super` or `self`.
    mentioned: Vec<Mention>,
    /// Items that are re-exported, by name.
    exported: BTreeMap<String, Vec<String>>,
    /// Modules in files of their own that are for tests.
    tests: Vec<String>,
}

impl Paths {
    fn of(text: &str) -> Self {
        let mut paths = Self::default();
        paths.read(text.parse().unwrap());
        paths
    }

    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        let mut test = false;
        while at < tokens.len() {
            let here = &tokens[at..];
            match &here[0] {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    test |= here.get(1).is_some_and(|group| text(group) == "[cfg(test)]");
                }
                TokenTree::Ident(ident) if ident == "mod" && test => {
                    // An inline one is left out with its braces.
                    if here.get(2).is_some_and(|next| text(next) == ";") {
                        self.tests.push(here[1].to_string());
                    }
                    at += 2;
                    test = false;
                }
                TokenTree::Ident(ident)
                    if ident == "use" && here.get(1).is_some_and(|next| text(next) != "<") =>
                {
                    let end = here.iter().position(|token| text(token) == ";").unwrap_or(here.len());
                    let mut written = Vec::new();
                    tree(&here[1..end], &[], &mut written);
                    if is_public(&tokens[..at]) {
                        let named = |one: Mention| {
                            Some((one.alias.or_else(|| one.parts.last().cloned())?, one.parts))
                        };
                        self.exported.extend(written.into_iter().filter_map(named));
                    } else {
                        self.mentioned.extend(written);
                    }
                    at += end;
                    test = false;
                }
                TokenTree::Ident(ident) if ident == "crate" || ident == "super" || ident == "self" => {
                    let mut parts = vec![ident.to_string()];
                    while let [_, first, second, name @ TokenTree::Ident(_), ..] = &tokens[at..]
                        && text(first) == ":"
                        && text(second) == ":"
                    {
                        parts.push(name.to_string());
                        at += 3;
                    }
                    if parts.len() > 1 {
                        let line = ident.span().start().line;
                        self.mentioned.push(Mention { parts, line, alias: None });
                    }
                }
                TokenTree::Ident(ident) if ident == "pub" => {}
                TokenTree::Group(group) => {
                    self.read(group.stream());
                    // Attributes, and `pub(crate)`.
                    test &= group.delimiter() != Delimiter::Brace;
                }
                _ => test = false,
            }
            at += 1;
        }
    }
}

/// A token without the blanks that it is shown with.
fn text(token: &TokenTree) -> String {
    token.to_string().replace(' ', "")
}

/// Set where what follows these tokens is visible outside of its module.
fn is_public(before: &[TokenTree]) -> bool {
    match before {
        [.., TokenTree::Ident(ident), TokenTree::Group(group)] => {
            ident == "pub" && group.delimiter() == Delimiter::Parenthesis
        }
        [.., TokenTree::Ident(ident)] => ident == "pub",
        _ => false,
    }
}

/// Adds the paths of a tree of `use`, each behind `prefix`.
fn tree(tokens: &[TokenTree], prefix: &[String], paths: &mut Vec<Mention>) {
    for branch in tokens.split(|token| text(token) == ",") {
        let mut parts = prefix.to_vec();
        let mut alias = None;
        for (at, token) in branch.iter().enumerate() {
            match token {
                TokenTree::Ident(ident) if ident == "as" => {
                    alias = branch.get(at + 1).map(text);
                    break;
                }
                TokenTree::Ident(ident) => parts.push(ident.to_string()),
                TokenTree::Group(group) => {
                    let within: Vec<TokenTree> = group.stream().into_iter().collect();
                    tree(&within, &parts, paths);
                    parts.clear();
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => parts.push("*".to_owned()),
                _ => {}
            }
        }
        if let (Some(first), false) = (branch.first(), parts.is_empty()) {
            paths.push(Mention { parts, line: first.span().start().line, alias });
        }
    }
}

/// The arrows of a crate.
#[derive(Default)]
struct Graph {
    /// The modules, and those that each points to, with the places.
    arrows: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl Graph {
    fn of(files: &[File]) -> Self {
        let mut modules: BTreeMap<&[String], Paths> =
            files.iter().map(|file| (&*file.module, Paths::of(&file.text))).collect();
        let within = |(module, paths): (&&[String], &Paths)| {
            let of_tests = |name: &String| [module, std::slice::from_ref(name)].concat();
            paths.tests.iter().map(of_tests).collect::<Vec<_>>()
        };
        let tests: Vec<Vec<String>> = modules.iter().flat_map(within).collect();
        modules.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        let mut graph = Self::default();
        for file in files.iter().filter(|file| modules.contains_key(&*file.module)) {
            let Some(from) = file.module.first() else { continue };
            let arrows = graph.arrows.entry(from.clone()).or_default();
            for mention in &modules[&*file.module].mentioned {
                let to = resolve(&modules, &file.module, &mention.parts, 0);
                if let Some(to) = to.and_then(|to| to.into_iter().next()).filter(|to| to != from) {
                    let place = format!("{}:{}: {}", file.shown, mention.line, mention.parts.join("::"));
                    arrows.entry(to).or_default().push(place);
                }
            }
        }
        graph
    }

    /// The modules that can be reached from one.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            for to in self.arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(&**to) {
                    open.push(to);
                }
            }
        }
        reached
    }

    /// The largest sets of modules that reach each other.
    fn circles(&self) -> BTreeSet<BTreeSet<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.arrows.keys().map(|module| (&**module, self.reached(module))).collect();
        let with = |module: &&str| {
            let back = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(module));
            reached[module].iter().filter(back).copied().collect::<BTreeSet<_>>()
        };
        reached.keys().filter(|module| reached[**module].contains(**module)).map(with).collect()
    }

    /// The arrows within a circle, one a line.
    fn describe(&self, circle: &BTreeSet<&str>) -> String {
        let mut text = format!("  {}\n", circle.iter().copied().collect::<Vec<_>>().join(", "));
        for (from, arrows) in &self.arrows {
            for (to, places) in arrows {
                if circle.contains(&**from) && circle.contains(&**to) {
                    let _ = writeln!(text, "    {from} -> {to}");
                    places.iter().for_each(|place| text.push_str(&format!("      {place}\n")));
                }
            }
        }
        text
    }
}

/// The deepest chain of re-exports that is followed.
const MOST_EXPORTS: usize = 4;

/// The module that has the item of a path that is written in `module`; nothing for what is of another crate.
fn resolve(
    modules: &BTreeMap<&[String], Paths>,
    module: &[String],
    path: &[String],
    followed: usize,
) -> Option<Vec<String>> {
    let (mut at, mut rest) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (module.to_vec(), &path[1..]),
        "super" => (module.to_vec(), path),
        child => {
            let below = [module, &[child.to_owned()]].concat();
            (modules.contains_key(&*below).then_some(below)?, &path[1..])
        }
    };
    while rest.first().is_some_and(|part| part == "super") {
        at.pop();
        rest = &rest[1..];
    }
    while let Some((name, others)) = rest.split_first() {
        at.push(name.clone());
        if !modules.contains_key(&*at) {
            at.pop();
            break;
        }
        rest = others;
    }
    let exported = rest.first().and_then(|name| modules.get(&*at)?.exported.get(name));
    let behind = exported.filter(|_| followed < MOST_EXPORTS);
    behind.and_then(|path| resolve(modules, &at, path, followed + 1)).or(Some(at))
}

/// Crates in which `b` leads to `a`, by what `a` says of `b`.
#[test]
fn an_arrow_is_found_in_every_spelling() {
    let file = |module: &str, text: &str| File {
        shown: format!("{module}.rs"),
        module: module.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
        text: text.to_owned(),
    };
    for (text, is_arrow) in [
        ("use crate::b::Item;", true),
        ("use crate::{c::Other, b::{Item as Named, more}};", true),
        ("use super::b::Item;", true),
        ("use crate::b::*;", true),
        ("fn f() { use crate::b; }", true),
        ("fn f() -> crate::b::Item { todo!() }", true),
        ("fn f() { let _: u8 = crate::b::item(1); }", true),
        ("fn f() { println!(\"{}\", crate::b::item(1)); }", true),
        ("macro_rules! m { () => { $crate::b::item(1) }; }", true),
        ("use crate::Exported;", true),
        ("use crate::c::Twice;", true),
        ("pub use crate::b::Item;", false),
        ("pub(crate) use crate::b::Item;", false),
        ("use crate::c::Other;", false),
        ("use b::Item;", false),
        ("// use crate::b::Item;\nconst TEXT: &str = \"crate::b::Item\";", false),
        ("#[cfg(test)]\nmod tests { use crate::b::Item; }", false),
        ("#[cfg(test)]\nmod tests;", false),
        ("impl Trait { fn f() -> impl Sized + use<'_> { self.crate_ } }", false),
    ] {
        let mut files = vec![
            file("", "pub use b::Item as Exported;\nmod a;\nmod b;\nmod c;"),
            file("a", text),
            // It leads to `a` in any case.
            file("b", "use crate::a;"),
            file("c", "pub use crate::Exported as Twice;"),
        ];
        if text.contains("mod tests;") {
            files.push(file("a/tests", "use crate::b::Item;"));
        }
        let graph = Graph::of(&files);
        let circles = graph.circles();
        let expected = if is_arrow { BTreeSet::from([BTreeSet::from(["a", "b"])]) } else { BTreeSet::new() };
        assert_eq!(circles, expected, "{text}");
        if is_arrow {
            assert!(graph.describe(&circles.into_iter().next().unwrap()).contains("a.rs:1: "), "{text}");
        }
    }
}
