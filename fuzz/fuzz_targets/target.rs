//! Arbitrary bytes as what a request asks for: nothing panics, both versions of HTTP say the same of a path, what
//! passes is a URI as the whole of it came, and what goes to a server passes again.

#![no_main]

use http::uri::{PathAndQuery, Uri};
use libfuzzer_sys::fuzz_target;
use offramp_http::Http1Fault;
use offramp_http::h1::{Form, Guard, Limits, Outcome};
use offramp_http::target::{check, origin_form, split};

/// No more than a URI can have.
const LONGEST: usize = 8000;

fuzz_target!(|data: &[u8]| {
    if data.len() > LONGEST {
        return;
    }
    let method = if data.len() % 2 == 0 { "GET" } else { "OPTIONS" };
    let head = [method.as_bytes(), b" ", data, b" HTTP/1.0\r\n\r\n"].concat();
    let outcome = Guard::new(Limits { head: 1 << 20, ..Limits::default() }).inspect(&head).outcome;
    let path = check(data);
    if data.first() == Some(&b'/') {
        // A line ends or is cut in two where a path cannot.
        let whole = !data.iter().any(|byte| byte.is_ascii_control() || *byte == b' ');
        match &outcome {
            Outcome::Head(head) => assert!(head.form == Form::Origin && path.is_ok()),
            Outcome::Refused(fault) => assert!(!whole || path == Err(*fault), "{fault:?} and {path:?}"),
            other => assert!(!whole, "{other:?}"),
        }
    } else {
        assert_eq!(path, Err(Http1Fault::TargetForm));
    }
    if path.is_ok() {
        let parsed = PathAndQuery::try_from(data).expect("what passes is a path");
        assert_eq!(parsed.as_str().as_bytes(), data, "none of it is cut");
    }
    if let Outcome::Head(accepted) = outcome
        && accepted.form == Form::Absolute
    {
        assert!(Uri::try_from(data).is_ok());
        let (_, authority, path) = split(data).expect("it has an authority");
        assert!(data.ends_with(path) && !authority.is_empty());
        let asked = origin_form(method.as_bytes(), path).unwrap_or(path.to_vec());
        assert!(asked == b"*" && method == "OPTIONS" || check(&asked).is_ok(), "{}", asked.escape_ascii());
    }
});
