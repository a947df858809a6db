//! The ClientHello that is sent and the ServerHello that comes back (RFC 8446 §4.1, RFC 5246 §7.4.1).
//!
//! Exactly one suite, one key share (x25519) and one version are offered, so that a server has nothing
//! to choose. A HelloRetryRequest is not followed.

use super::suite::{Suite, Version};
use super::wire::{Reader, handshake, message, vector};
use crate::Error;

/// What the ClientHello says.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only suite that is offered.
    pub suite: Suite,
    /// The name in `server_name`; absent: no such extension.
    pub server_name: Option<String>,
    /// The protocols in ALPN, in order; empty: no such extension.
    pub alpn: Vec<String>,
    /// The version in the header of the record around the ClientHello.
    pub record_version: [u8; 2],
    /// TLS 1.3: announces 0-RTT data under a ticket that no server knows (RFC 8446 §4.2.10).
    pub early_data: bool,
    /// Bytes of a `padding` extension (RFC 7685), to make the ClientHello large; 0: no such extension.
    pub padding: usize,
}

impl Options {
    /// The plainest ClientHello of this suite, for the server name `localhost`.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        Self {
            suite,
            server_name: Some("localhost".into()),
            alpn: Vec::new(),
            record_version: [3, 1],
            early_data: false,
            padding: 0,
        }
    }
}

/// Signature schemes offered: all that a server could have a key for; nothing is verified.
const SIGNATURES: [u16; 9] = [0x0403, 0x0503, 0x0603, 0x0807, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501];

/// The random values and the key share of one ClientHello.
pub(crate) struct Material<'a> {
    pub(crate) random: &'a [u8; 32],
    pub(crate) session_id: &'a [u8],
    pub(crate) share: &'a [u8],
}

/// The whole handshake message.
pub(crate) fn client_hello(options: &Options, material: &Material<'_>) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(material.random);
    vector(&mut body, 1, material.session_id);
    vector(&mut body, 2, &numbers(options.suite.ids()));
    vector(&mut body, 1, &[0]);
    vector(&mut body, 2, &extensions(options, material));
    handshake(message::CLIENT_HELLO, &body)
}

fn extensions(options: &Options, material: &Material<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(name) = &options.server_name {
        let mut entry = vec![0];
        vector(&mut entry, 2, name.as_bytes());
        extension(&mut out, 0, &vectored(2, &entry));
    }
    if !options.alpn.is_empty() {
        let mut names = Vec::new();
        options.alpn.iter().for_each(|name| vector(&mut names, 1, name.as_bytes()));
        extension(&mut out, 16, &vectored(2, &names));
    }
    extension(&mut out, 10, &vectored(2, &numbers(groups(options.suite.version))));
    extension(&mut out, 13, &vectored(2, &numbers(&SIGNATURES)));
    if options.padding > 0 {
        extension(&mut out, 21, &vec![0; options.padding]);
    }
    match options.suite.version {
        Version::Tls12 => {
            extension(&mut out, 11, &[1, 0]);
            extension(&mut out, EXTENDED_MASTER_SECRET, b"");
            extension(&mut out, 0xff01, &[0]);
        }
        Version::Tls13 => {
            extension(&mut out, SUPPORTED_VERSIONS, &[2, 3, 4]);
            let mut share = numbers(&[X25519]);
            vector(&mut share, 2, material.share);
            extension(&mut out, KEY_SHARE, &vectored(2, &share));
            extension(&mut out, 45, &[1, 1]);
            if options.early_data {
                extension(&mut out, 42, b"");
                extension(&mut out, 41, &unknown_ticket(options.suite));
            }
        }
    }
    out
}

/// TLS 1.2 has one list for the key exchange and for the curves of certificates (RFC 8422 §5.1.1), so
/// the latter stand behind; a server that prefers one of them for the key exchange is not followed.
fn groups(version: Version) -> &'static [u16] {
    match version {
        Version::Tls12 => &[X25519, SECP256R1, SECP384R1],
        Version::Tls13 => &[X25519],
    }
}

/// A `pre_shared_key` extension (RFC 8446 §4.2.11) with a ticket that cannot be known.
fn unknown_ticket(suite: Suite) -> Vec<u8> {
    let mut identity = vectored(2, &[0xa5; 48]);
    identity.extend_from_slice(&[0, 0, 0, 1]);
    let mut body = vectored(2, &identity);
    vector(&mut body, 2, &vectored(1, &vec![0x5a; suite.hash_len()]));
    body
}

fn extension(out: &mut Vec<u8>, number: u16, body: &[u8]) {
    out.extend_from_slice(&number.to_be_bytes());
    vector(out, 2, body);
}

fn vectored(width: usize, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    vector(&mut out, width, body);
    out
}

fn numbers(list: &[u16]) -> Vec<u8> {
    list.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// What the server chose.
pub(crate) struct ServerHello {
    pub(crate) random: [u8; 32],
    /// The server's x25519 share; TLS 1.3 only.
    pub(crate) share: Option<Vec<u8>>,
    /// TLS 1.2: the master secret covers the transcript (RFC 7627).
    pub(crate) extended_master_secret: bool,
}

impl ServerHello {
    /// Reads the body of a ServerHello and refuses what was not offered.
    pub(crate) fn parse(suite: Suite, body: &[u8]) -> Result<Self, Error> {
        let broken = || Error::peer("a ServerHello that ends too early");
        let mut reader = Reader(body);
        reader.take(2).ok_or_else(broken)?;
        let random: [u8; 32] = reader.take(32).and_then(|bytes| bytes.try_into().ok()).ok_or_else(broken)?;
        if random == RETRY {
            return Err(Error::peer("a HelloRetryRequest where one group was offered"));
        }
        reader.vector(1).ok_or_else(broken)?;
        let id = reader.number(2).ok_or_else(broken)?;
        if !suite.ids().iter().any(|&offered| usize::from(offered) == id) {
            return Err(Error::peer(format!("the server chose suite {id:#06x}, which was not offered")));
        }
        reader.take(1).ok_or_else(broken)?;
        let mut hello = Self { random, share: None, extended_master_secret: false };
        let mut version = Version::Tls12;
        let mut extensions = Reader(reader.vector(2).unwrap_or_default());
        while let Some(number) = extensions.number(2) {
            let body = extensions.vector(2).ok_or_else(broken)?;
            match u16::try_from(number).unwrap_or_default() {
                EXTENDED_MASTER_SECRET => hello.extended_master_secret = true,
                KEY_SHARE => {
                    hello.share = Reader(body.get(2..).unwrap_or_default()).vector(2).map(<[u8]>::to_vec);
                }
                SUPPORTED_VERSIONS if body == [3, 4] => version = Version::Tls13,
                _ => {}
            }
        }
        if version != suite.version {
            return Err(Error::peer(format!("the server chose {version:?}, which was not offered")));
        }
        Ok(hello)
    }
}

const X25519: u16 = 0x001d;
const SECP256R1: u16 = 0x0017;
const SECP384R1: u16 = 0x0018;
const EXTENDED_MASTER_SECRET: u16 = 23;
const SUPPORTED_VERSIONS: u16 = 43;
const KEY_SHARE: u16 = 51;
/// The random value that marks a HelloRetryRequest (RFC 8446 §4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
