//! Arbitrary bytes as a PROXY header: nothing panics, a prefix never contradicts the whole, and what was read
//! and is written again reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_wire::proxy::{
    Header, MAX_HEADER, MAX_V1, OutboundHeader, ProxyAddresses, ProxyCommand, ProxyEndpoint,
    ProxyHeaderVersion, parse,
};
use offramp_wire::{ParseStep, ProxyFault};

fuzz_target!(|data: &[u8]| {
    let whole = parse(data);
    match &whole {
        ParseStep::Need(more) => assert!(*more > 0 && data.len() + more <= MAX_HEADER),
        ParseStep::Done { value, consumed } => {
            assert!(*consumed <= data.len());
            assert!(*consumed <= if value.version == ProxyHeaderVersion::V1 { MAX_V1 } else { MAX_HEADER });
            // What follows the header has no part in it.
            assert_eq!(parse(&data[..*consumed]), whole);
            write_again(value);
        }
        ParseStep::Reject(fault) => assert!(!fault.to_string().is_empty()),
    }
    for end in [data.len() / 2, data.len().saturating_sub(1)] {
        match parse(&data[..end]) {
            ParseStep::Need(_) => {}
            verdict => assert_eq!(verdict, whole, "the first {end} bytes say otherwise"),
        }
    }
});

fn write_again(header: &Header<'_>) {
    let (source, destination) = match header.addresses {
        ProxyAddresses::Unspec => return,
        ProxyAddresses::Tcp { source, destination } => {
            (ProxyEndpoint::Inet(source), ProxyEndpoint::Inet(destination))
        }
        ProxyAddresses::Unix { source, destination } => {
            (ProxyEndpoint::Unix(source), ProxyEndpoint::Unix(destination))
        }
    };
    let mut plain = None;
    for crc32c in [false, true] {
        let outbound = OutboundHeader {
            source,
            destination,
            alpn: header.tlvs.alpn(),
            authority: header.tlvs.authority(),
            unique_id: header.tlvs.unique_id(),
            tls: header.tlvs.tls(),
            crc32c,
        };
        let mut out = Vec::new();
        outbound.encode_v2(&mut out);
        assert!(out.len() <= MAX_HEADER);
        let again = read(&out);
        assert_eq!((again.version, again.command), (ProxyHeaderVersion::V2, ProxyCommand::Proxy));
        assert!(same(again.addresses, header.addresses));
        // A checksum that was not there may be what is too much: something else is left out for it.
        if *plain.get_or_insert(out.len()) + 7 > MAX_HEADER {
            continue;
        }
        assert_eq!(again.tlvs.alpn(), header.tlvs.alpn());
        assert_eq!(again.tlvs.authority(), header.tlvs.authority());
        assert_eq!(again.tlvs.unique_id(), header.tlvs.unique_id());
        assert_eq!(again.tlvs.tls(), header.tlvs.tls());
        let last = out.len() - 1;
        out[last] ^= 1;
        assert!(!crc32c || parse(&out) == ParseStep::Reject(ProxyFault::ChecksumMismatch));
    }
    let mut out = Vec::new();
    OutboundHeader::new(source, destination).encode_v1(&mut out);
    let again = read(&out).addresses;
    assert!(again == ProxyAddresses::Unspec || same(again, header.addresses));
}

fn read(bytes: &[u8]) -> Header<'_> {
    match parse(bytes) {
        ParseStep::Done { value, consumed } if consumed == bytes.len() => value,
        other => panic!("{other:?} from what was written here"),
    }
}

/// Whether the addresses are the same, mapped IPv4 being IPv4.
fn same(left: ProxyAddresses<'_>, right: ProxyAddresses<'_>) -> bool {
    match (left, right) {
        (
            ProxyAddresses::Tcp { source: a, destination: b },
            ProxyAddresses::Tcp { source: c, destination: d },
        ) => [(a, c), (b, d)].iter().all(|(one, other)| {
            one.ip().to_canonical() == other.ip().to_canonical() && one.port() == other.port()
        }),
        _ => left == right,
    }
}
