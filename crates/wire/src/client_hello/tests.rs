//! Hellos captured from real clients, and synthetic ones for each fault.

use super::*;

pub(super) const OPENSSL_13: &[u8] = include_bytes!("../../tests/data/openssl-3.0-tls13.bin");
pub(super) const OPENSSL_12: &[u8] = include_bytes!("../../tests/data/openssl-3.0-tls12.bin");
pub(super) const OPENSSL_NO_NAME: &[u8] = include_bytes!("../../tests/data/openssl-3.0-no-name.bin");
pub(super) const CURL: &[u8] = include_bytes!("../../tests/data/curl.bin");
pub(super) const CHROMIUM: &[u8] = include_bytes!("../../tests/data/chromium.bin");

pub(super) fn hello(bytes: &[u8]) -> Result<ClientHello<'_>, HelloFault> {
    match peek(bytes) {
        ParseStep::Done { value, consumed } => {
            assert_eq!(consumed, 0);
            Ok(value)
        }
        ParseStep::Reject(fault) => Err(fault),
        ParseStep::Need(more) => panic!("needs {more} more"),
    }
}

fn names(name: fn(u16) -> RegistryName, numbers: impl Iterator<Item = u16>) -> Vec<String> {
    numbers.map(|number| name(number).to_string()).collect()
}

/// A vector with a length prefix of `N` bytes.
pub(super) fn vector<const N: usize>(bytes: &[u8]) -> Vec<u8> {
    [&bytes.len().to_be_bytes()[8 - N..], bytes].concat()
}

pub(super) fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector::<2>(body)].concat()
}

/// A ClientHello message with these extensions.
fn message(extensions: &[u8]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &vector::<1>(&[9; 32]),
        &vector::<2>(&[0x13, 0x01]),
        &vector::<1>(&[0]),
        &vector::<2>(extensions),
    ]
    .concat();
    [&[1][..], &vector::<3>(&body)].concat()
}

/// Fragments the message into records of at most `size` bytes.
pub(super) fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &vector::<2>(part)].concat()).collect()
}

fn with(extensions: &[u8]) -> Vec<u8> {
    records(&message(extensions), 1 << 14)
}

fn server_name(entries: &[u8]) -> Vec<u8> {
    with(&extension(0, &vector::<2>(entries)))
}

fn host(name: &[u8]) -> Vec<u8> {
    [&[0][..], &vector::<2>(name)].concat()
}

