//! Access: the checks of a request between its route and the action of the route.
//!
//! The order is that of `docs/how-to/access.md`. Addresses are checked first ([`admits_address`]), for that costs nothing. What
//! costs more, or waits, comes last ([`Checking`]): names and passwords ([`basic`]), tokens ([`jwt`]), then
//! authentication servers ([`forward_auth`]). Whatever cannot be checked is refused.

mod basic;
mod forward_auth;
mod jwt;

use std::net::IpAddr;
use std::rc::Rc;

use http::{HeaderName, Method};
use offramp_http::head::{self, Fields, Response};
use offramp_http::semantics::protected;
use offramp_http::semantics::variables::NoValues;
use offramp_upstream::ServerBody;

use super::answer::ErrorReply;
use super::body::{ClientBody, ReplyContent};
use super::exchange::{FoundRoute, RequestContext, RequestOutcome};
use super::inbound::Inbound;
use super::session::Session;
use super::spelling;
use crate::snapshot::http::Access;
use forward_auth::AccessQuestion;

/// Clients with this address may enter, or may authenticate.
pub(crate) fn admits_address(access: &Access, client: Option<IpAddr>) -> bool {
    access.any || is_admitted(access, client)
}

fn is_admitted(access: &Access, client: Option<IpAddr>) -> bool {
    access.addresses.as_ref().is_none_or(|rules| rules.admits(client))
}

/// A request of a client with this address has to be authenticated. Where one rule is enough, an address is one only if
/// it is allowed by name: not to be denied is no reason to enter.
pub(crate) fn asks(access: &Access, client: Option<IpAddr>) -> bool {
    let rules = access.basic.is_some() || access.jwt.is_some() || access.forward.is_some();
    let is_allowed = || access.addresses.as_ref().is_some_and(|rules| rules.allows(client));
    rules && !(access.any && is_allowed())
}

/// A request that enters when its client was authenticated, with the parts that it needs then.
pub(crate) struct Checking<'e> {
    pub(crate) found: FoundRoute<'e>,
    pub(crate) body: Inbound,
    pub(crate) protocol: Option<Box<[u8]>>,
}

/// The fields that servers get because of a check.
pub(crate) type Grant = Vec<(HeaderName, Vec<u8>)>;

/// The outcome of the checks of a request.
#[derive(Default)]
pub(crate) struct Granted {
    /// The fields that servers get.
    fields: Grant,
    /// The values of `Set-Cookie` that the client gets, whatever else it gets.
    cookies: Vec<Vec<u8>>,
}

/// The denial of a request.
pub(crate) enum Denied {
    /// A refusal of our own.
    Refused(ErrorReply),
    /// An authentication server answers it.
    Answered(Box<Response<ServerBody<ClientBody>>>),
}

impl From<ErrorReply> for Denied {
    fn from(refusal: ErrorReply) -> Self {
        Self::Refused(refusal)
    }
}

impl Denied {
    /// The outcome of the request.
    pub(crate) fn outcome(self, request: &head::Request) -> RequestOutcome {
        match self {
            Self::Refused(refusal) => Err(refusal),
            // The server was asked by GET, so that there may be a body.
            Self::Answered(response) if request.method == Method::HEAD => {
                Ok(response.map(|_| ReplyContent::Empty))
            }
            Self::Answered(response) => {
                Ok(response.map(|body| ReplyContent::bounded(body, forward_auth::RESPONSE_MAX)))
            }
        }
    }
}

impl Checking<'_> {
    /// Checks a request. What follows from it is noted.
    pub(crate) async fn check(
        &self,
        session: &Rc<Session>,
        context: &RequestContext,
        request: &head::Request,
    ) -> Result<(), Denied> {
        let mut granted = Granted::default();
        let access = &self.found.route.access;
        let mut is_enough = false;
        match self.shown(session, context, &request.fields).await {
            Some(Ok(fields)) => {
                granted.fields.extend(fields);
                is_enough = access.any;
            }
            // The authentication server may let it in all the same.
            Some(Err(_)) if access.any && access.forward.is_some() => {}
            Some(Err(refusal)) => return Err(refusal.into()),
            None => {}
        }
        if let Some(auth) = &access.forward
            && !is_enough
        {
            let question = AccessQuestion { auth, access, request, path: request.normal_path() };
            let (fields, cookies) = forward_auth::check(session, context, question).await?;
            granted.fields.extend(fields);
            granted.cookies = cookies;
            for path in spelling::judged_besides(self.found.route, request) {
                let question = AccessQuestion { auth, access, request, path: &path };
                let (_, cookies) = Box::pin(forward_auth::check(session, context, question)).await?;
                // The session that was renewed last is the one that lasts.
                granted.cookies = Some(cookies).filter(|more| !more.is_empty()).unwrap_or(granted.cookies);
            }
        }
        // A request is checked once.
        let _ = context.extras().granted.set(granted);
        Ok(())
    }

    /// The outcome of what is checked here, in `Authorization`; `None` where nothing is.
    async fn shown(
        &self,
        session: &Rc<Session>,
        context: &RequestContext,
        fields: &Fields,
    ) -> Option<Result<Grant, ErrorReply>> {
        let access = &self.found.route.access;
        // A route has one of them.
        if let Some(basic) = &access.basic {
            return Some(basic::check(session, context, basic, fields).await);
        }
        match &access.jwt {
            Some(tokens) => Some(jwt::check(session, context, tokens, fields).await),
            None => None,
        }
    }
}

/// Takes out of a request what only checks may say, and has it say what they have granted.
pub(crate) fn settle(access: &Access, context: &RequestContext, fields: &mut Fields) {
    if access.reserved.is_empty() {
        return;
    }
    protected::drop_lookalikes(fields, &access.reserved);
    access.reserved.apply(fields, &NoValues);
    for (name, value) in context.granted().into_iter().flat_map(|granted| &granted.fields) {
        fields.append(name.as_str().as_bytes(), value);
    }
}

/// Has a response say what the client is to keep: an authentication server may renew a session while it lets a request pass.
pub(crate) fn tell_client(context: &RequestContext, fields: &mut Fields) {
    for cookie in context.granted().into_iter().flat_map(|granted| &granted.cookies) {
        fields.append(b"set-cookie", cookie);
    }
}
