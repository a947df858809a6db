//! The PROXY header that a server gets before anything else.

use std::net::SocketAddr;

use offramp_certs::Certificate;
use offramp_net::Socket;
use offramp_observe::facts::{Address, TlsFacts};
use offramp_observe::{ConnectionFacts, ConnectionId};
use offramp_tls::Negotiated;
use offramp_wire::client_hello::openssl_suite_name;
use offramp_wire::proxy::{CLIENT_CERT_CONN, CLIENT_CERT_SESS, CLIENT_SSL, Endpoint, Outbound, TlsInfo};

use crate::snapshot::SendProxy;

/// What the TLS part of a header is made of.
pub(crate) struct TlsPart<'a> {
    pub(crate) negotiated: &'a Negotiated,
    /// The certificate that the client was shown.
    pub(crate) certificate: Option<&'a Certificate>,
}

/// What a header tells of a connection.
pub(crate) struct About<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) client: &'a Address,
    /// Where the client connected to.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) tls: &'a TlsFacts,
}

impl<'a> About<'a> {
    pub(crate) fn connection(facts: &'a ConnectionFacts, socket: &Socket) -> Self {
        let (client, tls) = (&facts.client.address, &facts.tls);
        Self { id: facts.id, client, local: socket.local_address(), tls }
    }
}

/// Builds the header for a connection. One that would be too long leaves out the client's
/// certificate.
pub(crate) fn build(version: SendProxy, facts: &About<'_>, tls: Option<&TlsPart<'_>>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let (source, destination) = endpoints(facts.client, facts.local);
    let id = facts.id.to_bytes();
    let mut header = Outbound::new(source, destination);
    match version {
        SendProxy::V1 => header.encode_v1(&mut out),
        SendProxy::V2 { crc32c, client_certificate } => {
            header.alpn = facts.tls.alpn.as_deref();
            header.authority = facts.tls.sni.as_deref();
            header.unique_id = Some(&id);
            header.crc32c = crc32c;
            header.tls = tls.map(|part| info(facts, part, client_certificate));
            if header.encode_v2(&mut out).is_err() {
                header.tls = tls.map(|part| info(facts, part, false));
                if header.encode_v2(&mut out).is_err() {
                    header.tls = None;
                    let _ = header.encode_v2(&mut out);
                }
            }
        }
    }
    out
}

fn endpoints(source: &Address, destination: Option<SocketAddr>) -> (Endpoint<'_>, Endpoint<'_>) {
    match (source, destination) {
        (Address::Ip(source), Some(destination)) => (Endpoint::Inet(*source), Endpoint::Inet(destination)),
        // A client's address that came through a Unix socket: the port it arrived at is unknown.
        (Address::Ip(source), None) => {
            let unknown = SocketAddr::new(if source.is_ipv4() { [0; 4].into() } else { [0; 16].into() }, 0);
            (Endpoint::Inet(*source), Endpoint::Inet(unknown))
        }
        (Address::Unix(path), _) => {
            let path = path.as_deref().unwrap_or_default().as_bytes();
            (Endpoint::Unix(path), Endpoint::Unix(&[]))
        }
    }
}

fn info<'a>(facts: &'a About<'_>, part: &TlsPart<'a>, with_certificate: bool) -> TlsInfo<'a> {
    let description = part.certificate.map(|certificate| &certificate.description);
    let certificate = part.negotiated.client_certificate.as_deref();
    let shown = match (certificate, part.negotiated.resumed) {
        (None, _) => 0,
        (Some(_), true) => CLIENT_CERT_SESS,
        (Some(_), false) => CLIENT_CERT_CONN | CLIENT_CERT_SESS,
    };
    let suite = u16::from(part.negotiated.suite);
    TlsInfo {
        client: CLIENT_SSL | shown,
        verify: u32::from(certificate.is_none()),
        version: facts.tls.version.map(offramp_observe::facts::TlsVersion::name),
        common_name: facts.tls.client_cn.as_deref().and_then(|name| std::str::from_utf8(name).ok()),
        cipher: openssl_suite_name(suite).or(facts.tls.suite),
        signature_algorithm: description.map(|description| &*description.signature_algorithm),
        key_algorithm: description.map(|description| &*description.key_algorithm),
        group: facts.tls.group,
        signature_scheme: facts.tls.scheme,
        client_certificate: certificate.filter(|_| with_certificate),
    }
}
