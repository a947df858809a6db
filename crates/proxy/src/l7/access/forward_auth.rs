//! An authentication server decides: Authelia, Authentik, oauth2-proxy, or what speaks as they do.
//!
//! It gets the fields of the request, without its body, and what was asked for in `X-Forwarded-*`. With a 2xx the request
//! goes on, and takes fields of the response along; its cookies are for the client. Any other response, of a bounded size, is
//! for the client: a page to log in, or a no. Where none comes in time the client gets 503.

use std::rc::Rc;

use http::{HeaderName, Method, StatusCode};
use offramp_http::head::{Fields, Known, Request};
use offramp_http::host::Authority;
use offramp_http::semantics::variables::NoValues;
use offramp_http::semantics::{hop_by_hop, protected};
use offramp_observe::facts::ClientScheme;
use offramp_observe::{Cause, Close};
use offramp_upstream::{Affinity, ConnectEvent, Timeouts};
use tokio::time::timeout;

use super::{Denied, Grant};
use crate::l7::answer::ErrorReply;
use crate::l7::body::{ClientBody, UploadLimits};
use crate::l7::exchange::RequestContext;
use crate::l7::forward::join_cookies;
use crate::l7::forwarded_fields;
use crate::l7::inbound::Inbound;
use crate::l7::session::Session;
use crate::l7::unwanted::forget;
use crate::snapshot::http::{Access, ForwardAuth};

/// Fields of a request that concern its body, or a copy that its client has; the names are in lower case.
const NOT_OF_CLIENTS: [&str; 14] = [
    "content-length",
    "content-type",
    "content-encoding",
    "content-range",
    "expect",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "max-forwards",
    "range",
    "trailer",
    "transfer-encoding",
];
/// By these, too, authentication servers learn what was asked for, from proxies of other makes: never from clients.
const CLAIMS: [&str; 6] = [
    "x-auth-request-redirect",
    "x-original-host",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
];
/// The longest name of a user in events, in bytes.
const USER_MAX: usize = 255;

/// The largest response for a client, in bytes: a page to log in has some tens of kilobytes.
pub(super) const RESPONSE_MAX: u64 = 1 << 20;

/// One question to an authentication server.
#[derive(Clone, Copy)]
pub(super) struct AccessQuestion<'q> {
    pub(super) auth: &'q ForwardAuth,
    pub(super) access: &'q Access,
    pub(super) request: &'q Request,
    /// The path that is judged: the normal form of the request's, or another one that a server may see in it.
    pub(super) path: &'q str,
}

/// Asks the server about a request, for a path of it. Gives the fields that go along, and the values of `Set-Cookie` for the client.
pub(super) async fn check(
    session: &Rc<Session>,
    context: &RequestContext,
    question: AccessQuestion<'_>,
) -> Result<(Grant, Vec<Vec<u8>>), Denied> {
    let AccessQuestion { auth, .. } = question;
    let question = asked(session, context, question);
    let backend = &context.view.snapshot.backends[auth.backend];
    let progress = |progress: ConnectEvent<'_>| session.worker.count_attempt(progress);
    let about = Affinity {
        client: context.named.or(session.ip),
        tls: session.scheme == ClientScheme::Https,
        private: None,
        progress: &progress,
        interim: None,
        timeouts: Timeouts { connect: None, response: Some(auth.timeout), body: Some(auth.timeout) },
    };
    let bounds = UploadLimits { timeout: auth.timeout, rate: 0, most: None };
    let body = ClientBody::new(Inbound::Empty, Rc::clone(&context.record), bounds);
    // The time for a connection and a turn is part of it.
    let asked = timeout(auth.timeout, session.http.pools.send(backend, (&question, body), &about)).await;
    let answer = asked.map_err(|_| unavailable("no response came in time"))?;
    let answer = answer.map_err(|failed| unavailable(&failed.fault.to_string()))?;
    let mut response = answer.response;
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(unavailable("it answered 101"));
    }
    hop_by_hop::clean_response(&mut response.fields);
    if !response.status.is_success() {
        if response.body.length().is_some_and(|length| length > RESPONSE_MAX) {
            return Err(unavailable("its response has more than 1 MiB"));
        }
        return Err(Denied::Answered(Box::new(response)));
    }
    let grant = granted(&auth.headers, &response.fields);
    if let Some((name, user)) = grant.first()
        && auth.headers.first() == Some(name)
        && user.len() <= USER_MAX
    {
        context.record.note(|facts| facts.request.user = Some(user.as_slice().into()));
    }
    let cookies = response.fields.named(b"set-cookie").map(<[u8]>::to_vec).collect();
    let mut body = response.body;
    if !body.is_end_stream() {
        forget(move |cx| body.poll_frame(cx));
    }
    Ok((grant, cookies))
}

fn unavailable(why: &str) -> Denied {
    let close = Close::from(Cause::AuthUnavailable).with_detail(why);
    ErrorReply::new(StatusCode::SERVICE_UNAVAILABLE, close).into()
}

