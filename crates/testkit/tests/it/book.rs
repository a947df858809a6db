//! The pages of the book in `docs/`, and of what stands beside them: links, anchors, contents and length.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The longest page that a reader sees through.
const LINES: usize = 400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The Markdown files in `folder` and below it.
fn markdown_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let pages = entries.flat_map(|path| if path.is_dir() { markdown_below(&path) } else { vec![path] });
    pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The pages of the book.
fn book() -> Vec<PathBuf> {
    let docs = root().join("docs");
    markdown_below(&docs).into_iter().filter(|page| *page != docs.join("SUMMARY.md")).collect()
}

/// The pages of the book and those that the repository has beside it.
fn pages() -> Vec<PathBuf> {
    let beside =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "docs/SUMMARY.md"];
    let beside = beside.map(|name| root().join(name));
    [book(), beside.to_vec(), markdown_below(&root().join("examples"))].concat()
}

/// The lines of a page that are not within blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !is_fence && !in_code
    })
}

/// The headings of a page with their levels.
fn headings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).filter_map(|line| {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        (level > 0).then(|| title.strip_prefix(' ').map(|title| (level, title.trim()))).flatten()
    })
}

/// The anchors of a page's headings, as GitHub and mdBook make them: lower case, with letters, digits, `-` and `_`, and `-`
/// for blanks. A heading that comes again has a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, title) in headings(text) {
        let kept: String = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect();
        let anchor = kept.to_lowercase().replace(' ', "-");
        let before = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
        *before += 1;
    }
    anchors
}

/// The targets of the links in a page's prose.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(text) {
        // Odd parts are code within the line.
        let outside: String = line.split('`').step_by(2).collect();
        let targets = outside.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        links.extend(targets.map(str::to_owned));
    }
    links
}

/// The error of a link on `page`, if it leads nowhere.
fn broken(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { page.to_owned() } else { page.parent().unwrap().join(path) };
    let reason = if !target.exists() {
        "no such file"
    } else if target.is_dir() {
        "a folder, which the book has no page for"
    } else if !anchor.is_empty() && !anchors(&fs::read_to_string(&target).unwrap()).contains(anchor) {
        "no such heading"
    } else {
        return None;
    };
    Some(format!("{} links to {link}: {reason}", page.display()))
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let mut count = 0;
    let mut errors = Vec::new();
    for page in pages() {
        let links = links(&fs::read_to_string(&page).unwrap());
        count += links.len();
        errors.extend(links.iter().filter_map(|link| broken(&page, link)));
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert!(count > 500, "{count} links");
}

#[test]
fn links_anchors_and_headings_are_found() {
    let text = "# A `b.c` of [[d]]\n\n`[x](code.md)` [`y`](z.md#w) [t](u.md)\n\n```sh\n# no heading [a](b)\n```\n\n## E\n\n## E\n";
    assert_eq!(links(text), ["z.md#w", "u.md"]);
    assert_eq!(anchors(text), ["a-bc-of-d", "e", "e-1"].map(str::to_owned).into());
    let page = root().join("docs/SUMMARY.md");
    for bad in ["nowhere.md", "architecture.md#nowhere", "../examples", "#nowhere"] {
        assert!(broken(&page, bad).is_some(), "{bad}");
    }
    for good in ["architecture.md#terms", "../README.md", "#summary", "https://example.org/x"] {
        assert_eq!(broken(&page, good), None);
    }
}

#[test]
fn the_contents_have_every_page_once() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: Vec<PathBuf> =
        links(&summary).iter().map(|link| docs.join(link).canonicalize().unwrap()).collect();
    let unique: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "docs/SUMMARY.md lists a page twice");
    let missing: Vec<_> = book().into_iter().filter(|page| !unique.contains(page)).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not list {missing:#?}");
    for line in summary.lines().filter(|line| !line.is_empty()) {
        let entry = line.trim_start().trim_start_matches("- ");
        let good = line.starts_with("# ") || entry.starts_with('[') && entry.ends_with(')');
        assert!(good, "mdBook does not know the line: {line}");
    }
}

#[test]
fn pages_of_the_book_link_to_pages_of_the_book() {
    let docs = root().join("docs");
    let summary = docs.join("SUMMARY.md");
    let targets = |page: &Path| -> BTreeSet<PathBuf> {
        let links = links(&fs::read_to_string(page).unwrap());
        let paths =
            links.iter().map(|link| link.split('#').next().unwrap()).filter(|path| path.ends_with(".md"));
        let paths = paths.filter(|path| !path.contains("://"));
        paths.map(|path| page.parent().unwrap().join(path).canonicalize().unwrap()).collect()
    };
    let listed = targets(&summary);
    // The first page of the repository is the first page of the book there.
    let known =
        |page: &PathBuf| listed.contains(page) || *page == summary || *page == root().join("README.md");
    for page in &listed {
        let outside: Vec<_> = targets(page).into_iter().filter(|target| !known(target)).collect();
        assert!(
            outside.is_empty(),
            "{} links to what docs/SUMMARY.md does not list: {outside:#?}",
            page.display()
        );
    }
}

#[test]
fn every_page_has_one_title_and_is_not_long() {
    for page in book() {
        let text = fs::read_to_string(&page).unwrap();
        let titles = headings(&text).filter(|(level, _)| *level == 1).count();
        assert!(text.starts_with("# ") && titles == 1, "{} has {titles} titles", page.display());
        let lines = text.lines().count();
        assert!(lines <= LINES, "{} has {lines} lines: split it", page.display());
    }
}

/// The files of the repository that may name pages.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let built = ["target", ".git", "corpus", "dist", "node_modules", "__pycache__"];
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| !built.iter().any(|name| entry.file_name() == *name));
    let entries = entries.map(|entry| entry.path()).filter(|path| !path.is_symlink());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// The pages below `docs/` that a text names.
fn named(text: &str) -> impl Iterator<Item = String> {
    text.split("docs/").skip(1).filter_map(|rest| {
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-_./".contains(c)).unwrap_or(rest.len());
        rest[..end].split_once(".md").map(|(name, _)| format!("docs/{name}.md"))
    })
}

#[test]
fn no_file_names_a_page_that_is_gone() {
    let (mut count, mut gone) = (0, Vec::new());
    for file in files_below(&root()) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for page in named(&text) {
            count += 1;
            if !root().join(&page).exists() {
                gone.push(format!("{} names {page}", file.display()));
            }
        }
    }
    assert!(gone.is_empty(), "{}", gone.join("\n"));
    assert!(count > 50, "{count} names");
}
