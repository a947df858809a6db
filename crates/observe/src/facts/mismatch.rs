//! The offer of a client and the configuration, for handshakes that failed.
//!
//! A client decides how much it offers, so the lists are bounded when they are made: an attack fills at
//! most a known amount of memory per event.

use std::sync::Arc;

/// Both sides of a handshake that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What the ClientHello offered.
    pub offered: Offer,
    /// What the listener and route allow; one list per snapshot, shared by its connections.
    pub configured: Arc<Offer>,
}

/// The parameters of TLS that one side is willing to use, by their IANA names, in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Protocol versions, as `TLSv1.3`.
    pub versions: NameList,
    /// Cipher suites.
    pub suites: NameList,
    /// Key-exchange groups.
    pub groups: NameList,
    /// Signature schemes.
    pub schemes: NameList,
    /// Application protocols (ALPN).
    pub alpn: NameList,
}

/// A bounded list of names: at most [`NameList::MAX_NAMES`] names and [`NameList::MAX_BYTES`] bytes in all.
/// What does not fit is counted instead of kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    text: Vec<u8>,
    ends: Vec<u16>,
    omitted: u32,
}

impl NameList {
    /// The most names that are kept.
    pub const MAX_NAMES: usize = 64;
    /// The most bytes that all kept names have together.
    pub const MAX_BYTES: usize = 1024;

    /// Appends a name, which may be any bytes (ALPN is); once one did not fit, all later ones are only
    /// counted, so that the kept ones are always the client's first.
    pub fn push(&mut self, name: impl AsRef<[u8]>) {
        let name = name.as_ref();
        let full = self.ends.len() == Self::MAX_NAMES || self.text.len() + name.len() > Self::MAX_BYTES;
        if full || self.omitted > 0 {
            self.omitted = self.omitted.saturating_add(1);
            return;
        }
        self.text.extend_from_slice(name);
        // At most MAX_BYTES, which is far below 2^16.
        self.ends.push(self.text.len() as u16);
    }

    /// The kept names, in the order in which they were pushed.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(index, &end)| {
            let start = if index == 0 { 0 } else { usize::from(self.ends[index - 1]) };
            &self.text[start..usize::from(end)]
        })
    }

    /// How many names did not fit.
    #[must_use]
    pub const fn omitted(&self) -> u32 {
        self.omitted
    }

    /// Whether nothing was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.omitted == 0
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for NameList {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut list = Self::default();
        for name in names {
            list.push(name);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::NameList;

    #[test]
    fn names_come_back_in_order() {
        let list: NameList = ["h2", "", "http/1.1"].into_iter().collect();
        let names: Vec<_> = list.iter().collect();
        assert_eq!(names, [&b"h2"[..], b"", b"http/1.1"]);
        assert_eq!(list.omitted(), 0);
    }

    #[test]
    fn the_list_is_bounded_in_names_and_in_bytes() {
        let many: NameList = (0..200).map(|n| n.to_string()).collect();
        assert_eq!((many.iter().count(), many.omitted()), (64, 136));
        let long: NameList = [vec![b'a'; 1000], vec![b'b'; 100], vec![b'c'; 1]].into_iter().collect();
        assert_eq!((long.iter().count(), long.omitted()), (1, 2));
        assert!(!long.is_empty());
    }
}
