//! The deployments that are tortured: their servers, and what can happen to them.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use test_servers::{Disk, Error, Etcd, MariaDb, Postgres, Proxy, Redis, Server, Zookeeper};

use crate::{
    administrator::{USER, relieve, trouble},
    folder::Folder,
    many::{EtcdOfThree, RedisCluster, Sentinels, ZookeeperOfThree},
    pairs::{ReplicaPair, StandbyPair},
    redlock::Redlock,
};

/// A deployment.
pub(crate) trait Stand: Send + Sync {
    fn url(&self) -> String;

    /// What can happen to its servers.
    fn faults(&self) -> Vec<&'static str>;

    /// The longest ttl of a lock, in milliseconds, if the deployment minds.
    fn long_ttl_ms(&self) -> Option<u64> {
        None
    }

    /// Whether a client says the same on every connection, so that a copy of one makes sense.
    fn doubles(&self) -> bool {
        false
    }

    /// Whether GUARANTEES.md promises that nothing overlaps, whatever happens here.
    fn excludes(&self) -> bool {
        true
    }

    /// The servers whose entries together are what the store keeps.
    fn keepers(&self) -> Vec<&Server>;

    /// Lets a fault begin.
    fn cause(&self, fault: &str) -> Result<(), Error>;

    /// Ends it.
    fn heal(&self, fault: &str) -> Result<(), Error>;
}

type Open = fn(ttl_ms: u64) -> Result<Box<dyn Stand>, Error>;

/// All deployments by name, the riskiest first.
///
/// Processes are killed here, never the machine, and what the kernel has survives them. So servers that spend most of
/// their time waiting for a disk do not: a run has many times as many requests.
pub(crate) const STANDS: [(&str, Open); 22] = [
    ("redis", |_| {
        let (user, password) = USER;
        let redis =
            Redis::new().patient().durable().own_clock().own_disk().user(user, password, "~* &* +@all");
        Ok(Box::new(Single::start(redis.start()?, REDIS).with_user()?))
    }),
    ("redis-lossy", |_| {
        let server = Redis::new().patient().append_only().own_clock().start()?;
        Ok(Box::new(Single::start(server, REDIS_LOSSY).forgetful()))
    }),
    ("etcd", |_| Ok(Box::new(Single::start(Etcd::new().start()?, ETCD)))),
    ("postgres", |_| {
        Ok(Box::new(Single::start(lazy_postgres().own_clock_and_disk().start()?, POSTGRES).with_user()?))
    }),
    ("file", |_| Ok(Box::new(Folder::new()?))),
    ("redlock", |ttl_ms| Ok(Box::new(Redlock::start(ttl_ms)?))),
    ("mysql", |_| {
        let server = MariaDb::new().durable().own_clock_and_disk().start()?;
        Ok(Box::new(Single::start(server, MARIADB).with_user()?))
    }),
    ("zookeeper", |_| Ok(Box::new(Single::start(Zookeeper::new().durable().own_disk().start()?, ZOOKEEPER)))),
    ("etcd-3", |_| Ok(Box::new(EtcdOfThree::new(Etcd::new().start_divisible()?)?))),
    ("zookeeper-3", |_| Ok(Box::new(ZookeeperOfThree(Zookeeper::new().start_ensemble()?)))),
    ("redis-sentinel", |_| Ok(Box::new(Sentinels(Redis::new().append_only().start_sentinel()?)))),
    ("redis-cluster", |_| Ok(Box::new(RedisCluster::new(Redis::new().append_only().start_cluster()?)))),
    ("etcd-lossy", |_| Ok(Box::new(Single::start(Etcd::new().start()?, LOSSY).forgetful()))),
    ("zookeeper-lossy", |_| Ok(Box::new(Single::start(Zookeeper::new().start()?, LOSSY).forgetful()))),
    ("mysql-lossy", |ttl_ms| {
        // The kernel would write for it while it stands still and its files are copied.
        let server = MariaDb::new().option("--innodb-use-native-aio=0").start()?;
        Ok(Box::new(Single::start(server, LOSSY).with_longest_ttl(ttl_ms)))
    }),
    ("redis-tls", |_| {
        Ok(Box::new(Single::start(Redis::new().patient().durable().tls().start()?, TLS).with_tls()?))
    }),
    ("etcd-tls", |_| Ok(Box::new(Single::start(Etcd::new().tls().start()?, TLS).with_tls()?))),
    ("postgres-tls", |_| Ok(Box::new(Single::start(lazy_postgres().tls().start()?, TLS).with_tls()?))),
    ("mysql-tls", |_| Ok(Box::new(Single::start(MariaDb::new().durable().tls().start()?, TLS).with_tls()?))),
    ("zookeeper-tls", |_| {
        Ok(Box::new(Single::start(Zookeeper::new().durable().tls().start()?, TLS).with_tls()?))
    }),
    ("postgres-standby", |_| Ok(Box::new(StandbyPair::start()?))),
    ("mysql-replica", |_| Ok(Box::new(ReplicaPair::start()?))),
];

