//! Frame headers (RFC 9113 §4.1), padding and priority (§6.1, §6.2).

use super::Code;

/// Preface of a client (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame header, in bytes.
pub const HEAD: usize = 9;

/// Flags of frames (RFC 9113 §6).
pub mod flag {
    /// SETTINGS, PING: an acknowledgement.
    pub const ACK: u8 = 1;
    /// DATA, HEADERS: the last frame of its direction.
    pub const END_STREAM: u8 = 1;
    /// HEADERS, CONTINUATION: the last frame of its block.
    pub const END_HEADERS: u8 = 4;
    /// DATA, HEADERS: with padding.
    pub const PADDED: u8 = 8;
    /// HEADERS: with a priority.
    pub const PRIORITY: u8 = 0x20;
}

/// Type of a frame (RFC 9113 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// DATA: content of a message.
    Data,
    /// HEADERS: begin of a message, or its trailers.
    Headers,
    /// PRIORITY, which is deprecated and ignored (§5.3.2).
    Priority,
    /// RST_STREAM: aborts a stream.
    ResetStream,
    /// SETTINGS: limits of the sender.
    Settings,
    /// PUSH_PROMISE: announces a pushed response.
    PushPromise,
    /// PING: liveness check, and round-trip measurement.
    Ping,
    /// GOAWAY: shutdown of the connection.
    GoAway,
    /// WINDOW_UPDATE: opens a flow-control window.
    WindowUpdate,
    /// CONTINUATION: more of a header block.
    Continuation,
    /// PRIORITY_UPDATE: order of responses (RFC 9218 §7.1).
    PriorityUpdate = 0x10,
    /// Any other type, which is ignored (§4.1).
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

    /// Name of the type in the RFCs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Data => "DATA",
            Self::Headers => "HEADERS",
            Self::Priority => "PRIORITY",
            Self::ResetStream => "RST_STREAM",
            Self::Settings => "SETTINGS",
            Self::PushPromise => "PUSH_PROMISE",
            Self::Ping => "PING",
            Self::GoAway => "GOAWAY",
            Self::WindowUpdate => "WINDOW_UPDATE",
            Self::Continuation => "CONTINUATION",
            Self::PriorityUpdate => "PRIORITY_UPDATE",
            Self::Unknown => "an unknown frame",
        }
    }

    fn of(byte: u8) -> Self {
        match Self::ALL.get(usize::from(byte)) {
            Some(kind) => *kind,
            None if byte == Self::PriorityUpdate as u8 => Self::PriorityUpdate,
            None => Self::Unknown,
        }
    }
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes, 24 bits.
    pub length: usize,
    /// Type of the frame.
    pub kind: Kind,
    /// Flags; their meaning depends on the type.
    pub flags: u8,
    /// Stream of the frame; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Parses a header. The reserved bit of the stream is cleared.
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

    /// Returns true if a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Encodes the header.
    ///
    /// # Panics
    /// In debug builds, if the type is [`Kind::Unknown`] or the length has more than 24 bits.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEAD] {
        debug_assert!(self.length < 1 << 24 && self.kind != Kind::Unknown, "no head of ours: {self:?}");
        // Outgoing frames have at most 24 bits of length.
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind as u8, self.flags, d, e, f, g]
    }
}

/// Position of the data or fragment in a payload of DATA or HEADERS, between padding and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed {
    /// Payload bytes before it.
    pub before: usize,
    /// Length without padding, in bytes.
    pub length: usize,
}

impl Framed {
    /// Locates it by the header and the first byte of the payload, which is needed for padded frames only.
    ///
    /// # Errors
    /// `FRAME_SIZE_ERROR` if the payload is too short for its flags, `PROTOCOL_ERROR` if the padding exceeds
    /// the payload (RFC 9113 §6.1, §6.2).
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
    fn headers_round_trip() {
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
    fn padding_and_priority_are_skipped() {
        let of =
            |kind, flags, length, first| Framed::of(&FrameHeader { length, kind, flags, stream: 1 }, first);
        let framed = |before, length| Ok(Framed { before, length });
        for (kind, flags, length, first, wanted) in [
            (Kind::Data, 0, 5, Some(9), framed(0, 5)),
            (Kind::Data, 0, 0, None, framed(0, 0)),
            (Kind::Data, flag::PADDED, 5, Some(4), framed(1, 0)),
            (Kind::Data, flag::PADDED, 5, Some(5), Err(Code::PROTOCOL_ERROR)),
            (Kind::Data, flag::PADDED, 0, None, Err(Code::FRAME_SIZE_ERROR)),
            // DATA has no priority.
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
