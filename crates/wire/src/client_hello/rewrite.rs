//! ClientHellos taken out of what surrounds them, and with another server name.

use super::parse::extension;
use super::{ClientHello, records};
use crate::{HelloFault, ParseStep};

const CLIENT_HELLO: u8 = 1;
/// Longest content of a record (RFC 8446 §5.1).
const MAX_CONTENT: usize = 1 << 14;

/// The ClientHello at the front of `buf` alone, in as few records as possible.
pub fn extract(buf: &[u8]) -> ParseStep<Vec<u8>, HelloFault> {
    records::message(buf).map(|body| in_records(&with_head(&body)))
}

/// Puts a handshake message into records.
#[must_use]
pub fn in_records(message: &[u8]) -> Vec<u8> {
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    message.chunks(MAX_CONTENT).flat_map(record).collect()
}

fn with_head(body: &[u8]) -> Vec<u8> {
    // A message has at most `MAX_HELLO` bytes, so that its length fits three.
    let [.., high, middle, low] = body.len().to_be_bytes();
    [&[CLIENT_HELLO, high, middle, low][..], body].concat()
}

impl ClientHello<'_> {
    /// The records of this hello for the server name `host`. A client that sends no name still sends none, and
    /// without `host` none is sent, as for a server that is known by its address.
    #[must_use]
    pub fn addressed_to(&self, host: Option<&str>) -> Vec<u8> {
        let mut body = self.message.to_vec();
        let old = self.extensions.of(&self.message);
        if !old.is_empty() {
            body.truncate(body.len() - old.len() - 2);
            let extensions = renamed(old, host);
            body.extend((extensions.len() as u16).to_be_bytes());
            body.extend(extensions);
        }
        in_records(&with_head(&body))
    }
}

/// The extensions with another server name.
fn renamed(mut rest: &[u8], host: Option<&str>) -> Vec<u8> {
    let mut renamed = Vec::with_capacity(rest.len() + 64);
    // `parse` has checked that the extensions fill the list.
    while let Some((head, tail)) = rest.split_first_chunk::<4>() {
        let [kind_high, kind_low, high, low] = *head;
        let length = usize::from(u16::from_be_bytes([high, low])).min(tail.len());
        if u16::from_be_bytes([kind_high, kind_low]) != extension::SERVER_NAME {
            renamed.extend_from_slice(&rest[..4 + length]);
        } else if let Some(host) = host {
            // A name has at most 253 bytes.
            let size = |bytes: usize| (bytes as u16).to_be_bytes();
            renamed.extend([kind_high, kind_low]);
            renamed.extend(size(host.len() + 5));
            renamed.extend(size(host.len() + 3));
            renamed.push(0);
            renamed.extend(size(host.len()));
            renamed.extend_from_slice(host.as_bytes());
        }
        rest = &tail[length..];
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CHROMIUM, CURL, OPENSSL_12, OPENSSL_13, OPENSSL_NO_NAME, hello, records};
    use super::*;
    use crate::client_hello::ServerName;

    #[test]
    fn names_are_replaced_and_nothing_else() {
        for bytes in [CHROMIUM, CURL, OPENSSL_12, OPENSSL_13, OPENSSL_NO_NAME] {
            let old = hello(bytes).unwrap();
            let records = old.addressed_to(Some("a-longer-name.example.org"));
            let new = hello(&records).unwrap();
            assert_eq!(new.server_name() == ServerName::Absent, old.server_name() == ServerName::Absent);
            if let Some(name) = new.server_name().host() {
                assert_eq!(name, "a-longer-name.example.org");
            }
            assert_eq!(new.ja4(), old.ja4());
            assert!(new.key_shares().eq(old.key_shares()) && new.alpn().eq(old.alpn()));
            let records = old.addressed_to(None);
            assert_eq!(hello(&records).unwrap().server_name(), ServerName::Absent);
            // Back again.
            let host = old.server_name().host();
            let back = new.addressed_to(host);
            assert_eq!(hello(&back).unwrap().extensions().count(), old.extensions().count());
            assert_eq!(hello(&back).unwrap().server_name(), old.server_name());
        }
    }

    #[test]
    fn a_hello_is_taken_out_of_its_records() {
        let message = &CURL[5..];
        let mut split = records(message, 100);
        split.extend_from_slice(b"what follows");
        let ParseStep::Done { value, .. } = extract(&split) else { panic!("no hello") };
        assert_eq!(value[3..], CURL[3..]);
        assert!(matches!(extract(&split[..200]), ParseStep::Need(_)));
    }
}
