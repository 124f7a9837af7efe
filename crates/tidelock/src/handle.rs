//! What mutex, read-write lock and semaphore have in common: a name, options, and three ways to ask.

use std::{sync::Arc, time::Duration};

use crate::{
    backend::Share,
    engine::{Engine, Patience},
    error::{Error, Result},
    guard::Guard,
    name::Name,
    options::Options,
};

/// A name on a store, and how to ask for it.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// A bad name is said when the lock is asked for, so that handles can be made in passing.
    pub(crate) name: Result<Name, Error>,
    pub(crate) options: Options,
}

impl Handle {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str, label: Arc<str>) -> Self {
        Self { engine: Arc::clone(engine), name: Name::new(name), options: Options::new(label) }
    }

    /// Waits, as long as the option `wait` allows.
    pub(crate) async fn lock(&self, share: Share) -> Result<Guard> {
        let Some(limit) = self.options.wait else {
            let held = self.acquire(share, Patience::Forever).await?;
            return held.ok_or_else(|| unreachable!("only patience that ends says busy"));
        };
        match self.acquire(share, Patience::For(limit)).await? {
            Some(guard) => Ok(guard),
            None => Err(self.engine.timed_out(self.name()?, limit).await),
        }
    }

    /// Does not wait.
    pub(crate) async fn try_lock(&self, share: Share) -> Result<Option<Guard>> {
        self.acquire(share, Patience::Try).await
    }

    /// Waits for so long.
    pub(crate) async fn try_lock_for(&self, share: Share, limit: Duration) -> Result<Option<Guard>> {
        let patience = if limit.is_zero() { Patience::Try } else { Patience::For(limit) };
        self.acquire(share, patience).await
    }

    fn name(&self) -> Result<&Name> {
        self.name.as_ref().map_err(Clone::clone)
    }

    async fn acquire(&self, share: Share, patience: Patience) -> Result<Option<Guard>> {
        let request = self.options.request(self.name()?, share, self.engine.backend().abilities())?;
        Ok(self.engine.acquire(&request, patience).await?.map(Guard::new))
    }
}
