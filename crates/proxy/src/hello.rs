//! The rules that a ClientHello meets before the handshake, in the order of their functions here: pure. A connection
//! applies them, and a rehearsal.

use std::net::IpAddr;
use std::sync::Arc;

use offramp_certs::Certificate;
use offramp_certs::store::{MatchKind, Pick};
use offramp_observe::{Cause, Close};
use offramp_record::Alert;
use offramp_tls::Configs;
use offramp_wire::client_hello::{ClientHello, Ja4};
use rustls::SignatureScheme;

use crate::snapshot::{Listener, Route, Strangers};

/// The versions of TLS that there can be in common.
const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;

/// A refusal of a ClientHello: the alert for the client, and the cause of the end.
pub(crate) type Refused = (Alert, Cause);

/// Refuses a client that begins with TLS where others ask for it first, unless it names the protocol.
pub(crate) fn protocol(direct: bool, hello: &ClientHello<'_>) -> Result<(), Refused> {
    if direct && !hello.offers_alpn(offramp_wire::postgres::ALPN) {
        // As PostgreSQL: without it, a client of another protocol could be led here (ALPACA).
        return Err((Alert::NO_APPLICATION_PROTOCOL, Cause::NoCommonAlpn));
    }
    Ok(())
}

/// Chooses the route by the server name and the protocols of the client.
pub(crate) fn route<'l>(listener: &'l Listener, hello: &ClientHello<'_>) -> Result<&'l Route, Refused> {
    let host = hello.server_name().host();
    let found = listener.routes.find(host, |protocol| hello.offers_alpn(protocol));
    found.ok_or_else(|| match listener.routes.for_host(host).next() {
        // There are routes for its name, of other protocols (RFC 7301 §3.2).
        Some(_) => (Alert::NO_APPLICATION_PROTOCOL, Cause::NoCommonAlpn),
        None => (unknown_name(hello), Cause::NoRoute),
    })
}

/// Applies the rules of a route for fingerprints and addresses of clients.
pub(crate) fn client(route: &Route, ja4: Option<Ja4>, address: Option<IpAddr>) -> Result<(), Refused> {
    if ja4.is_some_and(|ja4| route.deny_ja4.has(ja4.as_str())) {
        // As BoringSSL does for Envoy where a ClientHello is refused.
        return Err((Alert::HANDSHAKE_FAILURE, Cause::Ja4Denied));
    }
    match &route.addresses {
        Some(rules) if !rules.admits(address) => Err((Alert::ACCESS_DENIED, Cause::AddressDenied)),
        _ => Ok(()),
    }
}

/// Refuses a client without a version of TLS in common, before anything else is looked for: the suites and schemes of
/// an old client say nothing.
pub(crate) fn version(route: &Route, hello: &ClientHello<'_>) -> Result<(), Refused> {
    let Some(configs) = route.target.tls() else { return Ok(()) };
    let is_common = |version| configs.speaks(version) && hello.offers_version(version);
    match [TLS13, TLS12].into_iter().any(is_common) {
        true => Ok(()),
        false => Err((Alert::PROTOCOL_VERSION, Cause::NoCommonVersion)),
    }
}

/// The certificate of a pick, unless no default one is for this client.
pub(crate) fn certificate<'s>(
    strangers: Strangers,
    hello: &ClientHello<'_>,
    pick: Pick<'s>,
) -> Result<&'s Arc<Certificate>, Refused> {
    let is_refused = match hello.server_name().host() {
        Some(_) => strangers.unknown_name,
        None => strangers.without_name,
    };
    match pick {
        Pick::Found { by: MatchKind::Default, .. } if is_refused => {
            Err((unknown_name(hello), Cause::UnknownName))
        }
        Pick::Found { certificate, .. } => Ok(certificate),
        Pick::NoneForName => Err((unknown_name(hello), Cause::UnknownName)),
    }
}

/// Refuses a client that cannot verify any signature of the key, but shares a suite. rustls ends such a handshake without
/// an alert where the suite fits the key and the scheme does not, as with Ed25519 in TLS 1.2.
pub(crate) fn signature(
    route: &Route,
    hello: &ClientHello<'_>,
    certificate: &Certificate,
    schemes: &[SignatureScheme],
) -> Result<(), Refused> {
    if certificate.suits(schemes) || !route.target.tls().is_some_and(|configs| shares_suite(configs, hello)) {
        return Ok(());
    }
    Err((Alert::HANDSHAKE_FAILURE, Cause::NoCommonScheme))
}

fn shares_suite(configs: &Configs, hello: &ClientHello<'_>) -> bool {
    let suites: Vec<u16> = hello.suites().collect();
    configs.shares_suite(&suites, |version| hello.offers_version(version))
}

/// The alert for a client that names a host without a route.
fn unknown_name(hello: &ClientHello<'_>) -> Alert {
    match hello.server_name().host() {
        // RFC 8446 §9.2: a server that needs the name says that it is missing.
        None if hello.offers_version(TLS13) => Alert::MISSING_EXTENSION,
        _ => Alert::UNRECOGNIZED_NAME,
    }
}

/// The end of a handshake that rustls has refused, by what the client lacks first: rustls looks at the groups and
/// schemes before the suites, and a client of old suites has no use for those.
pub(crate) fn explain(close: Close, configs: &Configs, hello: &ClientHello<'_>) -> Close {
    if !matches!(close.cause, Cause::NoCommonGroup | Cause::NoCommonScheme) {
        return close;
    }
    if shares_suite(configs, hello) {
        return close;
    }
    Close { cause: Cause::NoCommonSuite, ..close }.with_detail("no cipher suite in common")
}
