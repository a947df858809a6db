//! The demo's knowledge of a client: the PROXY header that Offramp sends first.

use std::io;

use offramp_wire::ParseStep;
use offramp_wire::proxy::{self, Header, MAX_HEADER, ProxyAddresses};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Description of a client from the PROXY header; missing fields are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Labels and values, in the order of the page.
    pub(crate) facts: Vec<(&'static str, String)>,
}

/// Reads the header at the beginning of `stream`, and no byte after it.
///
/// # Errors
/// The stream fails or ends, or does not begin with a PROXY header.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Seen> {
    let mut buffer = Vec::new();
    loop {
        match proxy::parse(&buffer) {
            ParseStep::Done { value, .. } => return Ok(facts(&value)),
            // The parser never requests a byte beyond the header.
            ParseStep::Need(more) if buffer.len() + more <= MAX_HEADER => {
                let have = buffer.len();
                buffer.resize(have + more, 0);
                stream.read_exact(&mut buffer[have..]).await?;
            }
            ParseStep::Need(_) | ParseStep::Reject(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn facts(header: &Header<'_>) -> Seen {
    let mut facts = Vec::new();
    match header.addresses {
        ProxyAddresses::Tcp { source, destination } => {
            facts.push(("client", source.to_string()));
            facts.push(("connected to", destination.to_string()));
        }
        ProxyAddresses::Unix { .. } => facts.push(("client", "on a Unix socket".to_owned())),
        ProxyAddresses::Unspec => {}
    }
    let tls = header.tlvs.tls().unwrap_or_default();
    let texts = [
        ("server name", header.tlvs.authority()),
        ("TLS version", tls.version),
        ("cipher suite", tls.cipher),
        ("key exchange", tls.group),
        ("signature", tls.signature_scheme),
    ];
    facts.extend(texts.into_iter().filter_map(|(name, text)| Some((name, text?.to_owned()))));
    if let Some(alpn) = header.tlvs.alpn() {
        facts.push(("protocol", String::from_utf8_lossy(alpn).into_owned()));
    }
    Seen { facts }
}
