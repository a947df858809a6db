//! The client's offer beside the configuration, for failed handshakes.
//!
//! Clients choose the length of their offers, so the lists are bounded when they are built: an attack takes a
//! known amount of memory per event.

use std::sync::Arc;

/// Both sides of a failed handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The parameters in the ClientHello.
    pub offered: TlsOffer,
    /// The parameters that listener and route allow; one list per snapshot, shared by its connections.
    pub configured: Arc<TlsOffer>,
}

/// The TLS parameters that one side accepts, by IANA name and in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOffer {
    /// Protocol versions, such as `TLSv1.3`.
    pub versions: NameList,
    /// Cipher suites, most preferred first.
    pub suites: NameList,
    /// Key-exchange groups, most preferred first.
    pub groups: NameList,
    /// Signature schemes, most preferred first.
    pub schemes: NameList,
    /// Application protocols (ALPN), most preferred first.
    pub alpn: NameList,
}

/// A bounded list of names: at most [`NameList::MAX_NAMES`] names and [`NameList::MAX_BYTES`] bytes in all.
/// Names beyond the bounds are counted and dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    text: Vec<u8>,
    ends: Vec<u16>,
    omitted: u32,
}

impl NameList {
    /// The maximum number of names.
    pub const MAX_NAMES: usize = 64;
    /// The maximum length of all names together.
    pub const MAX_BYTES: usize = 1024;

    /// Appends a name of arbitrary bytes (ALPN names are). After the first name that does not fit, all later
    /// ones are only counted, so that the list is always a prefix of the client's.
    pub fn push(&mut self, name: impl AsRef<[u8]>) {
        let name = name.as_ref();
        let full = self.ends.len() == Self::MAX_NAMES || self.text.len() + name.len() > Self::MAX_BYTES;
        if full || self.omitted > 0 {
            self.omitted = self.omitted.saturating_add(1);
            return;
        }
        self.text.extend_from_slice(name);
        // Cannot truncate: at most MAX_BYTES, far below 2^16.
        self.ends.push(self.text.len() as u16);
    }

    /// The names, in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(index, &end)| {
            let start = if index == 0 { 0 } else { usize::from(self.ends[index - 1]) };
            &self.text[start..usize::from(end)]
        })
    }

    /// The number of names dropped.
    #[must_use]
    pub const fn omitted(&self) -> u32 {
        self.omitted
    }

    /// Returns `true` if no name was pushed.
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
