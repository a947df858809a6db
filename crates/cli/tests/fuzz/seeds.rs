//! Seeds and targets belong together: `make fuzz` finds every target, each has committed seeds, and each is compiled here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The programs of the manifest, as `cargo fuzz list` prints them for scripts/fuzz, with their files.
fn listed() -> Vec<(String, String)> {
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let value = |table: &str, key: &str| {
        let line = table.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix("= "));
        line.unwrap_or_else(|| panic!("no {key} in [[bin]]{table}")).trim_matches('"').to_owned()
    };
    manifest.split("[[bin]]").skip(1).map(|table| (value(table, "name"), value(table, "path"))).collect()
}

/// Runs a target on each of its committed seeds.
pub(crate) fn run_all(target: &str, run: fn(&[u8])) {
    let folder = fuzz().join("corpus").join(target);
    for name in names(&folder) {
        println!("{target}: {name}");
        run(&fs::read(folder.join(name)).unwrap());
    }
}

#[test]
fn every_target_is_compiled_with_the_workspace() {
    let compiled: BTreeSet<String> = crate::TARGETS.iter().map(|&name| name.to_owned()).collect();
    let listed: BTreeSet<String> = listed().into_iter().map(|(name, _)| name).collect();
    assert_eq!(compiled, listed, "crates/cli/tests/fuzz/main.rs beside fuzz/Cargo.toml");
}

#[test]
fn every_target_is_listed() {
    let sources = names(&fuzz().join("fuzz_targets"));
    let sources: BTreeSet<String> = sources
        .into_iter()
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "rs"))
        .collect();
    assert!(sources.len() >= 14, "{sources:?}");
    let listed: BTreeSet<String> = listed()
        .into_iter()
        .map(|(name, path)| {
            assert_eq!(path, format!("fuzz_targets/{name}.rs"));
            format!("{name}.rs")
        })
        .collect();
    assert_eq!(listed, sources, "fuzz/Cargo.toml beside fuzz/fuzz_targets");
}

#[test]
fn every_target_has_seeds_and_no_seeds_are_left_over() {
    let corpus = fuzz().join("corpus");
    let targets: BTreeSet<String> = listed().into_iter().map(|(name, _)| name).collect();
    for target in &targets {
        // The fuzzer names what it finds by 40 hexadecimal digits; such files are not committed.
        let seeds = fs::read_dir(corpus.join(target))
            .into_iter()
            .flatten()
            .map(Result::unwrap)
            .filter(|seed| seed.file_name().len() != 40 && seed.metadata().unwrap().len() > 0);
        assert!(
            seeds.count() >= 3,
            "fuzz/corpus/{target} needs seeds: one of each kind that the target tells apart"
        );
    }
    assert_eq!(names(&corpus), targets, "fuzz/corpus beside fuzz/Cargo.toml");
}
