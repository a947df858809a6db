//! Known vectors of version 2, and one case per refusal.

use super::*;
use crate::proxy::{CLIENT_SSL, ProxyEndpoint, TlsInfo, Tlv, encode_local_v2, parse};

/// A block with the given bytes behind the signature and the right length.
fn block(version_command: u8, family_transport: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [SIGNATURE_V2, &[version_command, family_transport, length[0], length[1]][..], body].concat()
}

fn read(bytes: &[u8]) -> Result<Header<'_>, ProxyFault> {
    match parse(bytes) {
        ParseStep::Done { value, consumed } => {
            let length = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
            assert_eq!(consumed, HEAD + length);
            Ok(value)
        }
        ParseStep::Reject(fault) => Err(fault),
        ParseStep::Need(more) => panic!("needs {more} more"),
    }
}

const INET: [u8; 12] = [10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x01, 0xbb];

#[test]
fn layout_of_the_specification() {
    let mut bytes = block(0x21, 0x11, &INET);
    bytes.extend_from_slice(b"the client's bytes");
    let header = read(&bytes).unwrap();
    assert_eq!((header.version, header.command), (ProxyHeaderVersion::V2, ProxyCommand::Proxy));
    assert_eq!(
        header.addresses,
        ProxyAddresses::Tcp {
            source: "10.0.0.1:4660".parse().unwrap(),
            destination: "10.0.0.2:443".parse().unwrap()
        }
    );
    assert!(header.tlvs.is_empty());

    let six = [&[0x20, 1][..], &[0; 13], &[7], &[0; 15], &[1], &[0, 80, 0, 81]].concat();
    assert_eq!(
        read(&block(0x21, 0x21, &six)).unwrap().addresses,
        ProxyAddresses::Tcp {
            source: "[2001::7]:80".parse().unwrap(),
            destination: "[::1]:81".parse().unwrap()
        }
    );
}

#[test]
fn unix_paths_are_cut_where_they_end() {
    let field = |path: &[u8]| [path, &vec![0; 108 - path.len()]].concat();
    let full = [b'x'; 108];
    for (source, destination) in
        [(&b"/run/app.sock"[..], &b""[..]), (&b"\0abstract\0name"[..], &full[..]), (&b""[..], &b""[..])]
    {
        let bytes = block(0x21, 0x31, &[field(source), field(destination)].concat());
        assert_eq!(read(&bytes).unwrap().addresses, ProxyAddresses::Unix { source, destination });
    }
    // Bytes behind the terminator of a path are padding, whatever their value.
    let bytes = block(0x21, 0x31, &[field(b"/a\0rest"), field(b"/b")].concat());
    assert_eq!(read(&bytes).unwrap().addresses, ProxyAddresses::Unix { source: b"/a", destination: b"/b" });
}

#[test]
fn local_skips_the_block_whatever_it_holds() {
    for bytes in [block(0x20, 0, &[]), block(0x20, 0x11, &INET), block(0x20, 0xff, b"\x01\xff\xff")] {
        let header = read(&bytes).unwrap();
        assert_eq!((header.command, header.addresses), (ProxyCommand::Local, ProxyAddresses::Unspec));
        assert!(header.tlvs.is_empty());
    }
    let mut out = Vec::new();
    encode_local_v2(&mut out);
    assert_eq!(out, block(0x20, 0, &[]));
}

#[test]
fn an_unspecified_family_or_transport_skips_the_addresses() {
    let alpn = b"\x01\0\x02h2";
    for (family_transport, body) in [
        (0x00, alpn.to_vec()),
        (0x01, alpn.to_vec()),
        (0x02, alpn.to_vec()),
        (0x10, [&INET[..], alpn].concat()),
    ] {
        let bytes = block(0x21, family_transport, &body);
        let header = read(&bytes).unwrap();
        assert_eq!((header.command, header.addresses), (ProxyCommand::Proxy, ProxyAddresses::Unspec));
        assert_eq!(header.tlvs.alpn(), Some(&b"h2"[..]));
    }
    // An address block of unknown size is ignored.
    assert!(read(&block(0x21, 0x00, &INET)).unwrap().tlvs.is_empty());
}

