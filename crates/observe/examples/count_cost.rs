//! What it costs a worker to count one finished request: run under `perf stat -e instructions:u` with two
//! numbers of requests, and divide the difference.
//!
//! ```text
//! count_cost CLIENTS REQUESTS
//! ```
//!
//! Clients come in a random order; up to 400 of them all have places of their own.

use offramp_observe::facts::{
    ByteCounts, Cause, ClientScheme, ConnectionBrief, ConnectionFacts, HttpVersion, IdSource, PathFacts,
    RequestFacts, RequestSummary,
};
use offramp_observe::{Counters, WorkerCounters};
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// A request of the client with this number; every fifth has a body.
fn request(number: u32, places: &[PathFacts]) -> RequestFacts {
    let id = IdSource::new(0, 0).next(UNIX_EPOCH);
    let client: SocketAddr = ((0x0a00_0000 + number).to_be_bytes(), 5000).into();
    let connection = ConnectionFacts::new(id, 0, "web".into(), UNIX_EPOCH, client.into());
    let has_body = number.is_multiple_of(5);
    let line = RequestSummary {
        method: if has_body { "POST" } else { "GET" }.into(),
        scheme: ClientScheme::Https,
        host: "example.org".into(),
        target: "/".into(),
        version: HttpVersion::Http2,
        referer: None,
        user_agent: None,
        user: None,
    };
    let brief = Arc::new(ConnectionBrief::from(&connection));
    let mut facts = RequestFacts::new("id".into(), brief, UNIX_EPOCH, line);
    facts.path = places[number as usize % places.len()].clone();
    facts.status = 200;
    facts.traffic = ByteCounts { from_client: if has_body { 100 } else { 0 }, to_client: 18_000 };
    facts.times.total = Duration::from_micros(3000 + u64::from(number));
    facts.times.first_byte = Some(Duration::from_micros(2500));
    facts.close = Cause::Completed.into();
    facts
}

fn count(worker: &WorkerCounters, requests: &[RequestFacts], times: u64) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..times {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // The upper half is below the number of requests.
        let index = (u128::from(state) * requests.len() as u128) >> 64;
        worker.request_begun();
        worker.request_ended(black_box(&requests[index as usize]));
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>().expect("a number"));
    let (clients, times) = (arguments.next().expect("CLIENTS"), arguments.next().expect("REQUESTS"));
    let name = |kind: &str, number: u32| Some(Arc::from(format!("{kind}{number}")));
    let place = |number| PathFacts {
        route: name("route", number),
        backend: name("backend", number),
        server: name("server", number),
        tries: 1,
    };
    let places: Vec<_> = (0..12).map(place).collect();
    let requests: Vec<_> = (0..clients.max(1)).map(|number| request(number, &places)).collect();
    let (counters, workers) = Counters::new(1);
    count(&workers[0], &requests, times.into());
    println!("requests under way: {}", counters.totals().requests_active());
}
