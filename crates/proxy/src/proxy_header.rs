//! The PROXY header that a server gets before anything else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use offramp_certs::Certificate;
use offramp_net::Socket;
use offramp_observe::facts::{ClientFacts, EndpointAddress, TlsFacts};
use offramp_observe::{ConnectionFacts, ConnectionId};
use offramp_tls::Negotiated;
use offramp_wire::client_hello::openssl_suite_name;
use offramp_wire::proxy::{
    CLIENT_CERT_CONN, CLIENT_CERT_SESS, CLIENT_SSL, OutboundHeader, ProxyEndpoint, TlsInfo,
};

use crate::snapshot::SendProxy;

/// Facts in the TLS part of a header.
pub(crate) struct TlsPart<'a> {
    pub(crate) negotiated: &'a Negotiated,
    /// The certificate that the client was shown.
    pub(crate) certificate: Option<&'a Certificate>,
}

/// The facts of a connection for a header.
pub(crate) struct About<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) client: &'a ClientFacts,
    /// Our end of the connection.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) tls: &'a TlsFacts,
}

impl<'a> About<'a> {
    pub(crate) fn connection(facts: &'a ConnectionFacts, socket: &Socket) -> Self {
        Self { id: facts.id, client: &facts.client, local: socket.local_address(), tls: &facts.tls }
    }
}

/// Builds the header for a connection; there always is one.
pub(crate) fn build(version: SendProxy, facts: &About<'_>, tls: Option<&TlsPart<'_>>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let (source, destination) = endpoints(facts);
    let id = facts.id.to_bytes();
    let mut header = OutboundHeader::new(source, destination);
    match version {
        SendProxy::V1 => header.encode_v1(&mut out),
        SendProxy::V2 { tls: with_tls, crc32c, client_certificate } => {
            if with_tls {
                header.alpn = facts.tls.alpn.as_deref();
                header.authority = facts.tls.sni.as_deref();
                header.tls = tls.map(|part| info(facts, part, client_certificate));
            }
            header.unique_id = Some(&id);
            header.crc32c = crc32c;
            header.encode_v2(&mut out);
        }
    }
    out
}

/// Builds the header for a client that trusted proxies name in a request. Of it only the address is known: what the
/// connection says of TLS is about the last of these proxies, and is left out.
pub(crate) fn build_named(version: SendProxy, facts: &About<'_>, named: IpAddr) -> Vec<u8> {
    let reached = match &facts.client.destination {
        Some(EndpointAddress::Ip(claimed)) => Some(*claimed),
        Some(EndpointAddress::Unix(_)) => None,
        None => facts.local,
    };
    let source = SocketAddr::new(named.to_canonical(), 0);
    // Version 1 has no place for two families, and would leave the client out (§2.1).
    let destination = match reached.map(|reached| (reached.ip().to_canonical(), reached.port())) {
        Some((ip, port)) if ip.is_ipv4() == source.is_ipv4() => SocketAddr::new(ip, port),
        other => SocketAddr::new(unspecified(source.ip()), other.map_or(0, |(_, port)| port)),
    };
    let client = ClientFacts { address: source.into(), peer: None, destination: Some(destination.into()) };
    let about = About { id: facts.id, client: &client, local: None, tls: &TlsFacts::default() };
    build(version, &about, None)
}

/// No address of the same family.
fn unspecified(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// The client, and where it connected to: as a believed header says, else our end.
fn endpoints<'a>(about: &About<'a>) -> (ProxyEndpoint<'a>, ProxyEndpoint<'a>) {
    let source = endpoint(&about.client.address);
    if let Some(claimed) = &about.client.destination {
        return (source, endpoint(claimed));
    }
    let destination = match (source, about.local) {
        (ProxyEndpoint::Inet(_), Some(local)) => ProxyEndpoint::Inet(local),
        // A client's address that came through a Unix socket: the port it arrived at is unknown.
        (ProxyEndpoint::Inet(source), None) => {
            ProxyEndpoint::Inet(SocketAddr::new(unspecified(source.ip()), 0))
        }
        (ProxyEndpoint::Unix(_), _) => ProxyEndpoint::Unix(&[]),
    };
    (source, destination)
}