/// By how many millionths a clock may be fast or slow: with one that is as wrong the other way, they differ by less than
/// the 1 % that GUARANTEES.md allows.
const RATE: i64 = 4_900;

/// By how many seconds a clock jumps.
const STEP: i64 = 5;

/// How much of a log is lost with its machine.
const LOST: Duration = Duration::from_millis(700);

/// A server that keeps commits which need not be flushed in memory for as long as it may: a crash loses them.
pub(crate) fn lazy_postgres() -> Postgres {
    Postgres::new().durable().setting("wal_writer_delay=2s").setting("wal_writer_flush_after=1GB")
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
    "clock-fast",
    "clock-slow",
    "no-connections",
    "save",
    "pause-clients",
    "refuse-writes",
    "password",
    "slow-disk",
    "full-disk",
    "failing-disk",
];
/// Of all servers that speak TLS.
const TLS: &[&str] = &["crash", "restart", "pause", "certificate", "changed-bytes"];
/// Of all servers that flush nothing, as they are set up here. What they are here for comes more often.
const LOSSY: &[&str] = &["lost-fsync", "lost-fsync", "lost-fsync", "restart", "pause"];
const REDIS_LOSSY: &[&str] =
    &["lost-fsync", "clock-ahead", "restart", "pause", "kill-sessions", "kill-listeners"];
const ETCD: &[&str] = &["crash", "restart", "pause", "compact", "defragment"];
/// A crash comes twice: it is what loses commits that were not flushed.
const POSTGRES: &[&str] = &[
    "crash",
    "crash",
    "restart",
    "pause",
    "kill-sessions",
    "kill-listeners",
    "kill-backend",
    "vacuum",
    "checkpoint",
    "clock-back",
    "clock-fast",
    "clock-slow",
    "password",
    "no-connections",
    "slow-disk",
    "full-disk",
    "failing-disk",
];
const MARIADB: &[&str] = &[
    "crash",
    "restart",
    "pause",
    "kill-sessions",
    "flush",
    "clock-back",
    "clock-fast",
    "clock-slow",
    "password",
    "no-connections",
    "slow-disk",
    "full-disk",
    "failing-disk",
];
const ZOOKEEPER: &[&str] = &["crash", "restart", "pause", "slow-disk", "full-disk", "failing-disk"];

/// One server.
struct Single {
    server: Server,
    url: String,
    faults: &'static [&'static str],
    /// By how many seconds its clock was set ahead so far.
    ahead: AtomicI64,
    /// Whether GUARANTEES.md promises that nothing overlaps.
    excludes: bool,
    /// The longest ttl of a lock, in milliseconds, if clients wait for so long after its start.
    longest_ttl_ms: Option<u64>,
    /// In front of a server that speaks TLS, for all clients.
    door: Option<Proxy>,
}

