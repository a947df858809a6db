//! Lists of the heaviest items.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::error::Error;
use crate::question::{QueryResult, RequestFilter, SortOrder, SqlValue, Top};
use crate::questions::fold::{Fold, GroupBy, GroupKey, Groups, failure_of};
use crate::questions::missing::Missing;
use crate::questions::{Questions, name};
use crate::rollup::tally::Sums;
use crate::rollup::{self, REST};

impl Questions {
    /// The heaviest items with requests and bytes.
    ///
    /// # Errors
    /// The store cannot be read, the time limit has passed, or a list of places needs a GeoIP file.
    pub fn top(&mut self, top: Top, filter: &RequestFilter) -> Result<QueryResult, Error> {
        if matches!(top, Top::Countries | Top::Cities) && self.geo.is_none() {
            return Err(Error::Question(format!("a list of {} needs a GeoIP file", top.name())));
        }
        self.answered(filter, |questions| {
            let (mut fold, _, notes) = questions.fold(GroupBy::of(top), None, filter)?;
            let missing = std::mem::take(&mut fold.missing);
            let sums = sorted(questions.named_groups(top, fold)?, filter.order);
            let answer = match top {
                Top::Countries | Top::Cities => questions.places(top, &sums, &missing, filter)?,
                _ => questions.list(top, &sums, &missing, filter)?,
            };
            let missing = missing.shortfall();
            Ok(QueryResult { notes, missing, measured: Some(measured(filter.order)), ..answer })
        })
    }

    /// The most frequent failures by page: statuses from 400 on, and irregular ends.
    ///
    /// # Errors
    /// The store cannot be read, or the time limit has passed.
    pub fn errors(&mut self, filter: &RequestFilter) -> Result<QueryResult, Error> {
        self.answered(filter, |questions| {
            let (fold, sieve, notes) = questions.fold(GroupBy::Error, None, filter)?;
            let missing = fold.missing;
            let mut sums = sorted(fold.sums, filter.order);
            sums.truncate(questions.most(filter));
            let paths = questions.names("path", sums.iter().map(|(key, _)| key.item))?;
            let hosts = questions.names("host", sums.iter().map(|(key, _)| key.host))?;
            let columns = ["status", "cause", "page", "host", "requests", "bytes"];
            let measured = Some(measured(filter.order));
            let mut answer =
                QueryResult { notes, measured, missing: missing.shortfall(), ..QueryResult::of(&columns) };
            let more = missing.shortfall().map(|_| missing.of_any());
            answer.columns.extend(counted(more).skip(2));
            for (key, sums) in sums {
                let (status, cause) = failure_of(&key);
                let cause = sieve.words.get(cause).filter(|cause| !cause.is_empty());
                answer.rows.push(vec![
                    SqlValue::Int(status),
                    cause.map_or(SqlValue::Null, |cause| SqlValue::Text(cause.clone())),
                    name(&paths, key.item),
                    name(&hosts, key.host),
                ]);
                answer.rows.last_mut().into_iter().for_each(|row| row.extend(values(sums, more)));
            }
            Ok(answer)
        })
    }

    /// Groups in the form for display: networks may have been aggregated by client.
    pub(crate) fn named_groups(&mut self, top: Top, fold: Fold) -> Result<Groups, Error> {
        let Fold { mut sums, by_client, .. } = fold;
        if top == Top::Networks && !by_client.is_empty() {
            let clients: Vec<(i64, Sums)> =
                by_client.into_iter().map(|(key, sums)| (key.item, sums)).collect();
            for chunk in clients.chunks(512) {
                let ids: Vec<i64> = chunk.iter().map(|(client, _)| *client).collect();
                let sql = format!("SELECT id, network FROM client WHERE id IN ({})", rollup::list(&ids));
                let networks: HashMap<i64, i64> =
                    self.engine.ints::<2>(&sql)?.into_iter().map(Into::into).collect();
                for (client, part) in chunk {
                    let item = networks.get(client).copied().unwrap_or(REST);
                    sums.entry(GroupKey { item, ..GroupKey::default() }).or_default().add(*part);
                }
            }
        }
        sums.retain(|key, sums| sums.requests > 0 && key.item != REST);
        Ok(sums)
    }

