//! Pauses that authorities ask for (`Retry-After`), and their scope.
//!
//! Most concern the client: the authority is busy, or the account or the address has used up what it may have. Some
//! concern one name or one set of names alone, and must not keep all others from being renewed.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use offramp_certs::acme::schedule;
use offramp_config::model::AcmeAuthority;
use serde_json::Value;

/// A pause that an authority asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) wait: Duration,
    pub(super) scope: Scope,
}

/// The scope of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Every order with this authority.
    Authority,
    /// Orders for these names.
    Names,
}

impl Scope {
    /// The scope of a refusal with this body, of an order for `names`. A limit concerns names if it says so: by
    /// identifiers in its subproblems (RFC 8555 section 6.7.1), or by a text with a name, or with a domain above it, as
    /// Let's Encrypt writes it.
    pub(super) fn of(body: &[u8], names: &[String]) -> Self {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let is_limit = problem["type"].as_str().is_some_and(|kind| kind.ends_with(":rateLimited"));
        let detail = problem["detail"].as_str().unwrap_or_default().to_ascii_lowercase();
        let named = || names.iter().any(|name| domains(name).any(|domain| has_word(&detail, domain)));
        let identified = || problem["subproblems"].as_array().is_some_and(|all| !all.is_empty());
        match is_limit && (identified() || detail.contains("exact set of") || named()) {
            true => Self::Names,
            false => Self::Authority,
        }
    }
}

/// A name without its wildcard, and the domains above it, but for those of one label.
fn domains(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name.strip_prefix("*.").unwrap_or(name)), |name| above(name))
}

fn above<'n>(name: &&'n str) -> Option<&'n str> {
    let (_, above) = name.split_once('.')?;
    above.contains('.').then_some(above)
}

/// True if `word`, a name, stands in `text` by itself, and not as a part of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text.as_bytes()[..at], &text.as_bytes()[at + word.len()..]);
        let longer_before = before.last().is_some_and(|byte| is_of_name(byte) || *byte == b'.');
        let longer_behind = match after {
            [b'.', next, ..] | [next, ..] => is_of_name(next),
            [] => false,
        };
        !longer_before && !longer_behind
    })
}

/// The first attempts after a fault of the network, which follow soon: a machine that boots has routes and name servers a
/// few seconds later. No authority has counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QuickTries {
    done: usize,
    /// The time of the next one.
    next: Option<SystemTime>,
}

impl QuickTries {
    /// Notes that no authority could be reached; the wait until the next attempt, if that is a quick one.
    pub(super) fn note(&mut self, now: SystemTime) -> Option<Duration> {
        let wait = QUICK.get(self.done).copied();
        self.done += usize::from(wait.is_some());
        self.next = wait.map(|wait| now + wait);
        wait
    }

    /// The time of the next attempt, while quick ones are made.
    pub(super) fn next(&self) -> Option<SystemTime> {
        self.next
    }
}

/// Pauses between the first attempts after a fault of the network.
const QUICK: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(15)];

/// Until when authorities want to be left alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Bars {
    until: HashMap<String, SystemTime>,
    /// Of a certificate that is tried again by itself.
    pub(super) quick: Option<QuickTries>,
}

impl Bars {
    /// None yet, with quick attempts after a fault of the network.
    pub(super) fn with_quick_tries() -> Self {
        Self { quick: Some(QuickTries::default()), ..Self::default() }
    }

    /// Notes what an authority asked for last. Without a pause it was asked for nothing.
    pub(super) fn note(&mut self, authority: &AcmeAuthority, now: SystemTime, wait: Option<Duration>) {
        let directory = authority.directory.as_str();
        match wait {
            Some(wait) => self.until.insert(directory.to_owned(), now + wait.min(schedule::LONGEST_WAIT)),
            None => self.until.remove(directory),
        };
    }

    /// Makes the pause of an authority longer, if this one is.
    pub(super) fn extend(&mut self, authority: &AcmeAuthority, now: SystemTime, wait: Duration) {
        if self.left(authority, now).is_none_or(|left| left < wait) {
            self.note(authority, now, Some(wait));
        }
    }

    /// The time for which an authority is to be left alone. One that was noted before the clock was set back says nothing.
    pub(super) fn left(&self, authority: &AcmeAuthority, now: SystemTime) -> Option<Duration> {
        let left = self.until.get(authority.directory.as_str())?.duration_since(now).ok()?;
        Some(left).filter(|left| !left.is_zero() && *left <= schedule::LONGEST_WAIT)
    }
}

/// The pauses that hold for one certificate: its own, and those of all.
pub(super) struct Pauses<'a> {
    pub(super) own: &'a Bars,
    pub(super) shared: Bars,
}

