//! Words of the database and the wire as enums. An unknown word is an impossible row, never a default.

/// Declares an enum whose variants are lower-case words, in one table and on the wire alike.
macro_rules! text_enum {
    (
        $(#[$doc:meta])*
        pub enum $name:ident in $table:literal {
            $($(#[$variant_doc:meta])* $variant:ident => $word:literal),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every word, for tables and tests.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The word in the database and on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word),+
                }
            }

            /// Decodes the database's word.
            pub fn parse(word: &str) -> crate::error::Result<Self> {
                match word {
                    $($word => Ok($name::$variant),)+
                    other => Err(crate::error::Error::Corrupt {
                        table: $table,
                        what: format!("unknown word {other}"),
                    }),
                }
            }
        }
    };
}

pub(crate) use text_enum;
