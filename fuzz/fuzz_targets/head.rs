//! A head that the guard accepts, changed at random: what is written, httparse reads as the same fields.
//!
//! The input is the number of edits, three bytes for each (what, on which name, which value), and the head.

#![no_main]

use httparse::{EMPTY_HEADER, Request as Oracle};
use libfuzzer_sys::fuzz_target;
use offramp_http::h1::{Guard, GuardOutcome, HeadLimits};
use offramp_http::head::{Fields, Known, KnownSet, Request};

const NAMES: [&str; 8] =
    ["host", "cookie", "via", "x-forwarded-for", "x-a", "x-longer-name", "connection", "accept"];
const VALUES: [&str; 4] = ["", "1", "a, b", "a value that is somewhat longer than the others"];

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else { return };
    let edits = usize::from(count % 16) * 3;
    let Some((edits, text)) = rest.split_at_checked(edits) else { return };
    let mut guard = Guard::new(HeadLimits::default());
    let inspected = guard.inspect(text);
    let GuardOutcome::Head(accepted) = inspected.outcome else { return };
    let mut request = Request::new();
    request.load(&accepted, &guard, &text[..inspected.pass]).unwrap();
    assert_eq!(request.fields.len(), usize::from(accepted.fields));
    for edit in edits.as_chunks::<3>().0 {
        change(&mut request.fields, *edit);
    }
    let mut out = Vec::new();
    request.write(KnownSet::default(), &mut out);
    out.extend_from_slice(b"\r\n");
    let mut parsed = [EMPTY_HEADER; 256];
    let mut oracle = Oracle::new(&mut parsed);
    assert!(oracle.parse(&out).unwrap().is_complete());
    assert_eq!(oracle.method, Some(request.method.as_str()));
    assert_eq!(oracle.path, Some(request.target()));
    assert_eq!(oracle.headers.len(), request.fields.len());
    for (read, (name, value)) in oracle.headers.iter().zip(request.fields.iter()) {
        assert_eq!(read.name.as_bytes(), name);
        assert_eq!(read.value, value);
    }
    for (name, _) in request.fields.iter() {
        let known = Known::of(name);
        assert!(known == Known::Other || request.fields.contains(known));
        assert_eq!(name, name.to_ascii_lowercase());
    }
});

fn change(fields: &mut Fields, [what, name, value]: [u8; 3]) {
    let name = NAMES[usize::from(name % 8)];
    let value = VALUES[usize::from(value % 4)].as_bytes();
    match what % 6 {
        0 => fields.append(name.as_bytes(), value),
        1 => fields.set(name.as_bytes(), value),
        2 => fields.set_host(value),
        3 => match Known::of(name.as_bytes()) {
            Known::Other => fields.remove_named(name.as_bytes()),
            known => fields.remove(known),
        },
        4 => fields.retain(|_, one| one.len() % 8 != usize::from(what >> 5)),
        _ => {
            let more: Fields = [(name, value), ("x-b", b"2")].into_iter().collect();
            fields.append_all(&more);
        }
    }
}
