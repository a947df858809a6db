//! Proving control of names: responses are published, the authority is notified, and they are removed again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use instant_acme::{
    AuthorizationStatus, ChallengeStatus, ChallengeType, Error, Identifier, KeyAuthorization, Order,
    OrderStatus, RetryPolicy,
};
use offramp_certs::acme::{Subject, challenge};
use offramp_config::model::{AcmeAuthority, Challenge, DnsProvider};
use offramp_proxy::Challenges;
use offramp_tls::Configs;
use tokio::time::{Duration, sleep};

use super::attempt::date;
use super::claims::Claim;
use super::context::{AcmeContext, NONCES, insist};
use super::dns::{self, Action, Record};
use super::http::is_bad_nonce;

/// The time for the authority to look.
const PATIENCE: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(300));

/// The longest token of a challenge, in bytes: authorities use 43.
const LONGEST_TOKEN: usize = 512;

/// The reason why control of the names was not proved.
pub(super) struct Unproved {
    pub(super) reason: String,
    /// The names that the authority has looked for in vain, which it counts.
    pub(super) invalid: Vec<String>,
}

impl From<String> for Unproved {
    fn from(reason: String) -> Self {
        Self { reason, invalid: Vec::new() }
    }
}

/// Proves control of every name of the order that is not proved yet.
pub(super) async fn prove(
    order: &mut Order,
    subject: &Subject,
    authority: &AcmeAuthority,
    context: &AcmeContext,
) -> Result<(), Unproved> {
    let mut responses = Responses::new(subject, authority, context).await;
    // Looked at again: other orders with these names have failed while this one waited for its turn.
    let now = SystemTime::now();
    let barred = context.barred(authority, subject, now);
    if barred > now {
        let why =
            format!("a name has failed so often that the authority is not asked before {}", date(barred));
        return Err(why.into());
    }
    let outcome = attempt(order, authority, &mut responses).await;
    if let Err(unproved) = &outcome {
        context.note_invalid(authority, &unproved.invalid);
    }
    responses.withdraw().await;
    outcome
}

async fn attempt(
    order: &mut Order,
    authority: &AcmeAuthority,
    responses: &mut Responses<'_>,
) -> Result<(), Unproved> {
    each_pending(order, authority, responses, Step::Present).await?;
    if authority.challenge == Challenge::Dns01 && !responses.records.is_empty() {
        sleep(authority.dns_wait).await;
    }
    if let Err(reason) = each_pending(order, authority, responses, Step::Tell).await {
        // An authority that looks before it answers says in the answer what it has found, and has ended the order.
        let _ = insist!(order.refresh().await.map(|_| ()));
        if order.state().status == OrderStatus::Invalid {
            return Err(explain(order, responses.subject).await);
        }
        return Err(reason.into());
    }
    match insist!(order.poll_ready(&PATIENCE).await) {
        // One with an error has ended too, and its authorizations say more.
        Ok(OrderStatus::Invalid) | Err(Error::Api(_)) if order.state().status == OrderStatus::Invalid => {
            Err(explain(order, responses.subject).await)
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string().into()),
    }
}

/// Removes the records of an attempt that ended with its process, or by a reload.
pub(super) async fn sweep(subject: &Subject, authority: &AcmeAuthority, context: &AcmeContext) {
    if authority.dns.is_none() {
        return;
    }
    let left = context.storage.records(subject);
    if left.is_empty() {
        return;
    }
    let mut responses = Responses::new(subject, authority, context).await;
    responses.records = left.into_iter().map(|(domain, value)| Record { domain, value }).collect();
    responses.withdraw().await;
}

/// Records as they are noted on disk.
fn pairs(records: &[Record]) -> Vec<(String, String)> {
    records.iter().map(|record| (record.domain.clone(), record.value.clone())).collect()
}

/// A step with each authorization.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The response is put in place.
    Present,
    /// The authority is notified that it is there.
    Tell,
}

