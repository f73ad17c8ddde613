//! A macro for enums that a newer peer may extend: unknown values are kept, not refused.

/// Defines an enum of fixed texts plus `Other`, with serde, `as_str`, `Display` and `From<&str>`. The first is the default.
macro_rules! string_enums {
    ($($(#[$meta:meta])* pub enum $name:ident { $($variant:ident = $word:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(
                #[doc = concat!("`", $word, "`")]
                $variant,
            )*
            /// A value that this build does not know.
            Other(String),
        }

        impl $name {
            /// All known values.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The value in JSON.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }

            /// Whether this build knows the value; a server refuses requests with unknown ones.
            #[must_use]
            pub const fn is_known(&self) -> bool {
                !matches!(self, Self::Other(_))
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::from(Self::WORDS[0])
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                Ok(Self::from(word.as_ref()))
            }
        }
    )*};
}
