//! The type-length-value vectors of a v2 header (specification §2.2, §2.2.1 to §2.2.8).
//!
//! Reading borrows and cannot fail: [`Tlvs`] exists only over bytes whose structure was checked. Values are
//! returned as received; callers validate them.

use std::str;

use super::MAX_UNIQUE_ID;
use crate::ProxyFault;

/// Assigned TLV types, by the names of the specification without `PP2_TYPE_` and `PP2_SUBTYPE_`.
pub mod kind {
    /// Protocol agreed by ALPN.
    pub const ALPN: u8 = 0x01;
    /// Host name that the client requested.
    pub const AUTHORITY: u8 = 0x02;
    /// CRC32c over the whole header.
    pub const CRC32C: u8 = 0x03;
    /// Padding, without a value.
    pub const NOOP: u8 = 0x04;
    /// Identifier of the connection.
    pub const UNIQUE_ID: u8 = 0x05;
    /// Container for the `SSL_*` sub-TLVs.
    pub const SSL: u8 = 0x20;
    /// TLS version, as in `TLSv1.3`.
    pub const SSL_VERSION: u8 = 0x21;
    /// Common name of the client certificate.
    pub const SSL_CN: u8 = 0x22;
    /// Cipher suite, by OpenSSL's name.
    pub const SSL_CIPHER: u8 = 0x23;
    /// Algorithm that signed the certificate of the frontend.
    pub const SSL_SIG_ALG: u8 = 0x24;
    /// Algorithm of the key of the certificate of the frontend.
    pub const SSL_KEY_ALG: u8 = 0x25;
    /// Key exchange group, as in `secp256r1`.
    pub const SSL_GROUP: u8 = 0x26;
    /// Signature scheme of the handshake.
    pub const SSL_SIG_SCHEME: u8 = 0x27;
    /// The client certificate, DER.
    pub const SSL_CLIENT_CERT: u8 = 0x28;
    /// Network namespace of the connection.
    pub const NETNS: u8 = 0x30;
}

/// Bit of [`TlsInfo::client`]: the client connected over TLS.
pub const CLIENT_SSL: u8 = 0x01;
/// Bit of [`TlsInfo::client`]: the client presented a certificate on this connection.
pub const CLIENT_CERT_CONN: u8 = 0x02;
/// Bit of [`TlsInfo::client`]: the client presented a certificate in this TLS session, possibly on an earlier
/// connection that this one resumes.
pub const CLIENT_CERT_SESS: u8 = 0x04;

/// Type and length of a TLV, in bytes.
const TLV_HEAD: usize = 3;
/// Fixed part of the SSL TLV: client and verify, in bytes.
const SSL_HEAD: usize = 5;

/// A vector: its type and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// Type of the TLV; see [`kind`].
    pub kind: u8,
    /// Value, up to 65,535 bytes.
    pub value: &'a [u8],
}

/// A well-formed sequence of TLVs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    /// Wraps `bytes` if the TLVs end where it ends.
    pub(super) fn framed(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, rest) = split(rest)?;
        }
        Some(Self(bytes))
    }

    /// Validates the values with a fixed form.
    pub(super) fn check_values(self) -> Result<(), ProxyFault> {
        for tlv in self {
            match tlv.kind {
                kind::UNIQUE_ID if tlv.value.len() > MAX_UNIQUE_ID => {
                    return Err(ProxyFault::UniqueIdTooLong(tlv.value.len()));
                }
                kind::SSL if TlsInfo::read(tlv.value).is_none() => return Err(ProxyFault::SslMalformed),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns true without any TLV, padding included.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// All TLVs in order, including unknown types; padding ([`kind::NOOP`]) is skipped.
    #[must_use]
    pub fn iter(self) -> TlvIter<'a> {
        TlvIter { rest: self.0 }
    }

    /// Value of the first TLV of this type.
    #[must_use]
    pub fn find(self, kind: u8) -> Option<&'a [u8]> {
        self.iter().find(|tlv| tlv.kind == kind).map(|tlv| tlv.value)
    }

    /// Protocol agreed by ALPN.
    #[must_use]
    pub fn alpn(self) -> Option<&'a [u8]> {
        self.find(kind::ALPN)
    }

    /// Host name that the client requested; `None` also if it is not UTF-8. It is not validated further.
    #[must_use]
    pub fn authority(self) -> Option<&'a str> {
        self.find(kind::AUTHORITY).and_then(|value| str::from_utf8(value).ok())
    }

    /// Identifier of the connection, at most [`MAX_UNIQUE_ID`] bytes.
    #[must_use]
    pub fn unique_id(self) -> Option<&'a [u8]> {
        self.find(kind::UNIQUE_ID)
    }

    /// Parameters of the client's TLS session.
    #[must_use]
    pub fn tls(self) -> Option<TlsInfo<'a>> {
        self.find(kind::SSL).and_then(TlsInfo::read)
    }
}

impl<'a> IntoIterator for Tlvs<'a> {
    type Item = Tlv<'a>;
    type IntoIter = TlvIter<'a>;

