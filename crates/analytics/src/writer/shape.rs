//! Shapes: host, method, protocol, status and similar properties are one number in a fact, as there are few
//! combinations.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use crate::entry::LogEntry;
use crate::error::Error;
use crate::store::Engine;
use crate::store::schema::OTHER_HOSTS;
use crate::text::clean;
use crate::writer::dictionary::{CacheKeys, intern, place};

/// The texts in a shape: host, method, protocol, route, server, TLS, cause, user.
const PARTS: usize = 8;

/// The maximum length of a part; regular parts are shorter.
const LONGEST_PART: usize = 254;

/// The maximum number of shapes in a store. Clients choose hosts, methods and users: once there are more
/// combinations, new ones keep only their status, and their host is [`OTHER_HOSTS`], until unused shapes are
/// removed.
const MOST_SHAPES: i64 = 131_072;

/// Shapes inserted or looked up per statement.
const CHUNK: usize = 128;

/// The separator between the parts of a shape as one text; cleaned parts do not contain it.
const BETWEEN: &str = "\u{1f}";

/// Packs a request's shape into bytes, the key of a cache.
pub(crate) fn pack(entry: &LogEntry<'_>, into: &mut Vec<u8>) {
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

/// The cleaned parts of a shape.
struct ShapeParts {
    status: u16,
    parts: [String; PARTS],
    whole: String,
}

impl ShapeParts {
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

    /// The remainder of a shape for which there is no room.
    fn folded(&self) -> Self {
        let mut parts: [String; PARTS] = Default::default();
        parts[0] = OTHER_HOSTS.to_owned();
        Self::new(self.status, parts)
    }
}

/// Looks up packed shapes, adding absent ones. Must run in a transaction.
pub(crate) fn intern_shapes(
    engine: &mut dyn Engine,
    keys: CacheKeys,
    packed: &[Box<[u8]>],
) -> Result<Vec<i64>, Error> {
    let mut shapes: Vec<ShapeParts> = packed.iter().map(|packed| ShapeParts::unpack(packed)).collect();
    fold_surplus(engine, keys, &mut shapes)?;
    let mut known: HashMap<&str, i64> = HashMap::new();
    for chunk in shapes.chunks(CHUNK) {
        find(engine, keys, chunk, &mut known)?;
        let mut missing: Vec<(i64, &ShapeParts)> = Vec::new();
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
fn fold_surplus(engine: &mut dyn Engine, keys: CacheKeys, shapes: &mut [ShapeParts]) -> Result<(), Error> {
    // Numbers are assigned in sequence, so the highest is at least the count.
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
    keys: CacheKeys,
    shapes: &'a [ShapeParts],
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

fn add(engine: &mut dyn Engine, keys: CacheKeys, shapes: &[(i64, &ShapeParts)]) -> Result<(), Error> {
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
