//! The first bytes of a connection: a PROXY header from networks that must send one, then a ClientHello that is
//! looked at, not taken. Before that, clients of some protocols ask for TLS.

mod postgres;

use offramp_net::{Buffer, Socket};
use offramp_observe::facts::{EndpointAddress, NameList, TlsOffer};
use offramp_observe::{Cause, Close};
use offramp_wire::client_hello::{self, ClientHello};
use offramp_wire::proxy::{Header, ProxyAddresses, ProxyCommand};
use offramp_wire::{DetectedProtocol, HelloFault, ParseStep, sniff};
use rustls::SignatureScheme;

use crate::failure;
pub(crate) use postgres::{PostgresGreeting, preamble as postgres_preamble};

/// Room for one read: a ClientHello with post-quantum key shares fits.
const READ_ROOM: usize = 4096;

/// The response to plain HTTP on a TLS port, as nginx has it.
pub(crate) const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 70\r\n\
    Connection: close\r\n\r\nThis port speaks TLS, and the request was plain HTTP. Use https:// .\r\n";

/// Ends of the client's connection by a PROXY header; `None` if the header leaves them at the real peer.
pub(crate) type Claimed = Option<ClaimedEndpoints>;

/// The two ends of the connection that this one was made for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClaimedEndpoints {
    pub(crate) client: EndpointAddress,
    pub(crate) destination: EndpointAddress,
}

impl ClaimedEndpoints {
    fn of(header: &Header<'_>) -> Claimed {
        let path = |path: &[u8]| EndpointAddress::Unix((!path.is_empty()).then(|| path.into()));
        match (header.command, header.addresses) {
            (ProxyCommand::Proxy, ProxyAddresses::Tcp { source, destination }) => Some(Self {
                client: EndpointAddress::Ip(source),
                destination: EndpointAddress::Ip(destination),
            }),
            (ProxyCommand::Proxy, ProxyAddresses::Unix { source, destination }) => {
                Some(Self { client: path(source), destination: path(destination) })
            }
            (ProxyCommand::Local, _) | (_, ProxyAddresses::Unspec) => None,
        }
    }
}

/// Reads a PROXY header, which must be there, from the front of `buffer`.
pub(crate) async fn proxy_header(socket: &Socket, buffer: &mut Buffer) -> Result<Claimed, Close> {
    loop {
        let (claimed, consumed) = match offramp_wire::proxy::parse(buffer.filled()) {
            ParseStep::Need(_) => {
                if more(socket, buffer).await? == 0 {
                    return Err(Close::from(Cause::ProxyMissing).with_detail("the connection ended first"));
                }
                continue;
            }
            ParseStep::Reject(fault) => {
                let cause = match sniff(buffer.filled()) {
                    ParseStep::Done {
                        value: DetectedProtocol::ProxyV1 | DetectedProtocol::ProxyV2, ..
                    } => Cause::ProxyMalformed,
                    _ => Cause::ProxyMissing,
                };
                return Err(Close::from(cause).with_detail(&fault.to_string()));
            }
            ParseStep::Done { value, consumed } => (ClaimedEndpoints::of(&value), consumed),
        };
        buffer.consume(consumed);
        return Ok(claimed);
    }
}

/// The first bytes of a client.
pub(crate) enum Greeting {
    /// A whole ClientHello, not parsed yet.
    Hello,
    /// Something that cannot be looked at. rustls refuses it, or knows better.
    Odd(HelloFault),
    /// Nothing that is served here, or nothing at all.
    Refused(Close),
}

