//! Signed DNS updates that set or remove a TXT record (RFC 2136, RFC 8945).
//!
//! [`Update::signed`] returns the message for the name server, and the state to check its response with:
//! [`PendingUpdate::check`] accepts success only if it is signed by the same key.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;

/// The longest string in a TXT record (RFC 1035 §3.3.14).
const LONGEST: usize = 255;
/// The time to live in seconds, short because the record changes with every order.
const TTL: u32 = 1;
/// The permitted difference of clocks in seconds (RFC 8945 §10).
const FUDGE: u16 = 300;

const SOA: u16 = 6;
const TXT: u16 = 16;
const TSIG: u16 = 250;
const IN: u16 = 1;
const NONE: u16 = 254;
const ANY: u16 = 255;
const UPDATE: u16 = 5 << 11;
const RESPONSE: u16 = 1 << 15;
const TRUNCATED: u16 = 1 << 9;

/// The algorithm of a TSIG key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TsigHmac {
    /// HMAC with SHA-256, `hmac-sha256`.
    HmacSha256,
    /// HMAC with SHA-512, `hmac-sha512`.
    HmacSha512,
}

/// A TSIG key (RFC 8945) of a name server.
#[derive(Clone)]
pub struct TsigKey {
    name: Vec<u8>,
    algorithm: TsigHmac,
    key: hmac::Key,
}

/// A change of one TXT record.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The zone of the record.
    pub zone: &'a str,
    /// The name of the record.
    pub name: &'a str,
    /// The value of the record, at most 255 bytes.
    pub value: &'a str,
    /// Set to add the record; else it is removed. Other records of the name stay.
    pub add: bool,
}

/// An update that awaits its response.
#[derive(Clone)]
pub struct PendingUpdate {
    id: u16,
    mac: Vec<u8>,
    key: TsigKey,
}

/// The outcome of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The record is set or removed.
    Done,
    /// The response was truncated: repeat over TCP.
    Truncated,
    /// The name server refused, for this reason.
    Refused(String),
}

/// The reason for which a message does not answer the update; the caller should wait for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// Not a DNS message.
    Malformed,
    /// The response to another message.
    Unrelated,
    /// Without a valid signature by the key.
    Unsigned,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoAnswer::Malformed => "the response is not a DNS message",
            NoAnswer::Unrelated => "the response is for another question",
            NoAnswer::Unsigned => "the response is not signed by the TSIG key",
        })
    }
}

impl TsigHmac {
    fn name(self) -> &'static str {
        match self {
            TsigHmac::HmacSha256 => "hmac-sha256",
            TsigHmac::HmacSha512 => "hmac-sha512",
        }
    }

    fn of_hmac(self) -> hmac::Algorithm {
        match self {
            TsigHmac::HmacSha256 => hmac::HMAC_SHA256,
            TsigHmac::HmacSha512 => hmac::HMAC_SHA512,
        }
    }
}

impl TsigKey {
    /// A key by its name on the name server.
    ///
    /// # Errors
    /// The reason for which the name is not a DNS name.
    pub fn new(name: &str, algorithm: TsigHmac, secret: &[u8]) -> Result<Self, String> {
        let key = hmac::Key::new(algorithm.of_hmac(), secret);
        Ok(Self { name: wire_name(name)?, algorithm, key })
    }
}

impl Update<'_> {
    /// The message, signed at `now`; `id` must be random.
    ///
    /// # Errors
    /// The reason for which a name or the value cannot be encoded.
    pub fn signed(
        &self,
        id: u16,
        key: &TsigKey,
        now: SystemTime,
    ) -> Result<(Vec<u8>, PendingUpdate), String> {
        let value = self.value.as_bytes();
        if value.len() > LONGEST {
            return Err("the value of the record is longer than 255 bytes".into());
        }
        let mut message = Vec::with_capacity(512);
        for field in [id, UPDATE, 1, 0, 1, 0] {
            put16(&mut message, field);
        }
        message.extend(wire_name(self.zone)?);
        put16(&mut message, SOA);
        put16(&mut message, IN);
        message.extend(wire_name(self.name)?);
        put16(&mut message, TXT);
        let (class, ttl) = if self.add { (IN, TTL) } else { (NONE, 0) };
        put16(&mut message, class);
        message.extend(ttl.to_be_bytes());
        // Both lengths are at most 256.
        put16(&mut message, value.len() as u16 + 1);
        message.push(value.len() as u8);
        message.extend(value);
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let variables = variables(key, seconds, FUDGE, 0, &[]);
        let mac = hmac::sign(&key.key, &[&message[..], &variables].concat()).as_ref().to_vec();
        // ARCOUNT: one additional record.
        message[11] = 1;
        append_tsig(&mut message, key, seconds, &mac, id);
        Ok((message, PendingUpdate { id, mac, key: key.clone() }))
    }
}