fn endpoint(address: &EndpointAddress) -> ProxyEndpoint<'_> {
    match address {
        EndpointAddress::Ip(address) => ProxyEndpoint::Inet(*address),
        EndpointAddress::Unix(path) => ProxyEndpoint::Unix(path.as_deref().unwrap_or_default()),
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

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use offramp_observe::IdSource;
    use offramp_wire::ParseStep;
    use offramp_wire::proxy::{Header, ProxyAddresses, ProxyCommand, ProxyHeaderVersion, parse};
    use proptest::prelude::*;

    use super::*;

    fn addresses() -> impl Strategy<Value = EndpointAddress> {
        let path = prop::collection::vec(any::<u8>(), 0..200);
        prop_oneof![
            any::<SocketAddr>().prop_map(EndpointAddress::Ip),
            path.prop_map(|path| EndpointAddress::Unix((!path.is_empty()).then(|| path.into()))),
        ]
    }

    fn versions() -> impl Strategy<Value = SendProxy> {
        let second = any::<(bool, bool, bool)>()
            .prop_map(|(tls, crc32c, client_certificate)| SendProxy::V2 { tls, crc32c, client_certificate });
        prop_oneof![Just(SendProxy::V1), second]
    }

    /// The header, which is all that was written.
    fn read(bytes: &[u8]) -> Header<'_> {
        match parse(bytes) {
            ParseStep::Done { value, consumed } if consumed == bytes.len() => value,
            other => panic!("{other:?} from {}", bytes.escape_ascii()),
        }
    }

    fn built(version: SendProxy, client: &ClientFacts, local: Option<SocketAddr>, tls: &TlsFacts) -> Vec<u8> {
        let id = IdSource::new(0, 0).next(UNIX_EPOCH);
        build(version, &About { id, client, local, tls }, None)
    }

    proptest! {
        /// A server that wants a header gets one, whatever is known of the client.
        #[test]
        fn there_always_is_a_header(
            version in versions(),
            address in addresses(),
            destination in prop::option::of(addresses()),
            local in any::<Option<SocketAddr>>(),
            sni in prop::option::of("[ -~]{0,20000}"),
            alpn in prop::option::of(prop::collection::vec(any::<u8>(), 0..20_000)),
        ) {
            let client = ClientFacts { address, peer: None, destination };
            let tls = TlsFacts {
                sni: sni.map(Into::into),
                alpn: alpn.map(Into::into),
                ..TlsFacts::default()
            };
            let bytes = built(version, &client, local, &tls);
            let header = read(&bytes);
            prop_assert_eq!(header.command, ProxyCommand::Proxy);
            prop_assert_eq!(header.version == ProxyHeaderVersion::V1, version == SendProxy::V1);
            // Only what is longer than any name leaves no room for it.
            let long = tls.sni.as_ref().map_or(0, |sni| sni.len()) + tls.alpn.as_ref().map_or(0, |alpn| alpn.len());
            prop_assert!(long > 7000 || header.tlvs.unique_id().is_some() == (version != SendProxy::V1));
        }
    }

    #[test]
    fn a_path_is_any_bytes_and_one_that_is_too_long_is_left_out() {
        let v2 = SendProxy::V2 { tls: true, crc32c: true, client_certificate: false };
        for (path, fits) in
            [(b"\0\xff\xfe".repeat(36), true), (vec![b'x'; 108], true), (vec![b'x'; 109], false)]
        {
            let address = EndpointAddress::Unix(Some(path.clone().into()));
            let client = ClientFacts { address, peer: None, destination: None };
            let bytes = built(v2, &client, None, &TlsFacts::default());
            let expected = ProxyAddresses::Unix { source: &path, destination: b"" };
            assert_eq!(read(&bytes).addresses, if fits { expected } else { ProxyAddresses::Unspec });
        }
    }

    #[test]
    fn who_is_named_is_the_source_whatever_family_the_connection_has() {
        let v2 = SendProxy::V2 { tls: true, crc32c: false, client_certificate: true };
        let of = |text: &str| text.parse::<SocketAddr>().unwrap();
        let tls = TlsFacts { sni: Some("a.test".into()), ..TlsFacts::default() };
        for (named, claimed, source, destination) in [
            ("203.0.113.9", None, "203.0.113.9:0", "127.0.0.1:8443"),
            ("203.0.113.9", Some("[2001:db8::1]:443"), "203.0.113.9:0", "0.0.0.0:443"),
            ("::ffff:203.0.113.9", Some("198.51.100.7:443"), "203.0.113.9:0", "198.51.100.7:443"),
            ("2001:db8::9", None, "[2001:db8::9]:0", "[::]:8443"),
        ] {
            let client = ClientFacts {
                address: of("10.0.0.1:5000").into(),
                peer: None,
                destination: claimed.map(|text| of(text).into()),
            };
            let id = IdSource::new(0, 0).next(UNIX_EPOCH);
            let about = About { id, client: &client, local: Some(of("127.0.0.1:8443")), tls: &tls };
            for version in [SendProxy::V1, v2] {
                let bytes = build_named(version, &about, named.parse().unwrap());
                let header = read(&bytes);
                let expected = ProxyAddresses::Tcp { source: of(source), destination: of(destination) };
                assert_eq!(header.addresses, expected, "{named} {claimed:?}");
                assert!(header.tlvs.authority().is_none() && header.tlvs.tls().is_none());
            }
        }
    }

    #[test]
    fn the_facts_of_tls_can_be_left_out() {
        let client: ClientFacts = ClientFacts {
            address: "192.0.2.1:4000".parse::<SocketAddr>().unwrap().into(),
            peer: None,
            destination: None,
        };
        let tls =
            TlsFacts { sni: Some("a.test".into()), alpn: Some(b"h2"[..].into()), ..TlsFacts::default() };
        for with_tls in [true, false] {
            let version = SendProxy::V2 { tls: with_tls, crc32c: true, client_certificate: false };
            let bytes = built(version, &client, None, &tls);
            let header = read(&bytes);
            assert_eq!(header.tlvs.authority().is_some(), with_tls);
            assert_eq!(header.tlvs.alpn().is_some(), with_tls);
            assert!(header.tlvs.unique_id().is_some());
        }
    }

    #[test]
    fn a_chained_header_carries_what_the_first_one_claimed() {
        let v2 = SendProxy::V2 { tls: true, crc32c: false, client_certificate: false };
        let of = |text: &str| text.parse::<SocketAddr>().unwrap();
        let local = Some(of("127.0.0.1:8443"));
        let claims = |destination: Option<&str>| ClientFacts {
            address: of("192.0.2.1:4000").into(),
            peer: Some(of("10.0.0.1:5000").into()),
            destination: destination.map(|text| of(text).into()),
        };
        for (claimed, sent) in [(Some("198.51.100.7:443"), "198.51.100.7:443"), (None, "127.0.0.1:8443")] {
            for version in [SendProxy::V1, v2] {
                let bytes = built(version, &claims(claimed), local, &TlsFacts::default());
                let expected = ProxyAddresses::Tcp { source: of("192.0.2.1:4000"), destination: of(sent) };
                assert_eq!(read(&bytes).addresses, expected);
            }
        }
    }
}
