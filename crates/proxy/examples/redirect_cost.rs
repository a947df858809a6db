//! What a route with many redirects costs a request: one look-up of its path, found or not. Times of maps of one redirect and
//! of many, in interleaved pairs, with medians; run it as a release:
//!
//! ```text
//! cargo run --release -p offramp-proxy --example redirect_cost -- [REDIRECTS [ROUNDS]]
//! ```
//!
//! A route without `redirects` does no look-up. A third argument, `one` or `many`, chooses a map and leaves the clock out, for
//! `perf stat -e instructions:u` and callgrind: divide the difference between two numbers of rounds by their look-ups.

use std::hint::black_box;
use std::time::{Duration, Instant};

use offramp_proxy::RedirectMap;

/// Look-ups of one kind in a round.
const LOOK_UPS: usize = 200_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: usize| {
        arguments.get(at).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (redirects, rounds) = (number(0, 100_000).max(1), number(1, 21).max(1));
    let (one, many) = (map(1), map(redirects));
    // In no order, and made before the clock runs.
    let found: Vec<String> = (0..LOOK_UPS).map(|at| from(at.wrapping_mul(7919) % redirects)).collect();
    let absent: Vec<String> = found.iter().map(|path| format!("{path}/x")).collect();
    println!("{redirects} redirects hold {} bytes; {rounds} rounds of {LOOK_UPS} look-ups", many.bytes());
    if let Some(which) = arguments.get(2) {
        let map = if which == "many" { &many } else { &one };
        for _ in 0..rounds {
            look_up(map, &found);
            look_up(map, &absent);
        }
        return;
    }
    let kinds = [
        ("a path, one redirect", &one, &found),
        ("a path that is among many", &many, &found),
        ("another path, one redirect", &one, &absent),
        ("another path, many redirects", &many, &absent),
    ];
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        for ((_, map, paths), times) in kinds.iter().zip(&mut times) {
            times.push(look_up(map, paths));
        }
    }
    for ((name, ..), times) in kinds.iter().zip(&mut times) {
        times.sort_unstable();
        let median = times[times.len() / 2].as_secs_f64() * 1e9 / LOOK_UPS as f64;
        println!("{name:<28} {median:>7.1} ns");
    }
}

/// A path as long as those of a shop that has moved.
fn from(at: usize) -> String {
    format!("/old/shop/category/{at:06}/product.html")
}

fn map(redirects: usize) -> RedirectMap {
    let lines = (0..redirects).map(|at| format!("{},/new/products/{at:06}\n", from(at)));
    match RedirectMap::read(lines.collect(), "/") {
        Ok(map) => map,
        Err(faults) => panic!("{} mistakes", faults.listed.len()),
    }
}

fn look_up(map: &RedirectMap, paths: &[String]) -> Duration {
    let begun = Instant::now();
    let found = paths.iter().filter(|path| map.find(black_box(path)).is_some()).count();
    black_box(found);
    begun.elapsed()
}
