//! The static table (RFC 7541 Appendix A), with a perfect hash of its names.

use super::hash;

/// Name and value of the entries with the indices 1 to 61, in order (RFC 7541 Appendix A).
pub const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// First index of a name in the static table, given its hash.
#[inline]
pub(super) fn named(hash: u64, name: &[u8]) -> Option<usize> {
    let index = usize::from(SLOTS.0[slot(hash, SLOTS.1)]);
    (index > 0 && STATIC[index - 1].0.as_bytes() == name).then_some(index)
}

/// Index of a field in the static table, given the first index of its name.
#[inline]
pub(super) fn exact(first: usize, name: &[u8], value: &[u8]) -> Option<usize> {
    // Entries of one name are adjacent.
    let same = STATIC[first - 1..].iter().take_while(|entry| entry.0.as_bytes() == name);
    same.zip(first..).find(|(entry, _)| entry.1.as_bytes() == value).map(|(_, index)| index)
}

/// Number of slots of the perfect hash.
const SLOT_COUNT: usize = 256;

/// First index of the name in each slot, or 0, and the multiplier for which no two names share a slot.
static SLOTS: ([u8; SLOT_COUNT], u64) = slots();

#[inline]
const fn slot(hash: u64, multiplier: u64) -> usize {
    (hash.wrapping_mul(multiplier) >> (u64::BITS - SLOT_COUNT.ilog2())) as usize
}

/// Tries odd multipliers until one is perfect: for so few names and so many slots, one in some hundreds is.
const fn slots() -> ([u8; SLOT_COUNT], u64) {
    let mut hashes = [0; STATIC.len()];
    let mut at = 0;
    while at < STATIC.len() {
        hashes[at] = hash::bytes(hash::SEED, STATIC[at].0.as_bytes());
        at += 1;
    }
    let mut multiplier = 1;
    loop {
        let mut slots = [0_u8; SLOT_COUNT];
        let mut at = 0;
        while at < STATIC.len() {
            let slot = slot(hashes[at], multiplier);
            if slots[slot] == 0 {
                slots[slot] = at as u8 + 1;
            } else if hashes[slots[slot] as usize - 1] != hashes[at] {
                break;
            }
            at += 1;
        }
        if at == STATIC.len() {
            return (slots, multiplier);
        }
        multiplier += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_name_and_by_value() {
        for (at, (name, value)) in STATIC.iter().enumerate() {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            let first = named(hash::bytes(hash::SEED, name), name).expect("a name of the table");
            assert_eq!(first - 1, STATIC.iter().position(|entry| entry.0.as_bytes() == name).unwrap());
            assert_eq!(exact(first, name, value), Some(at + 1));
            assert_eq!(exact(first, name, b"none"), None);
        }
    }

    #[test]
    fn other_names_are_not_found() {
        for name in ["", ":", ":statu", "Accept", "x-request-id", "content-typf", "www-authenticate-"] {
            assert_eq!(named(hash::bytes(hash::SEED, name.as_bytes()), name.as_bytes()), None, "{name}");
        }
    }
}
