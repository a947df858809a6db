//! Each file in `tests/cases/LANGUAGE` is one configuration; beside it are the result and the report, written anew with
//! `OFFRAMP_BLESS=1`. Further files of a case follow lines such as `#> /etc/nginx/conf.d/a.conf`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use offramp_config::{Environment, parse};
use offramp_import::{Fate, ForeignLanguage, import};

/// The languages with their first file.
const LANGUAGES: &[(ForeignLanguage, &str, usize)] = &[
    (ForeignLanguage::Nginx, "/etc/nginx/nginx.conf", 40),
    (ForeignLanguage::Haproxy, "/etc/haproxy/haproxy.cfg", 25),
    (ForeignLanguage::Hitch, "/etc/hitch/hitch.conf", 10),
];

#[test]
fn each_case_has_its_result_and_its_report() {
    for (language, first, least) in LANGUAGES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(language.word());
        let mut cases: Vec<PathBuf> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        cases.retain(|path| path.extension().is_some_and(|end| end == "in"));
        cases.sort();
        assert!(cases.len() >= *least, "{} cases of {}", cases.len(), language.word());
        let wrong: Vec<String> = cases.iter().filter_map(|case| compare(case, *language, first)).collect();
        assert!(
            wrong.is_empty(),
            "not as expected; look at the difference and write it anew with \
             OFFRAMP_BLESS=1 cargo test -p offramp-import:\n{}",
            wrong.join("\n")
        );
    }
}

/// The files of a case.
fn files(text: &str, first: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut path = PathBuf::from(first);
    let mut lines = String::new();
    for line in text.split_inclusive('\n') {
        if let Some(next) = line.strip_prefix("#> ") {
            files.insert(std::mem::replace(&mut path, PathBuf::from(next.trim())), lines.into_bytes());
            lines = String::new();
        } else {
            lines.push_str(line);
        }
    }
    files.insert(path, lines.into_bytes());
    files
}

/// Compares the outcome of a case with its files; returns what differs.
fn compare(case: &Path, language: ForeignLanguage, first: &str) -> Option<String> {
    let files = files(&std::fs::read_to_string(case).unwrap(), first);
    let (toml, report) = match import(language, &[PathBuf::from(first)], &files) {
        Err(error) => (String::new(), format!("{error}\n")),
        Ok(imported) => {
            let checked = parse(&imported.toml, "offramp.toml", &Environment::default());
            assert!(checked.is_ok(), "{}\n{}", case.display(), checked.unwrap_err());
            for finding in &imported.report.findings {
                if let Fate::NotTaken { why, remedy } = &finding.fate {
                    assert!(!why.is_empty() && !remedy.is_empty(), "{}: {}", case.display(), finding.at);
                }
            }
            (imported.toml, imported.report.text(true))
        }
    };
    let mut wrong = String::new();
    for (end, actual) in [("toml", toml), ("report", report)] {
        let path = case.with_extension(end);
        if std::env::var_os("OFFRAMP_BLESS").is_some_and(|bless| bless == "1") {
            std::fs::write(&path, &actual).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        if expected != actual {
            wrong.push_str(&format!("{}\n--- expected\n{expected}\n--- actual\n{actual}\n", path.display()));
        }
    }
    (!wrong.is_empty()).then_some(wrong)
}

#[test]
fn tables_name_each_directive_once_and_say_what_to_do() {
    for language in ForeignLanguage::ALL {
        let mut names: Vec<&str> = language.known().iter().map(|known| known.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name stands twice in the table of {}", language.word());
        assert_eq!(language.list().lines().count(), count);
    }
}
