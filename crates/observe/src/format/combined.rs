//! Requests in nginx's `combined` format, and in `vhost`, which is `combined` and `"$host"`.
//!
//! Escaping follows nginx's default (`escape=default`): `"`, `\`, and bytes below 32 or above 126 become
//! `\xNN` with upper-case digits; an absent value is `-`. As in nginx, the time is that of the end of the
//! request, but in UTC. Connections have no line in these formats.

use super::fields::Field;
use super::plain::ShortAscii;
use super::selection::FieldSelection;
use crate::facts::{EndpointAddress, RequestFacts};
use crate::timestamp::common_log;

/// Appends the line without its newline.
pub(super) fn write(facts: &RequestFacts, selection: &FieldSelection, host: bool, out: &mut Vec<u8>) {
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
    // Every digit is below ten, so this cannot truncate.
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
    selection: &'a FieldSelection,
}

impl CombinedLine<'_> {
    fn client(&mut self, address: &EndpointAddress) {
        match address {
            EndpointAddress::Ip(address) => {
                let address = self.selection.address(address.ip());
                self.value(Field::Client, Some(ShortAscii::default().ip(address)));
            }
            // nginx's notation for clients of Unix sockets.
            EndpointAddress::Unix(_) => self.value(Field::Client, Some(b"unix:")),
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
        if let Some(query) = request.query().filter(|_| self.selection.is_written(Field::Query)) {
            self.out.push(b'?');
            self.value(Field::Query, Some(query.as_bytes()));
        }
        self.out.push(b' ');
        self.value(Field::Protocol, Some(request.version.name().as_bytes()));
    }

    fn value(&mut self, field: Field, value: Option<&[u8]>) {
        let mut room = ShortAscii::default();
        match value.and_then(|value| self.selection.shown(field, value, &mut room)) {
            Some(value) => escape(self.out, value),
            None => self.out.push(b'-'),
        }
    }
}

/// Escapes by nginx's default rule, `escape=default`.
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
