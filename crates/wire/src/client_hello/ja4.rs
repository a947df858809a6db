//! The JA4 fingerprint of a TLS client, by FoxIO's specification (technical_details/JA4.md in their
//! repository `ja4`): 36 characters over the offered parameters, independent of their order.
//!
//! The fingerprint identifies a TLS library and its settings, not a person. Clients can imitate the
//! fingerprint of others, so it classifies clients and proves nothing.
//!
//! It allocates only if a client lists more than [`ROOM`] suites or extensions.

use std::fmt;
use std::str;

use ring::digest::{Context, SHA256};

use super::ClientHello;

/// A JA4 fingerprint, as in `t13d1516h2_8daaf6152771_e5627efa2ab1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ja4([u8; Ja4::LENGTH]);

impl Ja4 {
    /// Length of a fingerprint in characters.
    pub const LENGTH: usize = 36;

    /// The fingerprint as text: ASCII letters, digits and two underscores.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The fingerprint consists of ASCII characters.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns the characters of the fingerprint.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        self.0
    }
}

impl fmt::Display for Ja4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Ja4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ClientHello<'_> {
    /// Computes the JA4 fingerprint of the client, over TCP. Costs two short SHA-256 hashes and two sorts.
    #[must_use]
    pub fn ja4(&self) -> Ja4 {
        let version = match self.versions.map_or(Some(self.legacy_version), |_| self.versions().max()) {
            Some(0x0304) => *b"13",
            Some(0x0303) => *b"12",
            Some(0x0302) => *b"11",
            Some(0x0301) => *b"10",
            Some(0x0300) => *b"s3",
            Some(0x0002) => *b"s2",
            Some(0xfeff) => *b"d1",
            Some(0xfefd) => *b"d2",
            Some(0xfefc) => *b"d3",
            _ => *b"00",
        };
        let name = if self.extensions().any(|kind| kind == SERVER_NAME) { b'd' } else { b'i' };
        let suites = self.suites();
        let others = self.extensions().filter(|kind| !matches!(*kind, SERVER_NAME | ALPN));
        let mut out = [b'_'; Ja4::LENGTH];
        out[0] = b't';
        out[1..3].copy_from_slice(&version);
        out[3] = name;
        out[4..6].copy_from_slice(&decimal(suites.clone().count()));
        out[6..8].copy_from_slice(&decimal(self.extensions().count()));
        out[8..10].copy_from_slice(&protocol(self.alpn().next().unwrap_or_default()));
        out[11..23].copy_from_slice(&sorted(suites, |suites| Hash::default().list(suites).first_twelve()));
        out[24..36].copy_from_slice(&sorted(others, |extensions| {
            let mut hash = Hash::default().list(extensions);
            if self.schemes().next().is_some() {
                hash.push(b"_");
                hash.each(self.schemes());
            }
            hash.first_twelve()
        }));
        Ja4(out)
    }
}

/// Extensions that the fingerprint counts but does not hash.
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
/// Number of suites or extensions that are sorted on the stack. Browsers list about 20 of each.
const ROOM: usize = 128;

/// Two digits; 99 for more.
fn decimal(count: usize) -> [u8; 2] {
    let count = count.min(99) as u8;
    [b'0' + count / 10, b'0' + count % 10]
}

/// The first and last character of the first ALPN protocol; if one of them is not alphanumeric, those of the
/// protocol in hexadecimal. `00` without ALPN.
fn protocol(first: &[u8]) -> [u8; 2] {
    match (first.first(), first.last()) {
        (Some(&start), Some(&end)) if start.is_ascii_alphanumeric() && end.is_ascii_alphanumeric() => {
            [start, end]
        }
        (Some(&start), Some(&end)) => [hex(start >> 4), hex(end & 15)],
        _ => *b"00",
    }
}

