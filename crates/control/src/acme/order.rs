//! One order with one authority, from its beginning or from where it was left.

use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, CertificateIdentifier, Error, Identifier, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use offramp_certs::Certificate;
use offramp_certs::acme::{PendingOrder, request};
use offramp_config::model::AcmeAuthority;
use tokio::time::{sleep, timeout};

use super::Want;
use super::context::{AcmeContext, insist, is_unknown_account};
use super::http::{Client, is_of_type};
use super::pause::Pause;
use super::prove::{Unproved, prove, sweep};

/// For a whole order: with dns-01 it is minutes.
const LIMIT: Duration = Duration::from_secs(3600);
/// The time for the authority to sign.
const SIGNING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(300));
/// Steps that an order takes at most: one for each of its states, and some that nothing came of.
const STEPS: u32 = 12;
/// The longest wait for an order to become what its authority has said that it is.
const LONGEST_SETTLING: Duration = Duration::from_secs(60);

/// The number of times that one order is continued. An order that an authority neither ends nor lets succeed must not
/// keep another one from being placed; one that a process leaves which is killed again and again has come to its end by then.
const MOST_RESUMED: u32 = 8;

/// The longest reason of a failure that is logged, in characters.
const LONGEST_REASON: usize = 1000;

/// The error of the library for an authority that has not repeated what an order replaces.
const NOT_REPLACED: &str = "replaces field mismatch";

/// The reason why there is no certificate.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// The pause that the authority asked for.
    pub(super) pause: Option<Pause>,
    /// Set where the network kept the authority from answering.
    pub(super) is_network: bool,
}

/// Obtains the certificate and puts it on disk.
pub(super) async fn order(
    want: &Want,
    authority: &AcmeAuthority,
    context: &AcmeContext,
) -> Result<Certificate, Failure> {
    let client =
        Client::new(authority).map_err(|reason| Failure { reason, pause: None, is_network: false })?;
    let limit = limit(authority);
    let outcome = timeout(limit, obtain(want, authority, context, &client)).await;
    let outcome = outcome.unwrap_or_else(|_| Err(format!("not done within {} s", limit.as_secs()).into()));
    let names: Vec<String> = want.subject.names().iter().map(ToString::to_string).collect();
    let failure = |Unproved { reason, .. }| Failure {
        reason: bounded(reason),
        pause: client.pause(&names),
        is_network: client.is_unreachable(),
    };
    outcome.map_err(failure)
}

/// The time limit of an order. What the operator has it wait for DNS, an hour at most, comes on top.
fn limit(authority: &AcmeAuthority) -> Duration {
    LIMIT + authority.dns_wait
}

/// A reason that fits a line of the log, however much the authority has to say.
fn bounded(mut reason: String) -> String {
    if let Some((end, _)) = reason.char_indices().nth(LONGEST_REASON) {
        reason.truncate(end);
        reason.push('…');
    }
    reason
}

async fn obtain(
    want: &Want,
    authority: &AcmeAuthority,
    context: &AcmeContext,
    client: &Client,
) -> Result<Certificate, Unproved> {
    sweep(&want.subject, authority, context).await;
    let account = context.account(authority, client).await?;
    let (mut order, pending) = match resume(want, authority, context, &account).await? {
        Some(resumed) => resumed,
        None => begin(want, authority, context, client, account).await?,
    };
    let mut settling = Duration::from_secs(1);
    for _ in 0..STEPS {
        match order.state().status {
            OrderStatus::Pending => {
                if let Err(unproved) = prove(&mut order, &want.subject, authority, context).await {
                    if !unproved.invalid.is_empty() {
                        // It has ended with the first name that was looked for in vain (RFC 8555 section 7.1.6).
                        context.storage.forget_order(&want.subject);
                    }
                    return Err(unproved);
                }
            }
            OrderStatus::Ready => {
                let names: Vec<String> = want.subject.names().iter().map(ToString::to_string).collect();
                let csr = request::signing_request(&names, &pending.key)?;
                match insist!(order.finalize_csr(&csr).await) {
                    Ok(()) if order.state().status != OrderStatus::Ready => {}
                    // It was ready by one part of the authority and is not by another (RFC 8555 section 7.4), or it was
                    // taken and its state is that of before: its present state says how it goes on.
                    Ok(()) => settle(&mut order, &mut settling).await?,
                    Err(error) if is_of_type(&error, "orderNotReady") => {
                        settle(&mut order, &mut settling).await?;
                    }
                    Err(error) => return Err(error.to_string().into()),
                }
            }
            OrderStatus::Processing | OrderStatus::Valid => {
                let chain = if matches!(order.state().status, OrderStatus::Valid) {
                    insist!(order.certificate().await).map(Option::unwrap_or_default)
                } else {
                    insist!(order.poll_certificate(&SIGNING).await)
                };
                let chain = chain.map_err(|error| error.to_string())?;
                return Ok(keep(want, authority, context, &chain, &pending)?);
            }
            OrderStatus::Invalid => {
                context.storage.forget_order(&want.subject);
                return Err(reason_of(&mut order).into());
            }
        }
    }
    Err("the order does not come to an end".to_owned().into())
}

