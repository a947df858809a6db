//! Conditions between the keys of one section, as far as the section alone decides.
//!
//! `check` holds these and more, with a message for each. The schema takes them from here.

use crate::settings::NEEDS;

/// A condition between keys of one section.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyRule {
    /// At least one of these is written.
    Some(&'static [&'static str]),
    /// The key stands beside none of these.
    Without(&'static str, &'static [&'static str]),
    /// The key stands beside one of these.
    Beside(&'static str, &'static [&'static str]),
    /// The key has an effect only where another has this word.
    Where(&'static str, &'static str, &'static str),
    /// The key stands beside another only if that is `false`.
    BesideFalse(&'static str, &'static str),
}

/// The rules of a section, with its path in the table of keys.
const RULES: &[(&str, KeyRule)] = &[
    ("certificate", KeyRule::Some(&["cert", "directory", "acme", "local"])),
    (
        "certificate",
        KeyRule::Without(
            "directory",
            &["cert", "key", "ocsp", "local", "names", "acme", "key_type", "reuse_key", "on_demand"],
        ),
    ),
    ("certificate", KeyRule::Without("acme", &["local", "cert", "key"])),
    ("certificate", KeyRule::BesideFalse("cert", "local")),
    ("certificate", KeyRule::Beside("key", &["cert"])),
    ("certificate", KeyRule::Beside("ocsp", &["cert"])),
    ("certificate", KeyRule::Beside("names", &["acme", "local"])),
    ("certificate", KeyRule::Beside("key_type", &["acme"])),
    ("certificate", KeyRule::Beside("reuse_key", &["acme"])),
    ("certificate", KeyRule::Beside("on_demand", &["acme"])),
    ("certificate.on_demand", KeyRule::Some(&["names", "ask"])),
    ("acme.*", KeyRule::Without("dns_hook", &["dns_update"])),
    ("notify", KeyRule::Some(&["url", "url_file", "mail", "program"])),
    ("notify", KeyRule::Without("mail", &["url", "url_file", "format", "body", "token_file"])),
    (
        "notify",
        KeyRule::Without("program", &["mail", "url", "url_file", "format", "body", "token_file", "ca"]),
    ),
    ("notify.mail", KeyRule::Beside("user", &["password_file"])),
    ("notify.mail", KeyRule::Beside("password_file", &["user"])),
    ("notify", KeyRule::Without("url", &["url_file"])),
    ("notify", KeyRule::Without("body", &["format"])),
    ("listener", KeyRule::Where("trusted_proxies", "mode", "http")),
    ("listener", KeyRule::Where("via", "mode", "http")),
    ("listener", KeyRule::Beside("cancel", &["preamble"])),
    ("route.respond", KeyRule::Without("body", &["file"])),
    ("route.client_auth", KeyRule::Some(&["ca", "trust_domains"])),
    ("route.client_auth", KeyRule::Without("ca", &["trust_domains"])),
    ("route.forward_auth", KeyRule::Some(&["backend", "server"])),
    ("route.forward_auth", KeyRule::Without("backend", &["server"])),
    ("backend.*.health", KeyRule::Beside("host", &["path"])),
    ("backend.*.health", KeyRule::Beside("status", &["path"])),
    ("backend.*.tls", KeyRule::Without("pin", &["verify", "name", "crl"])),
    ("backend.*.tls", KeyRule::Beside("key", &["cert"])),
];

/// The rules of a section.
pub(crate) fn of(section: &str) -> impl Iterator<Item = KeyRule> {
    let rules = RULES.iter().filter(move |(of, _)| *of == section).map(|(_, rule)| *rule);
    let needs = NEEDS.iter().filter_map(|need| {
        let (of, key) = need.path.rsplit_once('.')?;
        Some((of, required(key, need.with)?))
    });
    rules.chain(needs.filter(move |(of, _)| *of == section).map(|(_, rule)| rule))
}

/// The rule of a key that needs this: a key, or a key with a word. Other needs are left to `check`.
fn required(key: &'static str, with: &'static str) -> Option<KeyRule> {
    let with = with.trim_matches('`');
    if let Some((other, word)) = with.split_once(" = ") {
        return Some(KeyRule::Where(key, other, word.trim_matches('"')));
    }
    const KEYS: [&[&str]; 6] =
        [&["url"], &["otlp"], &["graphite"], &["rotate_size"], &["token_file"], &["certificate"]];
    KEYS.into_iter().find(|keys| keys[0] == with).map(|keys| KeyRule::Beside(key, keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    #[test]
    fn rules_are_about_keys_of_their_section() {
        for (section, rule) in RULES {
            let keys: Vec<&str> = match rule {
                KeyRule::Some(keys) => keys.to_vec(),
                KeyRule::Without(key, others) | KeyRule::Beside(key, others) => {
                    others.iter().chain([key]).copied().collect()
                }
                KeyRule::Where(key, other, _) | KeyRule::BesideFalse(key, other) => vec![*key, *other],
            };
            for key in keys {
                assert!(keys::find_in(section, key).is_some(), "{key} in {section}");
            }
        }
    }

    #[test]
    fn needs_of_one_key_or_word_are_rules() {
        let without: Vec<&str> =
            NEEDS.iter().filter(|need| required("", need.with).is_none()).map(|need| need.path).collect();
        // These need one of two, or a value of some kind.
        let expected = [
            "access_log.rotate_size",
            "admin.token_file",
            "admin.users",
            "admin.hosts",
            "admin.certificate",
            "metrics.top_clients",
        ];
        assert_eq!(without, expected);
    }
}
