//! Keeps one certificate: waits until it is due, orders it, and tries again with growing pauses.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_certs::Certificate;
use offramp_certs::acme::schedule::{self, Occasion};
use offramp_config::model::Authority;
use offramp_observe::timestamp::{Precision, write_rfc3339};
use tokio::sync::Notify;
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
pub(super) async fn keep(want: Want, shop: Arc<Shop>, prompt: Arc<Notify>) {
    let mut occasion = Occasion::Prompted;
    let mut advice = Advice::default();
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
        let due = certificate.as_ref().map_or(now, |certificate| advice.due(certificate, &want, &shop));
        let random = shop.random((&want.subject, now));
        let failures = shop.storage.failures(&want.subject);
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
        if attempt(&want, &shop, certificate.is_some()).await {
            advice = Advice::default();
        }
        seen = shop.storage.certificate(&want.subject, SystemTime::now()).map(|one| one.not_before);
    }
}

/// Asks the authorities in turn; whether there is a certificate now.
async fn attempt(want: &Want, shop: &Shop, is_renewal: bool) -> bool {
    let names = want.names();
    let mut retry_after = None;
    for authority in &want.authorities {
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
                // The shortest: another authority may be asked sooner.
                retry_after = match (retry_after, wait) {
                    (Some(one), Some(other)) => Some(std::cmp::min::<Duration>(one, other)),
                    (one, other) => one.or(other),
                };
                let fields =
                    [("names", (&names).into()), ("authority", name.into()), ("reason", (&reason).into())];
                shop.log.error("no certificate was obtained", &fields);
            }
        }
    }
    failed(want, shop, retry_after);
    false
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

/// Notes a failure, and says when the next attempt is.
fn failed(want: &Want, shop: &Shop, retry_after: Option<Duration>) {
    let now = SystemTime::now();
    let mut failures = shop.storage.failures(&want.subject);
    failures.note(now, retry_after);
    if let Err(error) = shop.storage.keep_failures(&want.subject, &failures) {
        shop.log.error("the failure cannot be noted on disk", &[("reason", (&error).into())]);
    }
    let next = failures.earliest(now, Occasion::Due, 0).duration_since(now).unwrap_or_default();
    let names = want.names();
    let fields =
        [("names", (&names).into()), ("failures", failures.count.into()), ("seconds", next.as_secs().into())];
    shop.log.warn("the next attempt comes later, or with a reload", &fields);
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
