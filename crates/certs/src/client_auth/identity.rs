//! Who a client's certificate says it is, on one line: for the event and the log line of a refusal.

use crate::x509::Facts;

/// The subject, the alternative names, the issuer and the serial number of a certificate in DER, for people. What is
/// not printable is escaped, and long names are cut. A certificate that cannot be parsed says nothing.
#[must_use]
pub fn identity(leaf_der: &[u8]) -> String {
    let Ok(facts) = Facts::read(leaf_der) else { return "a certificate that cannot be read".to_owned() };
    let mut parts = vec![facts.subject_text.clone()];
    let names = &facts.alternative;
    parts.extend(names.dns.iter().map(|name| format!("dns:{name}")));
    parts.extend(names.uris.iter().map(|uri| format!("uri:{uri}")));
    parts.extend(names.addresses.iter().map(|address| format!("ip:{address}")));
    let more = parts.len().saturating_sub(MOST_NAMES);
    parts.truncate(MOST_NAMES);
    let mut text: String = parts.iter().map(|part| cut(part)).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text.push_str(&format!("; issuer {}; serial {}", cut(&facts.issuer_text), cut(&facts.serial)));
    text
}

/// One name, printable, with at most so many characters of it.
fn cut(name: &str) -> String {
    let mut text: String = name.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if name.chars().nth(LONGEST).is_some() {
        text.push('…');
    }
    text
}

/// The most names that are shown.
const MOST_NAMES: usize = 4;

/// The most characters that are shown of a name.
const LONGEST: usize = 64;
