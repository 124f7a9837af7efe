//! Five servers that vote, and clients of them.

use std::{sync::Arc, time::Duration};

use test_servers::{Redis, Server};
use tidelock::{
    Locks,
    backend::{Backend, Claim, ClaimId, ClientId, Share},
    backends::{
        redis::{RedisBackend, RedisConfig},
        redlock::{RedlockBackend, RedlockConfig},
    },
};

use crate::support::{LONG, NAME, within};

/// For so long a server that was started has no vote: the longest lease that these trials use, or so.
pub(crate) const LONGEST: Duration = Duration::from_secs(2);

/// Five servers, and the URL of all of them.
pub(crate) struct Five {
    pub(crate) servers: Vec<Server>,
    pub(crate) longest: Duration,
}

impl Five {
    /// Servers that keep what they confirm: they have a vote at once, and after a restart.
    pub(crate) fn durable() -> Self {
        let servers = (0..5).map(|_| Redis::new().durable().start().unwrap()).collect();
        Self { servers, longest: 20 * LONG }
    }

    /// Servers that forget all when they end.
    pub(crate) fn forgetful() -> Self {
        let servers = (0..5).map(|_| Redis::new().start().unwrap()).collect();
        Self { servers, longest: LONGEST }
    }

    pub(crate) fn url(&self) -> String {
        self.url_of(self.servers.iter().map(|server| server.addr().to_string()))
    }

    pub(crate) fn url_of(&self, hosts: impl Iterator<Item = String>) -> String {
        let hosts: Vec<_> = hosts.collect();
        format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), self.longest.as_millis())
    }

    pub(crate) async fn connect(&self) -> Locks {
        Locks::connect(&self.url()).await.unwrap()
    }

    /// A client as the engine has it.
    pub(crate) async fn backend(&self, client: u64) -> RedlockBackend {
        let config = RedlockConfig::from_url(&self.url()).unwrap();
        RedlockBackend::connect(config, ClientId::from_u64(client)).await.unwrap()
    }

    /// A client of one of the servers alone.
    pub(crate) async fn one(&self, server: usize, client: u64) -> RedisBackend {
        let config = RedisConfig::from_url(self.servers[server].url()).unwrap();
        RedisBackend::connect(config, ClientId::from_u64(client)).await.unwrap()
    }

    /// Waits until all servers have a vote for every client: one has met them, and the longest lease is over.
    pub(crate) async fn can_vote(&self) {
        within("all servers have a vote", async {
            loop {
                let concerns = self.backend(99).await.concerns();
                let have_no_vote = |concern: &String| concern.contains("has no vote");
                if concerns.len() >= 5 && !concerns.iter().any(have_no_vote) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
}

pub(crate) fn claim(client: u64, serial: u64, ttl: Duration) -> Arc<Claim> {
    Arc::new(
        Claim::new(
            ClaimId::new(ClientId::from_u64(client), serial),
            tidelock::Name::new(NAME).unwrap(),
            Share::Exclusive,
            ttl,
        )
        .label("trial"),
    )
}
