//! Replicas that have to confirm what is written, where the URL asks for it.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::{errors::classify, link::Server, store::RedisStore};
use crate::backend::Failure;

impl RedisStore {
    /// Where replicas have to confirm what is written: the connection on which it will be.
    pub(super) async fn connection_to(&self, key: &str) -> Option<(Arc<Server>, u64)> {
        if self.config.replicas == 0 {
            return None;
        }
        let server = self.link.server(key).await.ok()?;
        let (_, number) = server.connection().await.ok()?;
        Some((server, number))
    }

    /// Waits until as many replicas as the URL asks for have what was just written.
    /// Another connection than the one it was written on would know of nothing to wait for.
    pub(super) async fn confirmed_by_replicas(
        &self,
        key: &str,
        before: Option<(Arc<Server>, u64)>,
    ) -> Result<(), Failure> {
        if self.config.replicas == 0 {
            return Ok(());
        }
        let server = self.link.server(key).await?;
        let answer = server.ask(&self.wait_for_replicas()).await?;
        let is_same =
            |(before, number): (Arc<Server>, u64)| Arc::ptr_eq(&before, &server) && number == server.number();
        if !before.is_some_and(is_same) {
            return Err(Failure::unknown("the connection was lost before replicas confirmed the grant"));
        }
        self.enough_replicas(&answer.map_err(|error| classify(&error))?)
    }

    /// Waits until replicas have what was written on the same connection.
    pub(super) fn wait_for_replicas(&self) -> Cmd {
        let limit = self.config.replicas_timeout.as_millis();
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.config.replicas).arg(u64::try_from(limit).unwrap_or(u64::MAX).max(1));
        wait
    }

    /// Whether the answer to that says that as many have it as the URL asks for.
    pub(super) fn enough_replicas(&self, answer: &Value) -> Result<(), Failure> {
        let (wanted, limit) = (self.config.replicas, self.config.replicas_timeout);
        match answer {
            Value::Int(confirmed) if *confirmed >= i64::from(wanted) => Ok(()),
            Value::Int(confirmed) => Err(Failure::unreachable(format!(
                "only {confirmed} of {wanted} replicas confirmed the grant within {limit:?}: start more replicas or lower ?replicas= in the URL"
            ))),
            _ => Err(Failure::unknown("the answer to WAIT cannot be read")),
        }
    }
}
