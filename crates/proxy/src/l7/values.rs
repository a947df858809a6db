//! The values of variables in rules for fields: what is known of a request, its connection and its response.
//!
//! What a request asked for is noted before a route rewrites it, and only where the rules of the route have variables. A
//! value that does not exist, such as a certificate without TLS, is empty.

use std::io::Write as _;

use http::Method;
use offramp_http::head::Request;
use offramp_http::semantics::variables::{FieldVariable, VariableValues};
use offramp_observe::facts::EndpointAddress;

use super::client_certificate::VerifiedClient;
use super::exchange::RequestContext;
use super::session::Session;
use crate::snapshot::http::HttpRoute;

/// Target that a request asked for, as it came, and its id, which its record forgets when it ends.
pub(crate) struct AskedTarget {
    method: Method,
    /// Path and query as the client sent them.
    target: Box<str>,
    id: Box<str>,
}

/// Sources of the values of one request.
pub(crate) struct RequestValues<'r> {
    pub(crate) session: &'r Session,
    pub(crate) context: &'r RequestContext,
    pub(crate) route: &'r HttpRoute,
}

/// Notes what rules of `route` may speak of.
pub(crate) fn note(context: &RequestContext, route: &HttpRoute, request: &Request) {
    if route.headers.variables {
        let (method, target) = (request.method.clone(), request.target().into());
        // A request is given a route once.
        let _ = context.extras().asked.set(AskedTarget { method, target, id: context.record.id() });
    }
}

impl RequestValues<'_> {
    /// The port of the client; `None` where proxies name the client, or it came by a Unix socket.
    fn client_port(&self) -> Option<u16> {
        match &self.session.brief.client.address {
            EndpointAddress::Ip(address) if self.context.named.is_none() => Some(address.port()),
            _ => None,
        }
    }

    fn text(&self, variable: FieldVariable) -> Option<&str> {
        let asked = self.context.asked();
        let target = || asked.map(|asked| &*asked.target);
        let tls = self.session.brief.tls.as_ref();
        let parts = || self.session.client_certificate().map(VerifiedClient::parts);
        match variable {
            FieldVariable::Host => self.context.host.as_deref(),
            FieldVariable::Scheme => Some(self.session.scheme.name()),
            FieldVariable::Method => asked.map(|asked| asked.method.as_str()),
            FieldVariable::Uri => target(),
            FieldVariable::Path => target()?.split('?').next(),
            FieldVariable::Query => Some(target()?.split_once('?')?.1),
            FieldVariable::Id => asked.map(|asked| &*asked.id),
            FieldVariable::Route => Some(&self.route.name),
            FieldVariable::TlsVersion => Some(tls?.version?.name()),
            FieldVariable::TlsCipher => tls?.suite,
            FieldVariable::TlsSni => tls?.sni.as_deref(),
            FieldVariable::CertificateName => Some(&parts()?.common_name),
            FieldVariable::CertificateSubject => Some(&parts()?.subject),
            FieldVariable::CertificateIssuer => Some(&parts()?.issuer),
            FieldVariable::CertificateSerial => Some(&parts()?.serial),
            FieldVariable::CertificateDns => Some(&parts()?.dns),
            FieldVariable::CertificateUri => Some(&parts()?.uri),
            FieldVariable::CertificateFingerprint => Some(&parts()?.fingerprint),
            // They are written from other forms.
            FieldVariable::Client
            | FieldVariable::ClientPort
            | FieldVariable::Server
            | FieldVariable::CertificateEnd => None,
        }
    }
}

impl VariableValues for RequestValues<'_> {
    fn write(&self, variable: FieldVariable, out: &mut Vec<u8>) {
        // Writing to memory cannot fail.
        let _ = match variable {
            FieldVariable::Client => match self.context.named.or(self.session.ip) {
                Some(ip) => write!(out, "{ip}"),
                None => Ok(()),
            },
            FieldVariable::ClientPort => match self.client_port() {
                Some(port) => write!(out, "{port}"),
                None => Ok(()),
            },
            FieldVariable::Server => match self.context.record.path().and_then(|path| path.server) {
                Some(server) => out.write_all(server.as_bytes()),
                None => Ok(()),
            },
            FieldVariable::CertificateEnd => {
                match self.session.client_certificate().and_then(VerifiedClient::until) {
                    Some(end) => out.write_all(httpdate::fmt_http_date(end).as_bytes()),
                    None => Ok(()),
                }
            }
            _ => out.write_all(self.text(variable).unwrap_or_default().as_bytes()),
        };
    }
}