async fn each_pending(
    order: &mut Order,
    authority: &AcmeAuthority,
    responses: &mut Responses<'_>,
    step: Step,
) -> Result<(), String> {
    let mut nonces = NONCES;
    'again: loop {
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            let mut authorization = match next {
                Ok(authorization) => authorization,
                Err(error) if nonces > 0 && is_bad_nonce(&error) => {
                    nonces -= 1;
                    // Those that were read are remembered.
                    continue 'again;
                }
                Err(error) => return Err(error.to_string()),
            };
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                other => return Err(format!("an authorization is {other:?}")),
            }
            let Identifier::Dns(wanted) = authorization.identifier().identifier.clone() else {
                return Err("the authority wants something else than a name proved".into());
            };
            let name = ordered(responses.subject, &wanted)?;
            let Some(mut challenge) = authorization.challenge(kind(authority.challenge)) else {
                return Err(format!("the authority does not offer {} for {name}", authority.challenge));
            };
            match step {
                Step::Present => {
                    check_token(&challenge.token)?;
                    responses.present(&name, &challenge.token, &challenge.key_authorization()).await?;
                }
                // The authority validates one that was announced before this process began.
                Step::Tell if challenge.status != ChallengeStatus::Pending => {}
                Step::Tell => {
                    insist!(challenge.set_ready().await).map_err(|error| format!("{name}: {error}"))?;
                }
            }
        }
        return Ok(());
    }
}

/// The name of the order that an authorization is for. An authority that asks for others would have this machine prove
/// control of them, perhaps to a third party, and would choose what a hook gets to see.
fn ordered(subject: &Subject, wanted: &str) -> Result<String, String> {
    let mut names = subject.names().iter().map(|name| name.host().to_owned());
    let found = names.find(|name| name.eq_ignore_ascii_case(wanted));
    found.ok_or_else(|| format!("the authority wants control of {wanted:?} proved, which was not ordered"))
}

/// Tokens are of the alphabet of base64url (RFC 8555 section 8.3).
fn check_token(token: &str) -> Result<(), String> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !token.is_empty() && token.len() <= LONGEST_TOKEN && token.bytes().all(sound) {
        return Ok(());
    }
    Err("the authority's challenge has a token that RFC 8555 does not allow".into())
}

fn kind(challenge: Challenge) -> ChallengeType {
    match challenge {
        Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        Challenge::Http01 => ChallengeType::Http01,
        Challenge::Dns01 => ChallengeType::Dns01,
    }
}

/// The reason why an order failed, in the authority's words.
///
/// Each name counts as looked for in vain unless the authority says that it is proved: all were announced, and it validates
/// those later that it has not looked for yet. One that cannot be asked about counts too, so that too few failures are never
/// counted.
async fn explain(order: &mut Order, subject: &Subject) -> Unproved {
    let mut invalid: BTreeSet<String> = subject.names().iter().map(|name| name.host().to_owned()).collect();
    let mut reasons = Vec::new();
    let mut nonces = NONCES;
    'again: loop {
        reasons.clear();
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            let mut authorization = match next {
                Ok(authorization) => authorization,
                Err(error) if nonces > 0 && is_bad_nonce(&error) => {
                    nonces -= 1;
                    continue 'again;
                }
                Err(_) => break 'again,
            };
            let _ = insist!(authorization.refresh().await.map(|_| ()));
            let Identifier::Dns(name) = authorization.identifier().identifier.clone() else { continue };
            if authorization.status == AuthorizationStatus::Valid {
                invalid.retain(|announced| !announced.eq_ignore_ascii_case(&name));
            }
            let errors = authorization.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
            reasons.extend(errors.map(|error| format!("{name}: {error}")));
        }
        break;
    }
    let unsaid = "the authority calls the order invalid";
    let reason = if reasons.is_empty() { unsaid.into() } else { reasons.join("; ") };
    Unproved { reason, invalid: invalid.into_iter().collect() }
}

/// The responses that are in place for one order; those of workers are gone when this is dropped.
struct Responses<'a> {
    subject: &'a Subject,
    authority: &'a AcmeAuthority,
    challenges: Arc<Challenges>,
    context: &'a AcmeContext,
    names: BTreeSet<String>,
    tokens: BTreeSet<String>,
    records: Vec<Record>,
    /// The names: a worker has one response by handshake for each, and failures are counted by name.
    _claim: Claim<'a>,
}

