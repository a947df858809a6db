//! Which parts of an event are written: fields left out, fields replaced by a keyed hash, shortened addresses.
//!
//! A hash is SipHash-2-4 under a key of the installation's own, as 16 hexadecimal digits: the same value has
//! the same hash in all events, so that one can still count and group, and nobody without the key can find
//! the value, not even by trying all IPv4 addresses. It is no encryption: with the key one can try them.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use siphasher::sip::SipHasher24;

use super::fields::Field;
use super::logfmt::join;
use super::plain::Plain;
use super::visit::FieldWriter;
use crate::facts::NameList;
use crate::timestamp::rfc3339_micros;

/// Which fields of events are written, and how. The default writes every field unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    omitted: FieldSet,
    hashed: FieldSet,
    key: HashKey,
    coarse: bool,
}

impl Selection {
    /// The same, without `field`.
    #[must_use]
    pub fn omit(mut self, field: Field) -> Self {
        self.omitted.add(field);
        self
    }

    /// The same, with the hashes of the values of `fields` in place of the values; numbers become texts by
    /// that. What is omitted stays omitted.
    #[must_use]
    pub fn hash(mut self, fields: impl IntoIterator<Item = Field>, key: HashKey) -> Self {
        fields.into_iter().for_each(|field| self.hashed.add(field));
        self.key = key;
        self
    }

    /// The same, with [coarse](coarse) addresses. Of a hashed address, the coarse one is hashed.
    #[must_use]
    pub const fn anonymize(mut self) -> Self {
        self.coarse = true;
        self
    }

    /// Whether every field is written unchanged.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        !self.coarse && self.omitted == FieldSet::default() && self.hashed == FieldSet::default()
    }

    /// An address in the form in which it may be written.
    pub(super) fn address(&self, address: IpAddr) -> IpAddr {
        if self.coarse { coarse(address) } else { address }
    }

    /// What becomes of a value of `field`: itself, its hash (which is written to `room`), or nothing.
    pub(super) fn shown<'t>(&self, field: Field, value: &'t [u8], room: &'t mut Plain) -> Option<&'t [u8]> {
        match self.fate(field) {
            Fate::Keep => Some(value),
            Fate::Omit => None,
            Fate::Hash => Some(room.hex(self.key.hash(value).into(), 16)),
        }
    }

    /// Whether values of `field` are written, unchanged or as hashes.
    pub(super) fn is_told(&self, field: Field) -> bool {
        !self.omitted.has(field)
    }

    fn fate(&self, field: Field) -> Fate {
        if self.omitted.has(field) {
            Fate::Omit
        } else if self.hashed.has(field) {
            Fate::Hash
        } else {
            Fate::Keep
        }
    }
}

/// What becomes of a field's values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Keep,
    Omit,
    Hash,
}

/// An address without its host part: the last octet of an IPv4 address, the last 80 bits of an IPv6 address
/// are zero. IPv4-mapped addresses count as IPv4.
#[must_use]
pub const fn coarse(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & !0xff)),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 80 << 80)),
    }
}

/// The secret of an installation under which fields are hashed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HashKey([u8; 16]);

impl HashKey {
    fn hash(&self, value: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(value);
        hasher.finish()
    }
}

impl From<[u8; 16]> for HashKey {
    fn from(key: [u8; 16]) -> Self {
        Self(key)
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FieldSet(u64);

const _: () = assert!(Field::COUNT <= 64, "a set of fields has a bit for each");

impl FieldSet {
    fn add(&mut self, field: Field) {
        self.0 |= 1 << field.index();
    }

    fn has(self, field: Field) -> bool {
        self.0 & 1 << field.index() != 0
    }
}

/// A writer behind a selection.
pub(super) struct Selected<'a, W> {
    pub(super) to: &'a mut W,
    pub(super) selection: &'a Selection,
}

impl<W: FieldWriter> Selected<'_, W> {
    fn hashed(&mut self, field: Field, value: &[u8]) {
        self.to.plain(field, Plain::default().hex(self.selection.key.hash(value).into(), 16));
    }
}

impl<W: FieldWriter> FieldWriter for Selected<'_, W> {
    fn time(&mut self, field: Field, time: SystemTime) {
        match self.selection.fate(field) {
            Fate::Keep => self.to.time(field, time),
            Fate::Omit => {}
            Fate::Hash => self.hashed(field, &rfc3339_micros(time)),
        }
    }

    fn text(&mut self, field: Field, text: &[u8]) {
        match self.selection.fate(field) {
            Fate::Keep => self.to.text(field, text),
            Fate::Omit => {}
            Fate::Hash => self.hashed(field, text),
        }
    }

    fn plain(&mut self, field: Field, text: &[u8]) {
        match self.selection.fate(field) {
            Fate::Keep => self.to.plain(field, text),
            Fate::Omit => {}
            Fate::Hash => self.hashed(field, text),
        }
    }

    fn address(&mut self, field: Field, address: IpAddr) {
        self.plain(field, Plain::default().ip(self.selection.address(address)));
    }

    fn number(&mut self, field: Field, number: u64) {
        match self.selection.fate(field) {
            Fate::Keep => self.to.number(field, number),
            Fate::Omit => {}
            Fate::Hash => self.hashed(field, itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    fn flag(&mut self, field: Field, flag: bool) {
        match self.selection.fate(field) {
            Fate::Keep => self.to.flag(field, flag),
            Fate::Omit => {}
            Fate::Hash => self.hashed(field, if flag { b"true" } else { b"false" }),
        }
    }

    fn list(&mut self, field: Field, names: &NameList) {
        match self.selection.fate(field) {
            Fate::Keep => self.to.list(field, names),
            Fate::Omit => {}
            Fate::Hash => self.hashed(field, &join(names)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HashKey, Selection, coarse};
    use crate::format::fields::Field;
    use crate::format::plain::Plain;
    use std::net::IpAddr;

    #[test]
    fn coarse_addresses_lose_their_host_part() {
        let cases = [
            ("192.0.2.171", "192.0.2.0"),
            ("::ffff:192.0.2.171", "192.0.2.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
        ];
        for (address, expected) in cases {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(coarse(address), expected.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn hashes_depend_on_value_and_key_alone() {
        let selection = |key: u8| Selection::default().hash([Field::Client], HashKey::from([key; 16]));
        let shown = |selection: &Selection, field, value: &str| {
            let mut room = Plain::default();
            let shown = selection.shown(field, value.as_bytes(), &mut room);
            shown.map(|shown| String::from_utf8(shown.to_vec()).unwrap())
        };
        let (one, two) = (selection(1), selection(2));
        let hash = shown(&one, Field::Client, "192.0.2.1").unwrap();
        assert_eq!(hash.len(), 16);
        assert_eq!(shown(&one, Field::Client, "192.0.2.1"), Some(hash.clone()));
        assert_ne!(shown(&one, Field::Client, "192.0.2.2"), Some(hash.clone()));
        assert_ne!(shown(&two, Field::Client, "192.0.2.1"), Some(hash));
        assert_eq!(shown(&one, Field::Host, "a").as_deref(), Some("a"));
        let neither = one.omit(Field::Client);
        assert_eq!(shown(&neither, Field::Client, "192.0.2.1"), None);
        assert!(!neither.is_everything() && Selection::default().is_everything());
        assert!(!format!("{neither:?}").contains('1'), "the key is not shown");
    }

    /// The test vector of the SipHash paper (appendix A).
    #[test]
    fn the_hash_is_siphash_2_4() {
        let key = HashKey::from(std::array::from_fn(|index| index as u8));
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(key.hash(&message), 0xa129_ca61_49be_45e5);
    }
}
