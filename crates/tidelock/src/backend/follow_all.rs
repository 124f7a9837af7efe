//! Following all names of a store: hearing which lines may have changed, for those who show them.
//!
//! As with one name, what is heard has no content: it makes a viewer look, and nothing that is safe depends on it. Names
//! are kept until they are asked for, each once, so a viewer that is slow costs a bounded amount of memory.

use std::{
    collections::HashSet,
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::model::{claim::ClaimId, name::Name};

/// The most names that are kept. If more change, the viewer is told to look at everything.
const MOST: usize = 100_000;
/// The most evictions that are kept.
const MOST_EVICTED: usize = 10_000;

/// What was heard since a viewer last asked.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ToldAll {
    /// The names whose lines may have changed.
    pub names: Vec<Name>,
    /// The claims that were evicted, with the reasons given.
    pub evicted: Vec<(ClaimId, Arc<str>)>,
    /// Whether other names may have changed, and other claims may have been evicted, too: look at everything.
    pub missed: bool,
}

#[derive(Debug, Default)]
struct State {
    names: HashSet<Name>,
    evicted: Vec<(ClaimId, Arc<str>)>,
    missed: bool,
    is_live: bool,
    tells_evictions: bool,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    told: Notify,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a [`FollowAll`] what changed, for backends.
#[derive(Clone, Debug, Default)]
pub struct TellAll(Arc<Inner>);

impl TellAll {
    /// Tells that the line of a name may have changed.
    pub fn changed(&self, name: Name) {
        let mut state = self.0.state();
        if state.names.len() >= MOST {
            state.names.clear();
            state.missed = true;
        }
        state.names.insert(name);
        self.0.told.notify_one();
    }

    /// Tells that a claim was evicted, for this reason. Its line is told as well, by [`changed`](Self::changed).
    pub fn evicted(&self, claim: ClaimId, reason: Arc<str>) {
        let mut state = self.0.state();
        if state.evicted.len() >= MOST_EVICTED {
            state.evicted.clear();
            state.missed = true;
        }
        state.evicted.push((claim, reason));
        self.0.told.notify_one();
    }

    /// Tells that every eviction is told while changes are, by whichever client: a claim that is gone without it, and
    /// whose lease had not expired, left its line itself.
    pub fn tells_evictions(&self) {
        self.0.state().tells_evictions = true;
    }

    /// Tells that each change is told from now on. What came before was perhaps not.
    pub fn live(&self) {
        self.set_live(true);
    }

    /// Tells that changes are not told for now, for example because the connection was lost.
    pub fn cut(&self) {
        self.set_live(false);
    }

    fn set_live(&self, is_live: bool) {
        let mut state = self.0.state();
        if is_live != state.is_live {
            state.is_live = is_live;
            state.missed = true;
            self.0.told.notify_one();
        }
    }
}

type Keep = Pin<Box<dyn Future<Output = Infallible> + Send>>;
type Rename = Arc<dyn Fn(&Name) -> Option<Name> + Send + Sync>;

/// All names of a store, followed: from [`Backend::follow_all`](super::Backend::follow_all).
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::{Name, backend::{ClaimId, FollowAll}};
///
/// // A backend listens to its store in a future that runs while the follower waits.
/// let name = Name::new("orders/42")?;
/// let changed = name.clone();
/// let mut all = FollowAll::new(|told| async move {
///     told.tells_evictions();
///     told.live();
///     told.evicted(ClaimId::from_u128(7), "it hangs".into());
///     told.changed(changed);
///     std::future::pending().await
/// });
/// let told = all.next().await;
/// assert!(all.is_live() && told.missed && told.names == [name]);
/// assert!(all.tells_evictions() && told.evicted == [(ClaimId::from_u128(7), "it hangs".into())]);
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
pub struct FollowAll {
    told: TellAll,
    keep: Keep,
    rename: Option<Rename>,
}

impl FollowAll {
    /// Follows by a future that listens to the store and tells what it hears. It is polled by [`next`](Self::next).
    pub fn new<F>(keep: impl FnOnce(TellAll) -> F) -> Self
    where
        F: Future<Output = Infallible> + Send + 'static,
    {
        let told = TellAll::default();
        Self { keep: Box::pin(keep(told.clone())), told, rename: None }
    }

