//! Words that a key takes, with the versions that support them. The table of keys and the enums of the model use them.

/// A word that a key takes.
#[derive(Debug)]
pub struct Choice {
    /// The word; a trailing `NAME` stands for any non-empty text.
    pub word: &'static str,
    /// The versions with support for the word.
    pub support: Support,
}

impl Choice {
    /// A word that every version so far supports.
    pub(crate) const fn now(word: &'static str) -> Self {
        Self { word, support: Support::Since("0.1.0") }
    }

    /// Returns `true` if `text` is this word.
    pub fn matches(&self, text: &str) -> bool {
        match self.word.strip_suffix("NAME") {
            Some(prefix) => text.strip_prefix(prefix).is_some_and(|name| !name.is_empty()),
            None => self.word == text,
        }
    }
}

/// The versions with support for a key or a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Supported since this version.
    Since(&'static str),
    /// Planned: an error for now.
    Planned,
}

impl Support {
    /// Returns `true` if this version has support.
    pub fn is_now(self) -> bool {
        matches!(self, Support::Since(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_with_a_name_match_any_name() {
        let choice = Choice { word: "hash:cookie:NAME", support: Support::Planned };
        assert!(choice.matches("hash:cookie:session"));
        assert!(!choice.matches("hash:cookie:"));
        assert!(!choice.matches("hash:cooky:x"));
    }
}
