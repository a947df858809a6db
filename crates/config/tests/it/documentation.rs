//! `docs/config.md`: its tables come from the table of keys, and its examples are read.

use offramp_config::{Environment, keys, load, parse};

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

#[test]
fn every_example_is_read_without_a_warning() {
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
            Ok((_, warnings)) => assert_eq!(warnings, [], "{example}"),
            Err(errors) => panic!("{example}\n{errors}"),
        }
    }
}
