//! Ids, addresses and numbers as text on the stack: the common parts of events, without `fmt` and without an
//! allocation.

use std::net::IpAddr;

use crate::facts::ConnectionId;

/// A buffer for one short ASCII text: a UUID, an IP address, 32 hexadecimal digits, a number.
pub(super) struct ShortAscii {
    text: [u8; Self::SIZE],
    length: usize,
}

impl Default for ShortAscii {
    fn default() -> Self {
        Self { text: [0; Self::SIZE], length: 0 }
    }
}

impl ShortAscii {
    /// The longest content: an IPv6 address has at most 39 bytes (45 with an embedded IPv4 address).
    const SIZE: usize = 48;

    /// Writes a UUID of 36 characters.
    pub(super) fn uuid(&mut self, id: ConnectionId) -> &[u8] {
        let id = id.as_u128();
        let [first, second] = [(id >> 96) as u32, (id >> 64) as u32].map(hex8);
        let [third, fourth] = [(id >> 32) as u32, id as u32].map(hex8);
        let text = &mut self.text;
        text[..8].copy_from_slice(&first);
        text[8] = b'-';
        text[9..13].copy_from_slice(&second[..4]);
        text[13] = b'-';
        text[14..18].copy_from_slice(&second[4..]);
        text[18] = b'-';
        text[19..23].copy_from_slice(&third[..4]);
        text[23] = b'-';
        text[24..28].copy_from_slice(&third[4..]);
        text[28..36].copy_from_slice(&fourth);
        self.length = 36;
        self.as_bytes()
    }

    /// Writes the lowest `digits` hexadecimal digits; `digits` is even and at most 32.
    pub(super) fn hex(&mut self, number: u128, digits: usize) -> &[u8] {
        for byte in &number.to_be_bytes()[16 - digits / 2..] {
            self.push_hex(*byte);
        }
        self.as_bytes()
    }

    /// Writes an IP address; IPv4-mapped ones as IPv4.
    pub(super) fn ip(&mut self, address: IpAddr) -> &[u8] {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                for (index, byte) in address.octets().into_iter().enumerate() {
                    if index > 0 {
                        self.push(b'.');
                    }
                    if byte >= 100 {
                        self.push(b'0' + byte / 100);
                    }
                    if byte >= 10 {
                        self.push(b'0' + byte / 10 % 10);
                    }
                    self.push(b'0' + byte % 10);
                }
            }
            IpAddr::V6(address) => {
                use std::io::Write;
                let mut rest = &mut self.text[..];
                let room = rest.len();
                // The longest address fits, so this cannot fail.
                let _ = write!(rest, "{address}");
                self.length = room - rest.len();
            }
        }
        self.as_bytes()
    }

    fn push_hex(&mut self, byte: u8) {
        self.push(HEX[usize::from(byte >> 4)]);
        self.push(HEX[usize::from(byte & 0xf)]);
    }

    fn push(&mut self, byte: u8) {
        self.text[self.length] = byte;
        self.length += 1;
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

/// Eight hexadecimal digits at once: spreads nibbles over the bytes of a word, then turns all into digits
/// together.
#[inline]
fn hex8(number: u32) -> [u8; 8] {
    let mut word = u64::from(number);
    word = (word << 16 | word) & 0x0000_ffff_0000_ffff;
    word = (word << 8 | word) & 0x00ff_00ff_00ff_00ff;
    word = (word << 4 | word) & 0x0f0f_0f0f_0f0f_0f0f;
    let is_letter = (word + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (word + 0x3030_3030_3030_3030 + is_letter * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

pub(super) const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::ShortAscii;
    use crate::facts::ConnectionId;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn texts_are_those_of_display() {
        let id = ConnectionId::from(0x01a1_ffe0_6b21_7000_8000_0000_1a2b_3c4d);
        assert_eq!(text(ShortAscii::default().uuid(id)), id.to_string());
        for byte in 0..=u128::from(u8::MAX) {
            let id = ConnectionId::from(byte * (u128::MAX / 255));
            assert_eq!(text(ShortAscii::default().uuid(id)), id.to_string());
        }
        assert_eq!(text(ShortAscii::default().hex(0xabc, 16)), "0000000000000abc");
        assert_eq!(text(ShortAscii::default().hex(u128::MAX, 32)), "f".repeat(32));
        for number in (0..=u32::MAX).step_by(65_521) {
            let address = IpAddr::from(Ipv4Addr::from_bits(number));
            assert_eq!(text(ShortAscii::default().ip(address)), address.to_string());
        }
        for address in [Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(u128::MAX), "2001:db8::7".parse().unwrap()]
        {
            assert_eq!(text(ShortAscii::default().ip(address.into())), address.to_string());
        }
        assert_eq!(text(ShortAscii::default().ip("::ffff:192.0.2.1".parse().unwrap())), "192.0.2.1");
    }
}