#[test]
fn vectors_are_read_in_order_and_unknown_ones_can_be_skipped() {
    let tlvs = b"\xe0\0\x01x\x04\0\x02\0\0\x01\0\x02h2\x02\0\x0bexample.org\x05\0\x02id\x30\0\0\x01\0\x02h3";
    let bytes = block(0x21, 0x11, &[&INET[..], tlvs].concat());
    let tlvs = read(&bytes).unwrap().tlvs;
    assert_eq!(tlvs.iter().map(|tlv| tlv.kind).collect::<Vec<_>>(), [0xe0, 1, 2, 5, 0x30, 1]);
    assert_eq!(tlvs.iter().next(), Some(Tlv { kind: 0xe0, value: b"x" }));
    assert_eq!(tlvs.alpn(), Some(&b"h2"[..]));
    assert_eq!(tlvs.authority(), Some("example.org"));
    assert_eq!(tlvs.unique_id(), Some(&b"id"[..]));
    assert_eq!(tlvs.find(kind::NETNS), Some(&b""[..]));
    assert_eq!((tlvs.find(0xe1), tlvs.tls()), (None, None));
}

#[test]
fn the_ssl_vector_is_packed() {
    let ssl = b"\x20\0\x1b\x01\0\0\0\x01\x21\0\x07TLSv1.3\x22\0\x01\xff\x26\0\x02gr\xee\0\0";
    let length = u16::try_from(ssl.len() - 3).unwrap().to_be_bytes();
    let mut ssl = ssl.to_vec();
    ssl[1..3].copy_from_slice(&length);
    let bytes = block(0x21, 0x11, &[&INET[..], &ssl].concat());
    let expected = TlsInfo {
        client: CLIENT_SSL,
        verify: 1,
        version: Some("TLSv1.3"),
        group: Some("gr"),
        ..TlsInfo::default()
    };
    assert_eq!(read(&bytes).unwrap().tlvs.tls(), Some(expected));
}

#[test]
fn the_checksum_is_verified() {
    // RFC 3720 §B.4: the CRC32c of 32 zero bytes.
    assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    let mut bytes = block(0x21, 0x11, &[&INET[..], b"\x03\0\x04\0\0\0\0\x01\0\x02h2"].concat());
    let sum = crc32c::crc32c(&bytes);
    bytes[31..35].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(read(&bytes).unwrap().tlvs.alpn(), Some(&b"h2"[..]));
    for at in [16, 33, bytes.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert_eq!(read(&flipped), Err(ProxyFault::ChecksumMismatch), "byte {at}");
    }
}

#[test]
fn faults() {
    use ProxyFault as F;
    let inet = |tlvs: &[u8]| block(0x21, 0x11, &[&INET[..], tlvs].concat());
    let long = u16::try_from(MAX_HEADER - HEAD + 1).unwrap();
    let over = [SIGNATURE_V2, &[0x21, 0x11][..], &long.to_be_bytes()].concat();
    let id = [&[5, 0, 129][..], &[0; 129]].concat();
    let cases = [
        (b"\r\n\r\n\0\r\nQUIX".to_vec(), F::NotProxy),
        (block(0x11, 0x11, &INET), F::BadVersion(1)),
        (block(0x31, 0x11, &INET), F::BadVersion(3)),
        (block(0x22, 0x11, &INET), F::BadCommand(2)),
        (block(0x21, 0x41, &INET), F::BadFamily(4)),
        (block(0x21, 0x13, &INET), F::BadTransport(3)),
        (block(0x21, 0x03, &INET), F::BadTransport(3)),
        (block(0x21, 0x12, &INET), F::Datagram),
        (block(0x21, 0x22, &INET), F::Datagram),
        (block(0x21, 0x32, &INET), F::Datagram),
        (over, F::TooLong(long)),
        (block(0x21, 0x11, &INET[..11]), F::AddressTruncated(11)),
        (block(0x21, 0x21, &INET), F::AddressTruncated(12)),
        (block(0x21, 0x31, &[0; 215]), F::AddressTruncated(215)),
        (inet(b"\x01"), F::TlvTruncated),
        (inet(b"\x01\0\x03h2"), F::TlvTruncated),
        (inet(b"\x03\0\x03\0\0\0"), F::ChecksumLength(3)),
        (inet(b"\x03\0\x04\0\0\0\0\x03\0\x04\0\0\0\0"), F::ChecksumRepeated),
        (inet(b"\x03\0\x04\0\0\0\0"), F::ChecksumMismatch),
        (inet(&id), F::UniqueIdTooLong(129)),
        (inet(b"\x20\0\x04\x01\0\0\0"), F::SslMalformed),
        (inet(b"\x20\0\x06\x01\0\0\0\0\x21"), F::SslMalformed),
    ];
    for (bytes, fault) in cases {
        assert_eq!(read(&bytes), Err(fault), "{}", bytes.escape_ascii());
    }
}

