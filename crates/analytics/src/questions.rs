//! Answering questions: lists, traffic over time, searches, and SQL of the user's own. SQL is nowhere else.
//!
//! Answers are made from requests where those are few, and from roll-ups where they are many; hours that are not
//! rolled up yet are always counted from their requests, so that an answer is never behind. Where a roll-up
//! cannot say (pages without certain clients), requests are read.

pub(crate) mod fold;
pub(crate) mod plan;

use std::collections::HashMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::geo::Geo;
use crate::network::Network;
use crate::question::{Answer, Filter, Order, Top, Value};
use crate::questions::fold::{Fold, Group, Sieve};
use crate::questions::plan::plan;
use crate::rollup::tally::Sums;
use crate::rollup::{self, REST};
use crate::search;
use crate::store::location::Location;
use crate::store::{Access, Engine, open_to_read};
use crate::writer::{micros, place};

/// How questions are answered.
#[derive(Clone, Debug)]
pub struct Settings {
    /// No question may run longer.
    pub time_limit: Duration,
    /// No answer may have more rows.
    pub most_rows: usize,
    /// A GeoIP file in MaxMind's format.
    pub geoip: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { time_limit: Duration::from_secs(30), most_rows: 100_000, geoip: None }
    }
}

/// Answers questions about one store.
pub struct Questions {
    engine: Box<dyn Engine>,
    settings: Settings,
    geo: Option<Geo>,
}

/// The database's cache while questions are answered, in KiB.
const CACHE_KIB: u32 = 16 << 10;

/// What a search shows of a request.
const SHOWN: [&str; 10] =
    ["time", "host", "client", "method", "path", "query", "status", "bytes", "referer", "agent"];

/// The shortest interval of traffic.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

impl Questions {
    /// Opens a store for reading. It may be written at the same time.
    ///
    /// # Errors
    /// A wrong URL; a store that is not there, or of another version; a GeoIP file that cannot be read.
    pub fn open(url: &str, settings: &Settings) -> Result<Self, Error> {
        let access = Access { busy: Duration::from_secs(5), cache_kib: CACHE_KIB };
        let engine = open_to_read(&Location::parse(url)?, access)?;
        let mut questions = Self::over(engine);
        questions.settings = settings.clone();
        if let Some(path) = &settings.geoip {
            questions.use_geoip(path)?;
        }
        Ok(questions)
    }

    /// Answers about a store that is open already.
    pub(crate) fn over(engine: Box<dyn Engine>) -> Self {
        Self { engine, settings: Settings::default(), geo: None }
    }

    /// Reads a GeoIP file in MaxMind's format; clients are then shown with country and city.
    ///
    /// # Errors
    /// The file cannot be read, or is of another format.
    pub fn use_geoip(&mut self, path: &Path) -> Result<(), Error> {
        self.geo = Some(Geo::open(path)?);
        Ok(())
    }

    /// The heaviest of something, with requests and bytes.
    ///
    /// # Errors
    /// The store cannot be read, the time limit is over, or a list of places is asked for without a GeoIP file.
    pub fn top(&mut self, top: Top, filter: &Filter) -> Result<Answer, Error> {
        if matches!(top, Top::Countries | Top::Cities) && self.geo.is_none() {
            return Err(Error::Question(format!("a list of {} needs a GeoIP file", top.name())));
        }
        self.limited(|questions| {
            let fold = questions.fold(Group::of(top), None, filter)?;
            let mut sums = questions.named_groups(top, fold)?;
            sums.retain(|(key, _)| key.item != REST);
            sums.sort_unstable_by_key(|(key, sums)| {
                let weight = match filter.order {
                    Order::Requests => (sums.requests, sums.bytes),
                    Order::Bytes => (sums.bytes, sums.requests),
                };
                (std::cmp::Reverse(weight), key.item, key.host)
            });
            match top {
                Top::Countries | Top::Cities => questions.places(top, &sums, filter),
                _ => questions.list(top, &sums, filter),
            }
        })
    }

    /// Requests and bytes sent, by intervals; `by_host` gives each host rows of its own. Intervals begin at
    /// multiples of their length since 1970 (UTC); those without a request are left out.
    ///
    /// # Errors
    /// The store cannot be read, the time limit is over, or the interval is shorter than a second.
    pub fn traffic(&mut self, interval: Duration, by_host: bool, filter: &Filter) -> Result<Answer, Error> {
        if interval < SHORTEST_INTERVAL {
            return Err(Error::Question("an interval is at least a second".into()));
        }
        let width = i64::try_from(interval.as_micros()).unwrap_or(i64::MAX);
        self.limited(|questions| {
            let group = if by_host { Group::Host } else { Group::Nothing };
            let fold = questions.fold(group, Some(width), filter)?;
            let mut sums: Vec<_> = fold.sums.into_iter().collect();
            sums.sort_unstable_by_key(|(key, _)| (key.bucket, key.item));
            sums.truncate(filter.limit.unwrap_or(questions.settings.most_rows));
            let names = questions.names("host", sums.iter().map(|(key, _)| key.item))?;
            let mut answer = Answer { columns: vec!["time".into()], rows: Vec::new() };
            answer.columns.extend(by_host.then(|| "host".to_owned()));
            answer.columns.extend(["requests".to_owned(), "bytes".to_owned()]);
            for (key, sums) in sums {
                let mut row = vec![Value::Text(crate::time::text(key.bucket.saturating_mul(width)))];
                row.extend(by_host.then(|| name(&names, key.item)));
                row.extend([Value::Int(sums.requests), Value::Int(sums.bytes)]);
                answer.rows.push(row);
            }
            Ok(answer)
        })
    }

