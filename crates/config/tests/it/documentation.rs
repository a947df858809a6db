//! `docs/config.md`: its tables come from the table of keys, and its examples are read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use offramp_config::{Environment, keys, load, parse};
use toml_edit::{DocumentMut, TableLike, Value};

use crate::blessed::{compare, read};

const PAGE: &str = "../../docs/config.md";
const BEGIN: &str =
    "<!-- The tables below are written by `OFFRAMP_BLESS=1 cargo test -p offramp-config`. -->\n";

#[test]
fn the_tables_are_those_of_the_keys_and_the_message_is_the_one_that_is_given() {
    let page = read(PAGE);
    let (prose, _) = page.split_once(BEGIN).expect("the page has the mark before its tables");
    compare(PAGE, &format!("{}{BEGIN}\n{}", with_message(prose), keys::markdown::tables()));
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
    let pages = [PAGE, "../../docs/servers-tls.md", "../../docs/static-files.md", "../../docs/answers.md"];
    let page = pages.map(read).concat();
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

/// The configurations in the pages of `docs/` and in `examples/`.
fn configurations() -> Vec<DocumentMut> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = |folder: &str| -> Vec<PathBuf> {
        std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut found = Vec::new();
    for page in files("docs").iter().filter(|path| path.extension().is_some_and(|kind| kind == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        // Some are parts of a file.
        found.extend(blocks.filter_map(|block| block.parse().ok()));
    }
    for example in files("examples") {
        if let Ok(text) = std::fs::read_to_string(example.join("offramp.toml")) {
            found.push(text.parse().unwrap());
        }
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
