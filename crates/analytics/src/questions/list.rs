//! Lists of what is heaviest.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::error::Error;
use crate::question::{Answer, Filter, Order, Top, Value};
use crate::questions::fold::{Fold, Group, Groups, Key, failure_of};
use crate::questions::missing::Missing;
use crate::questions::{Questions, name};
use crate::rollup::tally::Sums;
use crate::rollup::{self, REST};

impl Questions {
    /// The heaviest of something, with requests and bytes.
    ///
    /// # Errors
    /// The store cannot be read, the time limit is over, or a list of places is asked for without a GeoIP file.
    pub fn top(&mut self, top: Top, filter: &Filter) -> Result<Answer, Error> {
        if matches!(top, Top::Countries | Top::Cities) && self.geo.is_none() {
            return Err(Error::Question(format!("a list of {} needs a GeoIP file", top.name())));
        }
        self.answered(filter, |questions| {
            let (mut fold, _, notes) = questions.fold(Group::of(top), None, filter)?;
            let missing = std::mem::take(&mut fold.missing);
            let sums = sorted(questions.named_groups(top, fold)?, filter.order);
            let answer = match top {
                Top::Countries | Top::Cities => questions.places(top, &sums, &missing, filter)?,
                _ => questions.list(top, &sums, &missing, filter)?,
            };
            let missing = missing.shortfall();
            Ok(Answer { notes, missing, measured: Some(measured(filter.order)), ..answer })
        })
    }

    /// What failed most: responses with a status from 400 on, and whatever did not end as it should, by page.
    ///
    /// # Errors
    /// The store cannot be read, or the time limit is over.
    pub fn errors(&mut self, filter: &Filter) -> Result<Answer, Error> {
        self.answered(filter, |questions| {
            let (fold, sieve, notes) = questions.fold(Group::Error, None, filter)?;
            let missing = fold.missing;
            let mut sums = sorted(fold.sums, filter.order);
            sums.truncate(questions.most(filter));
            let paths = questions.names("path", sums.iter().map(|(key, _)| key.item))?;
            let hosts = questions.names("host", sums.iter().map(|(key, _)| key.host))?;
            let columns = ["status", "cause", "page", "host", "requests", "bytes"];
            let measured = Some(measured(filter.order));
            let mut answer = Answer { notes, measured, missing: missing.shortfall(), ..Answer::of(&columns) };
            let more = missing.shortfall().map(|_| missing.of_any());
            answer.columns.extend(counted(more).skip(2));
            for (key, sums) in sums {
                let (status, cause) = failure_of(&key);
                let cause = sieve.words.get(cause).filter(|cause| !cause.is_empty());
                answer.rows.push(vec![
                    Value::Int(status),
                    cause.map_or(Value::Null, |cause| Value::Text(cause.clone())),
                    name(&paths, key.item),
                    name(&hosts, key.host),
                ]);
                answer.rows.last_mut().into_iter().for_each(|row| row.extend(values(sums, more)));
            }
            Ok(answer)
        })
    }

    /// Groups as they are shown: networks may have been added up by client.
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
                    sums.entry(Key { item, ..Key::default() }).or_default().add(*part);
                }
            }
        }
        sums.retain(|key, sums| sums.requests > 0 && key.item != REST);
        Ok(sums)
    }

    fn list(
        &mut self,
        top: Top,
        sums: &[(Key, Sums)],
        missing: &Missing,
        filter: &Filter,
    ) -> Result<Answer, Error> {
        let sums = &sums[..sums.len().min(self.most(filter))];
        let names = match table(top) {
            Some(table) => self.names(table, sums.iter().map(|(key, _)| key.item))?,
            None => HashMap::new(),
        };
        let hosts = match top {
            Top::Pages => self.names("host", sums.iter().map(|(key, _)| key.host))?,
            _ => HashMap::new(),
        };
        let mut answer = Answer::of(&[top.thing()]);
        let geo = self.geo.as_ref().filter(|_| top == Top::Clients);
        answer.columns.extend((top == Top::Pages).then(|| "host".to_owned()));
        answer.columns.extend(geo.iter().flat_map(|_| ["country".to_owned(), "city".to_owned()]));
        let more = |key: &Key| {
            missing.shortfall().map(|_| match top {
                Top::Pages => missing.of_host(key.host),
                Top::Networks => missing.of_several(),
                _ => missing.of_any(),
            })
        };
        answer.columns.extend(counted(more(&Key::default())));
        for (key, sums) in sums {
            let mut row =
                vec![if top == Top::Status { Value::Int(key.item) } else { name(&names, key.item) }];
            row.extend((top == Top::Pages).then(|| name(&hosts, key.host)));
            if let Some(geo) = geo {
                let place = names.get(&key.item).and_then(|text| text.parse().ok()).map(|ip| geo.place(ip));
                let place = place.unwrap_or_default();
                row.extend([place.country, place.city].map(|part| part.map_or(Value::Null, Value::Text)));
            }
            row.extend(values(*sums, more(key)));
            answer.rows.push(row);
        }
        Ok(answer)
    }

    /// Adds clients up to countries or cities.
    fn places(
        &mut self,
        top: Top,
        clients: &[(Key, Sums)],
        missing: &Missing,
        filter: &Filter,
    ) -> Result<Answer, Error> {
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
        let text = |part: Option<String>| part.map_or(Value::Null, Value::Text);
        let mut answer = Answer::of(&[top.thing()]);
        answer.columns.extend((top == Top::Cities).then(|| "country".to_owned()));
        let more = missing.shortfall().map(|_| missing.of_several());
        answer.columns.extend(counted(more));
        for ((city, country), sums) in places {
            let mut row: Vec<Value> = Vec::new();
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

/// Requests and bytes; and where they are lower bounds, upper ones behind them.
fn values(sums: Sums, more: Option<Sums>) -> impl Iterator<Item = Value> {
    let bounds = more.map(|mut most| {
        most.add(sums);
        [most.requests, most.bytes]
    });
    [sums.requests, sums.bytes].into_iter().chain(bounds.into_iter().flatten()).map(Value::Int)
}

fn weight(sums: &Sums, order: Order) -> (i64, i64) {
    match order {
        Order::Requests => (sums.requests, sums.bytes),
        Order::Bytes => (sums.bytes, sums.requests),
    }
}

/// The column that a list is sorted by.
const fn measured(order: Order) -> &'static str {
    match order {
        Order::Requests => "requests",
        Order::Bytes => "bytes",
    }
}

/// Groups, the heaviest first.
pub(crate) fn sorted(groups: Groups, order: Order) -> Vec<(Key, Sums)> {
    let mut sums: Vec<(Key, Sums)> = groups.into_iter().collect();
    sums.sort_unstable_by_key(|(key, sums)| {
        (std::cmp::Reverse(weight(sums, order)), key.item, key.host, key.bucket)
    });
    sums
}

/// The dictionary that a list's items are in.
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
