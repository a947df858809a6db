//! The names of a client certificate on one line, for events and log lines of a refusal.

use crate::facts::CertificateFacts;

/// Subject, alternative names, issuer and serial number of a certificate in DER, for people. Unprintable
/// characters are escaped, and long names are cut. Empty for a certificate that cannot be parsed.
#[must_use]
pub fn identity(leaf_der: &[u8]) -> String {
    let Ok(facts) = CertificateFacts::read(leaf_der) else {
        return "a certificate that cannot be read".to_owned();
    };
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

/// Cuts a name and makes it printable.
fn cut(name: &str) -> String {
    let mut text: String = name.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if name.chars().nth(LONGEST).is_some() {
        text.push('…');
    }
    text
}

/// The maximum number of names shown.
const MOST_NAMES: usize = 4;

/// The maximum length of a shown name, in characters.
const LONGEST: usize = 64;
