//! Questions for the CAA records of a name (RFC 8659), and their answers.
//!
//! They serve the question why an authority refuses. No order depends on them: the authority decides.

use super::dns_update::{DnsReader, NoAnswer, put16, wire_name};

/// The type of CAA records, and the class of the Internet.
const CAA: u16 = 257;
const IN: u16 = 1;
const RESPONSE: u16 = 1 << 15;
const TRUNCATED: u16 = 1 << 9;
const RECURSION: u16 = 1 << 8;
/// The name does not exist: neither do its records.
const NXDOMAIN: u16 = 3;
/// Bound on the records of one name that are read.
const MOST: usize = 64;

/// One CAA record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaaRecord {
    /// Set if an authority that does not know the tag must refuse.
    pub critical: bool,
    /// Its kind in lower case: `issue`, `issuewild`, `iodef` or another one.
    pub tag: String,
    /// Its value, such as `letsencrypt.org`.
    pub value: String,
}

/// A name server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaaAnswer {
    /// The records of the name, or of the name that it is an alias of; none if there are none.
    Records(Vec<CaaRecord>),
    /// It does not fit into a datagram.
    Truncated,
    /// The name server has no answer; the code of RFC 1035 §4.1.1.
    Failed(u16),
}

/// The question for the records of `name`; `id` must be random.
///
/// # Errors
/// The reason for which the name is not a DNS name.
pub fn question(name: &str, id: u16) -> Result<Vec<u8>, String> {
    let mut message = Vec::with_capacity(name.len() + 18);
    for field in [id, RECURSION, 1, 0, 0, 0] {
        put16(&mut message, field);
    }
    message.extend(wire_name(name)?);
    put16(&mut message, CAA);
    put16(&mut message, IN);
    Ok(message)
}

/// Reads the response to a [`question`] with this `id` and `name`.
///
/// # Errors
/// The message is no response to it: wait for another.
pub fn answer(response: &[u8], id: u16, name: &str) -> Result<CaaAnswer, NoAnswer> {
    let mut reader = DnsReader::of(response);
    let header: Vec<u16> = (0..6).map_while(|_| reader.get16()).collect();
    let &[other, flags, questions, answers, ..] = &header[..] else { return Err(NoAnswer::Malformed) };
    if other != id || flags & RESPONSE == 0 || questions != 1 {
        return Err(NoAnswer::Unrelated);
    }
    let asked = wire_name(name).map_err(|_| NoAnswer::Unrelated)?;
    let repeated = reader.take(asked.len()).ok_or(NoAnswer::Malformed)?;
    let kind = (reader.get16(), reader.get16());
    if !repeated.eq_ignore_ascii_case(&asked) || kind != (Some(CAA), Some(IN)) {
        return Err(NoAnswer::Unrelated);
    }
    match flags & 0xf {
        0 | NXDOMAIN => {}
        code => return Ok(CaaAnswer::Failed(code)),
    }
    if flags & TRUNCATED != 0 {
        return Ok(CaaAnswer::Truncated);
    }
    let mut records = Vec::new();
    for _ in 0..answers {
        let record = read_record(&mut reader).ok_or(NoAnswer::Malformed)?;
        records.extend(record.filter(|_| records.len() < MOST));
    }
    Ok(CaaAnswer::Records(records))
}

/// Reads the next record; one of another type, as of an alias, is none.
fn read_record(reader: &mut DnsReader<'_>) -> Option<Option<CaaRecord>> {
    reader.skip_name()?;
    let kind = (reader.get16()?, reader.get16()?);
    reader.skip(4)?;
    let length = reader.get16()?;
    let data = reader.take(length.into())?;
    if kind != (CAA, IN) {
        return Some(None);
    }
    let [flags, length, rest @ ..] = data else { return None };
    let (tag, value) = rest.split_at_checked(usize::from(*length))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let tag = text(tag).to_ascii_lowercase();
    Some(Some(CaaRecord { critical: flags & 0x80 != 0, tag, value: text(value) }))
}

