//! The deployments that are tortured: their servers, and what can happen to them.

use std::sync::atomic::{AtomicUsize, Ordering};

use test_servers::{Error, Etcd, MariaDb, Postgres, Redis, Server, Zookeeper};

use crate::many::{EtcdOfThree, RedisCluster, Sentinels, StandbyPair, ZookeeperOfThree};

/// A deployment.
pub(crate) trait Stand: Send + Sync {
    fn url(&self) -> String;

    /// What can happen to its servers.
    fn faults(&self) -> Vec<&'static str>;

    /// Whether GUARANTEES.md promises that nothing overlaps, whatever happens here.
    fn excludes(&self) -> bool {
        true
    }

    /// Lets a fault begin.
    fn cause(&self, fault: &str) -> Result<(), Error>;

    /// Ends it.
    fn heal(&self, fault: &str) -> Result<(), Error>;
}

type Open = fn(ttl_ms: u64) -> Result<Box<dyn Stand>, Error>;

/// All deployments by name, the riskiest first.
pub(crate) const STANDS: [(&str, Open); 12] = [
    ("redis", |_| Ok(Box::new(Single::start(Redis::new().patient().durable().own_clock().start()?, REDIS)))),
    ("etcd", |_| Ok(Box::new(Single::start(Etcd::new().durable().start()?, ETCD)))),
    ("postgres", |_| Ok(Box::new(Single::start(Postgres::new().durable().start()?, POSTGRES)))),
    ("file", |_| Ok(Box::new(Folder(tempfile::tempdir().map_err(|error| Error::new(error.to_string()))?)))),
    ("redlock", |ttl_ms| Ok(Box::new(Redlock::start(ttl_ms)?))),
    ("mysql", |_| Ok(Box::new(Single::start(MariaDb::new().durable().start()?, MARIADB)))),
    ("zookeeper", |_| {
        Ok(Box::new(Single::start(Zookeeper::new().durable().start()?, &["crash", "restart", "pause"])))
    }),
    ("etcd-3", |_| Ok(Box::new(EtcdOfThree(Etcd::new().durable().start_cluster()?)))),
    ("zookeeper-3", |_| Ok(Box::new(ZookeeperOfThree(Zookeeper::new().durable().start_ensemble()?)))),
    ("redis-sentinel", |_| Ok(Box::new(Sentinels(Redis::new().append_only().start_sentinel()?)))),
    ("redis-cluster", |_| Ok(Box::new(RedisCluster::new(Redis::new().append_only().start_cluster()?)))),
    ("postgres-standby", |_| Ok(Box::new(StandbyPair::start()?))),
];

/// Files: nothing fails but clients.
struct Folder(tempfile::TempDir);

impl Stand for Folder {
    fn url(&self) -> String {
        format!("file:{}", self.0.path().display())
    }

    fn faults(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn cause(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn heal(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
}

const REDIS: &[&str] = &[
    "crash",
    "restart",
    "pause",
    "kill-sessions",
    "kill-listeners",
    "forget-scripts",
    "out-of-memory",
    "rewrite-log",
    "clock-back",
    "no-connections",
];
const ETCD: &[&str] = &["crash", "restart", "pause", "compact", "defragment"];
const POSTGRES: &[&str] = &["crash", "restart", "pause", "kill-sessions", "vacuum"];
const MARIADB: &[&str] = &["crash", "restart", "pause", "kill-sessions"];

/// One server that keeps what it confirmed.
struct Single {
    server: Server,
    faults: &'static [&'static str],
    /// By how many seconds its clock was set back so far.
    behind: AtomicUsize,
}

impl Single {
    fn start(server: Server, faults: &'static [&'static str]) -> Self {
        Self { server, faults, behind: AtomicUsize::new(0) }
    }
}

impl Stand for Single {
    fn url(&self) -> String {
        self.server.url().to_owned()
    }

