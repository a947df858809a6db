//! Arbitrary bytes as the first packet of a client of PostgreSQL: nothing panics, no more than eight bytes are asked
//! for, and a prefix never contradicts the whole.

#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_wire::ParseStep;
use offramp_wire::postgres::peek;

fuzz_target!(|data: &[u8]| {
    let whole = peek(data);
    match whole {
        ParseStep::Need(more) => assert!(more > 0 && data.len() + more <= 8),
        ParseStep::Done { consumed, .. } => assert!(consumed <= data.len() && matches!(consumed, 0 | 8)),
        ParseStep::Reject(fault) => assert!(!fault.to_string().is_empty()),
    }
    for end in 0..data.len().min(12) {
        match peek(&data[..end]) {
            ParseStep::Need(more) => assert!(more > 0 && end + more <= 8),
            verdict => assert_eq!(verdict, whole, "the first {end} bytes say otherwise"),
        }
    }
});