    /// Requests whose path, query, referrer or agent has a text, the newest first. With an index of words every
    /// word of the text must begin a word there; without one the text must be contained as it is.
    ///
    /// # Errors
    /// The store cannot be read, the time limit is over, or the text has no word.
    pub fn search(&mut self, text: &str, filter: &Filter) -> Result<Answer, Error> {
        self.limited(|questions| {
            let (mut condition, texts) = search::condition(questions.engine.as_mut(), text)?;
            let sieve = Sieve::of(questions.engine.as_mut(), filter)?;
            let (from, to) = range(filter);
            let _ = write!(condition, " AND id >= {from} AND id < {to}");
            let sql = format!("SELECT id, shape, agent, client FROM fact WHERE {condition} ORDER BY id DESC");
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let limit = filter.limit.unwrap_or(100).min(questions.settings.most_rows);
            let mut found = Vec::new();
            if limit > 0 {
                questions.engine.rows(&sql, &texts, &mut |row| {
                    if sieve.admits(row.int(1), row.int(2) & 1 == 1, row.int(3)).is_some() {
                        found.push(row.int(0));
                    }
                    if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
            }
            questions.requests(&found)
        })
    }

    /// Answers a statement in the database's own SQL, which must only read. Tables and the view `requests` are
    /// described in the documentation.
    ///
    /// # Errors
    /// The statement is wrong, would write, or runs longer than the time limit.
    pub fn sql(&mut self, sql: &str) -> Result<Answer, Error> {
        let (columns, rows) = self.engine.ask(sql, self.settings.time_limit, self.settings.most_rows)?;
        Ok(Answer { columns, rows })
    }

    fn limited<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.engine.limit(Some(self.settings.time_limit))?;
        let result = work(self);
        self.engine.limit(None)?;
        result
    }

    fn fold(&mut self, group: Group, width: Option<i64>, filter: &Filter) -> Result<Fold, Error> {
        let engine = self.engine.as_mut();
        let sieve = Sieve::of(engine, filter)?;
        let mut fold = Fold::new(group, width);
        if sieve.is_empty() {
            return Ok(fold);
        }
        let pieces = plan(engine, range(filter), fold.grain(!filter.exclude.is_empty()), filter.source)?;
        for piece in pieces {
            fold.read(engine, &sieve, piece)?;
        }
        Ok(fold)
    }

    /// Groups as they are shown: networks may have been added up by client.
    fn named_groups(&mut self, top: Top, fold: Fold) -> Result<Vec<(fold::Key, Sums)>, Error> {
        let Fold { sums, by_client, .. } = fold;
        let mut sums: HashMap<fold::Key, Sums> = sums.into_iter().collect();
        if top == Top::Networks && !by_client.is_empty() {
            let networks: HashMap<i64, i64> = self
                .engine
                .ints::<2>("SELECT id, network FROM client")?
                .into_iter()
                .map(Into::into)
                .collect();
            for (client, part) in by_client {
                let item = networks.get(&client).copied().unwrap_or(REST);
                sums.entry(fold::Key { item, host: 0, bucket: 0 }).or_default().add(part);
            }
        }
        Ok(sums.into_iter().filter(|(_, sums)| sums.requests > 0).collect())
    }

    fn list(&mut self, top: Top, sums: &[(fold::Key, Sums)], filter: &Filter) -> Result<Answer, Error> {
        let sums = &sums[..sums.len().min(self.most(filter))];
        let names = match top {
            Top::Status => HashMap::new(),
            _ => self.names(table(top), sums.iter().map(|(key, _)| key.item))?,
        };
        let hosts = self.names("host", sums.iter().map(|(key, _)| key.host))?;
        let mut answer = Answer { columns: vec![top.thing().to_owned()], rows: Vec::new() };
        let geo = self.geo.as_ref().filter(|_| top == Top::Clients);
        answer.columns.extend((top == Top::Pages).then(|| "host".to_owned()));
        answer.columns.extend(geo.iter().flat_map(|_| ["country".to_owned(), "city".to_owned()]));
        answer.columns.extend(["requests".to_owned(), "bytes".to_owned()]);
        for (key, sums) in sums {
            let mut row =
                vec![if top == Top::Status { Value::Int(key.item) } else { name(&names, key.item) }];
            row.extend((top == Top::Pages).then(|| name(&hosts, key.host)));
            if let Some(geo) = geo {
                let place = names.get(&key.item).and_then(|text| text.parse().ok()).map(|ip| geo.place(ip));
                let place = place.unwrap_or_default();
                row.extend([place.country, place.city].map(|part| part.map_or(Value::Null, Value::Text)));
            }
            row.extend([Value::Int(sums.requests), Value::Int(sums.bytes)]);
            answer.rows.push(row);
        }
        Ok(answer)
    }

    /// Adds clients up to countries or cities.
    fn places(&mut self, top: Top, clients: &[(fold::Key, Sums)], filter: &Filter) -> Result<Answer, Error> {
        let names = self.names("client", clients.iter().map(|(key, _)| key.item))?;
        let mut places: HashMap<(Option<String>, Option<String>), Sums> = HashMap::new();
        for (key, sums) in clients {
            let address = names.get(&key.item).and_then(|text| text.parse::<IpAddr>().ok());
            let place = match (&self.geo, address) {
                (Some(geo), Some(address)) => geo.place(address),
                _ => Default::default(),
            };
            let city = place.city.filter(|_| top == Top::Cities);
            places.entry((city, place.country)).or_default().add(*sums);
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_unstable_by(|(one, a), (other, b)| {
            let weight = |sums: &Sums| match filter.order {
                Order::Requests => sums.requests,
                Order::Bytes => sums.bytes,
            };
            weight(b).cmp(&weight(a)).then_with(|| one.cmp(other))
        });
        places.truncate(self.most(filter));
        let text = |part: Option<String>| part.map_or(Value::Null, Value::Text);
        let mut answer = Answer { columns: vec![top.thing().to_owned()], rows: Vec::new() };
        answer.columns.extend((top == Top::Cities).then(|| "country".to_owned()));
        answer.columns.extend(["requests".to_owned(), "bytes".to_owned()]);
        for ((city, country), sums) in places {
            let mut row: Vec<Value> = Vec::new();
            row.extend((top == Top::Cities).then(|| text(city)));
            row.extend([text(country), Value::Int(sums.requests), Value::Int(sums.bytes)]);
            answer.rows.push(row);
        }
        Ok(answer)
    }

    fn most(&self, filter: &Filter) -> usize {
        filter.limit.unwrap_or(20).min(self.settings.most_rows)
    }

    /// The texts of numbers of a dictionary.
    fn names(
        &mut self,
        table: &str,
        numbers: impl Iterator<Item = i64>,
    ) -> Result<HashMap<i64, String>, Error> {
        let mut numbers: Vec<i64> = numbers.filter(|number| *number > 0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut names = HashMap::new();
        for chunk in numbers.chunks(512) {
            let sql = format!("SELECT id, text FROM {table} WHERE id IN ({})", rollup::list(chunk));
            self.engine.rows(&sql, &[], &mut |row| {
                names.insert(row.int(0), row.text(1).to_owned());
                ControlFlow::Continue(())
            })?;
        }
        Ok(names)
    }

    /// Requests in full, by their numbers, which are sorted already.
    fn requests(&mut self, numbers: &[i64]) -> Result<Answer, Error> {
        let columns: Vec<String> = SHOWN.iter().map(|&column| column.to_owned()).collect();
        let mut answer = Answer { columns, rows: Vec::new() };
        let shown = SHOWN.map(|column| if column == "time" { "time_us" } else { column }).join(", ");
        for chunk in numbers.chunks(512) {
            let sql = format!(
                "SELECT {shown} FROM requests WHERE id IN ({}) ORDER BY id DESC",
                rollup::list(chunk)
            );
            self.engine.rows(&sql, &[], &mut |row| {
                let value = |at: usize| match SHOWN[at] {
                    "time" => Value::Text(crate::time::text(row.int(at))),
                    "status" | "bytes" => Value::Int(row.int(at)),
                    _ if row.text(at).is_empty() => Value::Null,
                    _ => Value::Text(row.text(at).to_owned()),
                };
                answer.rows.push((0..SHOWN.len()).map(value).collect());
                ControlFlow::Continue(())
            })?;
        }
        Ok(answer)
    }
}

/// The dictionary that a list's items are in.
const fn table(top: Top) -> &'static str {
    match top {
        Top::Pages => "path",
        Top::Referrers => "referer",
        Top::Agents => "agent",
        Top::Hosts | Top::Status => "host",
        Top::Clients | Top::Countries | Top::Cities => "client",
        Top::Networks => "network",
    }
}

fn name(names: &HashMap<i64, String>, number: i64) -> Value {
    match names.get(&number) {
        Some(text) if !text.is_empty() => Value::Text(text.clone()),
        _ => Value::Null,
    }
}

/// The range of fact numbers that a filter admits.
fn range(filter: &Filter) -> (i64, i64) {
    let from = filter.since.map_or(0, |time| place::first(micros(time)));
    let to = filter.until.map_or(i64::MAX, |time| place::first(micros(time)));
    (from, to)
}

/// Whether an address is in one of the networks.
pub(crate) fn is_among(networks: &[Network], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}
