//! Comparison of a period with the one before it.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::question::{DataSource, QueryResult, RequestFilter, SortOrder, SqlValue, Top};
use crate::questions::distinct::Distinct;
use crate::questions::fold::{GroupBy, GroupKey, Groups};
use crate::questions::list::{sorted, table};
use crate::questions::percentiles::Durations;
use crate::questions::scan::{Column, scan};
use crate::questions::slow::milliseconds;
use crate::questions::{Questions, cover, name, range, visitors};
use crate::rollup::tally::Sums;
use crate::time::micros;

/// The number of requests in a period above which figures that need all requests are left out.
const MOST_READ: i64 = 5_000_000;

/// The figures of one period.
struct PeriodFigures {
    sums: Sums,
    /// Responses with 4xx and 5xx.
    errors: [i64; 2],
    /// Figures that need all requests.
    read: Option<ReadFigures>,
}

struct ReadFigures {
    visitors: i64,
    p50: Option<i64>,
    p95: Option<i64>,
}

impl Questions {
    /// Compares a period with the one of the same length before it, in total or by the items of a list. Whole
    /// months and days are compared with as many.
    ///
    /// # Errors
    /// The store cannot be read, the time limit has passed, the filter has no start or end, or the list is
    /// one of places.
    pub fn compare(&mut self, what: Option<Top>, filter: &RequestFilter) -> Result<QueryResult, Error> {
        let (Some(since), Some(until)) = (filter.since, filter.until) else {
            return Err(Error::Question("give the time to compare with the one before it".into()));
        };
        if since >= until {
            return Err(Error::Question("the time to compare ends before it begins".into()));
        }
        let begins = filter.zone.before(since, until);
        let before = SystemTime::UNIX_EPOCH + Duration::from_micros(begins.unsigned_abs());
        let before = RequestFilter { since: Some(before), until: Some(since), ..filter.clone() };
        let mut answer = self.answered(filter, |questions| match what {
            Some(top) => questions.compare_lists(top, filter, &before),
            None => questions.compare_sums(filter, &before),
        })?;
        let [from, middle, to] = [begins, micros(since), micros(until)].map(|time| filter.zone.words(time));
        answer.notes.insert(0, format!("{middle} to {to}, compared with {from} to {middle}"));
        Ok(answer)
    }

    fn compare_sums(&mut self, filter: &RequestFilter, before: &RequestFilter) -> Result<QueryResult, Error> {
        let mut answer = QueryResult::of(&["what", "now", "before", "change_percent"]);
        let mut notes = BTreeSet::new();
        let now = self.period(filter, &mut notes)?;
        let before = self.period(before, &mut notes)?;
        answer.notes = notes.into_iter().collect();
        if now.sums.requests == 0 && before.sums.requests == 0 {
            return Ok(answer);
        }
        let int =
            |value: fn(&PeriodFigures) -> i64| [&now, &before].map(|period| SqlValue::Int(value(period)));
        let read = |value: fn(&ReadFigures) -> SqlValue| {
            [&now, &before].map(|period| period.read.as_ref().map_or(SqlValue::Null, value))
        };
        for (what, [now, before]) in [
            ("requests", int(|period| period.sums.requests)),
            ("bytes", int(|period| period.sums.bytes)),
            ("visitors", read(|read| SqlValue::Int(read.visitors))),
            ("4xx", int(|period| period.errors[0])),
            ("5xx", int(|period| period.errors[1])),
            ("p50_ms", read(|read| milliseconds(read.p50))),
            ("p95_ms", read(|read| milliseconds(read.p95))),
        ] {
            let change = change(&now, &before);
            answer.rows.push(vec![SqlValue::Text(what.into()), now, before, change]);
        }
        Ok(answer)
    }