#[test]
fn faults_of_the_head_are_reported_before_the_block_is_whole() {
    let bytes = block(0x2f, 0x11, &INET);
    assert_eq!(parse(&bytes[..12]), ParseStep::Need(4));
    assert_eq!(parse(&bytes[..13]), ParseStep::Reject(ProxyFault::BadCommand(15)));
    let bytes = block(0x21, 0x11, &INET);
    assert_eq!(parse(&bytes[..16]), ParseStep::Need(12));
}

#[test]
fn writes_the_layout_of_the_specification() {
    let inet = |text: &str| ProxyEndpoint::Inet(text.parse().unwrap());
    let mut header = OutboundHeader::new(inet("10.0.0.1:4660"), inet("[::ffff:10.0.0.2]:443"));
    header.alpn = Some(b"h2");
    let mut out = b"before".to_vec();
    header.encode_v2(&mut out);
    assert_eq!(&out[..6], b"before");
    assert_eq!(&out[6..], block(0x21, 0x11, &[&INET[..], b"\x01\0\x02h2"].concat()));

    // IPv4 paired with IPv6 is written as IPv6.
    let mut out = Vec::new();
    OutboundHeader::new(inet("10.0.0.1:1"), inet("[::1]:2")).encode_v2(&mut out);
    assert_eq!(
        read(&out).unwrap().addresses,
        ProxyAddresses::Tcp {
            source: "[::ffff:10.0.0.1]:1".parse().unwrap(),
            destination: "[::1]:2".parse().unwrap()
        }
    );

    // A Unix socket paired with an Internet address: only the TLVs are written.
    let mut header = OutboundHeader::new(ProxyEndpoint::Unix(b"/run/a"), inet("[::1]:2"));
    header.authority = Some("example.org");
    header.crc32c = true;
    let mut out = Vec::new();
    header.encode_v2(&mut out);
    let read = read(&out).unwrap();
    assert_eq!((read.addresses, read.tlvs.authority()), (ProxyAddresses::Unspec, Some("example.org")));
}

#[test]
fn fields_without_room_are_omitted_and_the_rest_is_written() {
    let unnamed = ProxyEndpoint::Unix(b"");
    let (longest, path) = ([b'x'; 108], [b'x'; 109]);
    let huge = vec![0; MAX_HEADER];
    let info = TlsInfo { client: CLIENT_SSL, version: Some("TLSv1.3"), ..TlsInfo::default() };
    let whole = OutboundHeader {
        alpn: Some(b"h2"),
        authority: Some("a.test"),
        unique_id: Some(b"id"),
        tls: Some(info),
        crc32c: true,
        ..OutboundHeader::new(ProxyEndpoint::Unix(&longest), unnamed)
    };
    let nowhere = [ProxyEndpoint::Unix(&path[..]), unnamed];
    let plain = ProxyAddresses::Unix { source: &longest, destination: b"" };
    for (header, addresses, expected) in [
        (whole, plain, whole),
        (OutboundHeader { source: nowhere[0], ..whole }, ProxyAddresses::Unspec, whole),
        (
            OutboundHeader { destination: nowhere[0], source: nowhere[1], ..whole },
            ProxyAddresses::Unspec,
            whole,
        ),
        (
            OutboundHeader { unique_id: Some(&[0; 129]), ..whole },
            plain,
            OutboundHeader { unique_id: None, ..whole },
        ),
        (OutboundHeader { alpn: Some(&[0; 70_000]), ..whole }, plain, OutboundHeader { alpn: None, ..whole }),
        (
            OutboundHeader { tls: Some(TlsInfo { client_certificate: Some(&huge), ..info }), ..whole },
            plain,
            whole,
        ),
    ] {
        let mut out = b"before".to_vec();
        header.encode_v2(&mut out);
        assert_eq!(&out[..6], b"before");
        let read = read(&out[6..]).unwrap();
        assert_eq!(read.addresses, addresses);
        assert_eq!(read.tlvs.alpn(), expected.alpn);
        assert_eq!(read.tlvs.authority(), expected.authority);
        assert_eq!(read.tlvs.unique_id(), expected.unique_id);
        assert_eq!(read.tlvs.tls(), expected.tls);
        assert!(read.tlvs.find(kind::CRC32C).is_some());
    }
}
