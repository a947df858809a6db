//! Arbitrary bytes as what proxies and clients write of hosts: Forwarded, X-Forwarded-For, Host and Accept.
//! Nothing panics, no way is longer than its bound, and what was read and is written again reads the same.
//!
//! Lines of the input are the values of one field.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use offramp_http::Authority;
use offramp_http::forwarded::{Element, MAX_HOPS, OriginatingClient, client, elements, x_forwarded_for};
use offramp_http::semantics::accept;

fuzz_target!(|data: &[u8]| {
    let values: Vec<&[u8]> = data.split(|&byte| byte == b'\n').collect();
    let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let ways: [Way<'_>; 2] = [client, x_forwarded_for];
    for way in ways {
        let nobody = way(values.clone(), peer, |_| false);
        assert_eq!(nobody, OriginatingClient { address: peer, hops: 0 });
        let private =
            way(values.clone(), peer, |address| matches!(address, IpAddr::V4(v4) if v4.is_private()));
        let all = way(values.clone(), peer, |_| true);
        assert!(private.hops <= all.hops && all.hops <= MAX_HOPS);
        assert_eq!(all.address, all.address.to_canonical());
    }
    let _ = accept::form(values.iter().copied());
    for value in &values {
        write_again(value);
        same_host(value);
    }
});

/// Either way of finding the client.
type Way<'a> = fn(Vec<&'a [u8]>, IpAddr, fn(IpAddr) -> bool) -> OriginatingClient;

fn write_again(value: &[u8]) {
    let read: Vec<Element<'_>> = elements(value).map_while(Result::ok).collect();
    for element in read.iter().filter(|element| **element != Element::default()) {
        let mut out = String::new();
        element.write(&mut out);
        let again: Vec<_> = elements(out.as_bytes()).collect();
        // C1 controls are left out; nothing else is.
        let kept = |text: &Option<_>| {
            text.as_ref().is_none_or(|text: &std::borrow::Cow<'_, str>| !text.contains(char::is_control))
        };
        if kept(&element.host) && kept(&element.proto) {
            assert_eq!(again, [Ok(element.clone())], "{out:?}");
        } else {
            assert!(matches!(&again[..], [Ok(_)]), "{out:?}");
        }
    }
}

fn same_host(value: &[u8]) {
    match Authority::parse(value) {
        Ok(read) => {
            let normal = read.normal();
            assert!(!normal.is_empty() && !normal.bytes().any(|byte| byte.is_ascii_uppercase()));
            let again = Authority::parse(normal.as_bytes()).expect("what is normal is a host");
            assert_eq!(again.normal(), normal);
            assert_eq!((again.address(), again.port()), (read.address(), None));
            assert!(read.same(&read, 443));
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}
