//! What streams of one HTTP/2 connection owe each other: their turn, their end, and no more than that.

use std::collections::BTreeMap;
use std::time::Duration;

use offramp_testkit::process::Signal;

use crate::h2_follows_rfc9113::http_instance;
use crate::support::h2_client::kind::{DATA, GOAWAY, PING};
use crate::support::h2_client::{
    ACK, END_STREAM, H2, WHOLE, data, frame, get, headers, post, request, reset, window,
};
use crate::support::instance::{PATIENCE, cause, text};
use crate::support::smuggling_backend::Backend;

/// The largest window.
const WIDE: u32 = (1 << 31) - 1;

/// Reads until `wanted` bytes of data have come, of which `have` came before; gives how many have.
fn data_to(h2: &mut H2, mut have: usize, wanted: usize) -> usize {
    while have < wanted {
        let part = h2.find("data", |frame| matches!(frame.kind, DATA | GOAWAY));
        assert_eq!(part.kind, DATA, "{part:?}");
        have += part.payload.len();
    }
    have
}

/// Asks for three responses of so many bytes at once; gives how much of each had come when the first was whole.
fn when_the_first_is_whole(h2: &mut H2, ids: [u32; 3], each: usize) -> BTreeMap<u32, usize> {
    let path = format!("/bytes/{each}");
    h2.send(
        &[vec![window(0, 3 * u32::try_from(each).unwrap())], ids.map(|id| get(id, &path)).to_vec()]
            .concat()
            .concat(),
    );
    let mut have: BTreeMap<_, _> = ids.into_iter().map(|id| (id, 0)).collect();
    let mut first = None;
    while have.values().any(|have| *have < each) {
        let part = h2.find("data", |frame| frame.kind == DATA);
        *have.get_mut(&part.stream).unwrap() += part.payload.len();
        if part.flags & END_STREAM > 0 {
            first.get_or_insert_with(|| have.clone());
        }
    }
    first.unwrap()
}

#[test]
fn large_downloads_go_on_side_by_side() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut h2 = H2::open(&config, instance.address(), &[(4, WIDE)]);
    // With one stream after the other, the others would have a piece at most, each time. How much they have depends on
    // the threads of the server too: on a busy machine one may send all before another runs.
    let fair = (0..20).any(|turn| {
        let first = when_the_first_is_whole(&mut h2, [1, 3, 5].map(|id| id + 6 * turn), 20_000_000);
        println!("when the first had all: {first:?}");
        first.values().all(|have| *have > 512 << 10)
    });
    assert!(fair, "in none of 20 turns they went on side by side");
    drop(h2);
    instance.stop();
}

/// RFC 9218: a response that is urgent goes before a long one that is not, although that waits for the same window; the
/// long one goes on.
#[test]
fn what_is_urgent_goes_first() {
    const GRANT: usize = 16_384;
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut h2 = H2::open(&config, instance.address(), &[(4, WIDE)]);
    let ask = |id: u32, bytes: usize, priority: &str| {
        headers(id, WHOLE, &request("GET", &format!("/bytes/{bytes}"), &[("priority", priority)]))
    };
    h2.send(&ask(1, 4_000_000, "u=7"));
    let mut owed = 65_535 - data_to(&mut h2, 0, 65_535);
    h2.send(&ask(3, 500_000, "u=1"));
    h2.find("its head", |frame| frame.stream == 3);
    let (mut urgent, mut other, mut begun, mut over) = (0, 0, false, false);
    while !over {
        h2.send(&window(0, u32::try_from(GRANT).unwrap()));
        owed += GRANT;
        while owed > 0 && !over {
            let part = h2.find("data", |frame| frame.kind == DATA);
            owed -= part.payload.len();
            begun |= part.stream == 3;
            match part.stream {
                3 => urgent += part.payload.len(),
                _ if begun => other += part.payload.len(),
                _ => {}
            }
            over = part.stream == 3 && part.flags & END_STREAM > 0;
        }
    }
    assert_eq!(urgent, 500_000);
    // What the server is slow to send leaves room for others.
    assert!(other < urgent / 2, "{other} bytes of the other response meanwhile");
    // Said anew, it is the other way round: the end of the first is more urgent than another one.
    h2.send(&[frame(0x10, 0, 0, &[&1_u32.to_be_bytes()[..], b"u=0"].concat()), window(0, WIDE / 2)].concat());
    while h2.find("the rest", |frame| frame.kind == DATA).flags & END_STREAM == 0 {}
    h2.is_well(1001);
    instance.stop();
}

