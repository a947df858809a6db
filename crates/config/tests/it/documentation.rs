//! The pages about the configuration: the reference comes from the table of keys, examples are read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use offramp_config::{Environment, keys, load, parse};
use toml_edit::{DocumentMut, TableLike, Value};

use crate::blessed::{compare, path, read};

const PAGE: &str = "../../docs/reference/config.md";
const REFERENCE: &str = "../../docs/reference";

#[test]
fn the_reference_is_that_of_the_keys() {
    let pages = keys::markdown::pages();
    for page in &pages {
        compare(&format!("{REFERENCE}/{}", page.path), &page.text);
    }
    for entry in std::fs::read_dir(path(&format!("{REFERENCE}/keys"))).unwrap() {
        let file = format!("keys/{}", entry.unwrap().file_name().to_str().unwrap());
        assert!(pages.iter().any(|page| page.path == file), "no section has the page {file}: remove it");
    }
}

#[test]
fn the_message_of_the_guide_is_the_one_that_is_given() {
    compare(PAGE, &with_message(&read(PAGE)));
}

/// The prose with what is said about its wrong file: the two blocks of text after the heading.
fn with_message(prose: &str) -> String {
    let (before, wrong) = prose.split_once("## When something is wrong").unwrap();
    let mut parts: Vec<&str> = wrong.split("```").collect();
    let file = parts[1].strip_prefix("text\n").unwrap();
    let errors = parse(file, "offramp.toml", &Environment::default()).unwrap_err();
    let message = format!("text\n{errors}\n");
    parts[3] = &message;
    format!("{before}## When something is wrong{}", parts.join("```"))
}

/// The keys of which every use has a warning, so that an example has it too.
const WARNED_OF: [(&str, &str); 1] =
    [("unsafe_no_verification = true", "the certificates of these servers are not verified")];

#[test]
fn examples_are_read_and_have_no_warning_but_of_danger() {
    let beside = ["configurations", "less-common-keys", "editor", "servers-tls", "static-files", "answers"];
    let page = read(PAGE) + &beside.map(|name| read(&format!("../../docs/how-to/{name}.md"))).concat();
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 8, "{}", examples.len());
    // The folder has the file that one of them includes.
    let folder = tempfile::tempdir().unwrap();
    let included =
        page.split_once("`sites.d/git.toml`:\n\n```toml\n").unwrap().1.split("```").next().unwrap();
    std::fs::create_dir(folder.path().join("sites.d")).unwrap();
    std::fs::write(folder.path().join("sites.d/git.toml"), included).unwrap();
    let file = folder.path().join("example.toml");
    for example in examples {
        std::fs::write(&file, example).unwrap();
        match load(&file, &Environment::default()) {
            Ok((_, warnings)) => {
                let expected: Vec<_> = WARNED_OF.iter().filter(|(key, _)| example.contains(key)).collect();
                assert_eq!(warnings.len(), expected.len(), "{example}\n{warnings:?}");
                for (warning, (_, message)) in warnings.iter().zip(expected) {
                    assert!(warning.to_string().contains(message), "{example}\n{warning}");
                }
            }
            Err(errors) => panic!("{example}\n{errors}"),
        }
    }
}

/// Pages about other things than the configuration may show a part that has warnings, and none that has a mistake.
#[test]
fn every_configuration_of_the_book_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sites.d")).unwrap();
    std::fs::write(folder.path().join("sites.d/none.toml"), "").unwrap();
    let file = folder.path().join("offramp.toml");
    let (mut count, mut mistakes) = (0, Vec::new());
    for page in files(Path::new(DOCS)).iter().filter(|path| path.extension().is_some_and(|kind| kind == "md"))
    {
        let text = std::fs::read_to_string(page).unwrap();
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            std::fs::write(&file, block).unwrap();
            count += 1;
            if let Err(errors) = load(&file, &Environment::default()) {
                mistakes.push(format!("{}\n{block}\n{errors}", page.display()));
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(count > 80, "{count}");
}

/// The folder of the book.
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The files in `folder` and below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The configurations in the pages of `docs/` and in `examples/`.
pub(crate) fn configurations() -> Vec<DocumentMut> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for page in
        files(&root.join("docs")).iter().filter(|path| path.extension().is_some_and(|kind| kind == "md"))
    {
        let text = std::fs::read_to_string(page).unwrap();
        let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        // Some are parts of a file.
        found.extend(blocks.filter_map(|block| block.parse().ok()));
    }
    for example in files(&root.join("examples")).iter().filter(|path| path.ends_with("offramp.toml")) {
        found.push(std::fs::read_to_string(example).unwrap().parse().unwrap());
    }
    found
}

/// Notes the path of every key in `table`, which is the section `path`.
fn note(table: &dyn TableLike, path: &str, noted: &mut BTreeSet<&'static str>) {
    for (name, item) in table.iter() {
        let Some(key) = keys::find_in(path, name) else { continue };
        noted.insert(key.path);
        let named = matches!(key.kind, keys::Kind::Named);
        let inner = if named { format!("{}.*", key.path) } else { key.path.to_owned() };
        let mut tables: Vec<&dyn TableLike> = Vec::new();
        match item.as_table_like() {
            Some(table) if named => tables.extend(table.iter().filter_map(|(_, item)| item.as_table_like())),
            table => tables.extend(table),
        }
        let sections = item.as_array_of_tables().into_iter().flatten();
        tables.extend(sections.map(|table| -> &dyn TableLike { table }));
        let inline = item.as_array().into_iter().flatten().filter_map(Value::as_inline_table);
        tables.extend(inline.map(|table| -> &dyn TableLike { table }));
        tables.into_iter().for_each(|table| note(table, &inner, noted));
    }
}

#[test]
fn every_key_has_an_example() {
    let mut noted = BTreeSet::new();
    let configurations = configurations();
    assert!(configurations.len() >= 50, "{}", configurations.len());
    configurations.iter().for_each(|one| note(one.as_table(), "", &mut noted));
    let missing: Vec<_> = keys::TABLE
        .iter()
        .filter(|key| key.support.is_now() && !noted.contains(key.path))
        .map(|key| key.path)
        .collect();
    assert!(missing.is_empty(), "no example in docs/ or examples/ has these keys: {missing:#?}");
}
