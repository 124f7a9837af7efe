//! Names of locks: untrusted input, checked once for every store.

use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::{Arc, LazyLock},
};

use super::text::text_conversions;
use crate::error::Error;

/// The longest name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 512;

/// The validated name of a lock.
///
/// Any text of 1 to 512 bytes without control characters is a valid name. Two names are the same lock only if
/// they are equal byte for byte: `Job` and `job`, `a` and `a/`, `..` and `.`, `{a}` and `a` are different
/// locks on every store. If a store cannot represent a name literally, its backend encodes it.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::{Locks, Name};
///
/// let name: Name = "orders/42".parse()?;
/// assert_eq!(name, "orders/42");
/// assert!(Name::new("").is_err());
///
/// let locks = Locks::connect("memory:").await?;
/// let guard = locks.mutex(&name).lock().await?;
/// assert!(locks.mutex(guard.name()).try_lock().await?.is_none());
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Name {
    text: Arc<str>,
    /// Computed once: a name is looked up many times on its way.
    hash: u64,
}

/// Seeded for each process: nobody can choose names that meet in one bucket.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Name {
    /// Validates a text and creates a name from it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName) when the text is empty, longer than 512
    /// bytes or contains a control character.
    pub fn new(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::invalid_name("a lock needs a name, and this one is empty"));
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(Error::invalid_name(format!(
                "lock name has {} bytes, at most {MAX_NAME_BYTES} are allowed: shorten it or use a hash of it",
                text.len()
            )));
        }
        if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(Error::invalid_name(format!(
                "lock name {text:?} has the control character U+{:04X} at byte {at}: leave it out",
                u32::from(c)
            )));
        }
        Ok(Self { text: text.into(), hash: HASHES.hash_one(text) })
    }

    /// Returns the name as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn hash_code(&self) -> u64 {
        self.hash
    }
}

text_conversions!(Name);

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        // Mostly both are copies of one name: then there is no need to compare the texts.
        self.hash == other.hash && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_get_one_clear_sentence() {
        let long = "x".repeat(10_240);
        for (bad, says) in
            [("", "empty"), (long.as_str(), "10240 bytes"), ("a\0b", "U+0000 at byte 1"), ("a\nb", "U+000A")]
        {
            let error = Name::new(bad).unwrap_err();
            assert!(error.is_invalid_name(), "{error}");
            let text = error.to_string();
            assert!(text.contains(says) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn odd_but_harmless_names_are_names() {
        let longest = "x".repeat(MAX_NAME_BYTES);
        for odd in ["..", ".", "/", "{}", "{a}b", "🔒", "a b", "%00", "Job", "*", longest.as_str()] {
            assert_eq!(Name::new(odd).unwrap().as_str(), odd);
        }
    }
}
