//! Following names: hearing that the holders of a name may have changed.
//!
//! What is heard has no content. It makes a follower look at once and not at its next turn, so nothing that is safe
//! depends on it: it may be late, repeated or lost.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{Notify, watch};

use crate::model::name::Name;

/// The most names that one client follows. Followers of more ask at their own pace.
const MOST: usize = 4_096;

/// What followers of a name are told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    changes: u64,
    is_live: bool,
}

/// A name that is followed, from [`Backend::follow`](super::Backend::follow).
///
/// When the last follower of a name is dropped, the store forgets it.
pub struct Follow {
    told: watch::Receiver<Told>,
    name: Name,
    names: Arc<Names>,
}

impl Follow {
    /// Returns how many times the holders may have changed since the name was first followed.
    ///
    /// Read it before you look: if it is the same afterwards, what you saw is the latest that the store told of.
    pub fn changes(&self) -> u64 {
        self.told.borrow().changes
    }

    /// Returns whether the store tells of changes at this time. If it does not, for example because the connection
    /// was cut, look often.
    pub fn is_live(&self) -> bool {
        self.told.borrow().is_live
    }

    /// Waits until the number of changes is another one than this.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # rt.block_on(async {
    /// use tidelock::{Name, backend::Follows};
    ///
    /// let (follows, name) = (Follows::new(), Name::new("orders/42")?);
    /// let follow = follows.follow(&name).expect("not too many");
    /// let before = follow.changes();
    /// // Look at the lock here. If the store tells of a change, look again:
    /// follows.changed(&name);
    /// follow.changed_since(before).await;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Safe to cancel: no change is missed.
    pub async fn changed_since(&self, changes: u64) {
        let mut told = self.told.clone();
        if told.wait_for(|told| told.changes != changes).await.is_err() {
            // The store is gone. Its followers ask, and are told why it does not answer.
            std::future::pending().await
        }
    }
}

impl Clone for Follow {
    fn clone(&self) -> Self {
        if let Some(followed) = self.names.lock().get_mut(&self.name) {
            followed.followers += 1;
        }
        Self { told: self.told.clone(), name: self.name.clone(), names: Arc::clone(&self.names) }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let mut names = self.names.lock();
        let Some(followed) = names.get_mut(&self.name) else { return };
        followed.followers -= 1;
        if followed.followers == 0 {
            names.remove(&self.name);
            self.names.count.store(names.len(), Ordering::Release);
            drop(names);
            self.names.altered.notify_one();
        }
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("name", &self.name).field("told", &*self.told.borrow()).finish()
    }
}

#[derive(Debug)]
struct Followed {
    told: watch::Sender<Told>,
    followers: usize,
}

#[derive(Debug, Default)]
struct Names {
    names: Mutex<HashMap<Name, Followed>>,
    /// How many there are, for those who only need to know that there are none.
    count: AtomicUsize,
    altered: Notify,
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Followed>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names that are followed, as a backend keeps them.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::{Name, backend::Follows};
///
/// let follows = Follows::new();
/// let name = Name::new("orders/42")?;
/// let follow = follows.follow(&name).expect("not too many");
///
/// // The task that listens to the store begins to follow what is new …
/// follows.altered().await;
/// for (name, is_live) in follows.names() {
///     if !is_live {
///         follows.live(&name);
///     }
/// }
/// assert!(follow.is_live());
///
/// // … tells of changes …
/// let before = follow.changes();
/// follows.changed(&name);
/// follow.changed_since(before).await;
///
/// // … and says when it cannot: of one name, or because the connection was lost.
/// follows.cut(&name);
/// follows.cut_all();
/// assert!(!follow.is_live());
///
/// drop(follow);
/// assert!(follows.is_empty());
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Follows(Arc<Names>);

impl Follows {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows a name. It is not live before the backend says so; returns `None` if too many names are followed.
    pub fn follow(&self, name: &Name) -> Option<Follow> {
        let mut names = self.0.lock();
        if names.len() >= MOST && !names.contains_key(name) {
            return None;
        }
        let followed = names
            .entry(name.clone())
            .or_insert_with(|| Followed { told: watch::Sender::new(Told::default()), followers: 0 });
        followed.followers += 1;
        let told = followed.told.subscribe();
        self.0.count.store(names.len(), Ordering::Release);
        drop(names);
        self.0.altered.notify_one();
        Some(Follow { told, name: name.clone(), names: Arc::clone(&self.0) })
    }

