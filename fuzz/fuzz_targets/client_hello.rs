//! Arbitrary bytes as the start of a TLS connection: nothing panics, a prefix never contradicts the whole,
//! and what rustls accepts is read here, and read the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_wire::client_hello::{ClientHello, Ja4, MAX_LOOK, is_grease, peek};
use offramp_wire::{HelloFault, ParseStep, sniff};
use rustls::server::{Accepted, Acceptor};

fuzz_target!(|data: &[u8]| {
    let _ = sniff(data);
    let whole = peek(data);
    match &whole {
        ParseStep::Need(more) => assert!(*more > 0 && data.len() + more <= MAX_LOOK),
        ParseStep::Done { value, consumed } => {
            assert_eq!(*consumed, 0);
            read_all(value);
        }
        ParseStep::Reject(fault) => assert!(!fault.to_string().is_empty()),
    }
    for end in [data.len() / 2, data.len().saturating_sub(1)] {
        match peek(&data[..end]) {
            ParseStep::Need(_) => {}
            verdict => assert_eq!(verdict, whole, "the first {end} bytes say otherwise"),
        }
    }
    let Some(accepted) = rustls_accepts(data) else { return };
    match &whole {
        ParseStep::Done { value, .. } => agree(value, &accepted),
        // rustls lets a warning alert pass before the hello, and has no bound on the number of records.
        ParseStep::Reject(HelloFault::UnexpectedRecord(21) | HelloFault::TooManyRecords) => {}
        other => panic!("rustls accepts what is {other:?} here"),
    }
});

fn read_all(hello: &ClientHello<'_>) {
    assert_eq!(hello.ja4().as_str().len(), Ja4::LENGTH);
    let numbers = hello.versions().chain(hello.suites()).chain(hello.groups()).chain(hello.schemes());
    assert!(numbers.chain(hello.key_shares()).chain(hello.extensions()).all(|number| !is_grease(number)));
    assert!(hello.alpn().all(|protocol| !protocol.is_empty()));
    if let Some(name) = hello.server_name().host() {
        assert!(!name.is_empty() && name.len() <= 253 && !name.ends_with('.'));
        assert!(name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()));
    }
}

/// What rustls makes of the bytes: `None` where it waits or refuses.
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
    let alpn: Vec<&[u8]> = theirs.alpn().map(Iterator::collect).unwrap_or_default();
    assert!(ours.alpn().eq(alpn));
    let suites = theirs.cipher_suites().iter().map(|&suite| u16::from(suite));
    assert!(ours.suites().eq(suites.filter(|&suite| !is_grease(suite))));
    let groups = theirs.named_groups().unwrap_or_default().iter().map(|&group| u16::from(group));
    assert!(ours.groups().eq(groups.filter(|&group| !is_grease(group))));
}
