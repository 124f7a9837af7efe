//! All names, followed: servers tell of every key with the prefix of locks, by `CLIENT TRACKING … BCAST`.
//!
//! A server gathers what it tells while it runs commands and sends it between them, each key once, so a name that is
//! taken and released all the time costs little more than one that is not. It is heard on connections of their own,
//! which are open while somebody follows.

use std::{convert::Infallible, sync::Arc, time::Duration};

use redis::{
    PushInfo, PushKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::Notify;

use super::{codec::text, errors::classify_connecting, link::Server, store::RedisStore};
use crate::backend::{Failure, TellAll};

/// After how long it is tried again.
const AGAIN: Duration = Duration::from_secs(5);

impl RedisStore {
    /// Listens to all servers, again whenever one of them is gone.
    pub(super) async fn hear_all(self: Arc<Self>, told: TellAll) -> Infallible {
        loop {
            let cut = Arc::new(Notify::new());
            if let Ok(_lines) = self.listen_to_all(&told, &cut).await {
                told.live();
                cut.notified().await;
            }
            told.cut();
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Connections on which all servers tell. They are closed when they are dropped.
    async fn listen_to_all(
        self: &Arc<Self>,
        told: &TellAll,
        cut: &Arc<Notify>,
    ) -> Result<Vec<MultiplexedConnection>, Failure> {
        let servers = self.link.all().await?;
        let mut lines = Vec::with_capacity(servers.len());
        for server in &servers {
            lines.push(self.listen_to(server, told, cut).await?);
        }
        Ok(lines)
    }

    async fn listen_to(
        self: &Arc<Self>,
        server: &Server,
        told: &TellAll,
        cut: &Arc<Notify>,
    ) -> Result<MultiplexedConnection, Failure> {
        let (tell, cut, space) = (told.clone(), Arc::clone(cut), self.common.space.clone());
        let hear = move |push: PushInfo| match (push.kind, push.data.first()) {
            (PushKind::Invalidate, Some(Value::Array(keys))) => {
                keys.iter()
                    .filter_map(text)
                    .filter_map(|key| space.name(key))
                    .for_each(|name| tell.changed(name));
            }
            // All keys were deleted, or the connection is gone: what was told before is void.
            (PushKind::Invalidate | PushKind::Disconnection, _) => cut.notify_one(),
            _ => {}
        };
        let mut line = server.another_connection(hear).await?;
        let mut command = redis::cmd("CLIENT");
        command.arg("TRACKING").arg("ON").arg("BCAST").arg("PREFIX").arg(self.common.space.beginning());
        let answer = line.req_packed_command(&command).await.and_then(Value::extract_error);
        answer.map_err(|error| classify_connecting(&error))?;
        Ok(line)
    }
}
