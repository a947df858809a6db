//! One attempt to obtain a certificate: the authorities are asked in turn, and what came of it is noted.

use std::time::{Duration, SystemTime};

use offramp_certs::acme::schedule::Occasion;
use offramp_config::model::AcmeAuthority;
use offramp_observe::timestamp::{Precision, write_rfc3339};

use super::Want;
use super::context::AcmeContext;
use super::order::{Failure, order};
use super::outlook::FailedOrder;
use super::pause::{Bars, QuickTries, Scope};

/// The outcome of an order: the end of the certificate's validity, or the reason why there is none.
pub(super) type Outcome = Result<String, String>;

/// The certificate that clients get while another is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meanwhile {
    /// The certificate that was in use before.
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

/// Asks the authorities in turn; until when the certificate is valid, or why there is none. `bars` are the pauses that
/// concern this certificate alone. Where all authorities want to be left alone, none is asked, and nothing has failed.
pub(super) async fn attempt(
    want: &Want,
    context: &AcmeContext,
    meanwhile: Meanwhile,
    bars: &mut Bars,
) -> Outcome {
    let names = want.names();
    let mut reasons = Vec::new();
    let mut is_network = true;
    let now = SystemTime::now();
    if let Some(wait) = context.pauses(bars).shortest(&want.authorities, now) {
        return Err(format!("every authority wants to be left alone until {}", date(now + wait)));
    }
    for authority in &want.authorities {
        // Another order may have been refused while this one was under way.
        if context.pauses(bars).left(authority, SystemTime::now()).is_some() {
            continue;
        }
        let name = authority.name.as_str();
        if let Some(reason) = left_out(want, authority, context) {
            reasons.push(reason);
            is_network = false;
            continue;
        }
        begun(want, authority, context, meanwhile);
        let outcome = order(want, authority, context).await;
        context.orders().count(outcome.is_ok());
        match outcome {
            Ok(certificate) => {
                context.forget_failures(&want.subject);
                context.orders().settle(&names, None);
                let until = date(certificate.not_after);
                let fields =
                    [("names", (&names).into()), ("authority", name.into()), ("not_after", (&until).into())];
                context.log.info("a certificate was obtained", &fields);
                return Ok(until);
            }
            Err(Failure { reason, pause, is_network: by_network }) => {
                let now = SystemTime::now();
                is_network &= by_network;
                let of = |scope| pause.filter(|pause| pause.scope == scope).map(|pause| pause.wait);
                bars.note(authority, now, of(Scope::Names));
                if let Some(wait) = of(Scope::Authority) {
                    context.bar(authority, now, wait);
                }
                let fields =
                    [("names", (&names).into()), ("authority", name.into()), ("reason", (&reason).into())];
                context.log.error("no certificate was obtained", &fields);
                reasons.push(format!("{name}: {reason}"));
            }
        }
    }
    if !reasons.is_empty() {
        let (at, reason) = (SystemTime::now(), reasons.join("; "));
        context.orders().settle(&names, Some(FailedOrder { at, reason }));
    }
    if comes_soon(&names, context, bars, is_network && !reasons.is_empty()) {
        return Err(reasons.join("; "));
    }
    failed(want, context, &reasons, context.pauses(bars).shortest(&want.authorities, SystemTime::now()));
    if reasons.is_empty() {
        reasons.push("every authority wants to be left alone".into());
    }
    Err(reasons.join("; "))
}

/// The reason why an authority is not asked now: a name has failed so often.
fn left_out(want: &Want, authority: &AcmeAuthority, context: &AcmeContext) -> Option<String> {
    let now = SystemTime::now();
    let at = Some(context.barred(authority, &want.subject, now)).filter(|at| *at > now)?;
    let reason =
        format!("a name has failed so often that {} is not asked before {}", authority.name, date(at));
    let names = want.names();
    let fields = [("names", (&names).into()), ("reason", (&reason).into())];
    context.log.warn("an authority is left out", &fields);
    Some(reason)
}

/// Has the next attempt come soon where the network kept every authority from answering. Such a failure is not noted.
fn comes_soon(names: &str, context: &AcmeContext, bars: &mut Bars, is_network: bool) -> bool {
    if !is_network {
        bars.quick = bars.quick.map(|_| QuickTries::default());
        return false;
    }
    let Some(wait) = bars.quick.as_mut().and_then(|quick| quick.note(SystemTime::now())) else {
        return false;
    };
    let fields = [("names", names.into()), ("seconds", wait.as_secs().into())];
    context.log.warn("no authority can be reached; the next attempt comes soon", &fields);
    true
}

/// Says that a certificate is being ordered, and what clients get meanwhile.
fn begun(want: &Want, authority: &AcmeAuthority, context: &AcmeContext, meanwhile: Meanwhile) {
    let names = want.names();
    let fields = [
        ("names", (&names).into()),
        ("authority", authority.name.as_str().into()),
        ("challenge", authority.challenge.word().into()),
        ("clients_get", meanwhile.text().into()),
    ];
    context.log.info("ordering a certificate", &fields);
}

/// Notes a failure, and says when the next attempt is: the more urgently, the less the old certificate has left.
fn failed(want: &Want, context: &AcmeContext, reasons: &[String], retry_after: Option<Duration>) {
    let now = SystemTime::now();
    let mut failures = context.failures(&want.subject);
    failures.note(now, retry_after);
    failures.reason = Some(reasons.join("; ")).filter(|reason| !reason.is_empty()).or(failures.reason);
    context.keep_failures(&want.subject, &failures);
    let next = failures.earliest(now, Occasion::Due, 0).duration_since(now).unwrap_or_default();
    let names = want.names();
    let mut fields = vec![
        ("names", (&names).into()),
        ("failures", failures.count.into()),
        ("seconds", next.as_secs().into()),
    ];
    let Some(old) = context.storage.certificate(&want.subject, now) else {
        context.log.warn("the next attempt comes later, or with a reload", &fields);
        return;
    };
    let until = date(old.not_after);
    fields.push(("not_after", (&until).into()));
    match old.not_after {
        end if end <= now => {
            context.log.error("the old certificate has expired, and there is no new one", &fields);
        }
        _ if old.soon_at() <= now => {
            context.log.error("the old certificate expires soon, and there is no new one", &fields);
        }
        _ => context.log.warn("the next attempt comes later, or with a reload", &fields),
    }
}

/// A time as in logs.
pub(super) fn date(time: SystemTime) -> String {
    let mut text = Vec::with_capacity(20);
    write_rfc3339(&mut text, time, Precision::Seconds);
    String::from_utf8_lossy(&text).into_owned()
}
