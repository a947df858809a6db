//! What an authority says of when to renew a certificate (ARI, RFC 9773).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_certs::Certificate;
use offramp_certs::acme::schedule;
use offramp_config::model::AcmeAuthority;

use super::Want;
use super::attempt::date;
use super::context::AcmeContext;
use super::http::Client;

/// The longest time without a question, where nothing was said of the next one.
const LOOK: Duration = Duration::from_secs(3600);
/// The interval at which an authority is asked when it wants a certificate renewed: no more, and no less.
const OFTEN: Duration = Duration::from_secs(60);
const RARELY: Duration = Duration::from_secs(24 * 3600);
/// After a question that had no answer.
const UNANSWERED: Duration = Duration::from_secs(6 * 3600);

/// The advice of the authority.
#[derive(Default)]
pub(super) struct Advice {
    window: Option<(SystemTime, SystemTime)>,
    /// The time of the next question; absent before the first.
    next: Option<SystemTime>,
}

impl Advice {
    /// Asks, where it is time to.
    pub(super) async fn seek(
        &mut self,
        want: &Want,
        certificate: &Certificate,
        context: &AcmeContext,
        now: SystemTime,
    ) {
        // A clock that was set back must not silence it.
        if self.next.is_some_and(|next| now < next && next < now + RARELY * 2) {
            return;
        }
        let issuer = context.storage.issuer(&want.subject);
        let authority = want.authorities.iter().find(|one| Some(one.directory.as_str()) == issuer.as_deref());
        let Some(authority) = authority else {
            self.next = Some(now + RARELY);
            return;
        };
        let _permit = context.permits.acquire().await;
        match ask(authority, certificate, context).await {
            Ok((window, wait)) => {
                self.next = Some(now + wait.clamp(OFTEN, RARELY));
                if self.window != Some(window) {
                    self.window = Some(window);
                    let (names, start, end) = (want.names(), date(window.0), date(window.1));
                    let fields =
                        [("names", (&names).into()), ("start", (&start).into()), ("end", (&end).into())];
                    context.log.info("the authority suggests when to renew", &fields);
                }
            }
            Err(reason) => {
                self.next = Some(now + UNANSWERED);
                context.log.debug("no advice of when to renew", &[("reason", (&reason).into())]);
            }
        }
    }

    /// The time of the renewal.
    pub(super) fn due(&self, certificate: &Certificate, want: &Want, context: &AcmeContext) -> SystemTime {
        let random = context.random((&want.subject, certificate.not_before));
        let (begun, end) = (certificate.not_before, certificate.not_after);
        match self.window {
            Some(window) => schedule::in_window(window.0, window.1, random).min(schedule::latest(begun, end)),
            None => schedule::renewal(begun, end, random),
        }
    }

    pub(super) fn wait(&self, now: SystemTime) -> Duration {
        self.next.and_then(|next| next.duration_since(now).ok()).unwrap_or(LOOK).max(Duration::from_secs(1))
    }
}

/// The window that the authority suggests, and in how long it wants to be asked again.
async fn ask(
    authority: &AcmeAuthority,
    certificate: &Certificate,
    context: &AcmeContext,
) -> Result<((SystemTime, SystemTime), Duration), String> {
    let client = Client::new(authority)?;
    let account = context.account(authority, &client).await?;
    let leaf = certificate.certified_key.cert.first().ok_or("no certificate")?;
    let id = instant_acme::CertificateIdentifier::try_from(leaf)?;
    let (info, wait) = account.renewal_info(&id).await.map_err(|error| error.to_string())?;
    let window = info.suggested_window;
    let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    Ok(((at(window.start.unix_timestamp()), at(window.end.unix_timestamp())), wait))
}
