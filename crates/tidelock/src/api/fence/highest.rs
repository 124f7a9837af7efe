//! The fence for resources without SQL: the largest token that has written.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::model::token::Token;

/// The largest token that has written a resource: a file, an entry of a map, something behind an API.
///
/// It belongs to the side that owns the resource, not to the holders of the lock. Keep one for each resource:
/// tokens of different locks are not comparable.
///
/// ```
/// use tidelock::{Token, fence::Highest};
///
/// let fence = Highest::new();
/// let (earlier, later) = (Token::from_u64(16), Token::from_u64(17));
/// assert!(fence.admit(earlier));
/// assert!(fence.admit(later));
/// assert!(fence.admit(later)); // one holder may write many times
/// assert!(!fence.admit(earlier)); // a later holder has written
/// ```
///
/// # Check and write together
/// [`admit`](Self::admit) is atomic, but the write that follows it is not part of it. If two requests can
/// write the resource at the same time, an earlier holder that was admitted can still write after a later one.
/// So call it where you already have exclusive access to the resource, and write before you give that up:
///
/// ```
/// use std::{collections::HashMap, sync::Mutex};
/// use tidelock::{Token, fence::Highest};
///
/// #[derive(Default)]
/// struct Entry {
///     fence: Highest,
///     value: String,
/// }
///
/// fn put(map: &Mutex<HashMap<String, Entry>>, key: &str, token: Token, value: &str) -> bool {
///     let mut map = map.lock().unwrap();
///     let entry = map.entry(key.to_owned()).or_default();
///     let admitted = entry.fence.admit(token);
///     if admitted {
///         entry.value = value.to_owned();
///     }
///     admitted
/// }
///
/// let map = Mutex::default();
/// assert!(put(&map, "a", Token::from_u64(17), "new"));
/// assert!(!put(&map, "a", Token::from_u64(16), "stale"));
/// assert!(put(&map, "b", Token::from_u64(16), "another resource"));
/// ```
///
/// # Restarts
/// A fence that forgets admits stale writers again. If the resource outlives the process, store
/// [`highest`](Self::highest) with it, in the same write, and start from it with `Highest::from(token)`.
#[derive(Default)]
pub struct Highest(AtomicU64);

impl Highest {
    /// Creates a fence that has seen no token and admits any.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns whether a write with this token is accepted, and remembers the token if so.
    ///
    /// It is refused if a larger token was admitted before. The caller must then stop: a later holder has the
    /// lock.
    #[must_use = "a write that is not admitted must not be done"]
    pub fn admit(&self, token: Token) -> bool {
        self.0.fetch_max(token.get(), Ordering::AcqRel) <= token.get()
    }

    /// Returns the largest token that was admitted; `None` if there was none.
    pub fn highest(&self) -> Option<Token> {
        // Epochs begin at 1, so no lock has the token 0.
        Some(self.0.load(Ordering::Acquire)).filter(|number| *number > 0).map(Token::from_u64)
    }
}

/// Continues from the largest token of an earlier process.
impl From<Token> for Highest {
    fn from(token: Token) -> Self {
        Self(AtomicU64::new(token.get()))
    }
}

impl fmt::Debug for Highest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Highest({})", self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    #[test]
    fn a_fence_admits_the_largest_token_so_far_any_number_of_times() {
        let fence = Highest::new();
        assert_eq!(fence.highest(), None);
        let [five, six] = [5, 6].map(Token::from_u64);
        assert!(fence.admit(five) && fence.admit(five) && fence.admit(six));
        assert!(!fence.admit(five) && fence.admit(six));
        assert_eq!(fence.highest(), Some(six));
    }

    #[test]
    fn a_fence_continues_from_the_token_that_was_stored() {
        let fence = Highest::from(Token::from_u64(6));
        assert_eq!(fence.highest(), Some(Token::from_u64(6)));
        assert!(!fence.admit(Token::from_u64(5)) && fence.admit(Token::from_u64(6)));
    }

    #[test]
    fn of_many_threads_only_growing_tokens_are_admitted() {
        static FENCE: Highest = Highest::new();
        let (threads, each) = (4, 10_000);
        let start = Barrier::new(threads);
        let admitted: Vec<Vec<u64>> = thread::scope(|scope| {
            let run = |first: u64| {
                start.wait();
                (0..each).map(|n| first + n * 4).filter(|n| FENCE.admit(Token::from_u64(*n))).collect()
            };
            let started: Vec<_> = (1..=4).map(|first| scope.spawn(move || run(first))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // Each number is offered once, so the largest one was admitted and is the end of all.
        let largest = 4 * each;
        assert_eq!(FENCE.highest(), Some(Token::from_u64(largest)));
        assert!(admitted.iter().flatten().any(|n| *n == largest));
        assert!((1..largest).all(|n| !FENCE.admit(Token::from_u64(n))), "all others come too late");
    }
}