/// Calls `then` with the codes in ascending order.
fn sorted<T>(codes: impl Iterator<Item = u16> + Clone, then: impl FnOnce(&[u16]) -> T) -> T {
    let mut room = [0; ROOM];
    let mut rest = codes.clone();
    let mut count = 0;
    for (slot, code) in room.iter_mut().zip(&mut rest) {
        *slot = code;
        count += 1;
    }
    // More codes than the stack buffer holds: sort on the heap.
    if rest.next().is_some() {
        let mut all: Vec<u16> = codes.collect();
        all.sort_unstable();
        return then(&all);
    }
    room[..count].sort_unstable();
    then(&room[..count])
}

fn hex(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble & 15)]
}

/// Incremental hash of lists in the format of the specification: `002f,0035`.
struct Hash {
    context: Context,
    /// Text buffered for the next update of `context`.
    text: [u8; 256],
    length: usize,
    is_empty: bool,
}

impl Default for Hash {
    fn default() -> Self {
        Self { context: Context::new(&SHA256), text: [0; 256], length: 0, is_empty: true }
    }
}

impl Hash {
    fn list(mut self, codes: &[u16]) -> Self {
        self.each(codes.iter().copied());
        self
    }

    fn each(&mut self, codes: impl Iterator<Item = u16>) {
        for (at, code) in codes.enumerate() {
            if at > 0 {
                self.push(b",");
            }
            let [high, low] = code.to_be_bytes();
            self.push(&[hex(high >> 4), hex(high), hex(low >> 4), hex(low)]);
        }
    }

    fn push(&mut self, text: &[u8]) {
        if self.text.len() - self.length < text.len() {
            self.context.update(&self.text[..self.length]);
            self.length = 0;
        }
        self.text[self.length..self.length + text.len()].copy_from_slice(text);
        self.length += text.len();
        self.is_empty = false;
    }

