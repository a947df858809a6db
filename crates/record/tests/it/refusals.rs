//! Faults of the record layer, by the clause that demands them.

use offramp_record::aead::Library;
use offramp_record::{
    Alert, ContentType, KeyDemand, LibraryChoice, MAX_PLAINTEXT, Opener, PlaintextSpan, RecordEvent,
    RecordFault, Sealer, Suite, Version,
};

use crate::roundtrip::keys;

const RING: LibraryChoice = LibraryChoice::always(Library::Ring);
const SUITE: Suite = Suite::Aes128Gcm;

/// A TLS 1.3 record of any inner plaintext, including type and padding, at sequence number `sequence`.
fn inner13(inner: &[u8], sequence: u64) -> Vec<u8> {
    struct ExpandedKey(ring::aead::LessSafeKey);
    impl ExpandedKey {
        fn seal(&self, nonce: [u8; 12], aad: &[u8], data: &mut Vec<u8>) {
            let nonce = ring::aead::Nonce::assume_unique_for_key(nonce);
            self.0.seal_in_place_append_tag(nonce, ring::aead::Aad::from(aad), data).unwrap();
        }
    }
    let key = ExpandedKey(ring::aead::LessSafeKey::new(
        ring::aead::UnboundKey::new(&ring::aead::AES_128_GCM, &[1; 16]).unwrap(),
    ));
    let mut nonce = [1 ^ 0x55; 12];
    nonce[4..].iter_mut().zip((3 + sequence).to_be_bytes()).for_each(|(n, s)| *n ^= s);
    let length = ((inner.len() + 16) as u16).to_be_bytes();
    let mut wire = vec![23, 3, 3, length[0], length[1]];
    let aad = wire.clone();
    let mut data = inner.to_vec();
    key.seal(nonce, &aad, &mut data);
    wire.extend(data);
    wire
}

/// Opens everything, ignoring events that let the connection go on; returns the last event.
fn open(version: Version, mut wire: Vec<u8>) -> RecordEvent {
    let mut opener = Opener::new(&keys(version, SUITE, 1), &RING);
    let mut spans = [PlaintextSpan::default(); 8];
    loop {
        let opened = opener.open(&mut wire, &mut spans);
        wire.drain(..opened.consumed);
        match opened.event {
            RecordEvent::Full | RecordEvent::Tickets | RecordEvent::RefuseRenegotiation => {}
            event => return event,
        }
    }
}

fn sealed(version: Version, messages: &[(ContentType, &[u8])]) -> Vec<u8> {
    let mut sealer = Sealer::new(&keys(version, SUITE, 1), &RING);
    let mut wire = Vec::new();
    for (typ, content) in messages {
        sealer.seal_message(*typ, content, &mut wire);
    }
    wire
}

fn fault13(inner: &[u8]) -> RecordEvent {
    open(Version::Tls13, inner13(inner, 0))
}

#[test]
fn rfc8446_5_4_a_record_without_content_type() {
    assert_eq!(fault13(&[]), RecordEvent::Fault(RecordFault::NoContentType));
    assert_eq!(fault13(&[0; 40]), RecordEvent::Fault(RecordFault::NoContentType));
    assert_eq!(RecordFault::NoContentType.alert(), Alert::UNEXPECTED_MESSAGE);
}

#[test]
fn rfc8446_5_1_too_much_plaintext() {
    let mut full = vec![7; MAX_PLAINTEXT];
    full.push(23);
    assert!(matches!(fault13(&full), RecordEvent::NeedMore(_)));
    full.insert(0, 7);
    assert_eq!(fault13(&full), RecordEvent::Fault(RecordFault::RecordOverflow));
    // Padding counts, too: at most 2^14 + 1 bytes of content, type and padding.
    let mut padded = vec![23];
    padded.resize(MAX_PLAINTEXT + 2, 0);
    assert_eq!(fault13(&padded), RecordEvent::Fault(RecordFault::RecordOverflow));
}

#[test]
fn rfc8446_5_2_too_long_a_ciphertext_is_refused_from_its_header_alone() {
    let length = (MAX_PLAINTEXT as u16 + 257).to_be_bytes();
    assert_eq!(
        open(Version::Tls13, vec![23, 3, 3, length[0], length[1]]),
        RecordEvent::Fault(RecordFault::RecordOverflow)
    );
    let length = (MAX_PLAINTEXT as u16 + 2049).to_be_bytes();
    assert_eq!(
        open(Version::Tls12, vec![23, 3, 3, length[0], length[1]]),
        RecordEvent::Fault(RecordFault::RecordOverflow)
    );
    assert_eq!(RecordFault::RecordOverflow.alert(), Alert::RECORD_OVERFLOW);
}

#[test]
fn rfc8446_5_unexpected_types() {
    for typ in [20, 21, 22] {
        let event = open(Version::Tls13, vec![typ, 3, 3, 0, 1, 1]);
        assert_eq!(event, RecordEvent::Fault(RecordFault::UnexpectedType), "outer type {typ}");
    }
    assert_eq!(
        open(Version::Tls12, vec![20, 3, 3, 0, 1, 1]),
        RecordEvent::Fault(RecordFault::UnexpectedType)
    );
    assert_eq!(open(Version::Tls13, vec![99, 3, 3, 0, 1, 1]), RecordEvent::Fault(RecordFault::BadHeader));
    assert_eq!(open(Version::Tls13, vec![23, 2, 3, 0, 1, 1]), RecordEvent::Fault(RecordFault::BadHeader));
    assert_eq!(fault13(&[1, 20]), RecordEvent::Fault(RecordFault::UnexpectedType));
    assert_eq!(fault13(&[1, 24]), RecordEvent::Fault(RecordFault::UnexpectedType));
}

