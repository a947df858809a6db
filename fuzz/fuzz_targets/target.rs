//! Arbitrary bytes as what a request asks for: nothing panics, both versions of HTTP say the same of a path, what
//! passes is a URI as the whole of it came, and what goes to a server passes again.

#![no_main]

use http::uri::{PathAndQuery, Uri};
use libfuzzer_sys::fuzz_target;
use offramp_http::Http1Fault;
use offramp_http::h1::{Guard, GuardOutcome, HeadLimits, TargetForm};
use offramp_http::target::{QueryForm, check, encode, origin_form, split};

/// No more than a URI can have.
const LONGEST: usize = 8000;

fuzz_target!(|data: &[u8]| {
    if data.len() > LONGEST {
        return;
    }
    let method = if data.len().is_multiple_of(2) { "GET" } else { "OPTIONS" };
    let head = [method.as_bytes(), b" ", data, b" HTTP/1.0\r\n\r\n"].concat();
    let outcome = Guard::new(HeadLimits { head: 1 << 20, ..HeadLimits::default() }).inspect(&head).outcome;
    let path = check(data);
    // A line ends or is cut in two where what is asked for cannot.
    let whole = !data.iter().any(|byte| byte.is_ascii_control() || *byte == b' ');
    if data.first() == Some(&b'/') {
        match &outcome {
            GuardOutcome::Head(head) => {
                assert!(head.form == TargetForm::Origin && (!whole || path.is_ok()));
            }
            GuardOutcome::Refused(fault) => assert!(!whole || path == Err(*fault), "{fault:?} and {path:?}"),
            other => assert!(!whole, "{other:?}"),
        }
    } else {
        assert_eq!(path, Err(Http1Fault::TargetForm));
    }
    if let Ok(query) = path {
        // Raw bytes of the query are forwarded with escapes.
        let forwarded = if query == QueryForm::Raw { encode(data) } else { data.to_vec() };
        assert_eq!(check(&forwarded), Ok(QueryForm::Encoded));
        let parsed = PathAndQuery::try_from(&*forwarded).expect("what passes is a path");
        assert_eq!(parsed.as_str().as_bytes(), forwarded, "none of it is cut");
    }
    if let GuardOutcome::Head(accepted) = outcome
        && accepted.form == TargetForm::Absolute
        && whole
    {
        assert!(accepted.query == QueryForm::Raw || Uri::try_from(data).is_ok());
        let (_, authority, path) = split(data).expect("it has an authority");
        assert!(data.ends_with(path) && !authority.is_empty());
        let asked = origin_form(method.as_bytes(), path).unwrap_or(path.to_vec());
        assert!(asked == b"*" && method == "OPTIONS" || check(&asked).is_ok(), "{}", asked.escape_ascii());
    }
});
