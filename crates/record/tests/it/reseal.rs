//! Resealing: opened records are sealed in place under other keys.

use offramp_record::aead::Library;
use offramp_record::{
    KeyMaterial, LibraryChoice, Opener, PlaintextSpan, RecordEvent, Sealer, Suite, Version,
};

const CHOICE: LibraryChoice = LibraryChoice::always(Library::Ring);

fn keys(version: Version, suite: Suite, byte: u8) -> KeyMaterial {
    let key = vec![byte; suite.key_len()];
    KeyMaterial::new(version, suite, &key, [byte; 12], 0).unwrap()
}

/// Records of many sizes, resealed in place, open to the same plaintext in the same places.
#[test]
fn records_are_resealed_in_place() {
    for (version, one, other) in [
        (Version::Tls13, Suite::Aes128Gcm, Suite::Chacha20Poly1305),
        (Version::Tls13, Suite::Aes256Gcm, Suite::Aes128Gcm),
        (Version::Tls12, Suite::Aes128Gcm, Suite::Aes256Gcm),
    ] {
        let mut sealer = Sealer::new(&keys(version, one, 1), &CHOICE);
        let mut opener = Opener::new(&keys(version, one, 1), &CHOICE);
        let mut towards = Sealer::new(&keys(version, other, 2), &CHOICE);
        let mut peer = Opener::new(&keys(version, other, 2), &CHOICE);
        assert!(towards.matches(&opener));
        for (slot, filled) in [(1, 5), (100, 1000), (100, 950), (16_384, 40_000)] {
            let mut block = vec![0xee; 70_000];
            let layout = sealer.layout(slot, block.len(), 64);
            let plain: Vec<u8> = (0..filled).map(|at| at as u8).collect();
            assert_eq!(layout.fill(&mut block, [&plain[..]]), filled);
            let wire = sealer.seal(&layout, &mut block, filled);
            let mut spans = [PlaintextSpan::default(); 64];
            let opened = opener.open(&mut block[..wire], &mut spans);
            assert_eq!((opened.consumed, opened.event), (wire, RecordEvent::NeedMore(5)));
            let spans = &spans[..opened.spans];
            let records: Vec<_> = spans.iter().map(|span| towards.reseal(&mut block, *span)).collect();
            // They are contiguous, like the records received.
            assert_eq!((records[0].start, records.last().unwrap().end), (0, wire));
            assert!(records.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(block[wire..].iter().all(|byte| *byte == 0xee));
            let mut again = [PlaintextSpan::default(); 64];
            let opened = peer.open(&mut block[..wire], &mut again);
            assert_eq!((&again[..opened.spans], opened.event), (spans, RecordEvent::NeedMore(5)));
            let got: Vec<u8> = spans.iter().flat_map(|span| span.of(&block).to_vec()).collect();
            assert!(got == plain, "{version:?} {one:?} {other:?} {slot} {filled}");
        }
    }
}

#[test]
fn another_geometry_does_not_match() {
    let opener = |version, suite| Opener::new(&keys(version, suite, 1), &CHOICE);
    let sealer = Sealer::new(&keys(Version::Tls13, Suite::Aes128Gcm, 2), &CHOICE);
    assert!(sealer.matches(&opener(Version::Tls13, Suite::Chacha20Poly1305)));
    for suite in Suite::ALL {
        assert!(!sealer.matches(&opener(Version::Tls12, suite)));
    }
    let sealer = Sealer::new(&keys(Version::Tls12, Suite::Aes128Gcm, 2), &CHOICE);
    assert!(!sealer.matches(&opener(Version::Tls12, Suite::Chacha20Poly1305)));
}
