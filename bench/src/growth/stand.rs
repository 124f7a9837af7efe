//! The servers of one store, of their own.

use std::{fs, path::PathBuf, time::Duration};

use test_servers::{Etcd, MariaDb, Postgres, Redis, Server, Zookeeper};
use tidelock::Locks;

use crate::contest::machine;

pub(super) const STORES: [&str; 7] = ["file", "redis", "redlock", "etcd", "zookeeper", "postgres", "mysql"];

/// The servers of a store.
pub(super) struct Stand {
    servers: Vec<Server>,
    pub(super) url: String,
    folder: Option<PathBuf>,
}

impl Stand {
    pub(super) fn start(store: &str, ttl: u64) -> Result<Self, String> {
        let one = |server: Result<Server, test_servers::Error>| {
            let server = server.map_err(|error| error.to_string())?;
            Ok(Self { url: server.url().to_owned(), servers: vec![server], folder: None })
        };
        match store {
            "file" => {
                let folder = std::env::temp_dir().join(format!("tidelock-rest-{}", std::process::id()));
                Ok(Self {
                    servers: Vec::new(),
                    url: format!("file:{}", folder.display()),
                    folder: Some(folder),
                })
            }
            "redis" => one(Redis::new().start()),
            "redlock" => {
                let servers = (0..5).map(|_| Redis::new().start()).collect::<Result<Vec<_>, _>>();
                let servers = servers.map_err(|error| error.to_string())?;
                let hosts: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
                let url = format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), ttl * 1_000);
                Ok(Self { servers, url, folder: None })
            }
            "etcd" => one(Etcd::new().start()),
            "zookeeper" => one(Zookeeper::new().start()),
            "postgres" => one(Postgres::new().setting("max_connections=600").start()),
            "mysql" => one(MariaDb::new().durable().option("--max-connections=1000").start()),
            other => Err(format!("no such store: {other}")),
        }
    }

    /// A client of its own, when the servers grant locks.
    pub(super) async fn connect(&self) -> Result<Locks, String> {
        let locks = Locks::connect(&self.url).await.map_err(|error| error.to_string())?;
        wait_for_votes(&locks).await;
        Ok(locks)
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        self.servers.iter().filter_map(Server::pid).flat_map(machine::family).collect()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // What is left in a temporary directory harms nobody.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Waits for servers that vote: they have none until they are up for the longest lease.
pub(super) async fn wait_for_votes(locks: &Locks) {
    while locks.concerns().iter().any(|concern| concern.contains("has no vote")) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
