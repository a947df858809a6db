//! Keeps one certificate: waits until it is due, orders it, and tries again with growing pauses.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_certs::Certificate;
use offramp_certs::acme::schedule::{self, Failures, Occasion};
use offramp_config::model::Authority;
use offramp_observe::timestamp::{Precision, write_rfc3339};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Want;
use super::http::Client;
use super::order::{Failure, order};
use super::shop::Shop;

/// The longest time without a look at the clock: timers do not notice that it was set or that the machine slept.
const LOOK: Duration = Duration::from_secs(3600);
/// How often an authority is asked when it wants a certificate renewed: no more, and no less.
const OFTEN: Duration = Duration::from_secs(60);
const RARELY: Duration = Duration::from_secs(24 * 3600);
/// After a question that had no answer.
const UNANSWERED: Duration = Duration::from_secs(6 * 3600);

/// Keeps `want` until it is aborted. `prompt`: somebody may have put right what was wrong.
pub(super) async fn guard(want: Want, shop: Arc<Shop>, prompt: Arc<Notify>) {
    let names = want.names();
    let begin = || keep(want.clone(), Arc::clone(&shop), Arc::clone(&prompt));
    let ended = |reason: &str| {
        let fields = [("names", (&names).into()), ("reason", reason.into())];
        shop.log.error(
            "renewing a certificate ended by a fault of Offramp's own; it goes on in an hour",
            &fields,
        );
    };
    again(begin, LOOK, ended).await;
}

/// Begins a future anew each time that it has ended, which it does only by a fault: nothing else would renew the
/// certificate until the next start.
async fn again<F: Future<Output = ()> + Send + 'static>(
    begin: impl Fn() -> F,
    pause: Duration,
    ended: impl Fn(&str),
) {
    loop {
        // Aborts it when this is dropped.
        let mut tasks = JoinSet::new();
        tasks.spawn(begin());
        let reason = match tasks.join_next().await {
            Some(Err(error)) => error.to_string(),
            _ => "it has ended".to_owned(),
        };
        ended(&reason);
        sleep(pause).await;
    }
}

async fn keep(want: Want, shop: Arc<Shop>, prompt: Arc<Notify>) {
    let mut occasion = Occasion::Prompted;
    let mut advice = Advice::default();
    let mut bars = Bars::default();
    // What could not be noted on disk counts all the same.
    let mut failed_before = Failures::default();
    let mut seen = shop.storage.certificate(&want.subject, SystemTime::now()).map(|one| one.not_before);
    loop {
        if let Some(wait) = shop.lead() {
            sleep(wait).await;
            let found = shop.storage.certificate(&want.subject, SystemTime::now()).map(|one| one.not_before);
            if found != seen {
                seen = found;
                shop.announce();
            }
            continue;
        }
        let now = SystemTime::now();
        let certificate = shop.storage.certificate(&want.subject, now);
        if let Some(certificate) = &certificate {
            advice.seek(&want, certificate, &shop, now).await;
        }
        let due = certificate.as_ref().map_or(now, |certificate| {
            let obtained = shop.storage.obtained(&want.subject).unwrap_or(UNIX_EPOCH);
            let floor = schedule::not_sooner(obtained, certificate.not_after, now);
            advice.due(certificate, &want, &shop).max(floor)
        });
        let random = shop.random((&want.subject, now));
        let failures = worse(shop.storage.failures(&want.subject), &failed_before);
        let at = due.max(failures.earliest(now, occasion, random));
        if let Ok(wait) = at.duration_since(now)
            && !wait.is_zero()
        {
            let wait = wait.min(LOOK).min(advice.wait(now));
            tokio::select! {
                () = sleep(wait) => {}
                () = prompt.notified() => occasion = Occasion::Prompted,
            }
            continue;
        }
        // The semaphore is never closed.
        let _permit = shop.permits.acquire().await;
        occasion = Occasion::Due;
        failed_before = if attempt(&want, &shop, certificate.is_some(), &mut bars).await {
            advice = Advice::default();
            Failures::default()
        } else {
            let wait = bars.shortest(&want.authorities, SystemTime::now());
            failed(&want, &shop, failures, wait)
        };
        seen = shop.storage.certificate(&want.subject, SystemTime::now()).map(|one| one.not_before);
    }
}

/// Asks the authorities in turn; whether there is a certificate now.
async fn attempt(want: &Want, shop: &Shop, is_renewal: bool, bars: &mut Bars) -> bool {
    let names = want.names();
    for authority in bars.open(&want.authorities, SystemTime::now()) {
        let name = authority.name.as_str();
        begun(want, authority, shop, is_renewal);
        let outcome = order(want, authority, shop).await;
        shop.note(outcome.is_ok());
        match outcome {
            Ok(certificate) => {
                shop.storage.forget_failures(&want.subject);
                let until = date(certificate.not_after);
                let fields =
                    [("names", (&names).into()), ("authority", name.into()), ("not_after", (&until).into())];
                shop.log.info("a certificate was obtained", &fields);
                shop.announce();
                return true;
            }
            Err(Failure { reason, retry_after: wait }) => {
                bars.note(authority, SystemTime::now(), wait);
                let fields =
                    [("names", (&names).into()), ("authority", name.into()), ("reason", (&reason).into())];
                shop.log.error("no certificate was obtained", &fields);
            }
        }
    }
    false
}

/// The failures that were noted on disk, or those of this process where they are more.
fn worse(noted: Failures, before: &Failures) -> Failures {
    if noted.count >= before.count { noted } else { before.clone() }
}