#[test]
fn what_is_taken_back_at_once_reaches_no_server() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut h2 = H2::open(&config, instance.address(), &[]);
    // From now on there is a connection to the server that a request could go by at once.
    h2.is_well(1);
    let hasty = |n: u32| [get(3 + 2 * n, "/hasty"), reset(3 + 2 * n, 8)].concat();
    // As many as are looked at in one turn: at the end of a turn others go first, the requests so far among them.
    h2.send(&(0..30).flat_map(hasty).collect::<Vec<_>>());
    h2.is_well(1001);
    let (_, whole) = backend.take();
    assert_eq!(whole.len(), 2, "{whole:?}");
    instance.stop();
}

/// RFC 9113 §8.1: whoever resets in the middle of a request has not asked it, whatever code that has.
#[test]
fn half_an_upload_never_looks_whole() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    for code in [0, 8] {
        let mut h2 = H2::open(&config, instance.address(), &[]);
        h2.send(&[post(1, "/half", &[]), data(1, 0, b"the first half")].concat());
        let raw = std::cell::RefCell::new(Vec::new());
        instance.until("the first half", || {
            raw.borrow_mut().extend(backend.take().0);
            raw.borrow().ends_with(b"the first half\r\n").then_some(())
        });
        h2.send(&[data(1, 0, b"and more"), reset(1, code)].concat());
        instance.event("the client that left", |event| {
            event["client_port"] == h2.port
                && text(event, "path") == "/half"
                && cause(event) == "client_aborted"
        });
        h2.is_well(1001);
        let (raw, whole) = backend.take();
        assert!(whole.iter().all(|one| one.head.starts_with("GET /well ")), "{code}: {whole:?}");
        assert!(!raw.windows(5).any(|bytes| bytes == b"0\r\n\r\n"), "{code}: {}", raw.escape_ascii());
    }
    instance.stop();
}

/// A request that was served is told of when its response was read from the server. Its connection stays for as
/// long as the client takes it.
#[test]
fn a_response_behind_a_closed_window_is_waited_for() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1\n[limits]\nkeepalive_timeout = \"3s\"");
    let mut h2 = H2::open(&config, instance.address(), &[]);
    h2.send(&get(1, "/bytes/100000"));
    let have = data_to(&mut h2, 0, 65_535);
    // Longer than the bound between requests.
    h2.patience(Duration::from_secs(5));
    let said = h2.next();
    assert!(said.is_none(), "{said:?}");
    h2.patience(PATIENCE);
    h2.send(&[window(0, 1 << 20), window(1, 1 << 20)].concat());
    assert_eq!(data_to(&mut h2, have, 100_000), 100_000);
    // And then the bound holds.
    h2.find("goodbye", |frame| frame.kind == GOAWAY);
    instance.stop();
}

/// RFC 9113 §6.8: what comes behind the last stream that is served is no fault, and ends nobody else's.
#[test]
fn who_asks_behind_the_end_disturbs_nobody() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut h2 = H2::open(&config, instance.address(), &[]);
    h2.send(&get(1, "/bytes/100000"));
    let have = data_to(&mut h2, 0, 65_535);
    instance.process.signal(Signal::TERM).unwrap();
    let last = |h2: &mut H2| {
        let said = h2.find("goodbye", |frame| frame.kind == GOAWAY);
        u32::from_be_bytes(said.payload[..4].try_into().unwrap())
    };
    // Once for those that ask just now, and once for all, when that was heard.
    assert_eq!(last(&mut h2), WIDE);
    let ping = h2.find("question", |frame| frame.kind == PING && frame.flags == 0);
    h2.send(&frame(PING, ACK, 0, &ping.payload));
    assert_eq!(last(&mut h2), 1);
    let late = |n: u32| {
        let stream = 3 + 2 * n;
        [post(stream, "/late", &[]), data(stream, 0, b"x"), headers(stream, 5, &[("x-sum", "1")])].concat()
    };
    h2.send(&(0..150).flat_map(late).collect::<Vec<_>>());
    h2.send(&[window(0, 1 << 20), window(1, 1 << 20)].concat());
    assert_eq!(data_to(&mut h2, have, 100_000), 100_000);
    let (_, whole) = backend.take();
    assert_eq!(whole.len(), 1, "{whole:?}");
    instance.process.wait(PATIENCE).unwrap();
}
