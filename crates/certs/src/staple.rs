//! OCSP responses for stapling (RFC 6960, RFC 6066 §8), read from a file beside the certificate.
//!
//! The checks cover operators' mistakes: the file must be a response, for this certificate, with status good,
//! and current. The signature is for the client to verify.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aws_lc_rs::digest::{self, Algorithm, digest};
use x509_parser::time::ASN1Time;

use crate::clock;

/// A response that can be stapled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Staple {
    pub(crate) der: Vec<u8>,
    /// The end of its validity; `None` if the responder gives none.
    pub(crate) until: Option<SystemTime>,
}

/// The maximum size of a response, in bytes: most have one or two KiB.
pub(crate) const MAX_SIZE: u64 = 64 << 10;

/// The paths of the response for the certificate in `cert`: `NAME.ocsp` for `NAME.pem`, then `NAME.pem.ocsp`.
#[must_use]
pub fn places(cert: &Path) -> [PathBuf; 2] {
    let mut beside = cert.as_os_str().to_owned();
    beside.push(".ocsp");
    [cert.with_extension("ocsp"), beside.into()]
}

/// The identification of a certificate (CertID, RFC 6960 §4.1.1). Serial numbers are unique per authority
/// only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OcspSubject<'a> {
    /// The name of the issuer in DER.
    pub(crate) issuer: &'a [u8],
    /// The bits of the issuer's public key. `None` if its certificate is unknown; then the name must do.
    pub(crate) issuer_key: Option<&'a [u8]>,
    /// The serial number, as the content of its INTEGER.
    pub(crate) serial: &'a [u8],
}

/// Parses a response for this certificate.
///
/// # Errors
/// The reason for which it cannot be stapled.
pub(crate) fn read(der: Vec<u8>, subject: OcspSubject<'_>, now: SystemTime) -> Result<Staple, String> {
    let single = find(&der, subject)?;
    match single.status {
        GOOD => {}
        REVOKED => return Err("it says that the certificate is REVOKED; have a new one issued".to_owned()),
        _ => return Err("it says that the responder does not know the certificate".to_owned()),
    }
    if single.next_update.is_some_and(|until| until <= now) {
        return Err("it is out of date; fetch a new one".to_owned());
    }
    Ok(Staple { der, until: single.next_update })
}

/// The status of one certificate in a response.
struct CertificateStatus {
    status: u8,
    next_update: Option<SystemTime>,
}

const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const ENUMERATED: u8 = 0x0a;
const TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;

/// The OID id-pkix-ocsp-basic (RFC 6960 §4.2.1).
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 48, 1, 1];

/// The hash algorithms in certificate identifiers: id-sha1 and those of NIST.
fn algorithm(oid: &[u8]) -> Option<&'static Algorithm> {
    Some(match oid {
        [0x2b, 0x0e, 3, 2, 0x1a] => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => &digest::SHA256,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2] => &digest::SHA384,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3] => &digest::SHA512,
        _ => return None,
    })
}

/// The CertID in a response.
struct CertId<'a> {
    hash: &'a [u8],
    issuer: &'a [u8],
    issuer_key: &'a [u8],
    serial: &'a [u8],
}

impl CertId<'_> {
    fn names(&self, subject: OcspSubject<'_>) -> bool {
        // Compares serial numbers first, to hash only on a match.
        let Some(hash) = algorithm(self.hash).filter(|_| self.serial == subject.serial) else { return false };
        let is_of = |bytes: &[u8], expected: &[u8]| digest(hash, bytes).as_ref() == expected;
        is_of(subject.issuer, self.issuer) && subject.issuer_key.is_none_or(|key| is_of(key, self.issuer_key))
    }
}

