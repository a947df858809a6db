//! A request's place in a distributed trace (W3C Trace Context, level 1): read from `traceparent`, or begun
//! here, and sent to the server with our own span as the parent.
//!
//! Pure: chance is an argument. A `traceparent` of any client is believed, as it decides nothing but where a span
//! is shown. What cannot be read is left as it came, unless a trace begins here.

use offramp_http::head::{Fields, Known};
use offramp_observe::facts::Trace;

use crate::snapshot::Tracing;

/// The only flag of level 1: the caller may have recorded the trace.
const SAMPLED: u8 = 1;

/// The place of a request with these `fields`: in the trace that it is a part of, or for one in so many of
/// the others in a new one. `random` draws the ids and the lot.
pub(crate) fn place(fields: &Fields, tracing: Tracing, mut random: impl FnMut() -> u64) -> Option<Trace> {
    if let Some((id, parent, flags)) = given(fields) {
        let sampled = flags & SAMPLED == SAMPLED;
        return Some(Trace { id, span: random().max(1), parent: Some(parent), sampled });
    }
    if !random().is_multiple_of(tracing.sample_one_in.get().into()) {
        return None;
    }
    let id = u128::from(random()) << 64 | u128::from(random());
    // Ids of zeros alone are none (§3.2.2.3, §3.2.2.4).
    Some(Trace { id: id.max(1), span: random().max(1), parent: None, sampled: true })
}

/// Tells the server that its caller is our span (§3.4): version 00 with the flags that it knows.
pub(crate) fn tell(fields: &mut Fields, trace: &Trace) {
    let flags = if trace.sampled { SAMPLED } else { 0 };
    let text = format!("00-{:032x}-{:016x}-{flags:02x}", trace.id, trace.span);
    fields.set_known(Known::Traceparent, text.as_bytes());
    // The state of another trace says nothing of this one (§3.3).
    if trace.parent.is_none() {
        fields.remove(Known::Tracestate);
    }
}

/// The trace that the request says it is a part of. Two say nothing.
fn given(fields: &Fields) -> Option<(u128, u64, u8)> {
    let mut all = fields.all(Known::Traceparent);
    match (all.next(), all.next()) {
        (Some(value), None) => parse(value),
        _ => None,
    }
}

/// Reads `traceparent` (§3.2): trace, parent, flags.
fn parse(value: &[u8]) -> Option<(u128, u64, u8)> {
    let text = std::str::from_utf8(value).ok()?;
    let lower_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = text.splitn(5, '-');
    let (version, id, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let sized = version.len() == 2 && id.len() == 32 && parent.len() == 16 && flags.len() == 2;
    // Later versions may have more to say (§3.2.4).
    let whole = version != "00" || parts.next().is_none();
    if !sized || !whole || version == "ff" || ![version, id, parent, flags].into_iter().all(lower_hex) {
        return None;
    }
    let id = u128::from_str_radix(id, 16).ok().filter(|id| *id != 0)?;
    let parent = u64::from_str_radix(parent, 16).ok().filter(|parent| *parent != 0)?;
    Some((id, parent, u8::from_str_radix(flags, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const ID: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;

    fn one_in(n: u32) -> Tracing {
        Tracing { sample_one_in: NonZeroU32::new(n).unwrap() }
    }

    fn headers(fields: &[(&str, &str)]) -> Fields {
        fields.iter().copied().collect()
    }

    fn said(fields: &Fields, known: Known) -> &str {
        std::str::from_utf8(fields.get(known).unwrap()).unwrap()
    }

    #[test]
    fn traceparents_are_read_by_the_letter() {
        assert_eq!(parse(GOOD.as_bytes()), Some((ID, PARENT, 1)));
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert!(parse(b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more").is_some());
    }

    #[test]
    fn a_trace_goes_on_with_our_span() {
        let later = GOOD.replacen("00", "cc", 1).replace("-01", "-03-more");
        for (value, sampled) in [(GOOD.to_owned(), true), (GOOD.replace("-01", "-00"), false), (later, true)]
        {
            let mut headers = headers(&[("traceparent", &value), ("tracestate", "a=b")]);
            let trace = place(&headers, one_in(1), || 7).unwrap();
            assert_eq!(trace, Trace { id: ID, span: 7, parent: Some(PARENT), sampled });
            tell(&mut headers, &trace);
            let flags = if sampled { "01" } else { "00" };
            let expected = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-{flags}");
            assert_eq!(said(&headers, Known::Traceparent), expected);
            assert_eq!(said(&headers, Known::Tracestate), "a=b");
        }
    }

    #[test]
    fn one_in_so_many_begins_a_trace() {
        let none = Fields::new();
        let mut lot = 0;
        let begun = (0..100).filter(|n| {
            lot = *n;
            place(&none, one_in(10), || lot).is_some()
        });
        assert_eq!(begun.count(), 10);
        let mut drawn = [10, 0, 0, 0].into_iter();
        let trace = place(&none, one_in(10), || drawn.next().unwrap());
        assert_eq!(trace, Some(Trace { id: 1, span: 1, parent: None, sampled: true }), "ids are not zero");
    }

    #[test]
    fn what_cannot_be_read_gives_way_to_a_new_trace_or_stays() {
        for fields in [
            &[("traceparent", "nonsense"), ("tracestate", "a=b")][..],
            &[("traceparent", GOOD), ("traceparent", GOOD), ("tracestate", "a=b")],
        ] {
            let mut headers = headers(fields);
            assert_eq!(place(&headers, one_in(2), || 1), None);
            let trace = place(&headers, one_in(2), || 2).unwrap();
            assert_eq!((trace.id, trace.parent), (2 << 64 | 2, None));
            tell(&mut headers, &trace);
            assert_eq!(headers.all(Known::Traceparent).count(), 1);
            assert_eq!(
                said(&headers, Known::Traceparent),
                "00-00000000000000020000000000000002-0000000000000002-01"
            );
            assert!(!headers.contains(Known::Tracestate));
        }
    }

    proptest! {
        /// Whoever comes next reads what is sent.
        #[test]
        fn what_is_told_can_be_read(id in 1u128.., span in 1u64.., sampled: bool, parent: Option<u64>) {
            let mut headers = Fields::new();
            tell(&mut headers, &Trace { id, span, parent, sampled });
            prop_assert_eq!(given(&headers), Some((id, span, u8::from(sampled))));
        }

        /// Any bytes are either a trace or none.
        #[test]
        fn nothing_panics(value in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&value);
        }
    }
}
