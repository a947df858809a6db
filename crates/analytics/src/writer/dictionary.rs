//! Dictionaries: each text is stored once, and facts have its number.
//!
//! Frequent texts are cached in a two-way associative table, so that memory stays bounded whatever clients
//! send. A text that is not cached gets a provisional, negative number until its batch is written.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::ops::ControlFlow;

use foldhash::fast::RandomState;
use siphasher::sip::SipHasher13;

use crate::error::Error;
use crate::network::AddressRange;
use crate::robot::is_robot;
use crate::store::{Dialect, Engine};

/// The maximum length of cached texts; longer ones are looked up in the store each time.
const LONGEST_KEPT: usize = 256;

/// Texts inserted or looked up per statement.
const CHUNK: usize = 256;

/// A cache of recently used texts of one dictionary.
pub(crate) struct TextCache {
    hasher: RandomState,
    ways: Box<[CacheWay]>,
    /// Texts with provisional numbers: −1, −2 …
    new: Vec<Box<[u8]>>,
}

#[derive(Clone, Default)]
struct CacheWay {
    hash: u64,
    number: i64,
    text: Box<[u8]>,
}

impl TextCache {
    /// A cache for about `texts` texts.
    pub(crate) fn new(texts: usize) -> Self {
        let ways = texts.next_power_of_two().max(2);
        Self {
            hasher: RandomState::default(),
            ways: vec![CacheWay::default(); ways].into_boxed_slice(),
            new: Vec::new(),
        }
    }

    /// The number of a text; negative ones are provisional.
    pub(crate) fn number(&mut self, text: &[u8]) -> i64 {
        let hash = self.hasher.hash_one(text);
        // The length of the table is a power of two, and at least two.
        let place = (hash as usize) & (self.ways.len() - 1) & !1;
        let pair = &mut self.ways[place..place + 2];
        for index in 0..2 {
            let way = &pair[index];
            if way.number != 0 && way.hash == hash && *way.text == *text {
                let number = way.number;
                if index == 1 {
                    pair.swap(0, 1);
                }
                return number;
            }
        }
        self.new.push(text.into());
        let number = -i64::try_from(self.new.len()).unwrap_or(i64::MAX);
        if text.len() <= LONGEST_KEPT {
            pair.swap(0, 1);
            pair[0] = CacheWay { hash, number, text: text.into() };
        }
        number
    }

    /// The texts with provisional numbers.
    pub(crate) fn new_texts(&self) -> &[Box<[u8]>] {
        &self.new
    }

    /// Replaces provisional numbers by those in the store.
    pub(crate) fn settle(&mut self, numbers: &[i64]) {
        for (text, number) in self.new.drain(..).zip(numbers) {
            let hash = self.hasher.hash_one(&*text);
            let place = (hash as usize) & (self.ways.len() - 1) & !1;
            let same = |way: &&mut CacheWay| way.hash == hash && way.text == text;
            if let Some(way) = self.ways[place..place + 2].iter_mut().find(same) {
                way.number = *number;
            }
        }
    }

    /// Drops all texts: numbers from a transaction that was rolled back are invalid.
    pub(crate) fn clear(&mut self) {
        self.ways.fill(CacheWay::default());
        self.new.clear();
    }
}

/// The final number for a provisional or final one.
pub(crate) fn settled(number: i64, numbers: &[i64]) -> i64 {
    match usize::try_from(-number) {
        Ok(provisional) if provisional > 0 => numbers.get(provisional - 1).copied().unwrap_or(0),
        _ => number,
    }
}

/// The keys of the hash that is stored with each text: keyed, since clients choose the texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheKeys(u64, u64);

impl CacheKeys {
    /// Reads the store's keys, creating them in a new store. Must run in a transaction.
    pub(crate) fn of(engine: &mut (dyn Engine + '_)) -> Result<Self, Error> {
        if let Some(keys) = engine.text("SELECT value FROM meta WHERE name = 'hash'", &[])?
            && let Some((first, second)) = keys.split_once(' ')
            && let (Ok(first), Ok(second)) = (first.parse(), second.parse())
        {
            return Ok(Self(first, second));
        }
        let random = || std::hash::RandomState::new().hash_one(0);
        let keys = Self(random(), random());
        engine.run(
            "INSERT INTO meta (name, value) VALUES ('hash', $1)",
            &[&format!("{} {}", keys.0, keys.1)],
        )?;
        Ok(keys)
    }

    /// A hash of 32 bits, which fits the small integers of both databases.
    pub(crate) fn hash(self, text: &str) -> i64 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write(text.as_bytes());
        i64::from(hasher.finish() as i32)
    }
}