    /// Returns whether no name is followed. Takes no lock.
    pub fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Acquire) == 0
    }

    /// Returns the names that are followed, each with whether it is live.
    pub fn names(&self) -> Vec<(Name, bool)> {
        self.0.lock().iter().map(|(name, followed)| (name.clone(), followed.told.borrow().is_live)).collect()
    }

    /// Waits until names were added or removed. For one caller, which reads [`names`](Self::names) then.
    ///
    /// # Cancel safety
    /// Safe to cancel: an alteration that was not returned is returned by the next call.
    pub async fn altered(&self) {
        self.0.altered.notified().await;
    }

    /// Tells followers that the holders of a name may have changed.
    pub fn changed(&self, name: &Name) {
        if self.is_empty() {
            return;
        }
        if let Some(followed) = self.0.lock().get(name) {
            followed.told.send_modify(|told| told.changes += 1);
        }
    }

    /// Tells followers that from now on each change is told. What came before was perhaps not, so they look.
    pub fn live(&self, name: &Name) {
        if let Some(followed) = self.0.lock().get(name) {
            followed.told.send_modify(|told| *told = Told { changes: told.changes + 1, is_live: true });
        }
    }

    /// Tells followers of a name that changes are not told for now, so they look, and often.
    pub fn cut(&self, name: &Name) {
        if let Some(followed) = self.0.lock().get(name) {
            cut(followed);
        }
    }

    /// Tells the followers of all names that changes are not told for now.
    pub fn cut_all(&self) {
        if !self.is_empty() {
            self.0.lock().values().for_each(cut);
        }
    }
}

fn cut(followed: &Followed) {
    followed.told.send_if_modified(|told| {
        let was_live = told.is_live;
        if was_live {
            *told = Told { changes: told.changes + 1, is_live: false };
        }
        was_live
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[tokio::test]
    async fn a_change_wakes_all_followers_of_its_name_and_no_others() {
        let follows = Follows::new();
        let [one, other] = [name("a"), name("b")].map(|name| follows.follow(&name).unwrap());
        let again = one.clone();
        follows.changed(&name("a"));
        one.changed_since(0).await;
        again.changed_since(0).await;
        assert_eq!((one.changes(), other.changes()), (1, 0));
    }

    #[test]
    fn the_last_follower_that_is_dropped_leaves_nothing_behind() {
        let follows = Follows::new();
        let first = follows.follow(&name("a")).unwrap();
        let second = first.clone();
        drop(first);
        assert!(!follows.is_empty());
        drop(second);
        assert!(follows.is_empty() && follows.names().is_empty());
    }

    #[test]
    fn a_name_is_live_from_when_the_store_says_so_until_it_is_cut() {
        let follows = Follows::new();
        let follow = follows.follow(&name("a")).unwrap();
        assert!(!follow.is_live());
        follows.live(&name("a"));
        assert_eq!((follow.is_live(), follow.changes()), (true, 1));
        follows.cut_all();
        assert_eq!(
            (follow.is_live(), follow.changes()),
            (false, 2),
            "what is missed from now on is looked for"
        );
        follows.cut(&name("a"));
        assert_eq!(follow.changes(), 2, "it was cut already");
    }

    #[test]
    fn names_beyond_the_most_are_not_followed() {
        let follows = Follows::new();
        let kept: Vec<_> = (0..MOST).map(|n| follows.follow(&name(&n.to_string())).unwrap()).collect();
        assert!(follows.follow(&name("one more")).is_none());
        assert!(follows.follow(&name("7")).is_some(), "it is followed already");
        drop(kept);
        assert!(follows.follow(&name("one more")).is_some());
    }
}
