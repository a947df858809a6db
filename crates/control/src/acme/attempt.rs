//! One attempt to obtain a certificate: the authorities are asked in turn, and what came of it is noted.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use offramp_certs::acme::schedule::{self, Occasion};
use offramp_config::model::Authority;
use offramp_observe::timestamp::{Precision, write_rfc3339};

use super::Want;
use super::order::{Failure, order};
use super::shop::Shop;

/// What came of an order: until when the certificate is valid, or why there is none.
pub(super) type Outcome = Result<String, String>;

/// What clients get while a certificate is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meanwhile {
    /// The one before.
    Old,
    /// One that is no better than none.
    LocalCa,
    /// They wait a while.
    Waits,
    /// There are none.
    Nobody,
}

impl Meanwhile {
    fn text(self) -> &'static str {
        match self {
            Meanwhile::Old => "the old certificate",
            Meanwhile::LocalCa => "a certificate of the local CA",
            Meanwhile::Nobody => "nothing: none is served",
            Meanwhile::Waits => "a wait, and then what a name without a certificate gets",
        }
    }
}

/// Asks the authorities in turn; until when the certificate is valid, or why there is none.
pub(super) async fn attempt(want: &Want, shop: &Shop, meanwhile: Meanwhile, bars: &mut Bars) -> Outcome {
    let names = want.names();
    let mut reasons = Vec::new();
    for authority in bars.open(&want.authorities, SystemTime::now()) {
        let name = authority.name.as_str();
        let now = SystemTime::now();
        let at = shop.barred(authority, &want.subject, now);
        if at > now {
            let reason = format!("a name has failed so often that {name} is not asked before {}", date(at));
            let fields = [("names", (&names).into()), ("reason", (&reason).into())];
            shop.log.warn("an authority is left out", &fields);
            reasons.push(reason);
            continue;
        }
        begun(want, authority, shop, meanwhile);
        let outcome = order(want, authority, shop).await;
        shop.note(outcome.is_ok());
        match outcome {
            Ok(certificate) => {
                shop.forget_failures(&want.subject);
                let until = date(certificate.not_after);
                let fields =
                    [("names", (&names).into()), ("authority", name.into()), ("not_after", (&until).into())];
                shop.log.info("a certificate was obtained", &fields);
                return Ok(until);
            }
            Err(Failure { reason, retry_after: wait }) => {
                bars.note(authority, SystemTime::now(), wait);
                let fields =
                    [("names", (&names).into()), ("authority", name.into()), ("reason", (&reason).into())];
                shop.log.error("no certificate was obtained", &fields);
                reasons.push(format!("{name}: {reason}"));
            }
        }
    }
    failed(want, shop, bars.shortest(&want.authorities, SystemTime::now()));
    if reasons.is_empty() {
        reasons.push("every authority wants to be left alone".into());
    }
    Err(reasons.join("; "))
}

/// Until when authorities want to be left alone.
#[derive(Default)]
pub(super) struct Bars(HashMap<String, SystemTime>);

impl Bars {
    fn note(&mut self, authority: &Authority, now: SystemTime, wait: Option<Duration>) {
        let directory = authority.directory.as_str();
        match wait {
            Some(wait) => self.0.insert(directory.to_owned(), now + wait.min(schedule::LONGEST_WAIT)),
            None => self.0.remove(directory),
        };
    }

    /// How long an authority is to be left alone. One that was noted before the clock was set back says nothing.
    fn left(&self, authority: &Authority, now: SystemTime) -> Option<Duration> {
        let left = self.0.get(authority.directory.as_str())?.duration_since(now).ok()?;
        Some(left).filter(|left| !left.is_zero() && *left <= schedule::LONGEST_WAIT)
    }

