//! Several locks at once, without deadlock.

use std::{sync::Arc, time::Duration};

use crate::{
    backend::Share,
    engine::Engine,
    error::{Error, Result},
    guard::Guard,
    handle::Handle,
    name::Name,
    options::{Options, option_methods},
};

/// Several names to be held together.
///
/// They are taken one after the other in the order of their bytes, whatever order they were named
/// in. Everybody who does so takes them in the same order, so nobody waits in a circle.
#[derive(Clone, Debug)]
pub struct Multi {
    pub(crate) common: Common,
}

#[derive(Clone, Debug)]
pub(crate) struct Common {
    engine: Arc<Engine>,
    names: Result<Vec<Name>, Error>,
    pub(crate) options: Options,
}

impl Multi {
    option_methods!(common);

    pub(crate) fn new(engine: &Arc<Engine>, names: Vec<String>, label: Arc<str>) -> Self {
        let mut names = names.iter().map(|name| Name::new(name)).collect::<Result<Vec<_>, _>>();
        if let Ok(names) = &mut names {
            names.sort();
            names.dedup();
        }
        if names.as_ref().is_ok_and(Vec::is_empty) {
            names = Err(Error::invalid_name("several locks at once need at least one name"));
        }
        Self { common: Common { engine: Arc::clone(engine), names, options: Options::new(label) } }
    }

    /// Waits until all are held.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock). What was taken before the error is given back.
    ///
    /// # Cancel safety
    /// Dropped at any await, it gives back what it took and leaves its place.
    pub async fn lock(&self) -> Result<Guards> {
        let handles = self.handles()?;
        let clock = self.common.engine.clock();
        let until = self.common.options.wait.map(|limit| clock.now() + limit);
        let mut guards = Vec::with_capacity(handles.len());
        for mut handle in handles {
            handle.options.wait = until.map(|until| until.since(clock.now()));
            guards.push(handle.lock(Share::Exclusive).await?);
        }
        Ok(Guards(guards))
    }

    /// Takes all if all are free: `None`, and nothing taken, if not.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), but never timed out.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<Guards>> {
        self.try_lock_for(Duration::ZERO).await
    }

    /// Waits at most so long for all of them together: `None`, and nothing taken, if it was not enough.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), but never timed out.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Guards>> {
        let clock = self.common.engine.clock();
        let until = clock.now() + limit;
        let mut guards = Vec::new();
        for handle in self.handles()? {
            match handle.try_lock_for(Share::Exclusive, until.since(clock.now())).await? {
                Some(guard) => guards.push(guard),
                None => return Ok(None),
            }
        }
        Ok(Some(Guards(guards)))
    }

    fn handles(&self) -> Result<Vec<Handle>> {
        let Common { engine, names, options } = &self.common;
        let names = names.as_ref().map_err(Clone::clone)?;
        let handle = |name: &Name| Handle {
            engine: Arc::clone(engine),
            name: Ok(name.clone()),
            options: options.clone(),
        };
        Ok(names.iter().map(handle).collect())
    }
}

/// Several locks that are held together. Dropping it gives all of them back.
#[must_use = "guards that are dropped at once protect nothing"]
#[derive(Debug)]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// Each of them, in the order of their names.
    pub fn iter(&self) -> std::slice::Iter<'_, Guard> {
        self.0.iter()
    }

    /// Whether all are held now.
    pub fn is_held(&self) -> bool {
        self.0.iter().all(|guard| guard.is_held())
    }

    /// Resolves with the reason when the first of them is lost.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future; it may be made again.
    pub async fn lost(&self) -> Error {
        let mut losses: Vec<_> = self.0.iter().map(|guard| Box::pin(guard.lost())).collect();
        std::future::poll_fn(|context| {
            for loss in &mut losses {
                if let std::task::Poll::Ready(why) = loss.as_mut().poll(context) {
                    return std::task::Poll::Ready(why);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Gives all of them back, the last one taken first.
    ///
    /// # Errors
    /// The first error of any of them; the others are given back all the same.
    ///
    /// # Cancel safety
    /// All are given back even if the future is dropped.
    pub async fn release(mut self) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(guard) = self.0.pop() {
            let released = guard.release().await;
            outcome = outcome.and(released);
        }
        outcome
    }
}

impl<'a> IntoIterator for &'a Guards {
    type Item = &'a Guard;
    type IntoIter = std::slice::Iter<'a, Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