impl PendingUpdate {
    /// Checks a response.
    ///
    /// # Errors
    /// The message is not a response to this update.
    pub fn check(&self, response: &[u8]) -> Result<UpdateOutcome, NoAnswer> {
        let mut reader = DnsReader::of(response);
        let header: Vec<u16> = (0..6).map_while(|_| reader.get16()).collect();
        let &[id, flags, zones, prerequisites, updates, additional] = &header[..] else {
            return Err(NoAnswer::Malformed);
        };
        if id != self.id || flags & RESPONSE == 0 || flags & (0xf << 11) != UPDATE {
            return Err(NoAnswer::Unrelated);
        }
        if flags & TRUNCATED != 0 {
            return Ok(UpdateOutcome::Truncated);
        }
        for _ in 0..zones {
            reader.skip_name().and_then(|()| reader.skip(4)).ok_or(NoAnswer::Malformed)?;
        }
        for _ in 0..u32::from(prerequisites) + u32::from(updates) + u32::from(additional).saturating_sub(1) {
            reader.skip_record().ok_or(NoAnswer::Malformed)?;
        }
        let signed = match additional {
            0 => None,
            _ => Some(reader.tsig(additional).ok_or(NoAnswer::Malformed)?),
        };
        let code = flags & 0xf;
        let error = signed.as_ref().map_or(0, |tsig| tsig.error);
        if code != 0 || error != 0 {
            // Such a response may be unsigned: the name server may not know the key (RFC 8945 §5.3.2).
            return Ok(UpdateOutcome::Refused(describe(code, error)));
        }
        let tsig = signed.ok_or(NoAnswer::Unsigned)?;
        let mut bytes = (self.mac.len() as u16).to_be_bytes().to_vec();
        bytes.extend(&self.mac);
        bytes.extend(&tsig.message);
        bytes.extend(variables(&self.key, tsig.time, tsig.fudge, tsig.error, &tsig.other));
        hmac::verify(&self.key.key, &bytes, &tsig.mac).map_err(|_| NoAnswer::Unsigned)?;
        Ok(UpdateOutcome::Done)
    }
}

/// The TSIG variables, which are signed after the message (RFC 8945 §4.3.3).
fn variables(key: &TsigKey, seconds: u64, fudge: u16, error: u16, other: &[u8]) -> Vec<u8> {
    let mut out = key.name.clone();
    put16(&mut out, ANY);
    out.extend(0u32.to_be_bytes());
    out.extend(algorithm_name(key.algorithm));
    out.extend(&seconds.to_be_bytes()[2..]);
    put16(&mut out, fudge);
    put16(&mut out, error);
    put16(&mut out, other.len() as u16);
    out.extend(other);
    out
}

fn append_tsig(message: &mut Vec<u8>, key: &TsigKey, seconds: u64, mac: &[u8], id: u16) {
    message.extend(&key.name);
    put16(message, TSIG);
    put16(message, ANY);
    message.extend(0u32.to_be_bytes());
    let mut data = algorithm_name(key.algorithm);
    data.extend(&seconds.to_be_bytes()[2..]);
    put16(&mut data, FUDGE);
    put16(&mut data, mac.len() as u16);
    data.extend(mac);
    put16(&mut data, id);
    put16(&mut data, 0);
    put16(&mut data, 0);
    put16(message, data.len() as u16);
    message.extend(data);
}

fn algorithm_name(algorithm: TsigHmac) -> Vec<u8> {
    let name = algorithm.name().as_bytes();
    let mut out = vec![name.len() as u8];
    out.extend(name);
    out.push(0);
    out
}

/// A name in wire format, in lower case (RFC 1035 §3.1).
pub(super) fn wire_name(name: &str) -> Result<Vec<u8>, String> {
    let bare = name.strip_suffix('.').unwrap_or(name);
    let mut out = Vec::with_capacity(bare.len() + 2);
    for label in bare.split('.').filter(|_| !bare.is_empty()) {
        if label.is_empty() || label.len() > 63 || !label.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("`{name}` is not a DNS name"));
        }
        out.push(label.len() as u8);
        out.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    out.push(0);
    if out.len() > 255 { Err(format!("`{name}` is too long for a DNS name")) } else { Ok(out) }
}