#[test]
fn rfc8446_6_alerts() {
    for version in [Version::Tls12, Version::Tls13] {
        let alert = |content: &[u8]| open(version, sealed(version, &[(ContentType::Alert, content)]));
        assert_eq!(alert(&[1, 0]), RecordEvent::CloseNotify);
        assert_eq!(alert(&[2, 40]), RecordEvent::PeerAlert(Alert(40)));
        assert_eq!(alert(&[]), RecordEvent::Fault(RecordFault::BadAlert));
        assert_eq!(alert(&[2]), RecordEvent::Fault(RecordFault::BadAlert));
        assert_eq!(alert(&[2, 40, 0]), RecordEvent::Fault(RecordFault::BadAlert));
        assert_eq!(alert(&[3, 40]), RecordEvent::Fault(RecordFault::BadAlertLevel));
        assert!(matches!(alert(&[1, 90]), RecordEvent::NeedMore(_)));
    }
    let warning = sealed(Version::Tls13, &[(ContentType::Alert, &[1, 112])]);
    assert_eq!(open(Version::Tls13, warning), RecordEvent::Fault(RecordFault::BadAlert));
    let flood = sealed(Version::Tls12, &[(ContentType::Alert, &[1u8, 112][..]); 5]);
    assert_eq!(open(Version::Tls12, flood), RecordEvent::Fault(RecordFault::TooManyWarnings));
}

#[test]
fn runs_of_empty_records_are_bounded() {
    for version in [Version::Tls12, Version::Tls13] {
        let empty = (ContentType::ApplicationData, &[][..]);
        assert!(matches!(open(version, sealed(version, &[empty; 32])), RecordEvent::NeedMore(_)));
        assert_eq!(
            open(version, sealed(version, &[empty; 33])),
            RecordEvent::Fault(RecordFault::TooManyEmpty)
        );
        let mut broken = vec![empty; 65];
        broken[32] = (ContentType::ApplicationData, b"x");
        assert!(matches!(open(version, sealed(version, &broken)), RecordEvent::NeedMore(_)));
    }
}

#[test]
fn rfc8446_5_1_no_record_within_a_fragmented_message() {
    let wire =
        sealed(Version::Tls13, &[(ContentType::Handshake, &[24, 0]), (ContentType::ApplicationData, b"x")]);
    assert_eq!(open(Version::Tls13, wire), RecordEvent::Fault(RecordFault::Interleaved));
}

#[test]
fn rfc5246_7_2_2_renegotiation_is_declined_once() {
    let hello = (ContentType::Handshake, &[1u8, 0, 0, 1, 0][..]);
    assert!(matches!(open(Version::Tls12, sealed(Version::Tls12, &[hello])), RecordEvent::NeedMore(_)));
    let twice = open(Version::Tls12, sealed(Version::Tls12, &[hello, hello]));
    assert_eq!(twice, RecordEvent::Fault(RecordFault::TooManyRenegotiations));
    assert_eq!(fault13(&[1, 0, 0, 1, 0, 22]), RecordEvent::Fault(RecordFault::UnexpectedHandshake));
}

#[test]
fn key_updates_without_data_are_bounded() {
    let mut opener = Opener::new(&keys(Version::Tls13, SUITE, 1), &RING);
    let mut spans = [PlaintextSpan::default(); 2];
    for _ in 0..32 {
        let mut wire = inner13(&[24, 0, 0, 1, 0, 22], 0);
        assert_eq!(opener.open(&mut wire, &mut spans).event, RecordEvent::KeyUpdate { answer: false });
        opener.rekey(&keys(Version::Tls13, SUITE, 1));
    }
    let mut wire = inner13(&[24, 0, 0, 1, 0, 22], 0);
    assert_eq!(opener.open(&mut wire, &mut spans).event, RecordEvent::Fault(RecordFault::TooManyKeyUpdates));
}

#[test]
fn a_replayed_or_swapped_record_does_not_authenticate() {
    let first = inner13(&[1, 23], 0);
    let mut replayed = first.clone();
    replayed.extend(&first);
    assert_eq!(open(Version::Tls13, replayed), RecordEvent::Fault(RecordFault::BadRecordMac));
    assert_eq!(open(Version::Tls13, inner13(&[1, 23], 1)), RecordEvent::Fault(RecordFault::BadRecordMac));
    assert_eq!(open(Version::Tls13, vec![23, 3, 3, 0, 0]), RecordEvent::Fault(RecordFault::BadRecordMac));
}

#[test]
fn rfc8446_5_5_an_exhausted_key_requires_an_update() {
    let worn = |version| {
        let material =
            offramp_record::KeyMaterial::new(version, SUITE, &[1; 16], [0; 12], (1 << 24) - 10).unwrap();
        Sealer::new(&material, &RING).pressure()
    };
    assert_eq!(worn(Version::Tls13), KeyDemand::UpdateKey);
    assert_eq!(worn(Version::Tls12), KeyDemand::Close);
}

#[test]
fn nothing_is_opened_after_a_fault() {
    let mut forged = inner13(&[1, 23], 0);
    forged[5] ^= 1;
    let mut wire = [forged, inner13(&[1, 23], 0)].concat();
    let mut opener = Opener::new(&keys(Version::Tls13, SUITE, 1), &RING);
    let mut spans = [PlaintextSpan::default(); 8];
    let opened = opener.open(&mut wire, &mut spans);
    assert_eq!(opened.event, RecordEvent::Fault(RecordFault::BadRecordMac));
    let opened = opener.open(&mut wire[opened.consumed..], &mut spans);
    assert_eq!((opened.spans, opened.event), (0, RecordEvent::Fault(RecordFault::SequenceExhausted)));
}