impl Pauses<'_> {
    /// The time for which an authority is to be left alone.
    pub(super) fn left(&self, authority: &AcmeAuthority, now: SystemTime) -> Option<Duration> {
        self.own.left(authority, now).max(self.shared.left(authority, now))
    }

    /// The time for which none of them may be asked; `None`: one may be, whenever it is tried again.
    pub(super) fn shortest(&self, authorities: &[AcmeAuthority], now: SystemTime) -> Option<Duration> {
        let left: Option<Vec<Duration>> =
            authorities.iter().map(|authority| self.left(authority, now)).collect();
        left?.into_iter().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_attempts_follow_a_fault_of_the_network_soon() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let mut quick = QuickTries::default();
        assert_eq!(quick.next(), None);
        for seconds in [2, 5, 15] {
            let wait = Duration::from_secs(seconds);
            assert_eq!((quick.note(now), quick.next()), (Some(wait), Some(now + wait)));
        }
        assert_eq!((quick.note(now), quick.next(), quick.note(now)), (None, None, None));
    }

    fn authorities() -> Vec<AcmeAuthority> {
        ["a", "b"]
            .map(|name| {
                AcmeAuthority::new(name.parse().unwrap(), format!("https://{name}.test/").parse().unwrap())
            })
            .into()
    }

    impl Pauses<'_> {
        /// The authorities that may be asked.
        fn open<'a>(&self, authorities: &'a [AcmeAuthority], now: SystemTime) -> Vec<&'a AcmeAuthority> {
            authorities.iter().filter(|authority| self.left(authority, now).is_none()).collect()
        }
    }

    fn pauses(own: &Bars) -> Pauses<'_> {
        Pauses { own, shared: Bars::default() }
    }

    #[test]
    fn each_authority_is_left_alone_for_as_long_as_it_asks() {
        let (all, now, minute) = (authorities(), SystemTime::now(), Duration::from_secs(60));
        let names = |bars: &Bars, now| -> Vec<String> {
            pauses(bars).open(&all, now).iter().map(|authority| authority.name.to_string()).collect()
        };
        let mut bars = Bars::default();
        bars.note(&all[0], now, Some(minute * 180));
        assert_eq!((names(&bars, now), pauses(&bars).shortest(&all, now)), (vec!["b".to_owned()], None));
        bars.note(&all[1], now, Some(minute));
        assert_eq!((names(&bars, now).len(), pauses(&bars).shortest(&all, now)), (0, Some(minute)));
        assert_eq!(names(&bars, now + minute), ["b"], "the first still wants to be left alone");
        assert_eq!(names(&bars, now + minute * 180), ["a", "b"]);
        // It failed for another reason.
        bars.note(&all[0], now, None);
        assert_eq!(names(&bars, now), ["a"]);
        // What is known of all holds as well.
        let mut shared = Bars::default();
        shared.extend(&all[0], now, minute * 2);
        shared.extend(&all[0], now, minute);
        let both = Pauses { own: &bars, shared };
        assert_eq!((both.open(&all, now).len(), both.shortest(&all, now)), (0, Some(minute)));
        assert_eq!(both.open(&all, now + minute).len(), 1);
        assert_eq!(both.open(&all, now + minute * 2).len(), 2);
    }

    #[test]
    fn a_clock_that_was_set_back_bars_no_authority() {
        let (all, now) = (authorities(), SystemTime::now());
        let mut bars = Bars::default();
        bars.note(&all[0], now, Some(Duration::MAX));
        assert_eq!(pauses(&bars).open(&all, now).len(), 1);
        assert_eq!(pauses(&bars).open(&all, now - Duration::from_secs(365 * 24 * 3600)).len(), 2);
    }

    /// The texts are those of Let's Encrypt.
    #[test]
    fn limits_of_names_concern_these_names_alone() {
        let names = ["www.shop.example.org".to_owned(), "*.other.test".to_owned()];
        let of = |kind: &str, detail: &str| {
            let problem =
                serde_json::json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail });
            Scope::of(problem.to_string().as_bytes(), &names)
        };
        for detail in [
            "too many certificates (50) already issued for \"example.org\" in the last 168h0m0s, retry after 2026-11-24",
            "too many certificates (5) already issued for this exact set of identifiers in the last 168h0m0s",
            "too many failed authorizations (5) for \"www.shop.example.org\" in the last 1h0m0s",
            "too many failed authorizations (5) for OTHER.test. See https://letsencrypt.org/docs/rate-limits/",
        ] {
            assert_eq!(of("rateLimited", detail), Scope::Names, "{detail}");
        }
        for detail in [
            "too many new orders (300) from this account in the last 3h0m0s, retry after 2026-11-24 00:00:00 UTC",
            "too many registrations (10) from this IP address; see https://letsencrypt.org/docs/rate-limits/",
            "too many requests by notexample.org, sub.example.org.invalid and an.example.org",
            "",
        ] {
            assert_eq!(of("rateLimited", detail), Scope::Authority, "{detail}");
        }
        // A server that is busy is so for everybody, whatever it says.
        assert_eq!(of("serverInternal", "cannot serve www.shop.example.org now"), Scope::Authority);
        assert_eq!(Scope::of(b"<html>example.org", &names), Scope::Authority);
        let subproblems =
            br#"{"type": "urn:ietf:params:acme:error:rateLimited", "subproblems": [{"detail": "x"}]}"#;
        assert_eq!(Scope::of(subproblems, &names), Scope::Names);
    }
}