#[test]
fn openssl_with_tls_1_3() {
    let hello = hello(OPENSSL_13).unwrap();
    assert_eq!(hello.legacy_version(), 0x0303);
    assert_eq!(hello.server_name(), ServerName::Host("app.example.org"));
    assert_eq!(hello.alpn().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
    assert!(hello.offers_alpn(b"h2") && !hello.offers_alpn(b"h3"));
    assert_eq!(names(version_name, hello.versions())[0], "TLSv1.3");
    assert!(hello.offers_version(0x0304) && hello.offers_version(0x0303) && !hello.offers_version(0x0300));
    assert_eq!(
        names(suite_name, hello.suites().take(3)),
        ["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"]
    );
    assert_eq!(hello.suites().last(), Some(0x00ff));
    assert_eq!(names(group_name, hello.groups().take(2)), ["x25519", "secp256r1"]);
    assert_eq!(names(group_name, hello.key_shares()), ["x25519"]);
    assert_eq!(names(scheme_name, hello.schemes().take(1)), ["ecdsa_secp256r1_sha256"]);
    assert!(!hello.has_session_ticket() && !hello.has_pre_shared_key() && !hello.has_early_data());
}

#[test]
fn openssl_with_tls_1_2_and_capitals_in_the_name() {
    let hello = hello(OPENSSL_12).unwrap();
    assert_eq!(hello.server_name(), ServerName::Host("app.example.org"));
    assert_eq!(hello.versions().collect::<Vec<_>>(), [0x0303]);
    assert!(hello.offers_version(0x0303) && hello.offers_version(0x0301) && !hello.offers_version(0x0304));
    assert_eq!((hello.alpn().count(), hello.key_shares().count()), (0, 0));
}

#[test]
fn a_client_without_a_name() {
    let hello = hello(OPENSSL_NO_NAME).unwrap();
    assert_eq!((hello.server_name(), hello.server_name().host()), (ServerName::Absent, None));
}

#[test]
fn curl() {
    let hello = hello(CURL).unwrap();
    assert_eq!(hello.server_name().host(), Some("curl.example.org"));
    assert_eq!(hello.alpn().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
    // curl asks OpenSSL to pad; extensions come in order.
    assert_eq!((hello.extensions().next(), hello.extensions().last()), (Some(0), Some(21)));
}

#[test]
fn chromium_with_grease_and_post_quantum() {
    let hello = hello(CHROMIUM).unwrap();
    assert_eq!(hello.server_name().host(), Some("chromium.example.org"));
    assert!(hello.offers_alpn(b"h2"));
    assert_eq!(names(version_name, hello.versions()), ["TLSv1.3", "TLSv1.2"]);
    assert_eq!(names(group_name, hello.groups()), ["X25519MLKEM768", "x25519", "secp256r1", "secp384r1"]);
    assert_eq!(names(group_name, hello.key_shares()), ["X25519MLKEM768", "x25519"]);
    assert_eq!(names(suite_name, hello.suites().take(1)), ["TLS_AES_128_GCM_SHA256"]);
    assert!(names(suite_name, hello.suites()).iter().all(|name| name.starts_with("TLS_")));
    let numbers = hello.suites().chain(hello.extensions()).chain(hello.groups());
    assert!(numbers.into_iter().all(|number| !is_grease(number)));
}

#[test]
fn a_hello_over_several_records_is_joined() {
    let whole = hello(CHROMIUM).unwrap();
    for size in [1, 2, 3, 4, 5, 100, 1999, 2014, 2015] {
        // Down to one byte per record; hellos of browsers have 1,700 bytes.
        let fragmented = records(&CHROMIUM[5..], size);
        match peek(&fragmented) {
            ParseStep::Done { value, .. } => {
                assert_eq!(value, whole);
                assert!(matches!(value.message, Cow::Owned(_)));
            }
            other => panic!("{other:?}"),
        }
    }
    let small = records(&OPENSSL_13[5..], 1);
    assert_eq!(hello(&small).unwrap(), hello(OPENSSL_13).unwrap());
    assert!(matches!(hello(CHROMIUM).unwrap().message, Cow::Borrowed(_)));
}

#[test]
fn bytes_after_the_hello_are_ignored() {
    let more = [OPENSSL_13, &[0xff; 20]].concat();
    assert_eq!(hello(&more).unwrap(), hello(OPENSSL_13).unwrap());
}

#[test]
fn need_counts_record_headers() {
    assert_eq!(peek(b""), ParseStep::Need(9));
    assert_eq!(peek(&OPENSSL_13[..5]), ParseStep::Need(4));
    assert_eq!(peek(&OPENSSL_13[..9]), ParseStep::Need(OPENSSL_13.len() - 9));
    // Two records of 8 and 4 bytes: the second header counts, too.
    let message = message(&[]);
    let fragmented = records(&message, message.len() - 4);
    assert_eq!(peek(&fragmented[..9]), ParseStep::Need(fragmented.len() - 9));
    assert_eq!(peek(&fragmented[..fragmented.len() - 6]), ParseStep::Need(6));
}

/// `arrived` asks for the same bytes as `peek` and reports the same record faults.
#[test]
fn arrived_agrees_with_peek() {
    let built = records(&message(&extension(0, &vector::<2>(&host(b"a.test")))), 7);
    for bytes in [OPENSSL_13, OPENSSL_12, CURL, CHROMIUM, &built] {
        for n in 0..=bytes.len() {
            match (peek(&bytes[..n]), arrived(&bytes[..n])) {
                (ParseStep::Need(one), ParseStep::Need(other)) => assert_eq!(one, other),
                (ParseStep::Done { .. }, ParseStep::Done { consumed: 0, .. }) => {}
                (one, other) => panic!("{n} bytes: {one:?} and {other:?}"),
            }
        }
    }
    let faulty =
        [&b"GET / HTTP/1.1"[..], &[22, 3, 1, 0, 0], &[21, 3, 1, 0, 2, 1, 0], &[22, 3, 1, 0, 4, 2, 0, 0, 0]];
    for bytes in faulty {
        let (ParseStep::Reject(one), ParseStep::Reject(other)) = (peek(bytes), arrived(bytes)) else {
            panic!("{}", bytes.escape_ascii());
        };
        assert_eq!(one, other);
    }
    // `arrived` does not parse the content.
    let odd = with(&[0, 16, 0, 1]);
    assert!(matches!(peek(&odd), ParseStep::Reject(_)) && matches!(arrived(&odd), ParseStep::Done { .. }));
}

#[test]
fn server_names_are_classified_as_by_rustls() {
    let cases: [(Vec<u8>, ServerName<'_>); 9] = [
        (host(b"example.org"), ServerName::Host("example.org")),
        (host(b"Example.ORG."), ServerName::Host("example.org")),
        (host(b"example.org."), ServerName::Host("example.org")),
        (host(b"10.0.0.1"), ServerName::IpAddress),
        (host(b"::1"), ServerName::IpAddress),
        (host(b"*.example.org"), ServerName::Invalid),
        (host(b"b\xfccher.example"), ServerName::Invalid),
        (vec![], ServerName::Invalid),
        ([host(b"example.org"), vec![1, 2, 3]].concat(), ServerName::Host("example.org")),
    ];
    for (entries, expected) in cases {
        let bytes = server_name(&entries);
        assert_eq!(hello(&bytes).unwrap().server_name(), expected, "{}", entries.escape_ascii());
    }
    let twice = [host(b"a.example"), host(b"b.example")].concat();
    assert_eq!(hello(&server_name(&twice)), Err(HelloFault::Malformed("server_name")));
}

#[test]
fn tickets_pre_shared_keys_and_early_data_are_reported() {
    let bytes = with(&[extension(35, &[]), extension(42, &[])].concat());
    let asked = hello(&bytes).unwrap();
    assert!(!asked.has_session_ticket() && asked.has_early_data() && !asked.has_pre_shared_key());
    let bytes = with(&[extension(35, &[1]), extension(41, &[0])].concat());
    let brought = hello(&bytes).unwrap();
    assert!(brought.has_session_ticket() && !brought.has_early_data() && brought.has_pre_shared_key());
}

#[test]
fn the_ticket_is_the_first_identity_or_that_of_tls_1_2() {
    let identity = |name: &[u8]| [&vector::<2>(name)[..], &[0; 4]].concat();
    let keys = [&vector::<2>(&[identity(b"first"), identity(b"second")].concat())[..], &[0, 0]].concat();
    for (extensions, expected) in [
        (vec![extension(35, b"old"), extension(41, &keys)], Some(&b"first"[..])),
        (vec![extension(35, b"old")], Some(b"old")),
        (vec![extension(35, b"")], None),
        (vec![extension(41, b"")], None),
        (vec![extension(41, &[0, 9, 0])], None),
        (vec![extension(41, &[0, 9, 0, 7, 1])], None),
        (vec![], None),
    ] {
        let bytes = with(&extensions.concat());
        assert_eq!(hello(&bytes).unwrap().ticket(), expected, "{extensions:?}");
    }
}

#[test]
fn a_hello_without_extensions_is_read() {
    let full = message(&[]);
    let body = &full[4..full.len() - 2];
    let bytes = records(&[&[1][..], &vector::<3>(body)].concat(), 1 << 14);
    let hello = hello(&bytes).unwrap();
    assert_eq!(hello.server_name(), ServerName::Absent);
    assert_eq!((hello.versions().collect::<Vec<_>>(), hello.extensions().count()), (vec![0x0303], 0));
}

#[test]
fn framing_faults() {
    use HelloFault as F;
    let fragmented = records(&message(&[]), 20);
    let mut interleaved = fragmented.clone();
    interleaved[25] = 21;
    let mut empty_later = fragmented.clone();
    empty_later[29] = 0;
    empty_later[28] = 0;
    let many = records(&[&[1, 0, 0x80, 0][..], &[0; 5000]].concat(), 1);
    let cases: [(Vec<u8>, F); 12] = [
        (b"GET / HTTP/1.1".to_vec(), F::NotTls),
        (b"\x16\x02".to_vec(), F::NotTls),
        (b"\x80\x2e\x01".to_vec(), F::NotTls),
        (b"\x15\x03\x01".to_vec(), F::UnexpectedRecord(21)),
        (b"\x17\x03\x03\0\x05".to_vec(), F::UnexpectedRecord(23)),
        (interleaved, F::UnexpectedRecord(21)),
        (b"\x16\x03\x01\0\0".to_vec(), F::EmptyRecord),
        (empty_later, F::EmptyRecord),
        (b"\x16\x03\x01\x48\0".to_vec(), F::RecordTooLarge(0x4800)),
        (many, F::TooManyRecords),
        (b"\x16\x03\x01\0\x04\x02".to_vec(), F::NotClientHello(2)),
        (b"\x16\x03\x01\x40\0\x01\x01\0\0".to_vec(), F::TooLarge(0x1_0000)),
    ];
    for (bytes, fault) in cases {
        assert_eq!(hello(&bytes), Err(fault));
    }
}

#[test]
fn content_faults() {
    use HelloFault as F;
    let cut = |length: usize| {
        let full = message(&[]);
        records(&[&[1][..], &vector::<3>(&full[4..4 + length])].concat(), 1 << 14)
    };
    let mut long_session = [&[3, 3][..], &[7; 32], &vector::<1>(&[0; 33])].concat();
    long_session.extend_from_slice(&[0, 0, 0]);
    let long_session = records(&[&[1][..], &vector::<3>(&long_session)].concat(), 1 << 14);
    let alpn = "application_layer_protocol_negotiation";
    let cases: Vec<(Vec<u8>, F)> = vec![
        (cut(1), F::Malformed("legacy_version")),
        (cut(33), F::Malformed("random")),
        (cut(66), F::Malformed("session_id")),
        (long_session, F::Malformed("session_id")),
        (cut(70), F::Malformed("cipher_suites")),
        (cut(71), F::Malformed("compression_methods")),
        (cut(74), F::Malformed("extensions")),
        (with(&[0]), F::Malformed("extension type")),
        (with(&[0, 0, 0, 1]), F::Malformed("extension")),
        (with(&extension(0, &[0, 4, 0, 0, 2, 0])), F::Malformed("server_name")),
        (with(&extension(10, &[0, 1, 0])), F::Malformed("supported_groups")),
        (with(&extension(10, &[0, 2, 0, 29, 0])), F::Malformed("supported_groups")),
        (with(&extension(13, &[0, 3, 0, 0, 0])), F::Malformed("signature_algorithms")),
        (with(&extension(16, &[0, 1, 0])), F::Malformed(alpn)),
        (with(&extension(16, &[0, 2, 2, 0])), F::Malformed(alpn)),
        (with(&extension(43, &[1, 3])), F::Malformed("supported_versions")),
        (with(&extension(51, &[0, 3, 0, 29, 0])), F::Malformed("key_share")),
        (with(&extension(16, &[0, 0]).repeat(2)), F::DuplicateExtension(16)),
        (with(&extension(42, &[]).repeat(2)), F::DuplicateExtension(42)),
    ];
    for (bytes, fault) in cases {
        assert_eq!(hello(&bytes), Err(fault));
    }
}