pub(super) fn put16(out: &mut Vec<u8>, number: u16) {
    out.extend(number.to_be_bytes());
}

/// The text for the codes of a refusal (RFC 2136 §2.2, RFC 8945 §3).
fn describe(code: u16, error: u16) -> String {
    let of_code = match code {
        1 => "FORMERR",
        2 => "SERVFAIL",
        4 => "NOTIMP",
        5 => "REFUSED: the key may not change this record",
        9 => "NOTAUTH: the server has no such zone, or does not know the TSIG key",
        10 => "NOTZONE: the record is not in the zone",
        _ => "refused",
    };
    let of_error = match error {
        0 => String::new(),
        16 => ", BADSIG: the server has another TSIG key".into(),
        17 => ", BADKEY: there is no TSIG key of this name".into(),
        18 => ", BADTIME: the clocks are more than five minutes apart".into(),
        other => format!(", TSIG error {other}"),
    };
    format!("{of_code} (rcode {code}{of_error})")
}

/// The signature of a response.
struct Tsig {
    /// The message without the signature, as it was signed.
    message: Vec<u8>,
    time: u64,
    fudge: u16,
    mac: Vec<u8>,
    error: u16,
    other: Vec<u8>,
}

/// Reads a DNS message from its beginning.
pub(super) struct DnsReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> DnsReader<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    pub(super) fn get16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Skips a name; a compression pointer ends it.
    pub(super) fn skip_name(&mut self) -> Option<()> {
        loop {
            let length = self.take(1)?[0];
            match length >> 6 {
                0 if length == 0 => return Some(()),
                0 => self.skip(length.into())?,
                3 => return self.skip(1),
                _ => return None,
            }
        }
    }

    fn skip_record(&mut self) -> Option<()> {
        self.skip_name()?;
        self.skip(8)?;
        let length = self.get16()?;
        self.skip(length.into())
    }

    /// Parses the last record if it is a signature; `additional` is ARCOUNT with it.
    fn tsig(&mut self, additional: u16) -> Option<Tsig> {
        let mut message = self.bytes.get(..self.at)?.to_vec();
        self.skip_name()?;
        if self.get16()? != TSIG {
            return None;
        }
        self.skip(6)?;
        let length = usize::from(self.get16()?);
        let end = self.at.checked_add(length)?;
        self.skip_name()?;
        let time = self.take(6)?.iter().fold(0, |time, byte| time << 8 | u64::from(*byte));
        let fudge = self.get16()?;
        let mac = self.get16()?;
        let mac = self.take(mac.into())?.to_vec();
        let id = self.get16()?;
        let error = self.get16()?;
        let other = self.get16()?;
        let other = self.take(other.into())?.to_vec();
        if self.at != end || end != self.bytes.len() {
            return None;
        }
        message.get_mut(..2)?.copy_from_slice(&id.to_be_bytes());
        message.get_mut(10..12)?.copy_from_slice(&(additional - 1).to_be_bytes());
        Some(Tsig { message, time, fudge, mac, error, other })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn key() -> TsigKey {
        TsigKey::new("offramp.", TsigHmac::HmacSha256, b"a secret of some bytes").unwrap()
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn update(value: &str) -> Update<'_> {
        Update { zone: "example.org", name: "_acme-challenge.a.example.org", value, add: true }
    }

    /// A response of a name server: the zone, and a signature over that of the request.
    fn response(pending: &PendingUpdate, code: u16, key: &TsigKey, error: u16) -> Vec<u8> {
        let mut message = Vec::new();
        for field in [pending.id, RESPONSE | UPDATE | code, 1, 0, 0, 0] {
            put16(&mut message, field);
        }
        message.extend(wire_name("example.org").unwrap());
        put16(&mut message, SOA);
        put16(&mut message, IN);
        let seconds = 1_800_000_001;
        let mut bytes = (pending.mac.len() as u16).to_be_bytes().to_vec();
        bytes.extend(&pending.mac);
        bytes.extend(&message);
        bytes.extend(variables(key, seconds, FUDGE, 0, &[]));
        let mac = hmac::sign(&key.key, &bytes);
        message[11] = 1;
        append_tsig(&mut message, key, seconds, mac.as_ref(), pending.id);
        let end = message.len();
        message[end - 4..end - 2].copy_from_slice(&error.to_be_bytes());
        message
    }

    #[test]
    fn an_update_has_the_form_of_rfc_2136() {
        let (bytes, _) = update("value").signed(0x1234, &key(), now()).unwrap();
        assert_eq!(bytes[..12], [0x12, 0x34, 0x28, 0, 0, 1, 0, 0, 0, 1, 0, 1]);
        let mut reader = DnsReader { bytes: &bytes, at: 12 };
        reader.skip_name().unwrap();
        assert_eq!((reader.get16(), reader.get16()), (Some(SOA), Some(IN)));
        let record = reader.at;
        reader.skip_record().unwrap();
        assert!(bytes[record..reader.at].ends_with(b"\x00\x06\x05value"));
        let tsig = reader.tsig(1).unwrap();
        assert_eq!((tsig.time, tsig.mac.len()), (1_800_000_000, 32));
        let removal = Update { add: false, ..update("value") };
        let (bytes, _) = removal.signed(1, &key(), now()).unwrap();
        let class = bytes.windows(10).find(|window| window[..2] == [0, 16] && window[2..4] == [0, 254]);
        assert_eq!(class.unwrap()[4..8], [0; 4]);
    }

    #[test]
    fn only_what_the_key_has_signed_is_believed() {
        let (_, pending) = update("v").signed(7, &key(), now()).unwrap();
        assert_eq!(pending.check(&response(&pending, 0, &key(), 0)), Ok(UpdateOutcome::Done));
        let other = TsigKey::new("offramp", TsigHmac::HmacSha256, b"another").unwrap();
        assert_eq!(pending.check(&response(&pending, 0, &other, 0)), Err(NoAnswer::Unsigned));
        let mut unsigned = response(&pending, 0, &key(), 0);
        unsigned[11] = 0;
        assert_eq!(pending.check(&unsigned), Err(NoAnswer::Unsigned));
        let mut unrelated = response(&pending, 0, &key(), 0);
        unrelated[1] = 8;
        assert_eq!(pending.check(&unrelated), Err(NoAnswer::Unrelated));
        let Ok(UpdateOutcome::Refused(why)) = pending.check(&response(&pending, 9, &key(), 17)) else {
            panic!()
        };
        assert!(why.contains("NOTAUTH") && why.contains("BADKEY"), "{why}");
        let mut truncated = response(&pending, 0, &key(), 0);
        truncated[2] |= 2;
        assert_eq!(pending.check(&truncated), Ok(UpdateOutcome::Truncated));
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let long = "x".repeat(256);
        assert!(update(&long).signed(1, &key(), now()).is_err());
        for name in ["a..b", ".a", "a b.org", &"a".repeat(64), &"a.".repeat(130)] {
            assert!(TsigKey::new(name, TsigHmac::HmacSha512, b"").is_err(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_value_comes_back_as_it_was(value in "[!-~]{0,255}", id: u16, sha512: bool) {
            let algorithm = if sha512 { TsigHmac::HmacSha512 } else { TsigHmac::HmacSha256 };
            let key = TsigKey::new("k", algorithm, b"secret").unwrap();
            let (bytes, pending) = update(&value).signed(id, &key, now()).unwrap();
            let mut reader = DnsReader { bytes: &bytes, at: 12 };
            reader.skip_name().and_then(|()| reader.skip(4)).unwrap();
            reader.skip_record().unwrap();
            prop_assert!(bytes[..reader.at].ends_with(value.as_bytes()));
            prop_assert_eq!(&reader.tsig(1).unwrap().mac, &pending.mac);
        }

        #[test]
        fn no_bytes_are_believed_or_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..120usize) {
            let (_, pending) = update("v").signed(7, &key(), now()).unwrap();
            prop_assert!(pending.check(&bytes) != Ok(UpdateOutcome::Done));
            let mut damaged = response(&pending, 0, &key(), 0);
            // The zone section, which is signed: name, type and class.
            let at = 12 + at % 17;
            damaged[at] ^= 1 << (at % 8);
            prop_assert!(pending.check(&damaged) != Ok(UpdateOutcome::Done));
            damaged.truncate(at);
            prop_assert!(pending.check(&damaged) != Ok(UpdateOutcome::Done));
        }
    }
}
