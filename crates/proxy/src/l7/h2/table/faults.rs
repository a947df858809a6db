//! Faults of a client for which streams were reset.

use offramp_http::h2::Code;

/// Streams that were reset for a fault of the client's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::l7::h2) struct ClientFaults {
    /// How many.
    pub(in crate::l7::h2) faults: u32,
    /// The code of the last of them.
    pub(in crate::l7::h2) code: Option<Code>,
}

impl ClientFaults {
    pub(super) fn fault(&mut self, code: Code) {
        self.faults += 1;
        self.code = Some(code);
    }
}