/// Looks up texts in one of the [`crate::store::schema::DICTIONARIES`], adding absent ones. Must run in a
/// transaction.
pub(crate) fn intern(
    engine: &mut dyn Engine,
    keys: CacheKeys,
    table: &str,
    texts: &[&str],
) -> Result<Vec<i64>, Error> {
    let mut known: HashMap<&str, i64, RandomState> = HashMap::default();
    let mut next = None;
    for chunk in texts.chunks(CHUNK) {
        find(engine, keys, table, chunk, &mut known)?;
        let mut missing = Vec::new();
        for text in chunk {
            if known.contains_key(text) {
                continue;
            }
            let free = match next {
                Some(free) => free,
                None => engine.int(&format!("SELECT max(id) FROM {table}"))?.unwrap_or(0) + 1,
            };
            let number = if table == "agent" {
                // Each agent takes two numbers: the odd one marks a bot.
                ((free + 1) & !1) | i64::from(is_robot(text.as_bytes()))
            } else {
                free
            };
            if number >= i64::from(i32::MAX) {
                return Err(Error::Full(format!("the dictionary of `{table}` has no numbers left")));
            }
            next = Some(number + 1);
            known.insert(text, number);
            missing.push((number, *text));
        }
        add(engine, keys, table, &missing)?;
    }
    Ok(texts.iter().map(|text| known.get(text).copied().unwrap_or(0)).collect())
}

fn find<'a>(
    engine: &mut dyn Engine,
    keys: CacheKeys,
    table: &str,
    texts: &[&'a str],
    known: &mut HashMap<&'a str, i64, RandomState>,
) -> Result<(), Error> {
    let wanted: HashMap<&str, &'a str, RandomState> = texts.iter().map(|text| (*text, *text)).collect();
    let mut sql = format!("SELECT id, text FROM {table} WHERE hash IN (0");
    for text in texts.iter().filter(|text| !known.contains_key(**text)) {
        let _ = write!(sql, ",{}", keys.hash(text));
    }
    sql.push(')');
    engine.rows(&sql, &[], &mut |row| {
        if let Some(text) = wanted.get(row.text(1)) {
            known.insert(text, row.int(0));
        }
        ControlFlow::Continue(())
    })
}

fn add(engine: &mut dyn Engine, keys: CacheKeys, table: &str, texts: &[(i64, &str)]) -> Result<(), Error> {
    if texts.is_empty() {
        return Ok(());
    }
    let networks = match table {
        "client" => networks(engine, keys, texts)?,
        _ => Vec::new(),
    };
    let column = if networks.is_empty() { "" } else { ", network" };
    let mut sql = format!("INSERT INTO {table} (id, hash, text{column}) VALUES ");
    for (index, (number, text)) in texts.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(sql, "{comma}({number},{},{}", keys.hash(text), place(engine.dialect(), index));
        if let Some(network) = networks.get(index) {
            let _ = write!(sql, ",{network}");
        }
        sql.push(')');
    }
    let bound: Vec<&str> = texts.iter().map(|(_, text)| *text).collect();
    engine.run(&sql, &bound).map(|_| ())
}

/// The placeholder of the text with this index, counted from 0.
pub(crate) fn place(dialect: Dialect, index: usize) -> String {
    match dialect {
        Dialect::Sqlite => format!("?{}", index + 1),
        Dialect::Postgres => format!("${}", index + 1),
    }
}

/// The numbers of the clients' networks.
fn networks(engine: &mut dyn Engine, keys: CacheKeys, clients: &[(i64, &str)]) -> Result<Vec<i64>, Error> {
    let names: Vec<String> = clients
        .iter()
        .map(|(_, text)| match text.parse::<IpAddr>() {
            Ok(address) => AddressRange::around(address).to_string(),
            Err(_) => "unknown".to_owned(),
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    intern(engine, keys, "network", &names)
}
