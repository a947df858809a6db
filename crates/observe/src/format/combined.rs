//! Requests as nginx writes them: its `combined` format, and `vhost`, which is `combined` and `"$host"`.
//!
//! Escaping is nginx's default (`escape=default`): `"`, `\`, and every byte below 32 or above 126 become
//! `\xNN` with capital digits; a value that is absent is `-`. As with nginx, the time is that of the end of the
//! request; it is in UTC. A connection has no place in these formats: it gets no line.

use super::fields::Field;
use super::plain::Plain;
use super::selection::Selection;
use crate::facts::{Address, RequestFacts};
use crate::timestamp::common_log;

/// Appends the line without its newline.
pub(super) fn write(facts: &RequestFacts, selection: &Selection, host: bool, out: &mut Vec<u8>) {
    let mut line = CombinedLine { out, selection };
    let request = &facts.request;
    line.client(&facts.client());
    line.out.extend_from_slice(b" - ");
    line.value(Field::User, request.user.as_deref());
    line.out.extend_from_slice(b" [");
    let ended = facts.begun.checked_add(facts.times.total).unwrap_or(facts.begun);
    line.value(Field::Time, Some(&common_log(ended)));
    line.out.extend_from_slice(b"] \"");
    line.request(facts);
    line.out.extend_from_slice(b"\" ");
    let status = facts.status.min(999);
    let digits = [status / 100, status / 10 % 10, status % 10];
    // Each is below ten.
    line.value(Field::Status, Some(&digits.map(|digit| b'0' + digit as u8)));
    line.out.push(b' ');
    let sent = facts.traffic.to_client;
    line.value(Field::BytesToClient, Some(itoa::Buffer::new().format(sent).as_bytes()));
    line.out.extend_from_slice(b" \"");
    line.value(Field::Referer, request.referer.as_deref());
    line.out.extend_from_slice(b"\" \"");
    line.value(Field::UserAgent, request.user_agent.as_deref());
    line.out.push(b'"');
    if host {
        line.out.extend_from_slice(b" \"");
        line.value(Field::Host, Some(request.host.as_bytes()).filter(|host| !host.is_empty()));
        line.out.push(b'"');
    }
}

struct CombinedLine<'a> {
    out: &'a mut Vec<u8>,
    selection: &'a Selection,
}

impl CombinedLine<'_> {
    fn client(&mut self, address: &Address) {
        match address {
            Address::Ip(address) => {
                let address = self.selection.address(address.ip());
                self.value(Field::Client, Some(Plain::default().ip(address)));
            }
            // As nginx writes clients of Unix sockets.
            Address::Unix(_) => self.value(Field::Client, Some(b"unix:")),
        }
    }

    fn request(&mut self, facts: &RequestFacts) {
        let request = &facts.request;
        if request.method.is_empty() {
            return self.out.push(b'-');
        }
        self.value(Field::Method, Some(request.method.as_bytes()));
        self.out.push(b' ');
        self.value(Field::Path, Some(request.path().as_bytes()));
        if let Some(query) = request.query().filter(|_| self.selection.is_told(Field::Query)) {
            self.out.push(b'?');
            self.value(Field::Query, Some(query.as_bytes()));
        }
        self.out.push(b' ');
        self.value(Field::Protocol, Some(request.version.name().as_bytes()));
    }

    fn value(&mut self, field: Field, value: Option<&[u8]>) {
        let mut room = Plain::default();
        match value.and_then(|value| self.selection.shown(field, value, &mut room)) {
            Some(value) => escape(self.out, value),
            None => self.out.push(b'-'),
        }
    }
}

/// Escapes as nginx does.
fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    let is_harmless = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\');
    if super::escape::is_all(bytes, is_harmless) {
        return out.extend_from_slice(bytes);
    }
    for &byte in bytes {
        if is_harmless(byte) {
            out.push(byte);
        } else {
            let digit = |nibble: u8| CAPITAL_HEX[usize::from(nibble)];
            out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 0xf)]);
        }
    }
}

const CAPITAL_HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn every_byte_is_escaped_as_by_nginx() {
        for byte in 0..=u8::MAX {
            let mut out = Vec::new();
            escape(&mut out, &[b'a', byte]);
            let expected = match byte {
                b'"' => r"a\x22".to_owned(),
                b'\\' => r"a\x5C".to_owned(),
                32..=126 => format!("a{}", char::from(byte)),
                _ => format!("a\\x{byte:02X}"),
            };
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
