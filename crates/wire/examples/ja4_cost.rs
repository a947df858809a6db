//! What a JA4 fingerprint costs: nanoseconds for each of the captured ClientHellos, once read.
//!
//! `cargo run -p offramp-wire --example ja4_cost`

use std::hint::black_box;
use std::time::Instant;

use offramp_wire::{Step, client_hello};

const HELLOS: [(&str, &[u8]); 3] = [
    ("chromium", include_bytes!("../tests/data/chromium.bin")),
    ("curl", include_bytes!("../tests/data/curl.bin")),
    ("openssl", include_bytes!("../tests/data/openssl-3.0-tls13.bin")),
];
const ROUNDS: u32 = 200_000;

fn main() {
    for (name, bytes) in HELLOS {
        let Step::Done { value, .. } = client_hello::peek(bytes) else { continue };
        let ja4 = value.ja4();
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            black_box(black_box(&value).ja4());
        }
        let each = begun.elapsed().as_nanos() / u128::from(ROUNDS);
        println!("{name:10} {ja4} {each} ns");
    }
}
