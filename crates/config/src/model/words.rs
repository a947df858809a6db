//! Enums whose variants are words of the language. Each is one table: variants, words, and the words that the table of
//! keys offers all come from it.

/// Defines a field-less enum from its variants and the words that they are written as; `or file` adds the variant
/// `File`, which is written as the path of a file.
macro_rules! words {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every variant, in the order of the documentation.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The words that a key of this type takes.
            pub const CHOICES: &'static [$crate::keys::Choice] = &[$($crate::keys::Choice::now($word)),*];

            /// The word that it is written as.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            /// The variant that is written as `word`.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|variant| variant.word() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl $crate::settings::Word for $name {
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
            pub const CHOICES: &'static [$crate::keys::Choice] = &[$($crate::keys::Choice::now($word)),*];
        }

        impl $crate::settings::WordOrFile for $name {
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
                $name::File(file)
            }
        }
    };
}

pub(super) use words;