    fn list(
        &mut self,
        top: Top,
        sums: &[(GroupKey, Sums)],
        missing: &Missing,
        filter: &RequestFilter,
    ) -> Result<QueryResult, Error> {
        let sums = &sums[..sums.len().min(self.most(filter))];
        let names = match table(top) {
            Some(table) => self.names(table, sums.iter().map(|(key, _)| key.item))?,
            None => HashMap::new(),
        };
        let hosts = match top {
            Top::Pages => self.names("host", sums.iter().map(|(key, _)| key.host))?,
            _ => HashMap::new(),
        };
        let mut answer = QueryResult::of(&[top.thing()]);
        let geo = self.geo.as_ref().filter(|_| top == Top::Clients);
        answer.columns.extend((top == Top::Pages).then(|| "host".to_owned()));
        answer.columns.extend(geo.iter().flat_map(|_| ["country".to_owned(), "city".to_owned()]));
        let more = |key: &GroupKey| {
            missing.shortfall().map(|_| match top {
                Top::Pages => missing.of_host(key.host),
                Top::Networks => missing.of_several(),
                _ => missing.of_any(),
            })
        };
        answer.columns.extend(counted(more(&GroupKey::default())));
        for (key, sums) in sums {
            let mut row =
                vec![if top == Top::Status { SqlValue::Int(key.item) } else { name(&names, key.item) }];
            row.extend((top == Top::Pages).then(|| name(&hosts, key.host)));
            if let Some(geo) = geo {
                let place = names.get(&key.item).and_then(|text| text.parse().ok()).map(|ip| geo.place(ip));
                let place = place.unwrap_or_default();
                row.extend(
                    [place.country, place.city].map(|part| part.map_or(SqlValue::Null, SqlValue::Text)),
                );
            }
            row.extend(values(*sums, more(key)));
            answer.rows.push(row);
        }
        Ok(answer)
    }

    /// Aggregates clients to countries or cities.
    fn places(
        &mut self,
        top: Top,
        clients: &[(GroupKey, Sums)],
        missing: &Missing,
        filter: &RequestFilter,
    ) -> Result<QueryResult, Error> {
        let mut places: HashMap<(Option<String>, Option<String>), Sums> = HashMap::new();
        for chunk in clients.chunks(4096) {
            let names = self.names("client", chunk.iter().map(|(key, _)| key.item))?;
            for (key, sums) in chunk {
                let address = names.get(&key.item).and_then(|text| text.parse::<IpAddr>().ok());
                let place = match (&self.geo, address) {
                    (Some(geo), Some(address)) => geo.place(address),
                    _ => Default::default(),
                };
                let city = place.city.filter(|_| top == Top::Cities);
                places.entry((city, place.country)).or_default().add(*sums);
            }
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_unstable_by(|(one, a), (other, b)| {
            weight(b, filter.order).cmp(&weight(a, filter.order)).then_with(|| one.cmp(other))
        });
        places.truncate(self.most(filter));
        let text = |part: Option<String>| part.map_or(SqlValue::Null, SqlValue::Text);
        let mut answer = QueryResult::of(&[top.thing()]);
        answer.columns.extend((top == Top::Cities).then(|| "country".to_owned()));
        let more = missing.shortfall().map(|_| missing.of_several());
        answer.columns.extend(counted(more));
        for ((city, country), sums) in places {
            let mut row: Vec<SqlValue> = Vec::new();
            row.extend((top == Top::Cities).then(|| text(city)));
            row.push(text(country));
            row.extend(values(sums, more));
            answer.rows.push(row);
        }
        Ok(answer)
    }
}

/// The columns of [`values`].
fn counted(more: Option<Sums>) -> impl Iterator<Item = String> {
    let bounds = more.map(|_| ["requests_at_most", "bytes_at_most"]);
    ["requests", "bytes"].into_iter().chain(bounds.into_iter().flatten()).map(str::to_owned)
}

/// Requests and bytes, followed by upper bounds if they are lower bounds.
fn values(sums: Sums, more: Option<Sums>) -> impl Iterator<Item = SqlValue> {
    let bounds = more.map(|mut most| {
        most.add(sums);
        [most.requests, most.bytes]
    });
    [sums.requests, sums.bytes].into_iter().chain(bounds.into_iter().flatten()).map(SqlValue::Int)
}

fn weight(sums: &Sums, order: SortOrder) -> (i64, i64) {
    match order {
        SortOrder::Requests => (sums.requests, sums.bytes),
        SortOrder::Bytes => (sums.bytes, sums.requests),
    }
}

/// The column that a list is sorted by.
const fn measured(order: SortOrder) -> &'static str {
    match order {
        SortOrder::Requests => "requests",
        SortOrder::Bytes => "bytes",
    }
}

/// Sorts groups in descending order.
pub(crate) fn sorted(groups: Groups, order: SortOrder) -> Vec<(GroupKey, Sums)> {
    let mut sums: Vec<(GroupKey, Sums)> = groups.into_iter().collect();
    sums.sort_unstable_by_key(|(key, sums)| {
        (std::cmp::Reverse(weight(sums, order)), key.item, key.host, key.bucket)
    });
    sums
}

/// The dictionary of a list's items.
pub(crate) const fn table(top: Top) -> Option<&'static str> {
    match top {
        Top::Pages => Some("path"),
        Top::Referrers => Some("referer"),
        Top::Agents => Some("agent"),
        Top::Hosts => Some("host"),
        Top::Clients | Top::Countries | Top::Cities => Some("client"),
        Top::Networks => Some("network"),
        Top::Status => None,
    }
}