/// Until when authorities want to be left alone.
#[derive(Default)]
struct Bars(HashMap<String, SystemTime>);

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
fn begun(want: &Want, authority: &Authority, shop: &Shop, is_renewal: bool) {
    let names = want.names();
    let until_then = if is_renewal { "the old certificate" } else { "a certificate of the local CA" };
    let fields = [
        ("names", (&names).into()),
        ("authority", authority.name.as_str().into()),
        ("challenge", authority.challenge.word().into()),
        ("clients_get", until_then.into()),
    ];
    shop.log.info("ordering a certificate", &fields);
}

/// Notes a failure after others, and says when the next attempt is.
fn failed(want: &Want, shop: &Shop, mut failures: Failures, retry_after: Option<Duration>) -> Failures {
    let now = SystemTime::now();
    failures.note(now, retry_after);
    if let Err(error) = shop.storage.keep_failures(&want.subject, &failures) {
        shop.log.error("the failure cannot be noted on disk", &[("reason", (&error).into())]);
    }
    let next = failures.earliest(now, Occasion::Due, 0).duration_since(now).unwrap_or_default();
    let names = want.names();
    let fields =
        [("names", (&names).into()), ("failures", failures.count.into()), ("seconds", next.as_secs().into())];
    shop.log.warn("the next attempt comes later, or with a reload", &fields);
    failures
}

/// What the authority says of when to renew (ARI, RFC 9773).
#[derive(Default)]
struct Advice {
    window: Option<(SystemTime, SystemTime)>,
    /// When it is asked next; absent before the first time.
    next: Option<SystemTime>,
}

impl Advice {
    /// Asks, where it is time to.
    async fn seek(&mut self, want: &Want, certificate: &Certificate, shop: &Shop, now: SystemTime) {
        // A clock that was set back must not silence it.
        if self.next.is_some_and(|next| now < next && next < now + RARELY * 2) {
            return;
        }
        let issuer = shop.storage.issuer(&want.subject);
        let authority = want.authorities.iter().find(|one| Some(one.directory.as_str()) == issuer.as_deref());
        let Some(authority) = authority else {
            self.next = Some(now + RARELY);
            return;
        };
        let _permit = shop.permits.acquire().await;
        match ask(authority, certificate, shop).await {
            Ok((window, wait)) => {
                self.next = Some(now + wait.clamp(OFTEN, RARELY));
                if self.window != Some(window) {
                    self.window = Some(window);
                    let (names, start, end) = (want.names(), date(window.0), date(window.1));
                    let fields =
                        [("names", (&names).into()), ("start", (&start).into()), ("end", (&end).into())];
                    shop.log.info("the authority suggests when to renew", &fields);
                }
            }
            Err(reason) => {
                self.next = Some(now + UNANSWERED);
                shop.log.debug("no advice of when to renew", &[("reason", (&reason).into())]);
            }
        }
    }

    /// When the certificate is to be renewed.
    fn due(&self, certificate: &Certificate, want: &Want, shop: &Shop) -> SystemTime {
        let random = shop.random((&want.subject, certificate.not_before));
        match self.window {
            Some((start, end)) => schedule::in_window(start, end, random).min(certificate.not_after),
            None => schedule::renewal(certificate.not_before, certificate.not_after, random),
        }
    }

    fn wait(&self, now: SystemTime) -> Duration {
        self.next.and_then(|next| next.duration_since(now).ok()).unwrap_or(LOOK).max(Duration::from_secs(1))
    }
}

/// The window that the authority suggests, and in how long it wants to be asked again.
async fn ask(
    authority: &Authority,
    certificate: &Certificate,
    shop: &Shop,
) -> Result<((SystemTime, SystemTime), Duration), String> {
    let client = Client::new(authority)?;
    let account = shop.account(authority, &client).await?;
    let leaf = certificate.certified_key.cert.first().ok_or("no certificate")?;
    let id = instant_acme::CertificateIdentifier::try_from(leaf)?;
    let (info, wait) = account.renewal_info(&id).await.map_err(|error| error.to_string())?;
    let window = info.suggested_window;
    let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    Ok(((at(window.start.unix_timestamp()), at(window.end.unix_timestamp())), wait))
}

fn date(time: SystemTime) -> String {
    let mut text = Vec::with_capacity(20);
    write_rfc3339(&mut text, time, Precision::Seconds);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_ends_by_a_fault_begins_anew() {
        let (begun, ended) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
        let begin = || {
            let begun = Arc::clone(&begun);
            async move { assert!(begun.fetch_add(1, Ordering::Relaxed) > 1, "a fault") }
        };
        let told = |reason: &str| {
            ended.fetch_add(1, Ordering::Relaxed);
            assert!(!reason.is_empty());
        };
        let three = async {
            while begun.load(Ordering::Relaxed) < 3 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = again(begin, Duration::ZERO, told) => {}
            () = three => {}
        }
        assert!(ended.load(Ordering::Relaxed) >= 2);
    }

    #[test]
    fn failures_count_where_they_cannot_be_noted() {
        let now = SystemTime::now();
        let mut before = Failures::default();
        before.note(now, None);
        // Nothing is on a disk that is full.
        let failures = worse(Failures::default(), &before);
        assert!(failures.earliest(now, Occasion::Due, 0) > now);
        let mut noted = before.clone();
        noted.note(now, None);
        assert_eq!(worse(noted.clone(), &before), noted);
    }

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
