//! The common part of mutex, read-write lock and semaphore: a name, options, and three ways to acquire.

use std::{fmt, time::Duration};

use crate::{
    api::guard::Guard,
    api::options::{Options, checked_name},
    backend::Share,
    engine::{Client, Patience},
    error::{Error, Result},
    model::name::Name,
};

/// A name on a store, and the options for acquiring it.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) engine: Client,
    /// An invalid name is reported when the lock is acquired, so that creating a handle cannot fail.
    pub(crate) name: Result<Name, Error>,
    pub(crate) options: Options,
}

impl Handle {
    pub(crate) fn new(engine: &Client, name: &str, options: Options) -> Self {
        let name = checked_name(name, engine.backend().abilities());
        Self { engine: engine.clone(), name, options }
    }

    /// Acquires, waiting for up to the option `wait`.
    pub(crate) async fn lock(&self, share: Share) -> Result<Guard> {
        let Some(limit) = self.options.wait else {
            let held = self.acquire(share, Patience::Forever).await?;
            return held.ok_or_else(|| unreachable!("only patience that ends says busy"));
        };
        match self.try_lock_for(share, limit).await? {
            Some(guard) => Ok(guard),
            None => Err(self.engine.timed_out(self.name()?, limit).await),
        }
    }

    /// Acquires without waiting.
    pub(crate) async fn try_lock(&self, share: Share) -> Result<Option<Guard>> {
        self.acquire(share, Patience::Try).await
    }

    /// Acquires, waiting for up to `limit`.
    pub(crate) async fn try_lock_for(&self, share: Share, limit: Duration) -> Result<Option<Guard>> {
        let patience = if limit.is_zero() { Patience::Try } else { Patience::For(limit) };
        self.acquire(share, patience).await
    }

    /// Begins the line that shows the handle to people, under the name of the type that they see.
    pub(crate) fn show<'a, 'b>(&self, kind: &str, f: &'a mut fmt::Formatter<'b>) -> fmt::DebugStruct<'a, 'b> {
        let name: &dyn fmt::Debug = match &self.name {
            Ok(name) => name,
            Err(error) => error,
        };
        let mut shown = f.debug_struct(kind);
        shown.field("name", name).field("store", &self.engine.store());
        shown
    }

    pub(crate) fn name(&self) -> Result<&Name> {
        self.name.as_ref().map_err(Clone::clone)
    }

    async fn acquire(&self, share: Share, patience: Patience) -> Result<Option<Guard>> {
        let request = self.options.request(self.name()?, share, self.engine.backend().abilities())?;
        let held = self.engine.acquire(&request, patience).await?;
        Ok(held.map(|held| Guard::new(held).kept_for(self.options.at_least)))
    }
}
