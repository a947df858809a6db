//! The one message of DNS that is sent: a signed update that sets or removes a TXT record (RFC 2136, RFC 8945).
//!
//! [`Update::signed`] gives the bytes for the name server and what its response is checked with: [`Pending::check`]
//! believes no success that is not signed by the same key.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;

/// The longest value that one string of a TXT record holds (RFC 1035 section 3.3.14).
const LONGEST: usize = 255;
/// How long a record may be remembered by resolvers, in seconds: it changes with every order.
const TTL: u32 = 1;
/// How far clocks may be apart, in seconds (RFC 8945 section 10).
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

/// The algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-512.
    HmacSha512,
}

/// A TSIG key.
#[derive(Clone)]
pub struct TsigKey {
    name: Vec<u8>,
    algorithm: Algorithm,
    key: hmac::Key,
}

/// A change of one TXT record.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The zone that the record is in.
    pub zone: &'a str,
    /// The record's name.
    pub name: &'a str,
    /// Its value, at most 255 bytes.
    pub value: &'a str,
    /// Whether it is added to those of its name; else it is removed, and others stay.
    pub add: bool,
}

/// An update that was sent.
#[derive(Clone)]
pub struct Pending {
    id: u16,
    mac: Vec<u8>,
    key: TsigKey,
}

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The record is set, or gone.
    Done,
    /// The whole answer comes over TCP.
    Truncated,
    /// The name server refused, and why.
    Refused(String),
}

/// Why bytes are no answer to the update; whoever waits for one should wait on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// They are no message of DNS.
    Malformed,
    /// They answer something else.
    Unrelated,
    /// They are not signed by the key.
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

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Algorithm::HmacSha256 => "hmac-sha256",
            Algorithm::HmacSha512 => "hmac-sha512",
        }
    }

    fn of_hmac(self) -> hmac::Algorithm {
        match self {
            Algorithm::HmacSha256 => hmac::HMAC_SHA256,
            Algorithm::HmacSha512 => hmac::HMAC_SHA512,
        }
    }
}

impl TsigKey {
    /// A key by its name on the name server.
    ///
    /// # Errors
    /// The name is none of DNS; the text says why.
    pub fn new(name: &str, algorithm: Algorithm, secret: &[u8]) -> Result<Self, String> {
        let key = hmac::Key::new(algorithm.of_hmac(), secret);
        Ok(Self { name: wire_name(name)?, algorithm, key })
    }
}

impl Update<'_> {
    /// The message, signed at `now`; `id` is random.
    ///
    /// # Errors
    /// A name or the value cannot be written; the text says why.
    pub fn signed(&self, id: u16, key: &TsigKey, now: SystemTime) -> Result<(Vec<u8>, Pending), String> {
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
        // Both are at most 256.
        put16(&mut message, value.len() as u16 + 1);
        message.push(value.len() as u8);
        message.extend(value);
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let variables = variables(key, seconds, FUDGE, 0, &[]);
        let mac = hmac::sign(&key.key, &[&message[..], &variables].concat()).as_ref().to_vec();
        // One additional record from now on.
        message[11] = 1;
        append_tsig(&mut message, key, seconds, &mac, id);
        Ok((message, Pending { id, mac, key: key.clone() }))
    }
}

impl Pending {
    /// Reads a response.
    ///
    /// # Errors
    /// It is none to this update.
    pub fn check(&self, response: &[u8]) -> Result<Answer, NoAnswer> {
        let mut reader = Reader { bytes: response, at: 0 };
        let header: Vec<u16> = (0..6).map_while(|_| reader.get16()).collect();
        let &[id, flags, zones, prerequisites, updates, additional] = &header[..] else {
            return Err(NoAnswer::Malformed);
        };
        if id != self.id || flags & RESPONSE == 0 || flags & (0xf << 11) != UPDATE {
            return Err(NoAnswer::Unrelated);
        }
        if flags & TRUNCATED != 0 {
            return Ok(Answer::Truncated);
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
            // It need not be signed: the name server may not know the key (RFC 8945 section 5.3.2).
            return Ok(Answer::Refused(describe(code, error)));
        }
        let tsig = signed.ok_or(NoAnswer::Unsigned)?;
        let mut bytes = (self.mac.len() as u16).to_be_bytes().to_vec();
        bytes.extend(&self.mac);
        bytes.extend(&tsig.message);
        bytes.extend(variables(&self.key, tsig.time, tsig.fudge, tsig.error, &tsig.other));
        hmac::verify(&self.key.key, &bytes, &tsig.mac).map_err(|_| NoAnswer::Unsigned)?;
        Ok(Answer::Done)
    }
}