    /// The first twelve hexadecimal digits of the hash; zeros if nothing was hashed.
    fn first_twelve(mut self) -> [u8; 12] {
        if self.is_empty {
            return [b'0'; 12];
        }
        self.context.update(&self.text[..self.length]);
        let digest = self.context.finish();
        std::array::from_fn(|at| {
            let byte = digest.as_ref()[at / 2];
            hex(if at % 2 == 0 { byte >> 4 } else { byte })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::digest::digest;

    use super::super::tests::{CHROMIUM, CURL, OPENSSL_12, OPENSSL_13, OPENSSL_NO_NAME};
    use super::super::tests::{extension, hello, records, vector};
    use super::*;
    use crate::client_hello::is_grease;

    /// Parameters for building a hello.
    #[derive(Clone, Debug, Default)]
    struct Offer {
        version: u16,
        suites: Vec<u16>,
        /// Extension types that the parser does not interpret.
        others: Vec<u16>,
        name: bool,
        alpn: Option<Vec<u8>>,
        schemes: Option<Vec<u16>>,
        versions: Option<Vec<u16>>,
    }

    fn codes(codes: &[u16]) -> Vec<u8> {
        codes.iter().flat_map(|code| code.to_be_bytes()).collect()
    }

    impl Offer {
        fn extensions(&self) -> Vec<(u16, Vec<u8>)> {
            let mut all: Vec<_> = self.others.iter().map(|kind| (*kind, b"any".to_vec())).collect();
            if self.name {
                all.push((0, vector::<2>(&[&[0][..], &vector::<2>(b"a.test")].concat())));
            }
            if let Some(alpn) = &self.alpn {
                all.push((16, vector::<2>(&[vector::<1>(alpn), vector::<1>(b"other")].concat())));
            }
            if let Some(schemes) = &self.schemes {
                all.push((13, vector::<2>(&codes(schemes))));
            }
            if let Some(versions) = &self.versions {
                all.push((43, vector::<1>(&codes(versions))));
            }
            all
        }

        fn ja4(&self) -> String {
            let list: Vec<u8> =
                self.extensions().iter().flat_map(|(kind, body)| extension(*kind, body)).collect();
            let body = [
                &self.version.to_be_bytes()[..],
                &[7; 32],
                &vector::<1>(&[]),
                &vector::<2>(&codes(&self.suites)),
                &vector::<1>(&[0]),
                &vector::<2>(&list),
            ]
            .concat();
            let bytes = records(&[&[1][..], &vector::<3>(&body)].concat(), 1 << 14);
            hello(&bytes).unwrap().ja4().to_string()
        }

        /// Reference implementation: follows the wording of the specification, without regard for cost.
        fn oracle(&self) -> String {
            let honest = |list: &[u16]| -> Vec<u16> {
                list.iter().copied().filter(|code| !is_grease(*code)).collect()
            };
            let text =
                |list: &[u16]| list.iter().map(|code| format!("{code:04x}")).collect::<Vec<_>>().join(",");
            let hash = |text: &str| match text {
                "" => "0".repeat(12),
                text => digest(&SHA256, text.as_bytes()).as_ref()[..6]
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            };
            let kinds: Vec<u16> = self.extensions().iter().map(|(kind, _)| *kind).collect();
            let (mut suites, kinds) = (honest(&self.suites), honest(&kinds));
            let version = match &self.versions {
                Some(versions) => honest(versions).into_iter().max().unwrap_or_default(),
                None => self.version,
            };
            let version = match version {
                0x0300..=0x0304 => ["s3", "10", "11", "12", "13"][usize::from(version & 7)],
                2 => "s2",
                0xfeff => "d1",
                0xfefd => "d2",
                0xfefc => "d3",
                _ => "00",
            };
            let alpn = self.alpn.clone().unwrap_or_default();
            let digits: String = alpn.iter().map(|byte| format!("{byte:02x}")).collect();
            let ends =
                |text: &str| text.chars().next().into_iter().chain(text.chars().last()).collect::<String>();
            let alpn = match (alpn.first(), alpn.last()) {
                (Some(first), Some(last))
                    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() =>
                {
                    format!("{}{}", char::from(*first), char::from(*last))
                }
                (Some(_), _) => ends(&digits),
                _ => "00".to_owned(),
            };
            suites.sort_unstable();
            let mut hashed: Vec<u16> = kinds.iter().copied().filter(|kind| ![0, 16].contains(kind)).collect();
            hashed.sort_unstable();
            let mut tail = text(&hashed);
            let schemes = honest(self.schemes.as_deref().unwrap_or_default());
            if !schemes.is_empty() {
                tail = format!("{tail}_{}", text(&schemes));
            }
            let (count, many) = (suites.len().min(99), kinds.len().min(99));
            let name = if self.name { 'd' } else { 'i' };
            format!("t{version}{name}{count:02}{many:02}{alpn}_{}_{}", hash(&text(&suites)), hash(&tail))
        }
    }

    /// The example of the specification, with its extensions in the listed order.
    fn example() -> Offer {
        Offer {
            version: 0x0303,
            suites: vec![
                0x5a5a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
                0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
            ],
            others: vec![
                0x1a1a, 0x001b, 0x0033, 0x4469, 0x0017, 0x002d, 0x0005, 0x0023, 0x0012, 0xff01, 0x000b,
                0x000a, 0x0015,
            ],
            name: true,
            alpn: Some(b"h2".to_vec()),
            schemes: Some(vec![0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601]),
            versions: Some(vec![0x2a2a, 0x0304, 0x0303]),
        }
    }

    #[test]
    fn examples_of_the_specification() {
        // The parser reads these extensions, so they would need valid bodies.
        let readable = |offer: &Offer| {
            let mut offer = offer.clone();
            offer.others.retain(|kind| ![0x0033, 0x000a].contains(kind));
            offer
        };
        let whole = Hash::default();
        let mut extensions = example().others;
        extensions.extend([0x002b, 0x000d]);
        extensions.retain(|kind| !is_grease(*kind));
        let hashed = sorted(extensions.iter().copied(), |sorted| {
            let mut hash = whole.list(sorted);
            hash.push(b"_");
            hash.each(example().schemes.unwrap().into_iter());
            hash.first_twelve()
        });
        assert_eq!(&hashed, b"e5627efa2ab1");
        let without =
            sorted(extensions.iter().copied(), |sorted| Hash::default().list(sorted).first_twelve());
        assert_eq!(&without, b"6d807ffa2a79");
        let ja4 = readable(&example()).ja4();
        assert!(ja4.starts_with("t13d1514h2_8daaf6152771_"), "{ja4}");
        assert_eq!(ja4, readable(&example()).oracle());
    }

    #[test]
    fn alpn_part_is_first_and_last_character() {
        let cases: [(&[u8], &[u8; 2]); 13] = [
            (b"", b"00"),
            (b"h", b"hh"),
            (b"h2", b"h2"),
            (b"http/1.1", b"h1"),
            (b"\xab", b"ab"),
            (b"\x20", b"20"),
            (b"\xab\xcd", b"ad"),
            (b"\x20a", b"21"),
            (b"0\xab", b"3b"),
            (b"a ", b"60"),
            (b"01\xab\xcd", b"3d"),
            (b"0\xab\xcd1", b"01"),
            (b"Zz", b"Zz"),
        ];
        for (name, expected) in cases {
            assert_eq!(&protocol(name), expected, "{}", name.escape_ascii());
        }
    }

    /// Expected values were computed from the captured bytes by another implementation.
    #[test]
    fn captured_clients() {
        let cases = [
            (CHROMIUM, "t13d1517h2_8daaf6152771_cb7bf5808d99"),
            (CURL, "t13d3112h2_e8f1e7e78f70_b26ce05bbdd6"),
            (OPENSSL_13, "t13d3111h2_e8f1e7e78f70_1f22a2ca17c4"),
            (OPENSSL_NO_NAME, "t13i310900_e8f1e7e78f70_1f22a2ca17c4"),
            (OPENSSL_12, "t12d280700_d943125447b4_e7e480e5a997"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(hello(bytes).unwrap().ja4().as_str(), expected);
        }
    }

    #[test]
    fn absent_lists_are_zeros() {
        let nothing = Offer { version: 0x0301, ..Offer::default() };
        assert_eq!(nothing.ja4(), "t10i000000_000000000000_000000000000");
        let named = Offer { name: true, alpn: Some(b"h2".to_vec()), version: 0x0300, ..Offer::default() };
        assert_eq!(named.ja4(), "ts3d0002h2_000000000000_000000000000");
    }

    fn code() -> impl Strategy<Value = u16> {
        prop_oneof![6 => any::<u16>(), 1 => (0u16..16).prop_map(|high| 0x0a0a + 0x1010 * high)]
    }

    fn offers() -> impl Strategy<Value = Offer> {
        let read = [0, 10, 13, 16, 35, 41, 42, 43, 51];
        let list = |most| prop::collection::vec(code(), 0..most);
        let others = list(300).prop_map(move |mut kinds| {
            kinds.retain(|kind| !read.contains(kind));
            kinds
        });
        let version = prop_oneof![0x0300u16..0x0306, Just(2), 0xfefau16..0xff01, any::<u16>()];
        let alpn = prop::option::of(prop::collection::vec(any::<u8>(), 1..9));
        let versions = prop::option::of(prop::collection::vec(prop_oneof![0x02ffu16..0x0306, code()], 0..5));
        let lists = (prop_oneof![list(20), list(300)], others, prop::option::of(list(20)), versions);
        (version, lists, any::<bool>(), alpn).prop_map(
            |(version, (suites, others, schemes, versions), name, alpn)| Offer {
                version,
                suites,
                others,
                name,
                alpn,
                schemes,
                versions,
            },
        )
    }

    proptest! {
        #[test]
        fn agrees_with_the_reference(offer in offers()) {
            prop_assert_eq!(offer.ja4(), offer.oracle());
        }

        /// Browsers shuffle their extensions.
        #[test]
        fn order_of_suites_and_extensions_is_ignored(offer in offers()) {
            let mut other = offer.clone();
            other.suites.reverse();
            other.others.reverse();
            prop_assert_eq!(offer.ja4(), other.ja4());
        }
    }
}
