//! rustls as the oracle: every hello that it accepts must be read here, with the same content.

use offramp_wire::client_hello::{ClientHello, peek};
use offramp_wire::{HelloFault, ParseStep};
use proptest::prelude::*;
use rustls::server::{Accepted, Acceptor};

use super::laws::{HELLOS, fragment};

/// Result of rustls: `None` while it waits or if it rejects.
fn rustls_accepts(mut bytes: &[u8]) -> Option<Accepted> {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes).ok()?;
        if let Some(accepted) = acceptor.accept().ok()? {
            return Some(accepted);
        }
    }
    None
}

fn agree(ours: &ClientHello<'_>, accepted: &Accepted) {
    let theirs = accepted.client_hello();
    let name = theirs.server_name().map(|name| name.strip_suffix('.').unwrap_or(name));
    assert_eq!(ours.server_name().host(), name);
    let alpn = theirs.alpn().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    assert_eq!(ours.alpn().collect::<Vec<_>>(), alpn);
    let kept = |list: Vec<u16>| -> Vec<u16> {
        list.into_iter().filter(|&number| !offramp_wire::client_hello::is_grease(number)).collect()
    };
    let suites = theirs.cipher_suites().iter().map(|&suite| u16::from(suite)).collect();
    assert_eq!(ours.suites().collect::<Vec<_>>(), kept(suites));
    let groups = theirs.named_groups().unwrap_or_default().iter().map(|&group| u16::from(group)).collect();
    assert_eq!(ours.groups().collect::<Vec<_>>(), kept(groups));
}

/// Asserts the law for arbitrary bytes.
fn hold(bytes: &[u8]) -> bool {
    let Some(accepted) = rustls_accepts(bytes) else { return false };
    match peek(bytes) {
        ParseStep::Done { value, .. } => agree(&value, &accepted),
        // rustls skips a warning alert before the hello, and has no bound on the number of records.
        ParseStep::Reject(HelloFault::UnexpectedRecord(21) | HelloFault::TooManyRecords) => {}
        other => panic!("rustls accepts what is {other:?} here"),
    }
    true
}

#[test]
fn rustls_reads_captured_hellos_the_same() {
    for capture in HELLOS {
        assert!(hold(capture));
        assert!(hold(&fragment(capture, &[1, 3, 50, 60])));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn rustls_accepts_no_damaged_hello_that_is_refused_here(
        which in 0..5_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        sizes in prop::collection::vec(1..400_usize, 0..4),
    ) {
        let mut bytes = fragment(HELLOS[which], &sizes);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        hold(&bytes);
    }
}
