//! Error codes (RFC 9113 §7).

/// Reason for which a stream or a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// Orderly end, without an error.
    pub const NO_ERROR: Self = Self(0);
    /// Protocol violation without a code of its own.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// Internal error of this side.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// The peer exceeded a flow-control window.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// Frame for a closed stream.
    pub const STREAM_CLOSED: Self = Self(5);
    /// Frame with an invalid length.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// The request was not processed and may be retried.
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream is not needed any more.
    pub const CANCEL: Self = Self(8);
    /// The HPACK state is out of sync.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The peer causes excessive load.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);

    /// Name of the code in RFC 9113.
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