fn find(der: &[u8], subject: OcspSubject<'_>) -> Result<CertificateStatus, String> {
    let broken = || "it is not an OCSP response in DER".to_owned();
    let mut response = DerReader(DerReader(der).expect(SEQUENCE).ok_or_else(broken)?);
    let status = response.expect(ENUMERATED).ok_or_else(broken)?;
    if status != [0] {
        return Err(format!("the responder has answered with an error ({})", status.first().unwrap_or(&0)));
    }
    let all = basic(&mut response).ok_or_else(broken)?;
    let mut singles = DerReader(all);
    while !singles.0.is_empty() {
        let (id, single) = single(&mut singles).ok_or_else(broken)?;
        if id.names(subject) {
            return Ok(single);
        }
    }
    Err("it is for another certificate".to_owned())
}

/// The list of single responses in the bytes after the status.
fn basic<'a>(response: &mut DerReader<'a>) -> Option<&'a [u8]> {
    let mut bytes = DerReader(DerReader(response.expect(0xa0)?).expect(SEQUENCE)?);
    if bytes.expect(OID)? != BASIC {
        return None;
    }
    let mut basic = DerReader(DerReader(bytes.expect(OCTETS)?).expect(SEQUENCE)?);
    let mut data = DerReader(basic.expect(SEQUENCE)?);
    // The version is omitted if it is the first, the only one.
    if data.0.first() == Some(&0xa0) {
        data.any()?;
    }
    // Skips the responder, by name or by key, and the time of production.
    data.any()?;
    data.expect(TIME)?;
    data.expect(SEQUENCE)
}

/// Parses the next single response.
fn single<'a>(singles: &mut DerReader<'a>) -> Option<(CertId<'a>, CertificateStatus)> {
    let mut single = DerReader(singles.expect(SEQUENCE)?);
    let mut id = DerReader(single.expect(SEQUENCE)?);
    let hash = DerReader(id.expect(SEQUENCE)?).expect(OID)?;
    let (issuer, issuer_key) = (id.expect(OCTETS)?, id.expect(OCTETS)?);
    let id = CertId { hash, issuer, issuer_key, serial: id.expect(INTEGER)? };
    let (status, _) = single.any()?;
    single.expect(TIME)?;
    let next_update = match single.0.first() {
        Some(0xa0) => Some(time(DerReader(single.expect(0xa0)?).expect(TIME)?)?),
        _ => None,
    };
    Some((id, CertificateStatus { status, next_update }))
}

/// Parses GeneralizedTime in the only form that DER allows here: `20261122235959Z`.
fn time(text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != 14 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| text[range].parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (hour, minute, second) = (number(8..10)?, number(10..12)?, number(12..14)?);
    // Days from the civil date, by Howard Hinnant's method.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    ASN1Time::from_timestamp(seconds).ok().map(clock::from_asn1)
}

/// Reads DER element by element.
struct DerReader<'a>(&'a [u8]);