/// Waits until it is known what the front of `buffer` is. Nothing is consumed.
pub(crate) async fn client_hello(socket: &Socket, buffer: &mut Buffer) -> Greeting {
    loop {
        let seen = buffer.filled();
        let verdict = match sniff(seen) {
            ParseStep::Done { value: DetectedProtocol::Tls, .. } => client_hello::arrived(seen),
            ParseStep::Done { value: DetectedProtocol::Http, .. } => {
                return Greeting::Refused(Cause::PlainHttp.into());
            }
            ParseStep::Done { value: DetectedProtocol::ProxyV1 | DetectedProtocol::ProxyV2, .. } => {
                return Greeting::Refused(Cause::ProxyStranger.into());
            }
            ParseStep::Done { value: DetectedProtocol::Sslv2 | DetectedProtocol::Unknown, .. } => {
                ParseStep::Reject(HelloFault::NotTls)
            }
            ParseStep::Need(more) => ParseStep::Need(more),
            ParseStep::Reject(never) => match never {},
        };
        match verdict {
            ParseStep::Done { .. } => return Greeting::Hello,
            ParseStep::Reject(fault) => return Greeting::Odd(fault),
            ParseStep::Need(_) => {}
        }
        match more(socket, buffer).await {
            Ok(1..) => {}
            Ok(0) if buffer.is_empty() => return Greeting::Refused(Cause::ClientSilent.into()),
            Ok(0) => return Greeting::Refused(Cause::HandshakeAbandoned.into()),
            Err(close) => return Greeting::Refused(close),
        }
    }
}

async fn more(socket: &Socket, buffer: &mut Buffer) -> Result<usize, Close> {
    buffer.read_from(socket, READ_ROOM).await.map_err(|error| failure::client(&error))
}

/// The offer of a client, by name.
pub(crate) fn offer(hello: &ClientHello<'_>) -> TlsOffer {
    let names = |numbers: &mut dyn Iterator<Item = u16>,
                 name: fn(u16) -> client_hello::RegistryName|
     -> NameList { numbers.map(|number| name(number).to_string()).collect() };
    TlsOffer {
        versions: names(&mut hello.versions(), client_hello::version_name),
        suites: names(&mut hello.suites(), client_hello::suite_name),
        groups: names(&mut hello.groups(), client_hello::group_name),
        schemes: names(&mut hello.schemes(), client_hello::scheme_name),
        alpn: hello.alpn().collect(),
    }
}

/// The signature schemes that can choose a certificate, in the way of rustls: up to TLS 1.2 the suite
/// says which kind of key signs, so a scheme without a suite of its kind is as good as not offered.
pub(crate) fn usable_schemes(hello: &ClientHello<'_>) -> Vec<SignatureScheme> {
    let offers = |suites: &[u16]| hello.suites().any(|suite| suites.contains(&suite));
    let (any, ecdsa, rsa) = (offers(&TLS13_SUITES), offers(&ECDSA_SUITES), offers(&RSA_SUITES));
    let usable = |scheme: &u16| match scheme {
        0x0201 | 0x0401 | 0x0501 | 0x0601 | 0x0804..=0x0806 => rsa,
        // Ed25519 and Ed448 go with the suites of ECDSA (RFC 8422 §5.1.1).
        0x0203 | 0x0403 | 0x0503 | 0x0603 | 0x0807 | 0x0808 => ecdsa,
        _ => false,
    };
    hello.schemes().filter(|scheme| any || usable(scheme)).map(SignatureScheme::from).collect()
}

/// The suites of TLS 1.3, which leave the kind of key open.
const TLS13_SUITES: [u16; 3] = [0x1301, 0x1302, 0x1303];
/// The suites of TLS 1.2 that an ECDSA key signs for.
const ECDSA_SUITES: [u16; 3] = [0xc02b, 0xc02c, 0xcca9];
/// The suites of TLS 1.2 that an RSA key signs for.
const RSA_SUITES: [u16; 3] = [0xc02f, 0xc030, 0xcca8];

#[cfg(test)]
mod tests {
    use super::PLAIN_HTTP;

    #[test]
    fn the_answer_to_plain_http_has_the_length_that_it_says() {
        let text = std::str::from_utf8(PLAIN_HTTP).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
