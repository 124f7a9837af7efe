//! Conversions of validated texts, the same for names and owners.

/// Implements what lets a validated text be used like any other text.
///
/// Not `Borrow<str>`: a name keeps its own hash, which differs from that of its text.
macro_rules! text_conversions {
    ($kind:ident) => {
        impl AsRef<str> for $kind {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::str::FromStr for $kind {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $kind {
            type Error = Error;

            fn try_from(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $kind {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                Self::new(&text)
            }
        }

        impl From<$kind> for String {
            fn from(text: $kind) -> Self {
                text.as_str().to_owned()
            }
        }

        impl PartialEq<str> for $kind {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }

        impl PartialEq<&str> for $kind {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }

        impl PartialEq<$kind> for str {
            fn eq(&self, other: &$kind) -> bool {
                self == other.as_str()
            }
        }

        impl PartialEq<$kind> for &str {
            fn eq(&self, other: &$kind) -> bool {
                *self == other.as_str()
            }
        }
    };
}

pub(crate) use text_conversions;
