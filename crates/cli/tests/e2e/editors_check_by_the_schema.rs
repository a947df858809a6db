//! `offramp schema`: the engine of editors takes what `check` accepts, and shows mistakes in words.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use offramp_testkit::process::temp_dir;
use serde_json::Value;

use crate::support::offramp::{output, stderr, stdout};
use crate::support::venv;

fn schema(home: &Path) -> String {
    let printed = output(home, &["schema"]);
    assert_eq!((printed.status.code(), stderr(&printed).as_str()), (Some(0), ""));
    stdout(&printed)
}

/// Checks files as Even Better TOML does, by the schema that each names or by this one.
fn taplo(home: &Path, arguments: &[&str]) -> Output {
    let program = venv::python("taplo", "0.9.3").with_file_name("taplo");
    let mut command = Command::new(program);
    command.current_dir(home).arg("check").args(arguments).env("RUST_LOG", "warn");
    command.output().unwrap()
}

#[test]
fn the_schema_is_json_of_draft_7() {
    let home = temp_dir();
    let schema: Value = serde_json::from_str(&schema(home.path())).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    let version = env!("CARGO_PKG_VERSION");
    assert!(schema["title"].as_str().unwrap().contains(version), "{}", schema["title"]);
    assert_eq!(schema["additionalProperties"], false);
    let timeout = &schema["properties"]["limits"]["properties"]["idle_timeout"];
    assert_eq!(timeout["default"], "5m");
}

/// The paths of the files in `folder` and below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The configurations of the pages and of the examples.
fn configurations(home: &Path) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    for page in files(&root.join("docs")) {
        let page = fs::read_to_string(page).unwrap_or_default();
        let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        texts.extend(blocks.map(str::to_owned));
    }
    for entry in fs::read_dir(root.join("examples")).unwrap() {
        texts.extend(fs::read_to_string(entry.unwrap().path().join("offramp.toml")));
    }
    let written = texts.iter().enumerate().map(|(at, text)| {
        let path = home.join(format!("{at}.toml"));
        fs::write(&path, text).unwrap();
        path
    });
    written.collect()
}

#[test]
fn what_the_pages_show_has_no_mistake_in_an_editor() {
    let home = temp_dir();
    fs::write(home.path().join("offramp.schema.json"), schema(home.path())).unwrap();
    let schema = format!("file://{}/offramp.schema.json", home.path().display());
    let files: Vec<String> =
        configurations(home.path()).iter().map(|path| path.display().to_string()).collect();
    assert!(files.len() > 60, "{}", files.len());
    let mut arguments = vec!["--schema", &schema];
    arguments.extend(files.iter().map(String::as_str));
    let checked = taplo(home.path(), &arguments);
    assert!(checked.status.success(), "{}", stderr(&checked));
}

#[test]
fn an_editor_tells_what_is_expected() {
    let home = temp_dir();
    fs::write(home.path().join("offramp.schema.json"), schema(home.path())).unwrap();
    for (text, said) in [
        ("[limits]\nmemory = \"5MB\"", "\"5MB\" is not one of [{\"expected\":\"size, 1MiB to 1024GiB\"}]"),
        ("[limits]\nidle_timeout = \"31d\"", "{\"expected\":\"duration, 1ms to 30d\"}"),
        ("[limits]\nconnections = 0", "0 is less than the minimum of 1"),
        ("[limits]\nidle_timout = \"5m\"", "'idle_timout' was unexpected"),
        ("[log]\nlevel = \"verbose\"", "\"verbose\" is not one of [\"error\",\"warn\",\"info\",\"debug\"]"),
        ("[[listener]]\naddress = \":443\"", "\":443\" is not one of [{\"expected\":\"[::]:443, "),
        ("[[route]]\nserver = \"localhost\"", "{\"expected\":\"unix:/path, host:port\"}"),
        ("[backend.a]\nbalance = \"least_conn\"", "\"servers\" is a required property"),
    ] {
        // The schema that the first line names.
        let file = home.path().join("wrong.toml");
        fs::write(&file, format!("#:schema ./offramp.schema.json\n{text}\n")).unwrap();
        let checked = taplo(home.path(), &["wrong.toml"]);
        assert!(!checked.status.success(), "{text}");
        let errors = stderr(&checked);
        assert!(errors.contains(said), "{text}: {errors}");
    }
}