/// What is signed beside the message (RFC 8945 section 4.3.3).
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

fn algorithm_name(algorithm: Algorithm) -> Vec<u8> {
    let name = algorithm.name().as_bytes();
    let mut out = vec![name.len() as u8];
    out.extend(name);
    out.push(0);
    out
}

/// A name as messages have it, in lower case (RFC 1035 section 3.1).
fn wire_name(name: &str) -> Result<Vec<u8>, String> {
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

fn put16(out: &mut Vec<u8>, number: u16) {
    out.extend(number.to_be_bytes());
}

/// A refusal by its codes (RFC 2136 section 2.2, RFC 8945 section 3).
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
    /// The message without it, as it was signed.
    message: Vec<u8>,
    time: u64,
    fudge: u16,
    mac: Vec<u8>,
    error: u16,
    other: Vec<u8>,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    fn get16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Goes past a name; one that points elsewhere ends there.
    fn skip_name(&mut self) -> Option<()> {
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

    /// The last record, if it is a signature; `additional` is how many there are with it.
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
        TsigKey::new("offramp.", Algorithm::HmacSha256, b"a secret of some bytes").unwrap()
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn update(value: &str) -> Update<'_> {
        Update { zone: "example.org", name: "_acme-challenge.a.example.org", value, add: true }
    }

    /// What a name server sends back: the zone, and a signature over the request's.
    fn response(pending: &Pending, code: u16, key: &TsigKey, error: u16) -> Vec<u8> {
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
        let mut reader = Reader { bytes: &bytes, at: 12 };
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
        assert_eq!(pending.check(&response(&pending, 0, &key(), 0)), Ok(Answer::Done));
        let other = TsigKey::new("offramp", Algorithm::HmacSha256, b"another").unwrap();
        assert_eq!(pending.check(&response(&pending, 0, &other, 0)), Err(NoAnswer::Unsigned));
        let mut unsigned = response(&pending, 0, &key(), 0);
        unsigned[11] = 0;
        assert_eq!(pending.check(&unsigned), Err(NoAnswer::Unsigned));
        let mut unrelated = response(&pending, 0, &key(), 0);
        unrelated[1] = 8;
        assert_eq!(pending.check(&unrelated), Err(NoAnswer::Unrelated));
        let Ok(Answer::Refused(why)) = pending.check(&response(&pending, 9, &key(), 17)) else { panic!() };
        assert!(why.contains("NOTAUTH") && why.contains("BADKEY"), "{why}");
        let mut truncated = response(&pending, 0, &key(), 0);
        truncated[2] |= 2;
        assert_eq!(pending.check(&truncated), Ok(Answer::Truncated));
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let long = "x".repeat(256);
        assert!(update(&long).signed(1, &key(), now()).is_err());
        for name in ["a..b", ".a", "a b.org", &"a".repeat(64), &"a.".repeat(130)] {
            assert!(TsigKey::new(name, Algorithm::HmacSha512, b"").is_err(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_value_comes_back_as_it_was(value in "[!-~]{0,255}", id: u16, sha512: bool) {
            let algorithm = if sha512 { Algorithm::HmacSha512 } else { Algorithm::HmacSha256 };
            let key = TsigKey::new("k", algorithm, b"secret").unwrap();
            let (bytes, pending) = update(&value).signed(id, &key, now()).unwrap();
            let mut reader = Reader { bytes: &bytes, at: 12 };
            reader.skip_name().and_then(|()| reader.skip(4)).unwrap();
            reader.skip_record().unwrap();
            prop_assert!(bytes[..reader.at].ends_with(value.as_bytes()));
            prop_assert_eq!(&reader.tsig(1).unwrap().mac, &pending.mac);
        }

        #[test]
        fn no_bytes_are_believed_or_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..120usize) {
            let (_, pending) = update("v").signed(7, &key(), now()).unwrap();
            prop_assert!(pending.check(&bytes) != Ok(Answer::Done));
            let mut damaged = response(&pending, 0, &key(), 0);
            // The section of the zone, which is signed: its name, its type and its class.
            let at = 12 + at % 17;
            damaged[at] ^= 1 << (at % 8);
            prop_assert!(pending.check(&damaged) != Ok(Answer::Done));
            damaged.truncate(at);
            prop_assert!(pending.check(&damaged) != Ok(Answer::Done));
        }
    }
}
