//! Well-known TLS clients: the ClientHello of each, and which of them a fingerprint looks like.
//!
//! The table `known/hellos.tsv` is written by `scripts/hellos`, which runs the clients. A few old ones that cannot be
//! run any more were made after public descriptions; [`KnownClient::source`] says so.

use std::cmp::Reverse;
use std::sync::LazyLock;

use crate::client_hello::Ja4;

/// A client of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownClient {
    /// Name, as in `OpenSSL 1.0.2`.
    pub name: &'static str,
    /// Other names, in lower case, separated by `|`.
    aliases: &'static str,
    /// The version that was run.
    pub version: &'static str,
    /// Origin of the hello.
    pub source: &'static str,
    /// The JA4 fingerprint of the hello.
    pub ja4: &'static str,
    /// Hexadecimal digits of the records.
    digits: &'static str,
}

/// Likeness of a client to a fingerprint, the best one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// The fingerprints are equal.
    Same,
    /// Suites, extensions and signature schemes are equal; server name or ALPN differ, which depend on the use.
    SameLibrary,
    /// The cipher suites are equal, the rest is of another version or setting.
    SameSuites,
}

const TABLE: &str = include_str!("known/hellos.tsv");

static CLIENTS: LazyLock<Vec<KnownClient>> = LazyLock::new(|| {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(KnownClient::read).collect()
});

/// Every client of the table.
pub fn all() -> impl Iterator<Item = &'static KnownClient> {
    CLIENTS.iter()
}

/// The client of this name or alias, in any case and with any spaces and dashes. A name without a version is that of
/// the newest one.
#[must_use]
pub fn named(name: &str) -> Option<&'static KnownClient> {
    let wanted = plain(name);
    let is_alias = |client: &&KnownClient| client.aliases.split('|').any(|alias| plain(alias) == wanted);
    let exact = all().find(|client| plain(client.name) == wanted);
    exact.or_else(|| all().filter(|_| !wanted.is_empty()).find(is_alias))
}

/// The clients that `ja4` looks like, with the best likeness that any of them has.
#[must_use]
pub fn like(ja4: &Ja4) -> Option<(Likeness, Vec<&'static KnownClient>)> {
    let likeness = |client: &KnownClient| Likeness::of(client.ja4, ja4.as_str());
    let best = all().filter_map(likeness).min()?;
    let mut clients: Vec<_> = all().filter(|client| likeness(client) == Some(best)).collect();
    // Those that were run say more than those that imitate or were made.
    clients.sort_by_key(|client| Reverse(client.was_run()));
    Some((best, clients))
}

impl KnownClient {
    fn read(row: &'static str) -> Option<Self> {
        let mut cells = row.split('\t');
        let mut cell = || cells.next();
        let (name, aliases, version) = (cell()?, cell()?, cell()?);
        Some(Self { name, aliases, version, source: cell()?, ja4: cell()?, digits: cell()? })
    }

    /// The TLS records of its hello, addressed to `localhost`.
    #[must_use]
    pub fn hello(&self) -> Vec<u8> {
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
        let pairs = self.digits.as_bytes().as_chunks::<2>().0;
        pairs.iter().map(|&[high, low]| value(high) << 4 | value(low)).collect()
    }

    /// Set for a hello that the client itself has sent.
    #[must_use]
    pub fn was_run(&self) -> bool {
        self.source == "captured from the program"
    }
}

impl Likeness {
    fn of(known: &str, seen: &str) -> Option<Self> {
        // Protocol, version and name; counts and ALPN; then the hashes of suites and of extensions.
        let parts = |ja4: &str| -> Option<(String, String, String)> {
            let mut parts = ja4.split('_').map(str::to_owned);
            Some((parts.next()?, parts.next()?, parts.next()?))
        };
        let ((_, suites, rest), (_, seen_suites, seen_rest)) = (parts(known)?, parts(seen)?);
        match (known == seen, suites == seen_suites, rest == seen_rest) {
            (true, ..) => Some(Self::Same),
            (false, true, true) => Some(Self::SameLibrary),
            (false, true, false) => Some(Self::SameSuites),
            _ => None,
        }
    }
}

/// Letters, digits and dots of a name, in lower case.
fn plain(name: &str) -> String {
    let kept = name.chars().filter(|letter| letter.is_alphanumeric() || *letter == '.');
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::ParseStep;
    use crate::client_hello;

    /// The script that writes the table computes fingerprints apart from this crate.
    #[test]
    fn each_row_has_its_fingerprint() {
        let (mut names, mut count) = (HashSet::new(), 0);
        for client in all() {
            let hello = client.hello();
            let ParseStep::Done { value, .. } = client_hello::peek(&hello) else { panic!("{client:?}") };
            assert_eq!(value.ja4().as_str(), client.ja4, "{}", client.name);
            assert_eq!(named(client.name), Some(client));
            for name in client.aliases.split('|').chain([client.name]).filter(|name| !name.is_empty()) {
                assert!(names.insert(plain(name)), "{name} is there twice");
                assert_eq!(named(name), Some(client));
            }
            let (likeness, like) = like(&value.ja4()).unwrap();
            assert!(likeness == Likeness::Same && like.contains(&client), "{}", client.name);
            count += 1;
        }
        assert!(count >= 50, "{count}");
        assert_eq!(TABLE.lines().count(), count + 1);
    }

    /// Fingerprints that were published for these clients (the table of FoxIO, who specify JA4).
    #[test]
    fn published_fingerprints_are_known() {
        for (name, ja4) in [
            ("chrome 124", "t13d1516h2_8daaf6152771_02713d6af862"),
            ("safari 17", "t13d2014h2_a09f3c656075_14788d8d241b"),
            ("Windows 10", "t12d190800_d83cc789557e_7af1ed941c26"),
        ] {
            assert_eq!(named(name).unwrap().ja4, ja4, "{name}");
        }
    }

    #[test]
    fn names_are_found_as_people_write_them() {
        for (text, name) in [
            ("openssl 1.0.2", "OpenSSL 1.0.2"),
            ("OpenSSL-1.0.2", "OpenSSL 1.0.2"),
            ("chrome", "Chromium"),
            ("windows xp", "Schannel of Windows XP"),
            ("iOS", "Safari on iOS 26"),
        ] {
            assert_eq!(named(text).map(|client| client.name), Some(name), "{text}");
        }
        assert_eq!(named(""), None);
        assert_eq!(named("netscape"), None);
    }

    #[test]
    fn likeness_falls_with_what_differs() {
        let curl = "t13d3112h2_e8f1e7e78f70_b26ce05bbdd6";
        for (seen, likeness) in [
            (curl, Some(Likeness::Same)),
            ("t13i3111h1_e8f1e7e78f70_b26ce05bbdd6", Some(Likeness::SameLibrary)),
            ("t13d3111h2_e8f1e7e78f70_000000000000", Some(Likeness::SameSuites)),
            ("t13d3112h2_000000000000_b26ce05bbdd6", None),
        ] {
            assert_eq!(Likeness::of(curl, seen), likeness, "{seen}");
        }
    }
}
