//! One request, by its id.
//!
//! Requests are ordered by time and have no index of ids: each would cost as much as a third of its request. An id that
//! Offramp has made begins with the time at which its connection was accepted (a UUID of version 7), so the search begins
//! there and goes on in growing pieces. Any other id is searched from the newest request back.

use std::ops::ControlFlow;

use crate::error::Error;
use crate::question::QueryResult;
use crate::questions::Questions;
use crate::store::{Dialect, sequence};
use crate::time::Zone;

/// The columns of one request.
const COLUMNS: [&str; 24] = [
    "time",
    "host",
    "client",
    "network",
    "method",
    "path",
    "query",
    "protocol",
    "status",
    "bytes",
    "received",
    "duration_us",
    "referer",
    "agent",
    "bot",
    "user",
    "route",
    "server",
    "tls",
    "cause",
    "request_id",
    "queue_us",
    "connect_us",
    "first_byte_us",
];

/// The first and the last length of a piece, in microseconds.
const PIECES: [i64; 2] = [60_000_000, 86_400_000_000];
/// The time by which a request may begin before its connection was accepted, as clocks are set.
const SLACK: i64 = 5_000_000;

impl Questions {
    /// The request with this id; an answer without a row if there is none.
    ///
    /// # Errors
    /// The store cannot be read, or the time limit has passed.
    pub fn request(&mut self, id: &str) -> Result<QueryResult, Error> {
        self.limited(|questions| {
            let found = match accepted(id) {
                Some(micros) => questions.forward(id, micros.saturating_sub(SLACK))?,
                None => questions.backward(id)?,
            };
            let numbers: Vec<i64> = found.into_iter().collect();
            questions.requests(&numbers, &COLUMNS, &Zone::default())
        })
    }

    /// Searches from a time on, in growing pieces.
    fn forward(&mut self, id: &str, from: i64) -> Result<Option<i64>, Error> {
        let Some(last) = self.engine.int("SELECT max(id) FROM fact")? else { return Ok(None) };
        let (mut from, mut piece) = (from, PIECES[0]);
        while sequence::first(from) <= last {
            let to = from.saturating_add(piece);
            let found = self.number(id, sequence::first(from), sequence::first(to))?;
            if found.is_some() {
                return Ok(found);
            }
            (from, piece) = (to, (piece * 4).min(PIECES[1]));
        }
        Ok(None)
    }

    /// Searches from the newest request on, in growing pieces.
    fn backward(&mut self, id: &str) -> Result<Option<i64>, Error> {
        let range = "SELECT coalesce(min(id), 0) FROM fact";
        let Some(last) = self.engine.int("SELECT max(id) FROM fact")? else { return Ok(None) };
        let first = self.engine.int(range)?.unwrap_or(0);
        let (mut to, mut piece) = (last + 1, sequence::first(PIECES[0]));
        while to > first {
            let from = to.saturating_sub(piece).max(first);
            let found = self.number(id, from, to)?;
            if found.is_some() {
                return Ok(found);
            }
            (to, piece) = (from, (piece * 4).min(sequence::first(PIECES[1])));
        }
        Ok(None)
    }

    /// The number of the request with this id among those of a range.
    fn number(&mut self, id: &str, from: i64, to: i64) -> Result<Option<i64>, Error> {
        let place = match self.engine.dialect() {
            Dialect::Sqlite => "?1",
            Dialect::Postgres => "$1",
        };
        let sql =
            format!("SELECT id FROM fact WHERE id >= {from} AND id < {to} AND request = {place} LIMIT 1");
        let mut found = None;
        self.engine.rows(&sql, &[id], &mut |row| {
            found = Some(row.int(0));
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}

/// The time at which the connection of a request was accepted, in microseconds, if the id begins with a UUID of version 7
/// (RFC 9562 §5.7).
fn accepted(id: &str) -> Option<i64> {
    let (high, rest) = (id.get(..8)?, id.get(8..)?);
    let low = rest.strip_prefix('-')?.get(..4)?;
    let is_uuid =
        id.get(13..15)? == "-7" && id.get(18..19)? == "-" && id.get(23..24)? == "-" && id.len() >= 36;
    let digits = high.bytes().chain(low.bytes()).all(|byte| byte.is_ascii_hexdigit());
    if !is_uuid || !digits {
        return None;
    }
    let millis = i64::from_str_radix(&format!("{high}{low}"), 16).ok()?;
    millis.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{LogEntry, PhasePart, ProxyPart, RequestPart, ResponsePart};
    use crate::question::SqlValue::{self, Int};
    use crate::writer::{Options, Writer};

    #[test]
    fn the_time_is_in_the_id() {
        assert_eq!(accepted("00019aa8-1234-7000-8000-c00000002abc-1"), Some(0x0001_9aa8_1234 * 1000));
        for id in [
            "",
            "7",
            "00019aa8-1234-4000-8000-c00000002abc",
            "00019aa8-1234-7000",
            "é0019aa8-1234-7000-8000-c00000002abc",
            "req-1",
        ] {
            assert_eq!(accepted(id), None, "{id}");
        }
    }

    #[test]
    fn requests_are_found_by_ids_of_either_kind() {
        let postgres = offramp_testkit::postgres::shared().database();
        for url in ["sqlite::memory:", &postgres] {
            are_found_in(url);
        }
    }

    fn are_found_in(url: &str) {
        let mut writer = Writer::open(url, &Options::default()).unwrap();
        let accepted = 0x0193_0000_0000_i64 * 1000;
        let own = "01930000-0000-7000-8000-c00000002abc";
        let ids: Vec<(String, i64)> = (0..200)
            .map(|number| (format!("{own}-{number}"), accepted + number * 3_000_000))
            .chain((0..5).map(|number| (format!("given-{number}"), accepted + number)))
            .collect();
        for (id, time_us) in &ids {
            writer
                .add(&LogEntry {
                    time_us: *time_us,
                    request: RequestPart { method: Some(b"GET"), path: b"/a", ..RequestPart::default() },
                    response: ResponsePart {
                        status: 200,
                        bytes: 7,
                        duration_us: Some(9),
                        ..ResponsePart::default()
                    },
                    phases: PhasePart { queue_us: None, connect_us: Some(5), first_byte_us: Some(7) },
                    proxy: ProxyPart { id: Some(id.as_bytes()), ..ProxyPart::default() },
                    ..LogEntry::default()
                })
                .unwrap();
        }
        writer.commit().unwrap();
        let mut questions = writer.into_questions().unwrap();
        for (id, _) in &ids {
            let found = questions.request(id).unwrap();
            let at = found.columns.iter().position(|column| column == "request_id").unwrap();
            assert_eq!(found.rows.len(), 1, "{id}");
            assert_eq!(found.rows[0][at..], [SqlValue::Text(id.clone()), Int(0), Int(5), Int(7)]);
        }
        for id in [
            "given-5",
            "",
            "01930000-0000-7000-8000-c00000002abc-200",
            "01990000-0000-7000-8000-c00000002abc-1",
        ] {
            assert!(questions.request(id).unwrap().rows.is_empty(), "{id}");
        }
    }
}
