//! Configurations of other proxies: any text is answered, with a configuration that passes the check and a fate for each
//! directive, or with an error that can be shown.
#![no_main]

use std::collections::BTreeMap;
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use offramp_config::{Environment, parse};
use offramp_import::{ForeignLanguage, import};

fuzz_target!(|data: &[u8]| {
    let path = PathBuf::from("/etc/main.conf");
    let files = BTreeMap::from([(path.clone(), data.to_vec())]);
    for language in ForeignLanguage::ALL {
        match import(*language, std::slice::from_ref(&path), &files) {
            Ok(imported) => {
                let checked = parse(&imported.toml, "offramp.toml", &Environment::default());
                assert!(checked.is_ok(), "{}", checked.unwrap_err());
                let report = imported.report.text(true);
                assert!(report.lines().all(|line| !line.contains(char::is_control)), "{report:?}");
            }
            Err(error) => assert!(!error.message.is_empty() && !error.help.is_empty()),
        }
    }
});