/// Waits, longer each time, and asks for the order's state.
async fn settle(order: &mut Order, wait: &mut Duration) -> Result<(), String> {
    sleep(*wait).await;
    *wait = (*wait * 2).min(LONGEST_SETTLING);
    insist!(order.refresh().await.map(|_| ())).map_err(|error| error.to_string())
}

/// Puts what was issued in its place. An order with a useless certificate has ended; one with a certificate that could
/// only not be written goes on from here.
fn keep(
    want: &Want,
    authority: &AcmeAuthority,
    context: &AcmeContext,
    chain: &str,
    pending: &PendingOrder,
) -> Result<Certificate, String> {
    let issuer = authority.directory.as_str();
    let kept =
        context.storage.keep_certificate(&want.subject, chain, &pending.key, issuer, SystemTime::now());
    if !matches!(kept, Err(offramp_certs::Error::Io { .. })) {
        context.storage.forget_order(&want.subject);
    }
    kept.map_err(|error| format!("what the authority issued: {error}"))
}

fn reason_of(order: &mut Order) -> String {
    let error = order.state().error.as_ref().map(ToString::to_string);
    error.unwrap_or_else(|| "the authority calls the order invalid".into())
}

/// The order that is under way with this authority, if it can go on.
async fn resume(
    want: &Want,
    authority: &AcmeAuthority,
    context: &AcmeContext,
    account: &Account,
) -> Result<Option<(Order, PendingOrder)>, String> {
    let Some(mut pending) = context.storage.order(&want.subject) else { return Ok(None) };
    let fits = !pending.url.is_empty()
        && pending.resumed < MOST_RESUMED
        && pending.directory == authority.directory.as_str()
        && pending.account == account.id()
        && pending.profile == authority.profile;
    if !fits {
        return Ok(None);
    }
    match insist!(account.order(pending.url.clone()).await) {
        Ok(mut order) => {
            if order.state().status == OrderStatus::Invalid {
                context.storage.forget_order(&want.subject);
                return Ok(None);
            }
            pending.resumed += 1;
            context.storage.keep_order(&want.subject, &pending).map_err(|error| error.to_string())?;
            let names = want.names();
            let fields = [("names", (&names).into()), ("order", (&pending.url).into())];
            context.log.info("an order that was under way goes on", &fields);
            Ok(Some((order, pending)))
        }
        // It is gone.
        Err(Error::Api(problem)) if !is_passing(&problem) => {
            context.storage.forget_order(&want.subject);
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Places an order, with a key that is on disk before the authority hears of it.
async fn begin(
    want: &Want,
    authority: &AcmeAuthority,
    context: &AcmeContext,
    client: &Client,
    mut account: Account,
) -> Result<(Order, PendingOrder), String> {
    let old = context.storage.key(&want.subject).filter(|_| want.reuse_key);
    let key = match old {
        Some(key) => key,
        None => {
            let kind = want.subject.key();
            let made = tokio::task::spawn_blocking(move || request::new_key(kind)).await;
            made.map_err(|error| error.to_string())??
        }
    };
    let mut pending = PendingOrder {
        directory: authority.directory.as_str().to_owned(),
        account: account.id().to_owned(),
        profile: authority.profile.clone(),
        url: String::new(),
        key: key.as_str().to_owned(),
        resumed: 0,
    };
    // Nothing is ordered that could not be kept.
    context.storage.keep_order(&want.subject, &pending).map_err(|error| error.to_string())?;
    let mut placed = place(want, authority, context, &account).await;
    if placed.as_ref().is_err_and(is_unknown_account) {
        account = context.another_account(authority, client, account.id()).await?;
        pending.account = account.id().to_owned();
        placed = place(want, authority, context, &account).await;
    }
    let order = placed.map_err(|error| {
        context.storage.forget_order(&want.subject);
        error.to_string()
    })?;
    pending.url = order.url().to_owned();
    context.storage.keep_order(&want.subject, &pending).map_err(|error| error.to_string())?;
    Ok((order, pending))
}

/// Places the order; as a replacement where there is something to replace and the authority knows of that.
async fn place(
    want: &Want,
    authority: &AcmeAuthority,
    context: &AcmeContext,
    account: &Account,
) -> Result<Order, Error> {
    let identifiers: Vec<Identifier> =
        want.subject.names().iter().map(|name| Identifier::Dns(name.to_string())).collect();
    let mut plain = NewOrder::new(&identifiers);
    if let Some(profile) = &authority.profile {
        plain = plain.profile(profile);
    }
    let old = context.storage.certificate(&want.subject, SystemTime::now());
    let same = context.storage.issuer(&want.subject).as_deref() == Some(authority.directory.as_str());
    if let Some(old) = old.filter(|_| same)
        && let Some(leaf) = old.certified_key.cert.first()
        && let Ok(id) = CertificateIdentifier::try_from(leaf)
    {
        let mut replacing = NewOrder::new(&identifiers).replaces(id);
        if let Some(profile) = &authority.profile {
            replacing = replacing.profile(profile);
        }
        match insist!(account.new_order(&replacing).await) {
            // Nothing was ordered: it does not know of replacements, or that one was replaced already.
            Err(Error::Unsupported(_)) => {}
            Err(Error::Api(problem)) if !is_limit(&problem) => {}
            // It has placed the order, and does not say that it replaces anything (RFC 9773 section 5). The library
            // gives no such order away; without another one nothing would ever be renewed.
            Err(Error::Other(reason)) if reason.to_string().starts_with(NOT_REPLACED) => {}
            outcome => return outcome,
        }
    }
    insist!(account.new_order(&plain).await)
}

fn is_limit(problem: &Problem) -> bool {
    problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":rateLimited"))
}

/// True if a problem says nothing of the order: the authority is busy, or has a fault of its own.
fn is_passing(problem: &Problem) -> bool {
    let of_type = |end: &str| problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(end));
    let status = problem.status.unwrap_or_default();
    is_limit(problem) || of_type(":serverInternal") || of_type(":badNonce") || status == 429 || status >= 500
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_time_left_after_the_longest_wait_for_dns() {
        let directory = "https://a.test/".parse().unwrap();
        let mut authority = AcmeAuthority::new("a".parse().unwrap(), directory);
        authority.dns_wait = Duration::from_secs(3600);
        assert!(limit(&authority) >= authority.dns_wait + Duration::from_secs(1800));
    }

    #[test]
    fn no_authority_fills_the_log() {
        assert_eq!(bounded("no such name".into()), "no such name");
        let long = bounded("ö".repeat(1 << 20));
        assert_eq!((long.chars().count(), long.ends_with("ö…")), (LONGEST_REASON + 1, true));
    }

    #[test]
    fn an_order_is_not_given_up_because_the_authority_is_busy() {
        let of = |text: &str| is_passing(&serde_json::from_str::<Problem>(text).unwrap());
        for passing in [
            r#"{"type": "urn:ietf:params:acme:error:rateLimited", "status": 429}"#,
            r#"{"type": "urn:ietf:params:acme:error:serverInternal"}"#,
            r#"{"type": "urn:ietf:params:acme:error:badNonce", "status": 400}"#,
            r#"{"type": "about:blank", "status": 503}"#,
        ] {
            assert!(of(passing), "{passing}");
        }
        for gone in [
            r#"{"type": "urn:ietf:params:acme:error:malformed", "status": 404}"#,
            r#"{"type": "urn:ietf:params:acme:error:unauthorized", "status": 403}"#,
            r#"{"detail": "no such order"}"#,
        ] {
            assert!(!of(gone), "{gone}");
        }
    }
}
