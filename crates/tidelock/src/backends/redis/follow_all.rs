//! All names, followed: servers tell of every key with the prefix of locks, by `CLIENT TRACKING … BCAST`.
//!
//! Evictions are told on a channel with their reasons, except in a cluster.
//!
//! A server gathers what it tells while it runs commands and sends it between them, each key once, so a name that is
//! taken and released all the time costs little more than one that is not. It is heard on connections of their own,
//! which are open while somebody follows and read now and then: a server takes much longer to wake a reader than to
//! write.

use std::{convert::Infallible, sync::Arc, time::Duration};

use redis::{
    PushInfo, PushKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::Notify;

use super::{codec, codec::text, errors::classify_connecting, link::Server, store::RedisStore};
use crate::backend::{Failure, FailureKind, News, TellAll, What};

/// After how long it is tried again, and if it is not allowed.
const AGAIN: Duration = Duration::from_secs(1);
const DENIED: Duration = Duration::from_secs(60);

/// How often it is made sure that servers that tell nothing are there, and that no others have locks.
const ASKED: Duration = Duration::from_secs(10);

/// A server that tells of its changes, until it is dropped.
struct Line {
    server: Arc<Server>,
    connection: MultiplexedConnection,
}

impl RedisStore {
    /// Listens to all servers, again whenever one of them is gone or another one has locks.
    pub(super) async fn hear_all(self: Arc<Self>, told: TellAll) -> Infallible {
        loop {
            let cut = Arc::new(Notify::new());
            let pause = match self.listen_to_all(&told, &cut).await {
                Ok(lines) => {
                    told.live();
                    tokio::select! {
                        () = cut.notified() => {}
                        () = self.until_others(lines) => {}
                    }
                    AGAIN
                }
                Err(failure) if failure.kind == FailureKind::Denied => DENIED,
                Err(_) => AGAIN,
            };
            told.cut();
            tokio::time::sleep(pause).await;
        }
    }

    async fn listen_to_all(
        self: &Arc<Self>,
        told: &TellAll,
        cut: &Arc<Notify>,
    ) -> Result<Vec<Line>, Failure> {
        let servers = self.link.all_now().await?;
        let mut lines = Vec::with_capacity(servers.len());
        for server in servers {
            let connection = self.listen_to(&server, told, cut).await?;
            lines.push(Line { server, connection });
        }
        Ok(lines)
    }

    /// Resolves when one of the servers does not answer any more, or when others have locks.
    async fn until_others(&self, mut lines: Vec<Line>) {
        loop {
            tokio::time::sleep(ASKED).await;
            for line in &mut lines {
                // A refusal is an answer.
                if let Err(error) = line.connection.req_packed_command(&redis::cmd("PING")).await
                    && (error.is_io_error() || error.is_timeout() || error.is_connection_dropped())
                {
                    return;
                }
            }
            // If nobody says who has them, those who had them are listened to.
            let Ok(servers) = self.link.all_now().await else { continue };
            let is_heard = |server: &Arc<Server>| lines.iter().any(|line| Arc::ptr_eq(&line.server, server));
            if servers.len() != lines.len() || !servers.iter().all(is_heard) {
                return;
            }
        }
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
            (PushKind::Message, _) => {
                let Some(Value::BulkString(message)) = push.data.get(1) else { return };
                if let Some(News { id, what: What::Evicted(reason), .. }) = codec::news(&space, message) {
                    tell.evicted(id, reason);
                }
            }
            // All keys were deleted, or the connection is gone: what was told before is void.
            (PushKind::Invalidate | PushKind::Disconnection, _) => cut.notify_one(),
            _ => {}
        };
        let mut line = server.lazy_connection(hear).await?;
        if !self.common.sharded {
            let mut command = redis::cmd("SUBSCRIBE");
            command.arg(self.common.space.evictions());
            // Without the right to, evictions are not told.
            let answer = line.req_packed_command(&command).await.and_then(Value::extract_error);
            if answer.is_ok() {
                told.tells_evictions();
            }
        }
        let mut command = redis::cmd("CLIENT");
        command.arg("TRACKING").arg("ON").arg("BCAST").arg("PREFIX").arg(self.common.space.beginning());
        let answer = line.req_packed_command(&command).await.and_then(Value::extract_error);
        answer.map_err(|error| classify_connecting(&error))?;
        Ok(line)
    }
}