    fn into_iter(self) -> TlvIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Tlvs`]; skips padding.
#[derive(Debug, Clone)]
pub struct TlvIter<'a> {
    rest: &'a [u8],
}

impl TlvIter<'_> {
    /// Number of unread bytes.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for TlvIter<'a> {
    type Item = Tlv<'a>;

    fn next(&mut self) -> Option<Tlv<'a>> {
        loop {
            let (tlv, rest) = split(self.rest)?;
            self.rest = rest;
            if tlv.kind != kind::NOOP {
                return Some(tlv);
            }
        }
    }
}

/// Splits off the first TLV; `None` at the end and if the TLV is truncated.
fn split(bytes: &[u8]) -> Option<(Tlv<'_>, &[u8])> {
    let (&[kind, high, low], rest) = bytes.split_first_chunk::<TLV_HEAD>()?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
    Some((Tlv { kind, value }, rest))
}

/// Parameters of the client's TLS session (§2.2.6). Text that is not UTF-8 reads as absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TlsInfo<'a> {
    /// Bits: [`CLIENT_SSL`], [`CLIENT_CERT_CONN`], [`CLIENT_CERT_SESS`].
    pub client: u8,
    /// 0 if the client presented a certificate that was verified, nonzero otherwise.
    pub verify: u32,
    /// TLS version, as in `TLSv1.3`.
    pub version: Option<&'a str>,
    /// Common name of the client certificate's subject.
    pub common_name: Option<&'a str>,
    /// Cipher suite, by OpenSSL's name, as in `ECDHE-RSA-AES128-GCM-SHA256`.
    pub cipher: Option<&'a str>,
    /// Algorithm that signed the certificate of the frontend, as in `RSA-SHA256`.
    pub signature_algorithm: Option<&'a str>,
    /// Algorithm of the key of the certificate of the frontend, as in `RSA2048`.
    pub key_algorithm: Option<&'a str>,
    /// Key exchange group, as in `secp256r1`.
    pub group: Option<&'a str>,
    /// Signature scheme of the handshake, as in `rsa_pss_rsae_sha256`.
    pub signature_scheme: Option<&'a str>,
    /// The client certificate, DER.
    pub client_certificate: Option<&'a [u8]>,
}

impl<'a> TlsInfo<'a> {
    /// Parses the value of an SSL TLV.
    fn read(value: &'a [u8]) -> Option<Self> {
        let (&[client, a, b, c, d], rest) = value.split_first_chunk::<SSL_HEAD>()?;
        let subs = Tlvs::framed(rest)?;
        let text = |kind| subs.find(kind).and_then(|value| str::from_utf8(value).ok());
        Some(Self {
            client,
            verify: u32::from_be_bytes([a, b, c, d]),
            version: text(kind::SSL_VERSION),
            common_name: text(kind::SSL_CN),
            cipher: text(kind::SSL_CIPHER),
            signature_algorithm: text(kind::SSL_SIG_ALG),
            key_algorithm: text(kind::SSL_KEY_ALG),
            group: text(kind::SSL_GROUP),
            signature_scheme: text(kind::SSL_SIG_SCHEME),
            client_certificate: subs.find(kind::SSL_CLIENT_CERT),
        })
    }

    /// Appends the SSL TLV with the sub-TLVs that fit; the certificate comes last.
    pub(super) fn write(&self, out: &mut TlvWriter<'_>) {
        let start = out.out.len();
        if !out.has_room(SSL_HEAD) {
            return;
        }
        out.put(kind::SSL, &[]);
        out.out.push(self.client);
        out.out.extend_from_slice(&self.verify.to_be_bytes());
        for (kind, text) in [
            (kind::SSL_VERSION, self.version),
            (kind::SSL_CN, self.common_name),
            (kind::SSL_CIPHER, self.cipher),
            (kind::SSL_SIG_ALG, self.signature_algorithm),
            (kind::SSL_KEY_ALG, self.key_algorithm),
            (kind::SSL_GROUP, self.group),
            (kind::SSL_SIG_SCHEME, self.signature_scheme),
        ] {
            out.put_some(kind, text.map(str::as_bytes));
        }
        out.put_some(kind::SSL_CLIENT_CERT, self.client_certificate);
        let length = length_bytes(out.out.len() - start - TLV_HEAD);
        out.out[start + 1..start + TLV_HEAD].copy_from_slice(&length);
    }
}

/// Appends TLVs while there is room. A TLV that does not fit is omitted, never truncated.
pub(super) struct TlvWriter<'o> {
    pub(super) out: &'o mut Vec<u8>,
    /// Maximum length of `out`; less than 2^16 above its initial length.
    pub(super) end: usize,
}

impl TlvWriter<'_> {
    /// Appends a TLV, if it fits.
    pub(super) fn put(&mut self, kind: u8, value: &[u8]) {
        if self.has_room(value.len()) {
            self.out.push(kind);
            self.out.extend_from_slice(&length_bytes(value.len()));
            self.out.extend_from_slice(value);
        }
    }

    /// Appends a TLV, if it has a value that fits.
    pub(super) fn put_some(&mut self, kind: u8, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.put(kind, value);
        }
    }

    /// Checks that a TLV with a value of this length fits.
    fn has_room(&self, length: usize) -> bool {
        self.end.checked_sub(self.out.len()).is_some_and(|room| TLV_HEAD + length <= room)
    }
}

/// A length in network order. It fits 16 bits: [`TlvWriter`] admits less than 2^16 bytes.
fn length_bytes(length: usize) -> [u8; 2] {
    debug_assert!(u16::try_from(length).is_ok());
    (length as u16).to_be_bytes()
}