impl<'a> Responses<'a> {
    /// None yet. Waits while another order has responses that these would replace.
    async fn new(subject: &'a Subject, authority: &'a AcmeAuthority, context: &'a AcmeContext) -> Self {
        let names = subject.names().iter().map(|name| name.host().to_ascii_lowercase());
        let claim = context.claims.claim(names.collect()).await;
        Self {
            subject,
            authority,
            challenges: Arc::clone(&context.challenges),
            context,
            names: BTreeSet::new(),
            tokens: BTreeSet::new(),
            records: Vec::new(),
            _claim: claim,
        }
    }

    async fn present(&mut self, name: &str, token: &str, key: &KeyAuthorization) -> Result<(), String> {
        match self.authority.challenge {
            Challenge::TlsAlpn01 => {
                let certificate = challenge::certificate(name, key.digest().as_ref())?;
                let configs = Configs::for_challenge(certificate, challenge::PROTOCOL);
                let configs = configs.map_err(|error| error.to_string())?;
                self.names.insert(name.to_ascii_lowercase());
                self.challenges.set_handshake(&name.to_ascii_lowercase(), Some(&configs));
            }
            Challenge::Http01 => {
                self.tokens.insert(token.to_owned());
                self.challenges.set_response(token, Some(&Bytes::copy_from_slice(key.as_str().as_bytes())));
            }
            Challenge::Dns01 => {
                let record = Record { domain: name.to_owned(), value: key.dns_value() };
                if self.records.contains(&record) {
                    return Ok(());
                }
                // Noted first, for a later process too: a hook that fails may have set it all the same.
                self.records.push(record.clone());
                let noted = self.context.storage.keep_records(self.subject, &pairs(&self.records));
                noted.map_err(|error| error.to_string())?;
                self.record(Action::Present, &record).await?;
            }
        }
        Ok(())
    }

    /// Takes the records away; what is wrong then stops nothing.
    async fn withdraw(self) {
        if self.records.is_empty() {
            return;
        }
        for record in &self.records {
            if let Err(reason) = self.record(Action::Cleanup, record).await {
                self.context.log.warn("a DNS record stays behind", &[("reason", (&reason).into())]);
            }
        }
        self.context.storage.forget_records(self.subject);
    }

    async fn record(&self, action: Action, record: &Record) -> Result<(), String> {
        set_record(self.authority, self.context, action, record).await
    }
}

/// Sets a DNS record or removes it, as the authority's section says.
pub(super) async fn set_record(
    authority: &AcmeAuthority,
    context: &AcmeContext,
    action: Action,
    record: &Record,
) -> Result<(), String> {
    match &authority.dns {
        Some(DnsProvider::Hook(program)) => dns::hook(context.helper(), &program.path, action, record).await,
        Some(DnsProvider::Update(update)) => {
            // Any number will do that others cannot guess.
            let id = context.random((record.name(), record.value.as_str(), SystemTime::now()));
            dns::update(update, action, record, id as u16).await
        }
        None => Err("nobody sets DNS records".into()),
    }
}

impl Drop for Responses<'_> {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| self.challenges.set_handshake(name, None));
        self.tokens.iter().for_each(|token| self.challenges.set_response(token, None));
    }
}

#[cfg(test)]
mod tests {
    use offramp_certs::acme::KeyType;

    use super::*;

    #[test]
    fn only_what_was_ordered_is_proved() {
        let subject = Subject::new(&["*.a.example.org", "b.example.org"], KeyType::P256).unwrap();
        assert_eq!(ordered(&subject, "a.example.org").unwrap(), "a.example.org");
        assert_eq!(ordered(&subject, "B.Example.ORG").unwrap(), "b.example.org");
        for other in ["example.org", "c.example.org", "*.a.example.org", "", "a.example.org\n", "$(reboot).b"]
        {
            let refused = ordered(&subject, other).unwrap_err();
            assert!(refused.contains("was not ordered"), "{refused}");
            assert!(!refused.contains('\n'), "{refused}");
        }
    }

    #[test]
    fn tokens_are_of_base64url() {
        assert_eq!(check_token("LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0"), Ok(()));
        for token in ["", "a/b", "a b", "../x", "a\r\nb", "ä", &"a".repeat(LONGEST_TOKEN + 1)] {
            assert!(check_token(token).is_err(), "{token}");
        }
    }
}