impl<'a> DerReader<'a> {
    /// The content of the next element, which must have this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.any()?;
        (found == tag).then_some(content)
    }

    /// The tag and the content of the next element.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, length, rest @ ..] = self.0 else { return None };
        let (length, rest) = match usize::from(*length) {
            short @ ..=0x7f => (short, rest),
            long @ 0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(long - 0x80)?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut der = vec![tag];
        match content.len() {
            short @ ..=0x7f => der.push(short as u8),
            long => der.extend_from_slice(&[0x82, (long >> 8) as u8, long as u8]),
        }
        der.extend_from_slice(content);
        der
    }

    const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
    const SHA256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
    const OURS: OcspSubject<'_> =
        OcspSubject { issuer: b"issuer", issuer_key: Some(b"its key"), serial: &[0x12, 0x67] };

    /// A response for the certificate `OURS`.
    fn response(status: u8, next_update: Option<&str>) -> Vec<u8> {
        response_by(SHA1, status, next_update)
    }

    fn response_by(hash: &[u8], status: u8, next_update: Option<&str>) -> Vec<u8> {
        // An unknown algorithm hashes to nothing.
        let hashed =
            |bytes: &[u8]| algorithm(hash).map_or(Vec::new(), |hash| digest(hash, bytes).as_ref().to_vec());
        let [issuer, key] = [hashed(b"issuer"), hashed(b"its key")].map(|hash| element(OCTETS, &hash));
        let null = [5, 0];
        let hash = element(SEQUENCE, &[&element(OID, hash)[..], &null].concat());
        let id = [hash, issuer, key, element(INTEGER, &[0x12, 0x67])].concat();
        let until =
            next_update.map(|text| element(0xa0, &element(TIME, text.as_bytes()))).unwrap_or_default();
        let single = [element(SEQUENCE, &id), element(status, b""), element(TIME, b"20260101000000Z"), until];
        let singles = element(SEQUENCE, &element(SEQUENCE, &single.concat()));
        let data = [element(0xa2, b"key"), element(TIME, b"20260101000000Z"), singles].concat();
        let basic = [element(SEQUENCE, &data), element(SEQUENCE, b""), element(3, b"\0")].concat();
        let bytes = [element(OID, BASIC), element(OCTETS, &element(SEQUENCE, &basic))].concat();
        element(SEQUENCE, &[element(ENUMERATED, &[0]), element(0xa0, &element(SEQUENCE, &bytes))].concat())
    }

    #[test]
    fn a_current_response_for_the_certificate_is_stapled() {
        let end = UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        let der = response(GOOD, Some("20260101000000Z"));
        let before = end - Duration::from_secs(1);
        assert_eq!(read(der.clone(), OURS, before), Ok(Staple { der: der.clone(), until: Some(end) }));
        assert!(read(der, OURS, end).unwrap_err().contains("out of date"));
        assert_eq!(read(response(GOOD, None), OURS, end).unwrap().until, None);
        assert!(read(response(REVOKED, None), OURS, end).unwrap_err().contains("REVOKED"));
        assert!(read(response(0x82, None), OURS, end).unwrap_err().contains("does not know"));
    }

    /// Two authorities may use the same serial number.
    #[test]
    fn a_response_for_another_certificate_is_refused() {
        let others = [
            OcspSubject { serial: &[0x12, 0x68], ..OURS },
            OcspSubject { issuer: b"another", ..OURS },
            OcspSubject { issuer_key: Some(b"another"), ..OURS },
        ];
        for hash in [SHA1, SHA256] {
            let der = response_by(hash, GOOD, None);
            assert!(read(der.clone(), OURS, UNIX_EPOCH).is_ok());
            assert!(read(der.clone(), OcspSubject { issuer_key: None, ..OURS }, UNIX_EPOCH).is_ok());
            for other in others {
                let refused = read(der.clone(), other, UNIX_EPOCH).unwrap_err();
                assert!(refused.contains("another certificate"), "{other:?}: {refused}");
            }
        }
        assert!(read(response_by(&[1], GOOD, None), OURS, UNIX_EPOCH).is_err(), "a hash that nobody knows");
    }

    #[test]
    fn what_is_cut_off_or_changed_is_refused_without_a_panic() {
        let whole = response(GOOD, Some("20260101000000Z"));
        for end in 0..whole.len() {
            assert!(read(whole[..end].to_vec(), OURS, UNIX_EPOCH).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                let _ = read(other, OURS, UNIX_EPOCH);
            }
        }
        let error = element(SEQUENCE, &element(ENUMERATED, &[3]));
        assert!(read(error, OURS, UNIX_EPOCH).unwrap_err().contains("error (3)"));
    }

    #[test]
    fn times_are_read() {
        let seconds = |text: &str| Some(time(text.as_bytes())?.duration_since(UNIX_EPOCH).unwrap().as_secs());
        assert_eq!(seconds("19700101000000Z"), Some(0));
        assert_eq!(seconds("20240229120000Z"), Some(1_709_208_000));
        assert_eq!(seconds("20261121000000Z"), Some(1_795_219_200));
        for bad in ["", "2026112100000Z", "20261121000000", "2026112100000aZ"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
