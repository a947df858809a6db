//! Integers that are always within bounds, and sizes.

use std::fmt;

/// An integer from `MIN` to `MAX`, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounded<const MIN: u16, const MAX: u16>(u16);

/// The number of TLS 1.3 tickets per handshake.
pub type Tickets = Bounded<0, 8>;

/// The share of a server.
pub type Weight = Bounded<1, 256>;

/// The maximum plaintext of a record in bytes, from 4 KiB to the 2^14 of RFC 8446 §5.1.
pub type RecordSizeLimit = Bounded<4096, 16384>;

impl<const MIN: u16, const MAX: u16> Bounded<MIN, MAX> {
    /// A number, or `None` if it is out of bounds.
    pub const fn new(value: u16) -> Option<Self> {
        if value >= MIN && value <= MAX { Some(Bounded(value)) } else { None }
    }

    /// A constant; out of bounds it does not compile.
    pub const fn literal<const VALUE: u16>() -> Self {
        const { assert!(VALUE >= MIN && VALUE <= MAX) };
        Bounded(VALUE)
    }

    /// The number as an integer.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl<const MIN: u16, const MAX: u16> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

impl Size {
    /// A size of this many bytes.
    pub const fn new(bytes: u64) -> Self {
        Size(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    /// The form in the configuration: `64KiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::units::print_size(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_included() {
        assert_eq!(Weight::new(0), None);
        assert_eq!(Weight::new(1).map(Weight::get), Some(1));
        assert_eq!(Weight::new(256).map(Weight::get), Some(256));
        assert_eq!(Weight::new(257), None);
    }
}
