//! Selection of event fields: omitted fields, keyed hashes in place of values, and coarse addresses.
//!
//! A hash is SipHash-2-4 under a key of the installation, as 16 hexadecimal digits. Equal values have equal
//! hashes in all events, so they can still be counted and grouped; without the key the value cannot be found,
//! not even by trying all IPv4 addresses. It is not encryption: a holder of the key can try them.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use siphasher::sip::SipHasher24;

use super::fields::Field;
use super::logfmt::join;
use super::plain::ShortAscii;
use super::visit::FieldWriter;
use crate::facts::NameList;
use crate::timestamp::rfc3339_micros;

/// The fields to write, and the form of each. The default writes every field unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelection {
    omitted: FieldSet,
    hashed: FieldSet,
    key: FieldHashKey,
    coarse: bool,
}

impl FieldSelection {
    /// Omits `field` as well.
    #[must_use]
    pub fn omit(mut self, field: Field) -> Self {
        self.omitted.add(field);
        self
    }

    /// Replaces the values of `fields` by hashes, which makes text of numbers. Omitted fields stay omitted.
    #[must_use]
    pub fn hash(mut self, fields: impl IntoIterator<Item = Field>, key: FieldHashKey) -> Self {
        fields.into_iter().for_each(|field| self.hashed.add(field));
        self.key = key;
        self
    }

    /// Makes addresses [coarse](coarse). Hashed addresses are coarse before they are hashed.
    #[must_use]
    pub const fn anonymize(mut self) -> Self {
        self.coarse = true;
        self
    }

    /// Returns `true` if every field is written unchanged.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        !self.coarse && self.omitted == FieldSet::default() && self.hashed == FieldSet::default()
    }

    /// Coarsens an address if the selection asks for it.
    pub(super) fn address(&self, address: IpAddr) -> IpAddr {
        if self.coarse { coarse(address) } else { address }
    }

    /// The value of `field` to write: unchanged, its hash (written to `room`), or none.
    pub(super) fn shown<'t>(
        &self,
        field: Field,
        value: &'t [u8],
        room: &'t mut ShortAscii,
    ) -> Option<&'t [u8]> {
        match self.treatment(field) {
            Treatment::Keep => Some(value),
            Treatment::Omit => None,
            Treatment::Hash => Some(room.hex(self.key.hash(value).into(), 16)),
        }
    }

    /// Returns `true` if values of `field` are written, unchanged or hashed.
    pub(super) fn is_written(&self, field: Field) -> bool {
        !self.omitted.has(field)
    }

    fn treatment(&self, field: Field) -> Treatment {
        if self.omitted.has(field) {
            Treatment::Omit
        } else if self.hashed.has(field) {
            Treatment::Hash
        } else {
            Treatment::Keep
        }
    }
}

/// The treatment of a field's values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Treatment {
    Keep,
    Omit,
    Hash,
}

/// Zeroes the host part of an address: the last octet of IPv4, the last 80 bits of IPv6. IPv4-mapped
/// addresses count as IPv4.
#[must_use]
pub const fn coarse(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & !0xff)),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 80 << 80)),
    }
}

/// The secret key of an installation for hashed fields.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldHashKey([u8; 16]);

impl FieldHashKey {
    fn hash(&self, value: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(value);
        hasher.finish()
    }
}

impl From<[u8; 16]> for FieldHashKey {
    fn from(key: [u8; 16]) -> Self {
        Self(key)
    }
}

impl fmt::Debug for FieldHashKey {
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

/// Applies a selection in front of another writer.
pub(super) struct Selected<'a, W> {
    pub(super) to: &'a mut W,
    pub(super) selection: &'a FieldSelection,
}

impl<W: FieldWriter> Selected<'_, W> {
    fn hashed(&mut self, field: Field, value: &[u8]) {
        self.to.plain(field, ShortAscii::default().hex(self.selection.key.hash(value).into(), 16));
    }
}

impl<W: FieldWriter> FieldWriter for Selected<'_, W> {
    fn time(&mut self, field: Field, time: SystemTime) {
        match self.selection.treatment(field) {
            Treatment::Keep => self.to.time(field, time),
            Treatment::Omit => {}
            Treatment::Hash => self.hashed(field, &rfc3339_micros(time)),
        }
    }

    fn text(&mut self, field: Field, text: &[u8]) {
        match self.selection.treatment(field) {
            Treatment::Keep => self.to.text(field, text),
            Treatment::Omit => {}
            Treatment::Hash => self.hashed(field, text),
        }
    }

    fn plain(&mut self, field: Field, text: &[u8]) {
        match self.selection.treatment(field) {
            Treatment::Keep => self.to.plain(field, text),
            Treatment::Omit => {}
            Treatment::Hash => self.hashed(field, text),
        }
    }

    fn address(&mut self, field: Field, address: IpAddr) {
        self.plain(field, ShortAscii::default().ip(self.selection.address(address)));
    }

    fn number(&mut self, field: Field, number: u64) {
        match self.selection.treatment(field) {
            Treatment::Keep => self.to.number(field, number),
            Treatment::Omit => {}
            Treatment::Hash => self.hashed(field, itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    fn flag(&mut self, field: Field, flag: bool) {
        match self.selection.treatment(field) {
            Treatment::Keep => self.to.flag(field, flag),
            Treatment::Omit => {}
            Treatment::Hash => self.hashed(field, if flag { b"true" } else { b"false" }),
        }
    }

    fn list(&mut self, field: Field, names: &NameList) {
        match self.selection.treatment(field) {
            Treatment::Keep => self.to.list(field, names),
            Treatment::Omit => {}
            Treatment::Hash => self.hashed(field, &join(names)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FieldHashKey, FieldSelection, coarse};
    use crate::format::fields::Field;
    use crate::format::plain::ShortAscii;
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
        let selection =
            |key: u8| FieldSelection::default().hash([Field::Client], FieldHashKey::from([key; 16]));
        let shown = |selection: &FieldSelection, field, value: &str| {
            let mut room = ShortAscii::default();
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
        assert!(!neither.is_everything() && FieldSelection::default().is_everything());
        assert!(!format!("{neither:?}").contains('1'), "the key is not shown");
    }

    /// The test vector of the SipHash paper (appendix A).
    #[test]
    fn the_hash_is_siphash_2_4() {
        let key = FieldHashKey::from(std::array::from_fn(|index| index as u8));
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(key.hash(&message), 0xa129_ca61_49be_45e5);
    }
}
