//! Fact numbers: unique, and ordered by time.
//!
//! The number is the time in microseconds, and a few bits that distinguish requests of the same microsecond.
//! If these do not suffice (logs of whole seconds put thousands of requests into one microsecond), the
//! following microseconds are used, so that times may be late by as many microseconds as it takes.

use crate::error::Error;
use crate::store::{Engine, Fact, SEQUENCE_BITS};

/// Times are clamped between 1970 and the year 6000: others are errors of the log, and numbers must not
/// overflow.
const LATEST: i64 = 1 << 57;

/// The first number of a microsecond.
pub(crate) const fn first(time_us: i64) -> i64 {
    let time = if time_us < 0 {
        0
    } else if time_us > LATEST {
        LATEST
    } else {
        time_us
    };
    time << SEQUENCE_BITS
}

/// Sorts facts by time, which their `id` has in microseconds, and assigns numbers that are free in the store.
pub(crate) fn assign(engine: &mut dyn Engine, facts: &mut [Fact]) -> Result<(), Error> {
    if !facts.is_sorted_by_key(|fact| fact.id) {
        // Stable: requests of equal time keep their order.
        facts.sort_by_key(|fact| fact.id);
    }
    let newest = engine.int("SELECT max(id) FROM fact")?.unwrap_or(-1);
    let mut next = 0;
    let mut free_until = 0;
    for index in 0..facts.len() {
        let time = facts[index].id;
        let mut number = next.max(first(time));
        if number <= newest && number >= free_until {
            let alike = facts[index..].iter().take_while(|fact| fact.id == time).count();
            (number, free_until) = free(engine, number, i64::try_from(alike).unwrap_or(i64::MAX >> 2))?;
        }
        facts[index].id = number;
        next = number + 1;
    }
    Ok(())
}

/// Finds a range of at least `count` free numbers from `from` on. Used numbers are mostly one dense run:
/// doubling the window each time reaches its end in a few steps.
fn free(engine: &mut dyn Engine, mut from: i64, count: i64) -> Result<(i64, i64), Error> {
    let mut window = count;
    loop {
        let end = from + window;
        let sql = format!("SELECT id FROM fact WHERE id >= {from} AND id < {end} ORDER BY id DESC LIMIT 1");
        match engine.int(&sql)? {
            None => return Ok((from, end)),
            Some(taken) => {
                from = taken + 1;
                window = (window * 2).min(1 << 40);
            }
        }
    }
}