    fn faults(&self) -> Vec<&'static str> {
        self.faults.to_vec()
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        let server = &self.server;
        match (server.store(), fault) {
            // Back before leases end: what it lost matters most then.
            (_, "crash") => server.restart(),
            (_, "restart") => server.kill(),
            (_, "pause") => server.pause(),
            // Further back each time: to set it right again would be a step forward, which frees locks early.
            (_, "clock-back") => {
                let behind = self.behind.fetch_add(5, Ordering::Relaxed) + 5;
                server.set_clock_ahead(-i64::try_from(behind).unwrap_or(i64::MAX))
            }
            _ => trouble(server, fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "restart" => self.server.restart(),
            "pause" => self.server.resume(),
            "out-of-memory" => self.server.ask(&["CONFIG", "SET", "maxmemory", "0"]).map(drop),
            "no-connections" => self.server.ask(&["CONFIG", "SET", "maxclients", "10000"]).map(drop),
            _ => Ok(()),
        }
    }
}

/// What an administrator does to a server that goes on.
pub(crate) fn trouble(server: &Server, fault: &str) -> Result<(), Error> {
    let ask = |args: &[&str]| server.ask(args).map(drop);
    match (server.store(), fault) {
        ("redis", "kill-sessions") => ask(&["CLIENT", "KILL", "TYPE", "normal"]),
        ("redis", "kill-listeners") => ask(&["CLIENT", "KILL", "TYPE", "pubsub"]),
        ("redis", "forget-scripts") => ask(&["SCRIPT", "FLUSH"]),
        ("redis", "out-of-memory") => ask(&["CONFIG", "SET", "maxmemory", "1"]),
        ("redis", "rewrite-log") => ask(&["BGREWRITEAOF"]),
        // Those who are connected stay; two, so that the fault can be healed.
        ("redis", "no-connections") => {
            ask(&["CONFIG", "SET", "maxclients", "2"])?;
            ask(&["CLIENT", "KILL", "TYPE", "normal"])
        }
        ("etcd", "compact") => {
            let status = server.ask(&["endpoint", "status", "-w", "fields"])?;
            let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" :"));
            ask(&["compact", revision.unwrap_or_default().trim()])
        }
        ("etcd", "defragment") => ask(&["defrag"]),
        ("postgres", "kill-sessions") => ask(&[
            "-c",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        ]),
        ("postgres", "vacuum") => ask(&["-c", "VACUUM FULL"]),
        ("mariadb", "kill-sessions") => {
            let sessions = server.ask(&[
                "-e",
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Daemon'",
            ])?;
            for session in sessions.split_whitespace() {
                // One may have ended meanwhile.
                let _ = server.ask(&["-e", &format!("KILL {session}")]);
            }
            Ok(())
        }
        (store, fault) => Err(Error::new(format!("{store} knows no fault {fault:?}"))),
    }
}

/// Five servers without a disk: what they held is gone after a restart.
struct Redlock {
    servers: Vec<Server>,
    ttl_ms: u64,
    next: AtomicUsize,
    /// Those that the last fault hit.
    hit: std::sync::Mutex<Vec<usize>>,
}

impl Redlock {
    fn start(ttl_ms: u64) -> Result<Self, Error> {
        let servers = (0..5).map(|_| Redis::new().start()).collect::<Result<_, _>>()?;
        Ok(Self { servers, ttl_ms, next: AtomicUsize::new(0), hit: std::sync::Mutex::default() })
    }

    fn hit(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.hit.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Stand for Redlock {
    fn url(&self) -> String {
        let hosts: Vec<_> = self.servers.iter().map(|server| server.addr().to_string()).collect();
        format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), self.ttl_ms)
    }

    fn faults(&self) -> Vec<&'static str> {
        vec![
            "restart-one",
            "restart-two",
            "restart-three",
            "pause-one",
            "pause-two",
            "pause-three",
            "kill-sessions",
        ]
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        let count = match fault.rsplit('-').next() {
            Some("one") => 1,
            Some("two") => 2,
            _ => 3,
        };
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let hit: Vec<_> = (first..first + count).map(|server| server % self.servers.len()).collect();
        for server in hit.iter().map(|server| &self.servers[*server]) {
            match fault.split('-').next() {
                Some("restart") => server.kill()?,
                Some("pause") => server.pause()?,
                _ => trouble(server, fault)?,
            }
        }
        *self.hit() = hit;
        Ok(())
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        for server in std::mem::take(&mut *self.hit()).into_iter().map(|server| &self.servers[server]) {
            match fault.split('-').next() {
                Some("restart") => server.restart()?,
                Some("pause") => server.resume()?,
                _ => {}
            }
        }
        Ok(())
    }
}
