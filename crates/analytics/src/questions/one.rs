//! One request, by its id.
//!
//! Requests are ordered by time and have no index of ids: each would cost as much as a third of its request. An id that
//! Offramp has made begins with the time at which its connection was accepted (a UUID of version 7), so the search begins
//! there and goes on in growing pieces. Any other id is searched from the newest request back. Both would read everything
//! for an id that is not there, so that a search can be bounded to the requests near its beginning.

use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// The requests among which an id is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdSearch {
    /// The [`NEAR`] ones that follow the beginning of its connection, as the id has it; for another id, the newest.
    Near,
    /// All from this time on.
    Since(SystemTime),
    /// All.
    All,
}

/// The requests that a bounded search reads: about a tenth of a second.
pub const NEAR: u32 = 200_000;

impl Questions {
    /// The request with this id; an answer without a row if there is none.
    ///
    /// # Errors
    /// The store cannot be read, or the time limit has passed.
    pub fn request(&mut self, id: &str, search: IdSearch) -> Result<QueryResult, Error> {
        self.limited(|questions| {
            let from = accepted(id).map(|micros| micros.saturating_sub(SLACK));
            let found = match (search, from) {
                (IdSearch::Near, _) => questions.near(id, from)?,
                (IdSearch::All, Some(from)) => questions.forward(id, from)?,
                (IdSearch::All, None) => questions.backward(id, 0)?,
                (IdSearch::Since(since), Some(from)) => questions.forward(id, from.max(micros(since)))?,
                (IdSearch::Since(since), None) => questions.backward(id, sequence::first(micros(since)))?,
            };
            let numbers: Vec<i64> = found.into_iter().collect();
            questions.requests(&numbers, &COLUMNS, &Zone::default())
        })
    }

    /// Searches among the [`NEAR`] requests from a time on, or among the newest.
    fn near(&mut self, id: &str, from: Option<i64>) -> Result<Option<i64>, Error> {
        let range = match from {
            Some(from) => format!("WHERE id >= {} ORDER BY id", sequence::first(from)),
            None => "ORDER BY id DESC".to_owned(),
        };
        let place = self.place();
        let sql = format!(
            "SELECT id FROM (SELECT id, request FROM fact {range} LIMIT {NEAR}) AS near WHERE request = {place} LIMIT 1"
        );
        self.one_number(&sql, id)
    }

    /// Searches from a time on, in growing pieces.
    fn forward(&mut self, id: &str, from: i64) -> Result<Option<i64>, Error> {
        let Some((first, last)) = self.ends()? else { return Ok(None) };
        let (mut from, mut piece) = (sequence::first(from).max(first), sequence::first(PIECES[0]));
        while from <= last {
            let to = from.saturating_add(piece);
            let found = self.number(id, from, to)?;
            if found.is_some() {
                return Ok(found);
            }
            (from, piece) = (to, (piece * 4).min(sequence::first(PIECES[1])));
        }
        Ok(None)
    }

    /// Searches from the newest request on, in growing pieces, down to a number.
    fn backward(&mut self, id: &str, least: i64) -> Result<Option<i64>, Error> {
        let Some((first, last)) = self.ends()? else { return Ok(None) };
        let first = first.max(least);
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
        let place = self.place();
        let sql =
            format!("SELECT id FROM fact WHERE id >= {from} AND id < {to} AND request = {place} LIMIT 1");
        self.one_number(&sql, id)
    }

    /// The lowest and the highest number; `None` in an empty store.
    fn ends(&mut self) -> Result<Option<(i64, i64)>, Error> {
        let first = self.engine.int("SELECT min(id) FROM fact")?;
        Ok(first.zip(self.engine.int("SELECT max(id) FROM fact")?))
    }

    fn place(&self) -> &'static str {
        match self.engine.dialect() {
            Dialect::Sqlite => "?1",
            Dialect::Postgres => "$1",
        }
    }

    fn one_number(&mut self, sql: &str, id: &str) -> Result<Option<i64>, Error> {
        let mut found = None;
        self.engine.rows(sql, &[id], &mut |row| {
            found = Some(row.int(0));
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}

fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
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
    use std::time::Duration;

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
        let since = |seconds| {
            IdSearch::Since(
                UNIX_EPOCH + Duration::from_micros(accepted as u64) + Duration::from_secs(seconds),
            )
        };
        for (id, _) in &ids {
            for search in [IdSearch::Near, since(0)] {
                assert_eq!(questions.request(id, search).unwrap().rows.len(), 1, "{id} {search:?}");
            }
            let found = questions.request(id, IdSearch::All).unwrap();
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
            for search in [IdSearch::Near, since(0), IdSearch::All] {
                assert!(questions.request(id, search).unwrap().rows.is_empty(), "{id} {search:?}");
            }
        }
        // Those of before are left out.
        for id in ["given-1", "01930000-0000-7000-8000-c00000002abc-1"] {
            assert!(questions.request(id, since(100)).unwrap().rows.is_empty(), "{id}");
        }
        let late = "01930000-0000-7000-8000-c00000002abc-199";
        assert_eq!(questions.request(late, since(100)).unwrap().rows.len(), 1);
        // The connection of this one was accepted long before anything that is stored.
        let early = "00000000-0001-7000-8000-c00000002abc-1";
        for search in [IdSearch::Near, IdSearch::All] {
            assert!(questions.request(early, search).unwrap().rows.is_empty(), "{search:?}");
        }
    }
}