/// The domains of authorities that may issue by these records, which are all of a name; `None` if any may. Parameters
/// behind a domain are left out.
#[must_use]
pub fn issuers(records: &[CaaRecord], is_wildcard: bool) -> Option<Vec<&str>> {
    let of = |tag: &str| -> Vec<&str> {
        let tagged = records.iter().filter(|record| record.tag == tag);
        tagged.map(|record| record.value.split(';').next().unwrap_or_default().trim()).collect()
    };
    // `issuewild` takes the place of `issue` for wildcards alone (RFC 8659 §4.3).
    let wild = if is_wildcard { of("issuewild") } else { Vec::new() };
    let found = if wild.is_empty() { of("issue") } else { wild };
    // An empty domain permits none.
    (!found.is_empty()).then(|| found.into_iter().filter(|domain| !domain.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A response with an alias and these records.
    fn response(id: u16, name: &str, flags: u16, records: &[(u8, &str, &str)]) -> Vec<u8> {
        let mut message = question(name, id).unwrap();
        message[2..4].copy_from_slice(&(RESPONSE | flags).to_be_bytes());
        message[6..8].copy_from_slice(&(records.len() as u16 + 1).to_be_bytes());
        let put = |message: &mut Vec<u8>, kind: u16, data: &[u8]| {
            message.extend([0xc0, 12]);
            put16(message, kind);
            put16(message, IN);
            message.extend([0, 0, 0, 60]);
            put16(message, data.len() as u16);
            message.extend(data);
        };
        put(&mut message, 5, &wire_name("alias.test").unwrap());
        for (flags, tag, value) in records {
            let data = [&[*flags, tag.len() as u8][..], tag.as_bytes(), value.as_bytes()].concat();
            put(&mut message, CAA, &data);
        }
        message
    }

    fn record(critical: bool, tag: &str, value: &str) -> CaaRecord {
        CaaRecord { critical, tag: tag.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn records_are_read_behind_an_alias() {
        let message = response(7, "A.test", 0, &[(0, "Issue", "letsencrypt.org; x=y"), (128, "tbs", "")]);
        let expected = vec![record(false, "issue", "letsencrypt.org; x=y"), record(true, "tbs", "")];
        assert_eq!(answer(&message, 7, "a.test"), Ok(CaaAnswer::Records(expected)));
        assert_eq!(answer(&message, 8, "a.test"), Err(NoAnswer::Unrelated));
        assert_eq!(answer(&message, 7, "b.test"), Err(NoAnswer::Unrelated));
        assert_eq!(answer(&question("a.test", 7).unwrap(), 7, "a.test"), Err(NoAnswer::Unrelated));
        for (flags, expected) in [
            (NXDOMAIN, CaaAnswer::Records(vec![])),
            (TRUNCATED, CaaAnswer::Truncated),
            (2, CaaAnswer::Failed(2)),
        ] {
            let mut message = response(7, "a.test", flags, &[]);
            message[6..8].copy_from_slice(&[0, 0]);
            assert_eq!(answer(&message, 7, "a.test"), Ok(expected));
        }
    }

    #[test]
    fn records_decide_as_authorities_read_them() {
        let wild = record(false, "issuewild", ";");
        let own = record(false, "issue", "letsencrypt.org; accounturi=x");
        for (records, is_wildcard, expected) in [
            (vec![], false, None),
            (vec![record(false, "iodef", "mailto:a@b.test")], false, None),
            (vec![own.clone()], false, Some(vec!["letsencrypt.org"])),
            (vec![own.clone()], true, Some(vec!["letsencrypt.org"])),
            (vec![own.clone(), wild.clone()], true, Some(vec![])),
            (vec![own, wild], false, Some(vec!["letsencrypt.org"])),
            (vec![record(false, "issue", ";")], false, Some(vec![])),
        ] {
            assert_eq!(issuers(&records, is_wildcard), expected, "{records:?} {is_wildcard}");
        }
    }

    proptest! {
        #[test]
        fn no_response_is_read_beyond_its_end(
            cut in 0..120usize,
            change in proptest::collection::vec((0..120usize, any::<u8>()), 0..8),
        ) {
            let mut message = response(7, "a.test", 0, &[(0, "issue", "letsencrypt.org")]);
            for (at, byte) in change {
                if let Some(place) = message.get_mut(at) {
                    *place = byte;
                }
            }
            message.truncate(cut);
            if let Ok(CaaAnswer::Records(records)) = answer(&message, 7, "a.test") {
                prop_assert!(records.len() <= MOST);
            }
        }
    }
}
