//! The fewest commands that could do what a lock does, by the same drivers. They keep no line, give no
//! tokens and trust everybody: what they cost is what nobody can save.

pub(super) mod etcd;
pub(super) mod files;
pub(super) mod mysql;
pub(super) mod postgres;
pub(super) mod redis;
pub(super) mod zookeeper;

use std::{sync::Arc, time::Duration};

use super::library::{Failed, Lock};

/// How often a bare lock that is taken is asked for again.
const AGAIN: Duration = Duration::from_millis(1);

/// One command to take, one to give back.
pub(super) trait Commands: Send + Sync + 'static {
    /// What was taken.
    type Held: Send + 'static;

    /// Takes what is free: `None` if it is not.
    fn take(&self, name: &str) -> impl Future<Output = Result<Option<Self::Held>, Failed>> + Send;

    fn give_back(&self, name: &str, held: Self::Held) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Whether what somebody else has is free.
    fn is_free(&self, name: &str) -> impl Future<Output = Result<bool, Failed>> + Send;
}

/// A bare lock.
#[derive(Debug)]
pub(super) struct BareLock<C> {
    commands: Arc<C>,
    name: String,
}

impl<C> BareLock<C> {
    fn new(commands: &Arc<C>, name: &str) -> Self {
        Self { commands: Arc::clone(commands), name: name.to_owned() }
    }
}

impl<C: Commands> Lock for BareLock<C> {
    type Held = C::Held;

    async fn take(&mut self) -> Result<C::Held, Failed> {
        loop {
            if let Some(held) = self.commands.take(&self.name).await? {
                return Ok(held);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn give_back(&mut self, held: C::Held) -> Result<(), Failed> {
        self.commands.give_back(&self.name, held).await
    }

    async fn attempt(&mut self) -> Result<bool, Failed> {
        self.commands.is_free(&self.name).await
    }
}
