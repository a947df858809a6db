//! What requests have in common: host, method, protocol, status and the like are one number in a fact, as there
//! are few combinations of them.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use crate::entry::Entry;
use crate::error::Error;
use crate::store::Engine;
use crate::text::clean;
use crate::writer::dictionary::{Keys, intern, place};

/// How many texts a shape has: host, method, protocol, route, server, TLS, cause, user.
const PARTS: usize = 8;

/// Longer parts are cut: none of them is any longer where things are as they should be.
const LONGEST_PART: usize = 254;

/// So many shapes a store has at most. Hosts, methods and users are what clients say they are: once there are more
/// combinations of them, new ones are known by their status alone, and their host is [`OTHER`], until old ones are
/// swept.
const MOST_SHAPES: i64 = 131_072;

/// The host of requests whose own is not kept.
pub(crate) const OTHER: &str = "(other)";

/// So many shapes are looked up or added by one statement.
const CHUNK: usize = 128;

/// Between the parts where a shape is one text; no part contains it once it is clean.
const BETWEEN: &str = "\u{1f}";

/// Writes a request's shape as bytes, to be looked up in a cache.
pub(crate) fn pack(entry: &Entry<'_>, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&entry.response.status.to_le_bytes());
    let parts: [Option<&[u8]>; PARTS] = [
        entry.host,
        entry.request.method,
        entry.request.protocol,
        entry.proxy.route,
        entry.proxy.server,
        entry.proxy.tls,
        entry.proxy.cause,
        entry.user,
    ];
    for part in parts {
        let part = part.unwrap_or_default();
        let part = &part[..part.len().min(LONGEST_PART)];
        into.push(part.len() as u8);
        into.extend_from_slice(part);
    }
}

/// A shape, taken apart again and clean.
struct Shape {
    status: u16,
    parts: [String; PARTS],
    whole: String,
}

impl Shape {
    fn unpack(packed: &[u8]) -> Self {
        let (status, mut rest) = packed
            .split_first_chunk::<2>()
            .map_or((0, &[][..]), |(status, rest)| (u16::from_le_bytes(*status), rest));
        let parts = std::array::from_fn(|_| {
            let (length, after) = rest.split_first().map_or((0, rest), |(l, after)| (usize::from(*l), after));
            let (part, after) = after.split_at(length.min(after.len()));
            rest = after;
            clean(part).into_owned()
        });
        Self::new(status, parts)
    }

    fn new(status: u16, parts: [String; PARTS]) -> Self {
        let whole = format!("{status}{BETWEEN}{}", parts.join(BETWEEN));
        Self { status, parts, whole }
    }

    /// What is left of it where there are too many.
    fn folded(&self) -> Self {
        let mut parts: [String; PARTS] = Default::default();
        parts[0] = OTHER.to_owned();
        Self::new(self.status, parts)
    }
}

/// Finds the numbers of packed shapes, adding those that are not there yet. Inside a transaction.
pub(crate) fn intern_shapes(
    engine: &mut dyn Engine,
    keys: Keys,
    packed: &[Box<[u8]>],
) -> Result<Vec<i64>, Error> {
    let mut shapes: Vec<Shape> = packed.iter().map(|packed| Shape::unpack(packed)).collect();
    fold_surplus(engine, keys, &mut shapes)?;
    let mut known: HashMap<&str, i64> = HashMap::new();
    for chunk in shapes.chunks(CHUNK) {
        find(engine, keys, chunk, &mut known)?;
        let mut missing: Vec<(i64, &Shape)> = Vec::new();
        for shape in chunk {
            if known.contains_key(shape.whole.as_str()) {
                continue;
            }
            let number = match missing.last() {
                Some((last, _)) => last + 1,
                None => engine.int("SELECT max(id) FROM shape")?.unwrap_or(0) + 1,
            };
            known.insert(&shape.whole, number);
            missing.push((number, shape));
        }
        add(engine, keys, &missing)?;
    }
    Ok(shapes.iter().map(|shape| known.get(shape.whole.as_str()).copied().unwrap_or(0)).collect())
}

/// Folds the shapes for which a store has no room.
fn fold_surplus(engine: &mut dyn Engine, keys: Keys, shapes: &mut [Shape]) -> Result<(), Error> {
    // Numbers are given out in turn, so that the highest is no lower than how many there are.
    let highest = engine.int("SELECT max(id) FROM shape")?.unwrap_or(0);
    let count = i64::try_from(shapes.len()).unwrap_or(i64::MAX);
    if highest.saturating_add(count) <= MOST_SHAPES {
        return Ok(());
    }
    let there = engine.int("SELECT count(*) FROM shape")?.unwrap_or(0);
    let mut room = usize::try_from(MOST_SHAPES - there).unwrap_or(0);
    for chunk in shapes.chunks_mut(CHUNK) {
        let mut known = HashMap::new();
        find(engine, keys, chunk, &mut known)?;
        let new: Vec<bool> = chunk.iter().map(|shape| !known.contains_key(shape.whole.as_str())).collect();
        for (shape, _) in chunk.iter_mut().zip(new).filter(|(_, new)| *new) {
            match room.checked_sub(1) {
                Some(left) => room = left,
                None => *shape = shape.folded(),
            }
        }
    }
    Ok(())
}

fn find<'a>(
    engine: &mut dyn Engine,
    keys: Keys,
    shapes: &'a [Shape],
    known: &mut HashMap<&'a str, i64>,
) -> Result<(), Error> {
    let wanted: HashMap<&str, &'a str> =
        shapes.iter().map(|shape| (shape.whole.as_str(), shape.whole.as_str())).collect();
    let hashes: Vec<String> = shapes.iter().map(|shape| keys.hash(&shape.whole).to_string()).collect();
    let sql = format!("SELECT id, text FROM shape WHERE hash IN ({})", hashes.join(","));
    engine.rows(&sql, &[], &mut |row| {
        if let Some(text) = wanted.get(row.text(1)) {
            known.insert(text, row.int(0));
        }
        ControlFlow::Continue(())
    })
}

fn add(engine: &mut dyn Engine, keys: Keys, shapes: &[(i64, &Shape)]) -> Result<(), Error> {
    if shapes.is_empty() {
        return Ok(());
    }
    let hosts: Vec<&str> = shapes.iter().map(|(_, shape)| shape.parts[0].as_str()).collect();
    let hosts = intern(engine, keys, "host", &hosts)?;
    let dialect = engine.dialect();
    let mut sql = String::from(
        "INSERT INTO shape (id, hash, status, host, text, method, protocol, route, server, tls, cause, person) \
         VALUES ",
    );
    let mut texts = Vec::new();
    for (index, (number, shape)) in shapes.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let host = hosts.get(index).copied().unwrap_or(0);
        let _ = write!(sql, "{comma}({number},{},{},{host}", keys.hash(&shape.whole), shape.status);
        let _ = write!(sql, ",{}", place(dialect, texts.len()));
        texts.push(shape.whole.as_str());
        for part in &shape.parts[1..] {
            if part.is_empty() {
                sql.push_str(",NULL");
            } else {
                let _ = write!(sql, ",{}", place(dialect, texts.len()));
                texts.push(part);
            }
        }
        sql.push(')');
    }
    engine.run(&sql, &texts).map(|_| ())
}
