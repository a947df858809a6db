//! Arbitrary bytes as a capture, or as a hello in a file: nothing panics, pieces of any size read the same as the whole,
//! and each hello that is found is one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_wire::capture::{self, Capture, CaptureFault, CaptureReader, MAX_HELLOS};
use offramp_wire::{ParseStep, client_hello};

fuzz_target!(|data: &[u8]| {
    let Some((&piece, file)) = data.split_first() else { return };
    let whole = read(file, file.len().max(1));
    assert_eq!(read(file, usize::from(piece) + 1), whole);
    if let Ok(capture) = &whole {
        assert!(capture.hellos.len() <= MAX_HELLOS);
        for hello in &capture.hellos {
            is_message(&hello.records);
        }
    }
    if let Ok(records) = capture::hello(file) {
        is_message(&records);
    }
});

fn read(file: &[u8], piece: usize) -> Result<Capture, CaptureFault> {
    let mut reader = CaptureReader::default();
    for piece in file.chunks(piece) {
        if !reader.push(piece)? {
            break;
        }
    }
    Ok(reader.finish())
}

/// The records hold a ClientHello and nothing else.
fn is_message(records: &[u8]) {
    assert_eq!(client_hello::extract(records), ParseStep::Done { value: records.to_vec(), consumed: 0 });
}
