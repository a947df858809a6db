//! The codes of errors (RFC 9113 §7).

/// Why a stream or a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// It ends in order.
    pub const NO_ERROR: Self = Self(0);
    /// A rule was broken for which there is no code.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// The fault is ours.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// More was sent than the window allows.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// A frame for a stream that has ended.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame of a length that it cannot have.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// Nothing was done for the request; it may be sent again.
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream is not wanted any more.
    pub const CANCEL: Self = Self(8);
    /// The compression of fields is out of step.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The peer costs too much.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);

    /// The name that the RFC has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "NO_ERROR",
            1 => "PROTOCOL_ERROR",
            2 => "INTERNAL_ERROR",
            3 => "FLOW_CONTROL_ERROR",
            4 => "SETTINGS_TIMEOUT",
            5 => "STREAM_CLOSED",
            6 => "FRAME_SIZE_ERROR",
            7 => "REFUSED_STREAM",
            8 => "CANCEL",
            9 => "COMPRESSION_ERROR",
            10 => "CONNECT_ERROR",
            11 => "ENHANCE_YOUR_CALM",
            12 => "INADEQUATE_SECURITY",
            13 => "HTTP_1_1_REQUIRED",
            _ => "an unknown code",
        }
    }
}