    /// Returns whether the store tells of changes at this time.
    pub fn is_live(&self) -> bool {
        self.told.0.state().is_live
    }

    /// Returns whether the store tells of every eviction while it tells of changes.
    pub fn tells_evictions(&self) -> bool {
        self.told.0.state().tells_evictions
    }

    /// Waits until something may have changed since the last call, and returns what.
    ///
    /// # Cancel safety
    /// Safe to cancel: no change is missed.
    pub async fn next(&mut self) -> ToldAll {
        loop {
            {
                let mut state = self.told.0.state();
                if state.missed || !state.names.is_empty() || !state.evicted.is_empty() {
                    let names = std::mem::take(&mut state.names).into_iter();
                    let missed = std::mem::take(&mut state.missed);
                    let evicted = std::mem::take(&mut state.evicted);
                    let names = match &self.rename {
                        Some(rename) => names.filter_map(|name| rename(&name)).collect(),
                        None => names.collect(),
                    };
                    return ToldAll { names, evicted, missed };
                }
            }
            tokio::select! {
                never = &mut self.keep => match never {},
                () = self.told.0.told.notified() => {}
            }
        }
    }

    /// The same with other names. Those without one are left out.
    pub(crate) fn renamed(mut self, rename: impl Fn(&Name) -> Option<Name> + Send + Sync + 'static) -> Self {
        self.rename = Some(Arc::new(rename));
        self
    }
}

impl fmt::Debug for FollowAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowAll").field("is_live", &self.is_live()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn follow() -> (FollowAll, TellAll) {
        let mut kept = None;
        let all = FollowAll::new(|told| {
            kept = Some(told);
            std::future::pending()
        });
        (all, kept.unwrap())
    }

    #[tokio::test]
    async fn each_name_is_told_once_however_often_it_changed() {
        let (mut all, tell) = follow();
        (0..1_000).for_each(|_| tell.changed(name("a")));
        let told = all.next().await;
        assert_eq!((told.names, told.missed), (vec![name("a")], false));
    }

    #[tokio::test]
    async fn a_follower_is_told_when_it_may_have_missed_something() {
        let (mut all, tell) = follow();
        tell.live();
        assert!(all.next().await.missed && all.is_live());
        tell.live();
        tell.changed(name("a"));
        assert!(!all.next().await.missed, "it was live already");
        tell.cut();
        assert!(all.next().await.missed && !all.is_live());
        (0..=MOST).for_each(|n| tell.changed(name(&n.to_string())));
        let told = all.next().await;
        assert!(told.missed && told.names.len() <= MOST);
    }

    #[tokio::test]
    async fn evictions_are_told_with_their_reasons_within_bounds() {
        let (mut all, tell) = follow();
        tell.evicted(ClaimId::from_u128(7), "it hangs".into());
        let told = all.next().await;
        assert_eq!((told.evicted, told.missed), (vec![(ClaimId::from_u128(7), "it hangs".into())], false));
        (0..=MOST_EVICTED).for_each(|n| tell.evicted(ClaimId::from_u128(n as u128), "".into()));
        let told = all.next().await;
        assert!(told.missed && told.evicted.len() <= MOST_EVICTED);
    }

    #[tokio::test]
    async fn names_of_others_are_left_out() {
        let (all, tell) = follow();
        let mut all = all.renamed(|name| Name::new(name.as_str().strip_prefix("shop/")?).ok());
        for text in ["shop/a", "other/b"] {
            tell.changed(name(text));
        }
        assert_eq!(all.next().await.names, [name("a")]);
    }
}
