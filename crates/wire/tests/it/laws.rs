//! Laws that hold for every parser, checked over captured, damaged and arbitrary bytes.

use std::fmt::Debug;

use offramp_wire::{DetectedProtocol, HelloFault, ParseStep, ProxyFault, client_hello, proxy, sniff};
use proptest::prelude::*;

pub(crate) const HELLOS: [&[u8]; 5] = [
    include_bytes!("../data/openssl-3.0-tls13.bin"),
    include_bytes!("../data/openssl-3.0-tls12.bin"),
    include_bytes!("../data/openssl-3.0-no-name.bin"),
    include_bytes!("../data/curl.bin"),
    include_bytes!("../data/chromium.bin"),
];

/// The verdict on every prefix is `Need`, never for more bytes than the value then consumed, or the verdict
/// on the whole.
fn hold_for_every_prefix<'a, T, E>(bytes: &'a [u8], parse: impl Fn(&'a [u8]) -> ParseStep<T, E>)
where
    T: PartialEq + Debug,
    E: PartialEq + Debug,
{
    let mut least = 0;
    let mut verdict = None;
    for end in 0..=bytes.len() {
        let step = parse(&bytes[..end]);
        match (&verdict, step) {
            (None, ParseStep::Need(more)) => {
                assert!(more > 0);
                least = least.max(end + more);
            }
            (None, step) => {
                if let ParseStep::Done { consumed, .. } = &step {
                    assert!(end >= least, "done with {end} bytes, but {least} were said to be needed");
                    assert!(*consumed <= end);
                }
                verdict = Some(step);
            }
            (Some(verdict), step) => assert_eq!(verdict, &step, "at {end} of {} bytes", bytes.len()),
        }
    }
}

fn look(bytes: &[u8]) -> ParseStep<client_hello::ClientHello<'_>, HelloFault> {
    client_hello::peek(bytes)
}

fn header(bytes: &[u8]) -> ParseStep<proxy::Header<'_>, ProxyFault> {
    proxy::parse(bytes)
}

/// Maps `Unknown` to a rejection, since it may come before the needed bytes have arrived.
fn guess(bytes: &[u8]) -> ParseStep<DetectedProtocol, DetectedProtocol> {
    match sniff(bytes) {
        ParseStep::Need(more) => ParseStep::Need(more),
        ParseStep::Done { value: DetectedProtocol::Unknown, .. } => {
            ParseStep::Reject(DetectedProtocol::Unknown)
        }
        ParseStep::Done { value, consumed } => ParseStep::Done { value, consumed },
    }
}

/// Reads every field of a hello.
pub(crate) fn read_all(hello: &client_hello::ClientHello<'_>) -> usize {
    let numbers = hello.versions().chain(hello.suites()).chain(hello.groups()).chain(hello.schemes());
    let names = hello.server_name().host().map_or(0, str::len);
    numbers.chain(hello.key_shares()).chain(hello.extensions()).count() + hello.alpn().count() + names
}

/// Splits the single record of a captured hello into records of the given sizes, the last size repeated.
pub(crate) fn fragment(capture: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut rest = &capture[5..];
    let mut out = Vec::new();
    let mut sizes = sizes.iter().copied();
    let mut size = rest.len();
    while !rest.is_empty() {
        size = sizes.next().unwrap_or(size).clamp(1, rest.len().min(16_384));
        let (part, tail) = rest.split_at(size);
        out.extend_from_slice(&[22, 3, 1]);
        out.extend_from_slice(&u16::try_from(size).unwrap().to_be_bytes());
        out.extend_from_slice(part);
        rest = tail;
    }
    out
}

#[test]
fn captured_hellos_hold_at_every_split() {
    for capture in HELLOS {
        hold_for_every_prefix(capture, look);
        hold_for_every_prefix(capture, guess);
        hold_for_every_prefix(&fragment(capture, &[1, 2, 3, 100]), look);
    }
}

proptest! {
    #[test]
    fn fragments_hold_at_every_split(
        which in 0..4_usize,
        sizes in prop::collection::vec(1..200_usize, 1..8),
    ) {
        let bytes = fragment(HELLOS[which], &sizes);
        hold_for_every_prefix(&bytes, look);
        let (ParseStep::Done { value: joined, .. }, ParseStep::Done { value: whole, .. }) =
            (look(&bytes), look(HELLOS[which])) else { panic!("a valid hello was not read") };
        prop_assert_eq!(joined, whole);
    }

    #[test]
    fn damaged_hellos_hold_at_every_split(
        which in 0..5_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = HELLOS[which].to_vec();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        hold_for_every_prefix(&bytes, look);
        if let ParseStep::Done { value, .. } = look(&bytes) {
            read_all(&value);
        }
    }

    #[test]
    fn any_bytes_hold_at_every_split(
        start in prop::sample::select(vec![
            &b""[..], b"\x16\x03\x01", b"\x16\x03\x01\x00\x30\x01\x00\x00\x2c", b"PROXY ", b"PROXY TCP4 ",
            b"PROXY UNKNOWN ", b"\r\n\r\n\0\r\nQUIT\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0", b"\x80\x2e\x01",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..150),
    ) {
        let bytes = [start, &rest].concat();
        hold_for_every_prefix(&bytes, look);
        hold_for_every_prefix(&bytes, header);
        hold_for_every_prefix(&bytes, guess);
    }

    #[test]
    fn likely_lines_hold_at_every_split(
        line in "PROXY (TCP4|TCP6|UNKNOWN)?[ 0-9a-f.:]{0,110}\r?\n?.{0,3}",
    ) {
        hold_for_every_prefix(line.as_bytes(), header);
    }
}