    fn period(
        &mut self,
        filter: &RequestFilter,
        notes: &mut BTreeSet<String>,
    ) -> Result<PeriodFigures, Error> {
        let (fold, sieve, said) = self.fold(GroupBy::Status, None, filter)?;
        notes.extend(said);
        let mut period = PeriodFigures { sums: Sums::default(), errors: [0; 2], read: None };
        for (key, sums) in &fold.sums {
            period.sums.add(*sums);
            match key.item {
                400..500 => period.errors[0] += sums.requests,
                500..600 => period.errors[1] += sums.requests,
                _ => {}
            }
        }
        let range = range(filter);
        if cover::is_partly_removed(self.engine.as_mut(), range)? || filter.source == DataSource::Rollups {
            notes.insert("visitors and durations are known as long as requests are kept".into());
            return Ok(period);
        }
        if period.sums.requests > MOST_READ {
            notes
                .insert(format!("visitors and durations are not counted for more than {MOST_READ} requests"));
            return Ok(period);
        }
        let mut clients = Distinct::default();
        scan(self.engine.as_mut(), &sieve, range, &[Column::Of("client")], &mut |_, _, [client, ..]| {
            if client != 0 {
                clients.add(client);
            }
        })?;
        let mut durations = Durations::default();
        scan(self.engine.as_mut(), &sieve, range, &[Column::Duration], &mut |_, sums, [duration, ..]| {
            durations.add(duration, sums.requests);
        })?;
        let [p50, p95] = [50, 95].map(|percent| durations.percentile(percent));
        let count = clients.count();
        if clients.error(count) > 0 {
            notes.insert(visitors::estimated());
        }
        period.read = Some(ReadFigures { visitors: count, p50, p95 });
        Ok(period)
    }

    fn compare_lists(
        &mut self,
        top: Top,
        filter: &RequestFilter,
        before: &RequestFilter,
    ) -> Result<QueryResult, Error> {
        let Some(texts) = table(top).map_or(Some(None), |table| match top {
            Top::Countries | Top::Cities => None,
            _ => Some(Some(table)),
        }) else {
            return Err(Error::Question(format!("lists of {} cannot be compared", top.name())));
        };
        let mut notes = BTreeSet::new();
        let mut groups = |questions: &mut Self, filter: &RequestFilter| -> Result<Groups, Error> {
            let (fold, _, said) = questions.fold(GroupBy::of(top), None, filter)?;
            notes.extend(said);
            questions.named_groups(top, fold)
        };
        let mut now = groups(self, filter)?;
        let before = groups(self, before)?;
        for key in before.keys() {
            now.entry(*key).or_default();
        }
        let mut rows: Vec<(GroupKey, Sums)> = sorted(now, filter.order);
        rows.truncate(self.most(filter));
        let names = match texts {
            Some(table) => self.names(table, rows.iter().map(|(key, _)| key.item))?,
            None => HashMap::new(),
        };
        let hosts = self.names("host", rows.iter().map(|(key, _)| key.host))?;
        let counted = if filter.order == SortOrder::Bytes { "bytes" } else { "requests" };
        let mut answer = QueryResult::of(&[top.thing()]);
        answer.columns.extend((top == Top::Pages).then(|| "host".to_owned()));
        answer.columns.extend([counted, "before", "change_percent"].map(str::to_owned));
        answer.notes = notes.into_iter().collect();
        let value = |sums: &Sums| {
            SqlValue::Int(if filter.order == SortOrder::Bytes { sums.bytes } else { sums.requests })
        };
        for (key, sums) in rows {
            let mut row =
                vec![if texts.is_none() { SqlValue::Int(key.item) } else { name(&names, key.item) }];
            row.extend((top == Top::Pages).then(|| name(&hosts, key.host)));
            let (now, before) = (value(&sums), value(&before.get(&key).copied().unwrap_or_default()));
            let change = change(&now, &before);
            row.extend([now, before, change]);
            answer.rows.push(row);
        }
        Ok(answer)
    }
}

/// The increase in percent with one decimal; null if there was nothing before.
fn change(now: &SqlValue, before: &SqlValue) -> SqlValue {
    let number = |value: &SqlValue| match value {
        SqlValue::Int(number) => Some(*number as f64),
        SqlValue::Real(number) => Some(*number),
        _ => None,
    };
    match (number(now), number(before)) {
        (Some(now), Some(before)) if before > 0.0 => {
            SqlValue::Real(((now - before) / before * 1000.0).round() / 10.0)
        }
        _ => SqlValue::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_in_percent() {
        let int = SqlValue::Int;
        assert_eq!(change(&int(150), &int(100)), SqlValue::Real(50.0));
        assert_eq!(change(&int(1), &int(3)), SqlValue::Real(-66.7));
        assert_eq!(change(&int(0), &int(3)), SqlValue::Real(-100.0));
        assert_eq!(change(&int(7), &int(0)), SqlValue::Null);
        assert_eq!(change(&SqlValue::Null, &int(1)), SqlValue::Null);
    }
}
