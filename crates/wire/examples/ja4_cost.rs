//! Nanoseconds per captured ClientHello for [`peek`](offramp_wire::client_hello::peek), `arrived` and the JA4
//! fingerprint.
//!
//! `cargo run -p offramp-wire --example ja4_cost`

use std::hint::black_box;
use std::time::Instant;

use offramp_wire::{ParseStep, client_hello};

const HELLOS: [(&str, &[u8]); 3] = [
    ("chromium", include_bytes!("../tests/data/chromium.bin")),
    ("curl", include_bytes!("../tests/data/curl.bin")),
    ("openssl", include_bytes!("../tests/data/openssl-3.0-tls13.bin")),
];
const ROUNDS: u32 = 20_000;

fn main() {
    for (name, bytes) in HELLOS {
        let ParseStep::Done { value, .. } = client_hello::peek(bytes) else { continue };
        let arrived = each(|| black_box(client_hello::arrived(black_box(bytes))));
        let look = each(|| black_box(client_hello::peek(black_box(bytes))));
        let ja4 = each(|| black_box(&value).ja4());
        println!("{name:10} {} arrived {arrived} ns, look {look} ns, fingerprint {ja4} ns", value.ja4());
    }
}

fn each<T>(mut work: impl FnMut() -> T) -> u128 {
    let begun = Instant::now();
    (0..ROUNDS).for_each(|_| drop(black_box(work())));
    begun.elapsed().as_nanos() / u128::from(ROUNDS)
}
