//! The verdict on a ClientHello without a connection: the rules of a listener, then the handshake as far as the server
//! alone can do it.

use std::net::IpAddr;
use std::sync::Arc;

use offramp_certs::Certificate;
use offramp_certs::store::{MatchKind, Pick};
use offramp_observe::facts::FatalAlert;
use offramp_observe::{Cause, Close};
use offramp_record::Alert;
use offramp_tls::{Configs, Offers, ServerChoice};
use offramp_wire::client_hello::{self, ClientHello};
use offramp_wire::{HelloFault, ParseStep};

use crate::hello::{self, Refused};
use crate::snapshot::{Listener, ListenerTls, Route, Target};
use crate::{failure, greeting};

/// The way of a ClientHello through a listener.
#[derive(Clone, Debug)]
pub struct HelloTrial {
    /// The name of the route that takes the connection.
    pub route: Option<Arc<str>>,
    /// The certificate that the client is shown, and how it was found.
    pub certificate: Option<(Arc<Certificate>, MatchKind)>,
    /// Versions, suites, groups and protocols on offer.
    pub offers: Option<Offers>,
    /// The end of it.
    pub verdict: HelloVerdict,
}

/// The end of a ClientHello's way.
#[derive(Clone, Debug)]
pub enum HelloVerdict {
    /// The TLS of the client passes to a server as it came.
    Passes,
    /// The handshake goes on.
    Agreed(ServerChoice),
    /// The client is refused.
    Refused {
        /// The cause that the event of the connection has.
        cause: Cause,
        /// The alert that the client gets, if any.
        alert: Option<Alert>,
        /// More about the cause.
        detail: String,
    },
}

/// Gives the verdict on the ClientHello in `records` from a client with this address; without an address, the rules for
/// addresses are left out. `None` for a listener without TLS.
///
/// A certificate that could be ordered on demand is not waited for. Costs the CPU time of a handshake.
#[must_use]
pub fn rehearse(listener: &Listener, records: &[u8], client: Option<IpAddr>) -> Option<HelloTrial> {
    let tls = listener.tls.as_ref()?;
    let mut trial =
        HelloTrial { route: None, certificate: None, offers: None, verdict: HelloVerdict::Passes };
    let parsed = client_hello::peek(records);
    trial.verdict = match &parsed {
        ParseStep::Done { value, .. } => {
            let rehearsal = Rehearsal { listener, tls, hello: value, records, client };
            rehearsal.run(&mut trial).unwrap_or_else(|close| refused(&close))
        }
        ParseStep::Reject(fault) => refused(&odd(tls, *fault, records)),
        ParseStep::Need(_) => refused(&Cause::HandshakeAbandoned.into()),
    };
    Some(trial)
}

struct Rehearsal<'r> {
    listener: &'r Listener,
    tls: &'r ListenerTls,
    hello: &'r ClientHello<'r>,
    records: &'r [u8],
    client: Option<IpAddr>,
}

impl Rehearsal<'_> {
    fn run(&self, trial: &mut HelloTrial) -> Result<HelloVerdict, Close> {
        let Self { listener, tls, hello, records, client } = *self;
        if let (Some(rules), Some(_)) = (&listener.addresses, client)
            && !rules.admits(client)
        {
            return Err(Cause::AddressDenied.into());
        }
        let route = hello::route(listener, hello).map_err(sent)?;
        trial.route = Some(Arc::clone(&route.name));
        let ja4 = (!route.deny_ja4.is_empty()).then(|| hello.ja4());
        match hello::client(route, ja4, client) {
            Err((_, Cause::AddressDenied)) if client.is_none() => {}
            Err(refused) => return Err(sent(refused)),
            Ok(()) => {}
        }
        if matches!(route.target, Target::Passthrough(_)) {
            return Ok(HelloVerdict::Passes);
        }
        self.terminate(route, tls, records, trial)
    }

    fn terminate(
        &self,
        route: &Route,
        tls: &ListenerTls,
        records: &[u8],
        trial: &mut HelloTrial,
    ) -> Result<HelloVerdict, Close> {
        let configs = route.target.tls().unwrap_or(&tls.fallback);
        trial.offers = Some(configs.offers());
        hello::version(route, self.hello).map_err(sent)?;
        let schemes = greeting::usable_schemes(self.hello);
        let pick = tls.store.pick(self.hello.server_name().host(), &schemes);
        if let Pick::Found { certificate, by } = pick {
            trial.certificate = Some((Arc::clone(certificate), by));
        }
        let certificate = hello::certificate(tls.strangers, self.hello, pick).map_err(sent)?;
        hello::signature(route, self.hello, certificate, &schemes).map_err(sent)?;
        let suites: Vec<u16> = self.hello.suites().collect();
        let choice = configs.rehearse(&suites, records);
        choice
            .map(HelloVerdict::Agreed)
            .map_err(|error| self.failed(configs, failure::handshake(&error, None)))
    }

    fn failed(&self, configs: &Configs, close: Close) -> Close {
        hello::explain(close, configs, self.hello)
    }
}

/// The end of a hello that cannot be read here: rustls knows the alert, or accepts it in vain.
fn odd(tls: &ListenerTls, fault: HelloFault, records: &[u8]) -> Close {
    match tls.fallback.rehearse(&[], records) {
        Err(error) => failure::handshake(&error, Some(fault)),
        Ok(_) => sent((Alert::UNEXPECTED_MESSAGE, failure::hello_cause(fault))),
    }
}

fn sent(refused: Refused) -> Close {
    let (alert, cause) = refused;
    failure::sent(cause.into(), alert)
}

fn refused(close: &Close) -> HelloVerdict {
    let alert = match close.alert {
        Some(FatalAlert::Sent(alert)) => Some(alert),
        _ => None,
    };
    HelloVerdict::Refused {
        cause: close.cause,
        alert,
        detail: close.detail.as_deref().unwrap_or_default().to_owned(),
    }
}
