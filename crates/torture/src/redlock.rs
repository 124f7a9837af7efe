//! Servers that vote on locks.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use test_servers::{Error, Redis, Server};

use crate::{
    administrator::{relieve, trouble},
    stand::Stand,
};

/// Five servers without a disk: what they held is gone after a restart.
pub(crate) struct Redlock {
    servers: Vec<Server>,
    ttl_ms: u64,
    next: AtomicUsize,
    /// Those that the last fault hit.
    hit: Mutex<Vec<usize>>,
}

impl Redlock {
    pub(crate) fn start(ttl_ms: u64) -> Result<Self, Error> {
        let servers = (0..5).map(|_| Redis::new().start()).collect::<Result<_, _>>()?;
        Ok(Self { servers, ttl_ms, next: AtomicUsize::new(0), hit: Mutex::default() })
    }

    fn hit(&self) -> MutexGuard<'_, Vec<usize>> {
        self.hit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stand for Redlock {
    fn url(&self) -> String {
        let hosts: Vec<_> = self.servers.iter().map(|server| server.addr().to_string()).collect();
        format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), self.ttl_ms)
    }

    fn doubles(&self) -> bool {
        true
    }

    /// A server that was restarted has no vote for the longest ttl.
    fn long_ttl_ms(&self) -> Option<u64> {
        Some(self.ttl_ms)
    }

    fn keepers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    fn faults(&self) -> Vec<&'static str> {
        vec![
            "restart-one",
            "restart-two",
            "restart-three",
            "crash-two",
            "crash-three",
            "crash-all",
            "pause-one",
            "pause-two",
            "pause-three",
            "kill-sessions",
            "kill-listeners",
            "forget-scripts",
            "pause-clients",
            "refuse-writes",
            "out-of-memory",
        ]
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        let count = match fault.rsplit('-').next() {
            Some("one") => 1,
            Some("two") => 2,
            Some("all") => self.servers.len(),
            _ => 3,
        };
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let hit: Vec<_> = (first..first + count).map(|server| server % self.servers.len()).collect();
        for server in hit.iter().map(|server| &self.servers[*server]) {
            match fault {
                "restart-one" | "restart-two" | "restart-three" => server.kill()?,
                // Back, and empty, before the leases end that they forgot: all are started before any is waited for.
                "crash-two" | "crash-three" | "crash-all" => server.relaunch()?,
                "pause-one" | "pause-two" | "pause-three" => server.pause()?,
                _ => trouble(server, fault)?,
            }
        }
        for server in hit.iter().map(|server| &self.servers[*server]).filter(|_| fault.starts_with("crash")) {
            // One whose port somebody holds for a moment did not start.
            server.wait_ready().or_else(|_| server.restart())?;
        }
        *self.hit() = hit;
        Ok(())
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        for server in std::mem::take(&mut *self.hit()).into_iter().map(|server| &self.servers[server]) {
            match fault {
                "restart-one" | "restart-two" | "restart-three" => server.restart()?,
                "pause-one" | "pause-two" | "pause-three" => server.resume()?,
                "crash-two" | "crash-three" | "crash-all" => {}
                _ => relieve(server, fault)?,
            }
        }
        Ok(())
    }
}
