//! Enums with variants that are words of the language. One table gives variants, words, and the choices in
//! the table of keys.

use std::borrow::Cow;

use super::FilePath;

/// An enum with variants that are words of the language.
pub(crate) trait Word: Sized {
    fn word(&self) -> &'static str;
    fn from_word(word: &str) -> Option<Self>;
}

/// An enum with variants that are words of the language, and a file.
pub(crate) trait WordOrFile: Sized {
    fn text(&self) -> Cow<'_, str>;
    fn from_word(word: &str) -> Option<Self>;
    fn from_file(file: FilePath) -> Self;
}

/// Defines a field-less enum from its variants and their words; `or file` adds the variant `File`, which is
/// written as a path. Paths of standard streams mean those streams.
macro_rules! words {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every variant, in the order of the documentation.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The words that a key of this type takes.
            pub const CHOICES: &'static [$crate::choice::Choice] = &[$($crate::choice::Choice::now($word)),*];

            /// The word for this variant.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            /// The variant for this word.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|variant| variant.word() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl $crate::model::words::Word for $name {
            fn word(&self) -> &'static str {
                (*self).word()
            }

            fn from_word(word: &str) -> Option<Self> {
                $name::from_word(word)
            }
        }
    };
    ($(#[$doc:meta])* pub enum $name:ident or file {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// Appended to a file.
            File($crate::model::FilePath),
        }

        impl $name {
            /// The words that a key of this type takes.
            pub const CHOICES: &'static [$crate::choice::Choice] = &[$($crate::choice::Choice::now($word)),*];
        }

        impl $crate::model::words::WordOrFile for $name {
            fn text(&self) -> std::borrow::Cow<'_, str> {
                match self {
                    $($name::$variant => $word.into(),)*
                    $name::File(file) => file.path.to_string_lossy(),
                }
            }

            fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }

            fn from_file(file: $crate::model::FilePath) -> Self {
                match $crate::model::StandardStream::of(&file.path) {
                    Some($crate::model::StandardStream::Stdout) => $name::Stdout,
                    Some($crate::model::StandardStream::Stderr) => $name::Stderr,
                    None => $name::File(file),
                }
            }
        }
    };
}

pub(super) use words;
