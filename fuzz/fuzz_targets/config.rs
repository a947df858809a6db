//! The configuration: any text is answered, with a configuration that prints and reads back the same or with
//! errors that can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_config::{Config, ConfigDiff, Environment, parse, print};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let environment = Environment::default();
    match parse(text, "fuzz.toml", &environment) {
        Ok((config, warnings)) => {
            for warning in warnings {
                assert!(!warning.to_string().is_empty());
            }
            let printed = print(&config);
            let (again, _) = parse(&printed, "fuzz.toml", &environment).expect("what is printed reads back");
            assert_eq!(again, config);
            // There is a difference exactly where the two are not equal.
            let default = Config::default();
            assert_eq!(ConfigDiff::between(&default, &config).is_empty(), default == config);
        }
        Err(errors) => {
            assert!(errors.count() > 0);
            assert!(!errors.to_string().contains('\u{1b}'));
        }
    }
});
