//! Sentinels: who is the master, and hearing that it is another one.

use std::{
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value, aio::MultiplexedConnection};

use super::{
    super::{
        errors::classify_connecting,
        settings::{Host, RedisSettings},
    },
    Common, Server, at,
};
use crate::{
    backend::{Failure, FailureKind},
    backends::shared::mutex::lock,
};

/// How long one Sentinel may take to answer: there are others.
const PATIENCE: Duration = Duration::from_secs(1);

/// The channel on which Sentinels say that there is a new master.
const SWITCHED: &str = "+switch-master";

/// Sentinels, and the master they name.
#[derive(Debug)]
pub(crate) struct Sentinel {
    config: Arc<RedisSettings>,
    common: Arc<Common>,
    hosts: Vec<Host>,
    master: Arc<Master>,
    /// Connections on which a new master is announced.
    watching: tokio::sync::Mutex<Vec<(Host, MultiplexedConnection)>>,
    asking: tokio::sync::Mutex<()>,
}

/// The master as it was last named.
#[derive(Debug)]
struct Master {
    name: String,
    current: Mutex<Option<(Host, Arc<Server>)>>,
}

impl Master {
    fn current(&self) -> MutexGuard<'_, Option<(Host, Arc<Server>)>> {
        lock(&self.current)
    }

    /// It is another one: whatever was sent to the old one is in doubt.
    fn switched(&self) {
        let old = self.current().take();
        if let Some((_, server)) = old {
            server.cut_now("the Sentinels named another master");
        }
    }
}

impl Sentinel {
    pub(super) fn new(
        config: &Arc<RedisSettings>,
        common: &Arc<Common>,
        hosts: &[Host],
        master: &str,
    ) -> Self {
        Self {
            config: Arc::clone(config),
            common: Arc::clone(common),
            hosts: hosts.to_vec(),
            master: Arc::new(Master { name: master.to_owned(), current: Mutex::default() }),
            watching: tokio::sync::Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// The master, connected.
    pub(super) async fn server(&self) -> Result<Arc<Server>, Failure> {
        if let Some(server) = self.connected() {
            return Ok(server);
        }
        let _alone = self.asking.lock().await;
        if let Some(server) = self.connected() {
            return Ok(server);
        }
        let host = self.ask_for_master().await?;
        let known = self
            .master
            .current()
            .as_ref()
            .filter(|(known, _)| *known == host)
            .map(|(_, server)| Arc::clone(server));
        let server = match known {
            Some(server) => server,
            None => {
                self.master.switched();
                let client = self.config.client(&host).map_err(|error| classify_connecting(&error))?;
                Server::new(at(&host), client, &self.common)
            }
        };
        *self.master.current() = Some((host, Arc::clone(&server)));
        server.connection().await?;
        Ok(server)
    }

    /// The master as it was last named.
    pub(super) fn current(&self) -> Option<Arc<Server>> {
        self.master.current().as_ref().map(|(_, server)| Arc::clone(server))
    }

    /// The master, if it is connected and answers.
    pub(super) fn connected(&self) -> Option<Arc<Server>> {
        let current = self.master.current();
        current.as_ref().filter(|(_, server)| server.is_well()).map(|(_, server)| Arc::clone(server))
    }

    async fn ask_for_master(&self) -> Result<Host, Failure> {
        let (mut reasons, mut cause) = (Vec::new(), None);
        for host in &self.hosts {
            match tokio::time::timeout(PATIENCE, self.ask_one(host)).await {
                Ok(Ok(master)) => return Ok(master),
                Ok(Err(failure)) if failure.kind == FailureKind::Denied => return Err(failure),
                Ok(Err(failure)) => {
                    reasons.push(format!("{}: {}", at(host), failure.reason));
                    cause = cause.or(failure.cause);
                }
                Err(_) => reasons.push(format!("{}: no answer within {PATIENCE:?}", at(host))),
            }
        }
        let reason = format!("no Sentinel names the master ({})", reasons.join("; "));
        Err(Failure { cause, ..Failure::unreachable(reason) })
    }

    async fn ask_one(&self, host: &Host) -> Result<Host, Failure> {
        let failed = |error| classify_connecting(&error);
        let client = self.config.client_of_sentinel(host).map_err(failed)?;
        let mut connection = client.get_multiplexed_async_connection().await.map_err(failed)?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master.name);
        let master: Option<(String, u16)> = command.query_async(&mut connection).await.map_err(failed)?;
        master.ok_or_else(|| {
            Failure::denied(format!(
                "the Sentinel at {} watches no master {:?}: correct the name in the URL",
                at(host),
                self.master.name
            ))
        })
    }

    /// Hears of new masters, and of what the master says.
    pub(super) async fn listen(&self) -> Result<(), Failure> {
        self.watch().await;
        self.server().await.map(drop)
    }

    /// Keeps a connection to each Sentinel that can be reached. One that cannot is tried again the
    /// next time; a switch that nobody announces is noticed when the old master stops to answer.
    async fn watch(&self) {
        let mut watching = self.watching.lock().await;
        for host in &self.hosts {
            if watching.iter().any(|(watched, _)| watched == host) {
                continue;
            }
            if let Ok(Ok(connection)) = tokio::time::timeout(PATIENCE, self.watch_one(host)).await {
                watching.push((host.clone(), connection));
            }
        }
        let mut alive = Vec::new();
        for (host, mut connection) in watching.drain(..) {
            let ping = redis::cmd("PING");
            let answer = tokio::time::timeout(PATIENCE, ping.query_async::<Value>(&mut connection)).await;
            if matches!(answer, Ok(Ok(_))) {
                alive.push((host, connection));
            }
        }
        *watching = alive;
    }

    async fn watch_one(&self, host: &Host) -> Result<MultiplexedConnection, redis::RedisError> {
        let master = Arc::downgrade(&self.master);
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            hear(&master, &push);
            Ok::<(), ()>(())
        });
        let client = self.config.client_of_sentinel(host)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(SWITCHED).await?;
        Ok(connection)
    }
}

fn hear(master: &Weak<Master>, push: &PushInfo) {
    let Some(master) = master.upgrade() else { return };
    if push.kind == PushKind::Message
        && let Some(Value::BulkString(message)) = push.data.get(1)
        && message.split(|byte| *byte == b' ').next() == Some(master.name.as_bytes())
    {
        master.switched();
    }
}