/// The request to the authentication server.
fn asked(
    session: &Session,
    context: &RequestContext,
    AccessQuestion { auth, access, request, path }: AccessQuestion<'_>,
) -> Request {
    let mut question = Request::new();
    question.set_method(Method::GET);
    question.set_target(auth.target.as_bytes());
    let fields = &mut question.fields;
    // The host by which the route was found, whatever case or final dot a client wrote.
    let host = request.host().map(|asked| host(context.host.as_deref(), asked));
    if let Some(host) = &host {
        fields.append_known(Known::Host, host);
    }
    copy(&request.fields, fields);
    join_cookies(fields);
    hop_by_hop::clean_request(fields, &[]);
    protected::drop_claims(fields, false);
    protected::drop_lookalikes(fields, &access.reserved);
    access.reserved.apply(fields, &NoValues);
    let client = forwarded_fields::address(context.named.or(session.ip));
    fields.append_known(Known::XForwardedFor, client.as_bytes());
    if let Some(ip) = context.named.or(session.ip) {
        fields.append(forwarded_fields::X_REAL_IP, ip.to_string().as_bytes());
    }
    fields.append_known(Known::XForwardedProto, scheme(session, context, request));
    // Never one that a trusted proxy tells: the route was found by this one, and many let a client's pass.
    if let Some(host) = &host {
        fields.append_known(Known::XForwardedHost, host);
    }
    fields.append(b"x-forwarded-method", request.method.as_str().as_bytes());
    let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
    fields.append(b"x-forwarded-uri", format!("{path}{query}").as_bytes());
    context.record.tell_id(fields);
    question
}

/// The normal form of a host, with the port that the client wrote.
fn host(normal: Option<&str>, asked: &[u8]) -> Vec<u8> {
    let Some(normal) = normal else { return asked.to_vec() };
    let port = Authority::parse(asked).ok().and_then(|authority| authority.port());
    port.map_or_else(|| normal.to_owned(), |port| format!("{normal}:{port}")).into_bytes()
}

/// The scheme by which the client came: to a trusted proxy, if that says so, else to us.
fn scheme<'r>(session: &Session, context: &RequestContext, request: &'r Request) -> &'r [u8] {
    let said = request.fields.get(Known::XForwardedProto).filter(|_| context.view.trusted);
    let said = said.filter(|scheme| matches!(*scheme, b"http" | b"https"));
    said.unwrap_or(session.scheme.name().as_bytes())
}

/// Copies the fields of a request that do not concern its body.
fn copy(from: &Fields, to: &mut Fields) {
    for (name, value) in from.iter() {
        let is = |known: &str| protected::same(name, known);
        if name != b"host" && !NOT_OF_CLIENTS.into_iter().chain(CLAIMS).any(is) {
            to.append(name, value);
        }
    }
}

/// The fields that go along.
fn granted(headers: &[HeaderName], fields: &Fields) -> Grant {
    let of = |name: &HeaderName| {
        let values = fields.named(name.as_str().as_bytes());
        values.map(|value| (name.clone(), value.to_vec())).collect::<Vec<_>>()
    };
    headers.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_the_body_or_lies_to_the_server_is_not_copied() {
        let kept = ["accept", "authorization", "cookie", "user-agent", "x-original-sender"];
        let lies = ["x_original_url", "x-original_uri", "if_none_match"];
        let mut from = Fields::new();
        for name in kept.into_iter().chain(lies).chain(NOT_OF_CLIENTS).chain(CLAIMS) {
            from.append(name.as_bytes(), b"1");
        }
        let mut to = Fields::new();
        copy(&from, &mut to);
        let names: Vec<_> = to.iter().map(|(name, _)| std::str::from_utf8(name).unwrap()).collect();
        assert_eq!(names, kept);
    }

    #[test]
    fn hosts_have_their_normal_form() {
        for (normal, asked, expected) in [
            (Some("a.test"), "A.Test", "a.test"),
            (Some("a.test"), "a.TEST.:8443", "a.test:8443"),
            (Some("[::1]"), "[0:0::1]:8443", "[::1]:8443"),
            (None, "", ""),
        ] {
            assert_eq!(host(normal, asked.as_bytes()), expected.as_bytes(), "{asked}");
        }
    }

    #[test]
    fn fields_go_along_in_the_order_of_the_list_and_no_others() {
        let listed = ["remote-user", "remote-groups"].map(HeaderName::from_static);
        let said =
            [("remote-groups", "a"), ("x-secret", "1"), ("remote-user", "anna"), ("remote-groups", "b")];
        let grant = granted(&listed, &said.into_iter().collect());
        let grant: Vec<_> = grant.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
        assert_eq!(
            grant,
            [("remote-user", &b"anna"[..]), ("remote-groups", &b"a"[..]), ("remote-groups", &b"b"[..])]
        );
    }
}
