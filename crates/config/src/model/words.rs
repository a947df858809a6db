//! Enums whose variants are words of the language.

/// Defines a field-less enum from its variants and the words that they are written as.
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
}

pub(super) use words;
