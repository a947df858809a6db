//! The pages about moving: what they show is what comes out, and they name what the tables have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use offramp_import::{ForeignLanguage, import};

/// The languages with their pages and the name of the file that a page shows.
const PAGES: &[(ForeignLanguage, &str, &str)] = &[
    (ForeignLanguage::Nginx, "docs/how-to/move/nginx.md", "/etc/nginx/nginx.conf"),
    (ForeignLanguage::Haproxy, "docs/how-to/move/haproxy.md", "/etc/haproxy/haproxy.cfg"),
    (ForeignLanguage::Hitch, "docs/how-to/move/hitch.md", "/etc/hitch/hitch.conf"),
];

#[test]
fn pages_show_what_comes_out() {
    for (language, page, file) in PAGES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let text = std::fs::read_to_string(&path).unwrap();
        let before = block(&text, &format!("```{}\n", language.word())).to_owned();
        let files = BTreeMap::from([(PathBuf::from(file), before.into_bytes())]);
        let imported = import(*language, &[PathBuf::from(file)], &files).unwrap();
        let report = imported.report.text(false);
        let mut new = text.clone();
        for (start, actual) in [("```toml\n", &imported.toml), ("```text\n", &report)] {
            new = new.replacen(
                &format!("{start}{}```", block(&text, start)),
                &format!("{start}{actual}```"),
                1,
            );
        }
        if std::env::var_os("OFFRAMP_BLESS").is_some_and(|bless| bless == "1") {
            std::fs::write(&path, &new).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written, new, "{page} is out of date: OFFRAMP_BLESS=1 cargo test -p offramp-import");
    }
}

/// The first block that begins so.
fn block<'t>(text: &'t str, start: &str) -> &'t str {
    text.split_once(start).and_then(|(_, rest)| rest.split_once("```")).map(|(block, _)| block).unwrap()
}
