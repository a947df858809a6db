//! The head of a frame (RFC 9113 §4.1), and what lies around the payload of some (§6.1, §6.2).

use super::Code;

/// What a client says first (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The length of a frame's head, in bytes.
pub const HEAD: usize = 9;

/// Flags of frames (RFC 9113 §6).
pub mod flag {
    /// SETTINGS, PING: an answer.
    pub const ACK: u8 = 1;
    /// DATA, HEADERS: the last of its direction.
    pub const END_STREAM: u8 = 1;
    /// HEADERS, CONTINUATION: the last of its block.
    pub const END_HEADERS: u8 = 4;
    /// DATA, HEADERS: with padding.
    pub const PADDED: u8 = 8;
    /// HEADERS: with a priority.
    pub const PRIORITY: u8 = 0x20;
}

/// What a frame is (RFC 9113 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Content.
    Data,
    /// The begin of a message, or its trailers.
    Headers,
    /// A priority, which nobody heeds any more (§5.3.2).
    Priority,
    /// The end of a stream at once.
    ResetStream,
    /// What the peer can take.
    Settings,
    /// What servers say before they are asked.
    PushPromise,
    /// A question whether the peer is there.
    Ping,
    /// The end of the connection is near.
    GoAway,
    /// More may be sent.
    WindowUpdate,
    /// More of a block of fields.
    Continuation,
    /// Which response goes first (RFC 9218 §7.1).
    PriorityUpdate = 0x10,
    /// Anything else, which is to be ignored (§4.1).
    Unknown,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Data,
        Self::Headers,
        Self::Priority,
        Self::ResetStream,
        Self::Settings,
        Self::PushPromise,
        Self::Ping,
        Self::GoAway,
        Self::WindowUpdate,
        Self::Continuation,
    ];

    fn of(byte: u8) -> Self {
        match Self::ALL.get(usize::from(byte)) {
            Some(kind) => *kind,
            None if byte == Self::PriorityUpdate as u8 => Self::PriorityUpdate,
            None => Self::Unknown,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of payload, 24 bits.
    pub length: usize,
    /// What it is.
    pub kind: Kind,
    /// Its flags, of which each kind knows few.
    pub flags: u8,
    /// The stream that it belongs to; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads a head. The reserved bit of the stream is left out.
    #[must_use]
    pub fn read(bytes: &[u8; HEAD]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind: Kind::of(kind),
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The bytes of this head.
    ///
    /// # Panics
    /// Never in release builds; in others if the kind is [`Kind::Unknown`] or the length has more than 24 bits.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEAD] {
        debug_assert!(self.length < 1 << 24 && self.kind != Kind::Unknown, "no head of ours: {self:?}");
        // 24 bits, as every frame that is written has.
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind as u8, self.flags, d, e, f, g]
    }
}

/// Where in a payload of DATA or HEADERS the data or the fragment lies: between padding and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed {
    /// Bytes before it.
    pub before: usize,
    /// Bytes of it.
    pub length: usize,
}

impl Framed {
    /// Reads it off the head and the first byte of the payload, which is needed only where the frame is padded.
    ///
    /// # Errors
    /// `FRAME_SIZE_ERROR` where the payload is too short for what its flags say, `PROTOCOL_ERROR` where it has
    /// more padding than room (RFC 9113 §6.1, §6.2).
    pub fn of(head: &FrameHeader, first: Option<u8>) -> Result<Self, Code> {
        let mut before = 0;
        let mut padding = 0;
        if head.has(flag::PADDED) {
            padding = usize::from(first.ok_or(Code::FRAME_SIZE_ERROR)?);
            before += 1;
        }
        if head.kind == Kind::Headers && head.has(flag::PRIORITY) {
            before += 5;
        }
        let rest = head.length.checked_sub(before).ok_or(Code::FRAME_SIZE_ERROR)?;
        let length = rest.checked_sub(padding).ok_or(Code::PROTOCOL_ERROR)?;
        Ok(Self { before, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let head = FrameHeader { length: 0x0001_0203, kind, flags: 0x25, stream: 0x7fff_fffe };
            let bytes = head.bytes();
            assert_eq!(bytes[3] as usize, at);
            assert_eq!(FrameHeader::read(&bytes), head);
        }
        let reserved = FrameHeader::read(&[0, 0, 1, 0xf7, 0, 0x80, 0, 0, 1]);
        assert_eq!((reserved.stream, reserved.kind), (1, Kind::Unknown));
    }

    #[test]
    fn padding_and_priority_lie_around() {
        let of =
            |kind, flags, length, first| Framed::of(&FrameHeader { length, kind, flags, stream: 1 }, first);
        let framed = |before, length| Ok(Framed { before, length });
        for (kind, flags, length, first, wanted) in [
            (Kind::Data, 0, 5, Some(9), framed(0, 5)),
            (Kind::Data, 0, 0, None, framed(0, 0)),
            (Kind::Data, flag::PADDED, 5, Some(4), framed(1, 0)),
            (Kind::Data, flag::PADDED, 5, Some(5), Err(Code::PROTOCOL_ERROR)),
            (Kind::Data, flag::PADDED, 0, None, Err(Code::FRAME_SIZE_ERROR)),
            // DATA knows no priority.
            (Kind::Data, flag::PRIORITY, 5, Some(9), framed(0, 5)),
            (Kind::Headers, flag::PRIORITY, 5, Some(9), framed(5, 0)),
            (Kind::Headers, flag::PRIORITY, 4, Some(9), Err(Code::FRAME_SIZE_ERROR)),
            (Kind::Headers, flag::PRIORITY | flag::PADDED, 10, Some(3), framed(6, 1)),
            (Kind::Headers, flag::PRIORITY | flag::PADDED, 8, Some(3), Err(Code::PROTOCOL_ERROR)),
        ] {
            assert_eq!(of(kind, flags, length, first), wanted, "{kind:?} {flags} {length} {first:?}");
        }
    }
}