impl Single {
    fn start(server: Server, faults: &'static [&'static str]) -> Self {
        Self {
            url: server.url().to_owned(),
            server,
            faults,
            ahead: AtomicI64::new(0),
            excludes: true,
            longest_ttl_ms: None,
            door: None,
        }
    }

    /// Is one that may forget what it confirmed, with nobody who waits for that.
    fn forgetful(mut self) -> Self {
        self.excludes = false;
        self
    }

    /// Is one that may forget what it confirmed, and that clients leave alone for the longest ttl after its start, which is
    /// now. Returns when they do not any more.
    fn with_longest_ttl(mut self, ttl_ms: u64) -> Self {
        // It counts in whole seconds, and clients take one off.
        std::thread::sleep(Duration::from_millis(ttl_ms + 2_000));
        self.url = format!("{}?longest_ttl_ms={ttl_ms}", self.url);
        self.longest_ttl_ms = Some(ttl_ms);
        self
    }

    /// By how many seconds its clock is ahead after another step.
    fn step_clock(&self, seconds: i64) -> i64 {
        self.ahead.fetch_add(seconds, Ordering::Relaxed) + seconds
    }

    /// Lets clients trust the server's certificate, and come through a door that changes bytes.
    fn with_tls(mut self) -> Result<Self, Error> {
        let unusual = || Error::new(format!("{} has no address and no certificate", self.url));
        let certificates = self.server.certificates().ok_or_else(unusual)?;
        // The server may have another one, without TLS.
        let place = self.url.split(['/', '@']).find_map(|part| part.parse::<SocketAddr>().ok());
        let place = place.ok_or_else(unusual)?;
        let door = Proxy::start(place)?;
        let url = self.url.replace(&place.to_string(), &door.addr().to_string());
        self.url = format!("{url}?ca={}", certificates.ca().display());
        self.door = Some(door);
        Ok(self)
    }

    /// Lets clients log in as a user of their own.
    fn with_user(mut self) -> Result<Self, Error> {
        let (user, password) = USER;
        match self.server.store() {
            "postgres" => {
                let role = format!("CREATE ROLE {user} LOGIN; GRANT CREATE ON DATABASE postgres TO {user}");
                self.server.ask(&["-c", &role])?;
                self.url = self.server.url().replace("//postgres@", &format!("//{user}@"));
            }
            // It was started with the user. The default user is there as well: without its rights a server forgets in
            // a restart what scripts wrote.
            "redis" => self.url = self.server.url_as(user, password),
            _ => {
                let user_of =
                    format!("CREATE USER {user} IDENTIFIED BY '{password}'; GRANT ALL ON *.* TO {user}");
                self.server.ask(&["-e", &user_of])?;
                self.url = self.server.url_as(user, password);
            }
        }
        Ok(self)
    }
}

impl Stand for Single {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn faults(&self) -> Vec<&'static str> {
        self.faults.to_vec()
    }

    fn long_ttl_ms(&self) -> Option<u64> {
        self.longest_ttl_ms
    }

    /// A copy has a session of its own on ZooKeeper, and can neither log in to MariaDB nor speak TLS.
    fn doubles(&self) -> bool {
        matches!(self.server.store(), "redis" | "postgres" | "etcd") && self.door.is_none()
    }

    fn excludes(&self) -> bool {
        self.excludes
    }

    /// The words that ask ZooKeeper go without TLS, and with it the other deployment of the same store is counted as well.
    fn keepers(&self) -> Vec<&Server> {
        if self.server.certificates().is_some() { Vec::new() } else { vec![&self.server] }
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        let server = &self.server;
        match fault {
            // Back before leases end: what it lost matters most then.
            "crash" => server.restart(),
            "lost-fsync" => server.lose_last_writes(LOST),
            "restart" => server.kill(),
            "pause" => server.pause(),
            // Further each time: to set it right again would be a step the other way. One ahead frees all locks early, one
            // back blocks them for longer.
            "clock-back" => server.set_clock_ahead(self.step_clock(-STEP)),
            "clock-ahead" => server.set_clock_ahead(self.step_clock(STEP)),
            "clock-fast" => server.set_clock_rate(RATE),
            "clock-slow" => server.set_clock_rate(-RATE),
            "changed-bytes" => self.door.as_ref().map(Proxy::corrupt).ok_or_else(|| Error::new("no door")),
            _ => trouble(server, fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "clock-fast" | "clock-slow" => self.server.set_clock_rate(0),
            "restart" => self.server.restart(),
            "pause" => self.server.resume(),
            "changed-bytes" => self.door.as_ref().map_or(Ok(()), Proxy::heal),
            "slow-disk" | "full-disk" | "failing-disk" => {
                self.server.set_disk(Disk::Well)?;
                // Some end when they cannot write, at once or soon, and must be started again.
                let is_running = self.server.pid().is_some() && self.server.wait_ready().is_ok();
                if is_running { Ok(()) } else { self.server.restart() }
            }
            _ => relieve(&self.server, fault),
        }
    }
}
