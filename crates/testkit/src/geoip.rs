//! Small databases in MaxMind's format.

/// A database of IPv4 in which 0.0.0.0/1 is one country, and 128.0.0.0/1 another: codes of two letters.
#[must_use]
pub fn halves(left: &str, right: &str) -> Vec<u8> {
    file("Test-Country", &record(left, None), &record(right, None))
}

/// A database of IPv4 in which 128.0.0.0/1 is one city of a country, and nothing else is known.
#[must_use]
pub fn city(country: &str, name: &str) -> Vec<u8> {
    file("Test-City", &[], &record(country, Some(name)))
}

/// A database of two halves; one without a record is not known.
fn file(kind: &str, left: &[u8], right: &[u8]) -> Vec<u8> {
    // One node. Its halves are numbers of 24 bits: where records begin, behind the number of nodes and 16 bytes; or the
    // number of nodes, where there is no record.
    let first = if left.is_empty() { 1 } else { 17 };
    let mut file = vec![0, 0, first, 0, 0, 17 + byte(left.len())];
    file.extend_from_slice(&[0; 16]);
    file.extend_from_slice(left);
    file.extend_from_slice(right);
    file.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    map(&mut file, 9);
    for (key, kind, value) in [
        ("binary_format_major_version", 5, 2),
        ("binary_format_minor_version", 5, 0),
        ("ip_version", 5, 4),
        ("node_count", 6, 1),
        ("record_size", 5, 24),
    ] {
        text(&mut file, key);
        // A number of one byte: 5 are those of 16 bits, 6 those of 32 bits.
        file.extend_from_slice(&[kind << 5 | 1, value]);
    }
    text(&mut file, "build_epoch");
    // 64 bits are an extended type: 9 is written as 2, after a head of 0.
    file.extend_from_slice(&[1, 2, 1]);
    text(&mut file, "database_type");
    text(&mut file, kind);
    text(&mut file, "description");
    map(&mut file, 0);
    text(&mut file, "languages");
    file.extend_from_slice(&[0, 4]);
    file
}

fn record(country: &str, city: Option<&str>) -> Vec<u8> {
    let mut record = Vec::new();
    map(&mut record, if city.is_some() { 2 } else { 1 });
    text(&mut record, "country");
    map(&mut record, 1);
    text(&mut record, "iso_code");
    text(&mut record, country);
    if let Some(name) = city {
        text(&mut record, "city");
        map(&mut record, 1);
        text(&mut record, "names");
        map(&mut record, 1);
        text(&mut record, "en");
        text(&mut record, name);
    }
    record
}

/// A short string.
fn text(into: &mut Vec<u8>, text: &str) {
    into.push(0x40 | byte(text.len()));
    into.extend_from_slice(text.as_bytes());
}

/// Begins a map of so many pairs.
fn map(into: &mut Vec<u8>, pairs: u8) {
    into.push(0xe0 | pairs);
}

fn byte(number: usize) -> u8 {
    // All that is written here is short.
    u8::try_from(number).unwrap_or(u8::MAX)
}