    /// The authorities that may be asked, in their order.
    fn open<'a>(&self, authorities: &'a [Authority], now: SystemTime) -> Vec<&'a Authority> {
        authorities.iter().filter(|authority| self.left(authority, now).is_none()).collect()
    }

    /// How long none of them may be asked; `None`: one may be, whenever it is tried again.
    fn shortest(&self, authorities: &[Authority], now: SystemTime) -> Option<Duration> {
        let left: Option<Vec<Duration>> =
            authorities.iter().map(|authority| self.left(authority, now)).collect();
        left?.into_iter().min()
    }
}

/// Says that a certificate is being ordered, and what clients get meanwhile.
fn begun(want: &Want, authority: &Authority, shop: &Shop, meanwhile: Meanwhile) {
    let names = want.names();
    let fields = [
        ("names", (&names).into()),
        ("authority", authority.name.as_str().into()),
        ("challenge", authority.challenge.word().into()),
        ("clients_get", meanwhile.text().into()),
    ];
    shop.log.info("ordering a certificate", &fields);
}
/// Notes a failure, and says when the next attempt is: the more urgently, the less the old certificate has left.
fn failed(want: &Want, shop: &Shop, retry_after: Option<Duration>) {
    let now = SystemTime::now();
    let mut failures = shop.failures(&want.subject);
    failures.note(now, retry_after);
    shop.keep_failures(&want.subject, &failures);
    let next = failures.earliest(now, Occasion::Due, 0).duration_since(now).unwrap_or_default();
    let names = want.names();
    let mut fields = vec![
        ("names", (&names).into()),
        ("failures", failures.count.into()),
        ("seconds", next.as_secs().into()),
    ];
    let Some(old) = shop.storage.certificate(&want.subject, now) else {
        shop.log.warn("the next attempt comes later, or with a reload", &fields);
        return;
    };
    let until = date(old.not_after);
    fields.push(("not_after", (&until).into()));
    match old.not_after {
        end if end <= now => {
            shop.log.error("the old certificate has expired, and there is no new one", &fields);
        }
        _ if old.soon_at() <= now => {
            shop.log.error("the old certificate expires soon, and there is no new one", &fields);
        }
        _ => shop.log.warn("the next attempt comes later, or with a reload", &fields),
    }
}

/// A time as in logs.
pub(super) fn date(time: SystemTime) -> String {
    let mut text = Vec::with_capacity(20);
    write_rfc3339(&mut text, time, Precision::Seconds);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorities() -> Vec<Authority> {
        ["a", "b"]
            .map(|name| {
                Authority::new(name.parse().unwrap(), format!("https://{name}.test/").parse().unwrap())
            })
            .into()
    }

    #[test]
    fn each_authority_is_left_alone_for_as_long_as_it_asks() {
        let (all, now, minute) = (authorities(), SystemTime::now(), Duration::from_secs(60));
        let names = |bars: &Bars, now| -> Vec<String> {
            bars.open(&all, now).iter().map(|authority| authority.name.to_string()).collect()
        };
        let mut bars = Bars::default();
        bars.note(&all[0], now, Some(minute * 180));
        assert_eq!((names(&bars, now), bars.shortest(&all, now)), (vec!["b".to_owned()], None));
        bars.note(&all[1], now, Some(minute));
        assert_eq!((names(&bars, now).len(), bars.shortest(&all, now)), (0, Some(minute)));
        assert_eq!(names(&bars, now + minute), ["b"], "the first still wants to be left alone");
        assert_eq!(names(&bars, now + minute * 180), ["a", "b"]);
        // It failed for another reason.
        bars.note(&all[0], now, None);
        assert_eq!(names(&bars, now), ["a"]);
    }

    #[test]
    fn a_clock_that_was_set_back_bars_no_authority() {
        let (all, now) = (authorities(), SystemTime::now());
        let mut bars = Bars::default();
        bars.note(&all[0], now, Some(Duration::MAX));
        assert_eq!(bars.open(&all, now).len(), 1);
        assert_eq!(bars.open(&all, now - Duration::from_secs(365 * 24 * 3600)).len(), 2);
    }
}
