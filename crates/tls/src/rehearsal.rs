//! The answer of a server to a ClientHello, without a client: for questions about clients that are refused.
//!
//! rustls itself answers, with the configuration that the client would get, so that the verdict is the one of a
//! handshake. Only what follows the first flight of the server stays open, such as the certificate of a client.

use std::sync::Arc;

use offramp_record::Alert;
use rustls::server::{AcceptedAlert, Acceptor};
use rustls::{Error, HandshakeKind};

use crate::error::{HandshakeError, HandshakeFault};
use crate::secrets::Secrets;
use crate::setup::Configs;

/// Parameters that a server chooses for a ClientHello, by their code points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerChoice {
    /// The protocol version, as in a ServerHello of it.
    pub version: Option<u16>,
    /// The cipher suite in the order of the server.
    pub suite: Option<u16>,
    /// Key-exchange group. TLS 1.2 has none before the client has answered.
    pub group: Option<u16>,
    /// The application protocol, where both sides have ALPN.
    pub alpn: Option<Vec<u8>>,
    /// Set if the server asks for a key share of another group, which takes another round trip.
    pub retries: bool,
}

impl Configs {
    /// The choice for the ClientHello in `records`, which offers `suites`. Costs the CPU time of a handshake.
    ///
    /// # Errors
    /// The handshake would fail: the fault, and the alert that the client would get.
    pub fn rehearse(&self, suites: &[u16], mut records: &[u8]) -> Result<ServerChoice, HandshakeError> {
        let mut acceptor = Acceptor::default();
        let accepted = loop {
            if records.is_empty() {
                return Err(HandshakeFault::Closed.into());
            }
            acceptor.read_tls(&mut records)?;
            if let Some(accepted) = acceptor.accept().map_err(|(error, alert)| refused(error, alert))? {
                break accepted;
            }
        };
        let connection = accepted.into_connection(Arc::clone(self.for_client(suites)));
        // The secrets of a handshake that is not continued; the next one on this thread must not find them.
        Secrets::default().catch();
        let connection = connection.map_err(|(error, alert)| refused(error, alert))?;
        Ok(ServerChoice {
            version: connection.protocol_version().map(u16::from),
            suite: connection.negotiated_cipher_suite().map(|suite| suite.suite().into()),
            group: connection.negotiated_key_exchange_group().map(|group| group.name().into()),
            alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
            retries: connection.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest),
        })
    }
}

fn refused(error: Error, mut alert: AcceptedAlert) -> HandshakeError {
    let mut record = Vec::new();
    // Writing to a vector cannot fail; a record of an alert ends with its description.
    let _ = alert.write_all(&mut record);
    HandshakeError {
        fault: HandshakeFault::Tls(error),
        alert: record.last().copied().map(Alert),
        refused: None,
    }
}
