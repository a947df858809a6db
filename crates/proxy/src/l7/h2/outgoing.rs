//! What the HTTP/2 library says to a client by itself: resets, and 431 to headers that it does not unpack.
//!
//! It tells nobody, so that it is read off the frames that go out. Their payload is not looked at but for the
//! first bytes of those two.

/// The head of a frame (RFC 9113 §4.1).
const HEAD: usize = 9;
/// How much of a payload is looked at.
const PEEK: usize = 8;
/// CANCEL (RFC 9113 §7), which a stream gets that we drop.
const CANCEL: u32 = 8;

/// Reads the frames that go to a client.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    head: [u8; HEAD],
    have: usize,
    /// Bytes of the payload that are still to go.
    skip: usize,
    peek: [u8; PEEK],
    peeked: usize,
    pub(super) told: Told,
}

/// What was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Streams that were reset for a fault of the client's.
    pub(super) faults: u32,
    /// The code of the last of them.
    pub(super) code: u32,
    /// Streams that were reset because we dropped them.
    pub(super) cancelled: u32,
    /// Whether a header was too large to be unpacked.
    pub(super) refused: bool,
}

impl Told {
    /// The name of the last fault (RFC 9113 §7).
    pub(super) const fn name(self) -> &'static str {
        match self.code {
            1 => "PROTOCOL_ERROR",
            3 => "FLOW_CONTROL_ERROR",
            5 => "STREAM_CLOSED",
            6 => "FRAME_SIZE_ERROR",
            7 => "REFUSED_STREAM",
            _ => "ENHANCE_YOUR_CALM",
        }
    }
}

impl Outgoing {
    /// Looks at bytes that go out.
    pub(super) fn look(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let over = self.skip.min(bytes.len());
                let keep = over.min(PEEK - self.peeked);
                self.peek[self.peeked..self.peeked + keep].copy_from_slice(&bytes[..keep]);
                self.peeked += keep;
                self.skip -= over;
                bytes = &bytes[over..];
            } else {
                let take = (HEAD - self.have).min(bytes.len());
                self.head[self.have..self.have + take].copy_from_slice(&bytes[..take]);
                self.have += take;
                bytes = &bytes[take..];
                if self.have == HEAD {
                    self.skip = self.length();
                    self.peeked = 0;
                }
            }
            if self.have == HEAD && self.skip == 0 {
                self.have = 0;
                self.frame();
            }
        }
    }

    fn length(&self) -> usize {
        u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]) as usize
    }

    /// A frame has gone.
    fn frame(&mut self) {
        match (self.head[3], self.peek) {
            // RST_STREAM.
            (3, [a, b, c, d, ..]) => match u32::from_be_bytes([a, b, c, d]) {
                CANCEL => self.told.cancelled += 1,
                code @ (1 | 3 | 5 | 6 | 7 | 11) => {
                    self.told.faults += 1;
                    self.told.code = code;
                }
                _ => {}
            },
            // HEADERS that end a stream and are nothing but a status, as no response of ours is: they have a
            // date. The first of them on a connection is a literal (RFC 7541 §6.2, name 8).
            (1, _) if self.head[4] & 5 == 5 => self.told.refused |= self.is_lone_status(),
            _ => {}
        }
    }

    fn is_lone_status(&self) -> bool {
        // Updates of the table's size come first (RFC 7541 §6.3).
        let block = &self.peek[..self.peeked];
        let updates = block.iter().take_while(|byte| **byte >> 5 == 1).count();
        match &block[updates..] {
            [0x48 | 0x08 | 0x18, length, ..] => self.length() == updates + 2 + usize::from(length & 0x7f),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(frames: &[(u8, u8, &[u8])], step: usize) -> Told {
        let mut bytes = Vec::new();
        for (kind, flags, payload) in frames {
            let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
            bytes.extend_from_slice(&[a, b, c, *kind, *flags, 0, 0, 0, 1]);
            bytes.extend_from_slice(payload);
        }
        let mut outgoing = Outgoing::default();
        bytes.chunks(step).for_each(|part| outgoing.look(part));
        outgoing.told
    }

    #[test]
    fn resets_and_refusals_are_seen_however_they_go() {
        for step in [1, 5, 1000] {
            let settings: (u8, u8, &[u8]) = (4, 0, &[]);
            let all = told(
                &[
                    settings,
                    (1, 4, &[0x88, 0xbe, 0xbf]),
                    (0, 1, &[0; 300]),
                    (3, 0, &[0, 0, 0, 1]),
                    (3, 0, &[0, 0, 0, 3]),
                    (3, 0, &[0, 0, 0, 8]),
                    (3, 0, &[0, 0, 0, 0]),
                ],
                step,
            );
            assert_eq!(all, Told { faults: 2, code: 3, cancelled: 1, refused: false });
            assert_eq!(all.name(), "FLOW_CONTROL_ERROR");
            assert!(told(&[settings, (1, 5, &[0x48, 3, b'4', b'3', b'1'])], step).refused);
            assert!(told(&[(1, 5, &[0x20, 0x08, 3, b'4', b'3', b'1'])], step).refused);
            // With more fields, as trailers, or without an end it is a response.
            assert!(!told(&[(1, 5, &[0x48, 3, b'4', b'3', b'1', 0xbe])], step).refused);
            assert!(!told(&[(1, 4, &[0x48, 3, b'4', b'3', b'1'])], step).refused);
            assert!(!told(&[(1, 5, &[0xbe])], step).refused);
        }
    }
}
