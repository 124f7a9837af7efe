//! The deployments that are tortured: their servers, and what can happen to them.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use test_servers::{Certificates, Disk, Error, Etcd, MariaDb, Postgres, Redis, Server, Zookeeper};

use crate::{
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
pub(crate) const STANDS: [(&str, Open); 15] = [
    ("redis", |_| {
        let (user, password) = USER;
        let redis =
            Redis::new().patient().durable().own_clock().own_disk().user(user, password, "~* &* +@all");
        Ok(Box::new(Single::start(redis.start()?, REDIS).with_user()?))
    }),
    ("redis-tls", |_| {
        let server = Redis::new().patient().durable().tls().start()?;
        Ok(Box::new(Single::start(server, REDIS_TLS).with_authority()?))
    }),
    ("redis-lossy", |_| {
        let server = Redis::new().patient().append_only().own_clock().start()?;
        Ok(Box::new(Single { excludes: false, ..Single::start(server, REDIS_LOSSY) }))
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

/// The user that clients log in as where administrators change what it may.
const USER: (&str, &str) = ("torture", "right");

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
const REDIS_TLS: &[&str] = &["crash", "restart", "pause", "kill-sessions", "kill-listeners", "certificate"];
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
    /// Whether it keeps what it confirmed.
    excludes: bool,
}

impl Single {
    fn start(server: Server, faults: &'static [&'static str]) -> Self {
        Self { url: server.url().to_owned(), server, faults, ahead: AtomicI64::new(0), excludes: true }
    }

    /// By how many seconds its clock is ahead after another step.
    fn step_clock(&self, seconds: i64) -> i64 {
        self.ahead.fetch_add(seconds, Ordering::Relaxed) + seconds
    }

    /// Lets clients trust the server's certificate.
    fn with_authority(mut self) -> Result<Self, Error> {
        self.url = format!("{}?ca={}", self.server.url(), certificates(&self.server)?.ca().display());
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

    /// A copy has a session of its own on ZooKeeper, and can neither log in to MariaDB nor speak TLS.
    fn doubles(&self) -> bool {
        matches!(self.server.store(), "redis" | "postgres" | "etcd") && self.server.certificates().is_none()
    }

    fn excludes(&self) -> bool {
        self.excludes
    }

    fn keepers(&self) -> Vec<&Server> {
        vec![&self.server]
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        let server = &self.server;
        match (server.store(), fault) {
            // Back before leases end: what it lost matters most then.
            (_, "crash") => server.restart(),
            (_, "restart") => server.kill(),
            ("redis", "lost-fsync") => lose_log(server),
            (_, "pause") => server.pause(),
            // Further each time: to set it right again would be a step the other way. One ahead frees all locks early, one
            // back blocks them for longer.
            (_, "clock-back") => server.set_clock_ahead(self.step_clock(-STEP)),
            (_, "clock-ahead") => server.set_clock_ahead(self.step_clock(STEP)),
            (_, "clock-fast") => server.set_clock_rate(RATE),
            (_, "clock-slow") => server.set_clock_rate(-RATE),
            _ => trouble(server, fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "clock-fast" | "clock-slow" => self.server.set_clock_rate(0),
            "restart" => self.server.restart(),
            "pause" => self.server.resume(),
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

/// Crashes a server, and takes away what it wrote to its log in the last moments: what a machine without power forgets, if
/// nothing of that was flushed.
fn lose_log(server: &Server) -> Result<(), Error> {
    let text = |error: std::io::Error| Error::new(error.to_string());
    let folder = server.folder().join("data/appendonlydir");
    let is_log = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
    let logs = fs::read_dir(&folder).map_err(text)?.filter_map(|entry| Some(entry.ok()?.path()));
    let written = |path: &PathBuf| path.metadata().and_then(|it| it.modified()).ok();
    let log = logs.filter(is_log).max_by_key(written).ok_or_else(|| Error::new("the server has no log"))?;
    let log = File::options().write(true).open(log).map_err(text)?;
    let flushed = log.metadata().map_err(text)?.len();
    std::thread::sleep(LOST);
    server.kill()?;
    log.set_len(flushed).map_err(text)?;
    server.restart()
}

fn certificates(server: &Server) -> Result<Certificates, Error> {
    server.certificates().ok_or_else(|| Error::new("the server has no certificates"))
}

/// Lets a server show a certificate that has expired, or its right one.
fn show_certificate(server: &Server, expired: bool) -> Result<(), Error> {
    let certificate = certificates(server)?.server_cert(expired).display().to_string();
    // Through its socket: nobody who checks certificates could heal it.
    server.command(&["CONFIG", "SET", "tls-cert-file", &certificate]).map(drop)
}

/// Ends what [`trouble`] began.
pub(crate) fn relieve(server: &Server, fault: &str) -> Result<(), Error> {
    let set = |name: &str, value: &str| server.ask(&["CONFIG", "SET", name, value]).map(drop);
    match (server.store(), fault) {
        ("redis", "certificate") => show_certificate(server, false),
        ("redis", "out-of-memory") => set("maxmemory", "0"),
        ("redis", "no-connections") => set("maxclients", "10000"),
        ("redis", "refuse-writes") => set("min-replicas-to-write", "0"),
        ("redis", "pause-clients") => server.ask(&["CLIENT", "UNPAUSE"]).map(drop),
        ("redis", "password") => {
            server.ask(&["ACL", "SETUSER", USER.0, "resetpass", &format!(">{}", USER.1)]).map(drop)
        }
        ("postgres", "password") => server.ask(&["-c", &format!("ALTER ROLE {} LOGIN", USER.0)]).map(drop),
        ("postgres", "no-connections") => {
            server.ask(&["-c", &format!("ALTER ROLE {} CONNECTION LIMIT -1", USER.0)]).map(drop)
        }
        ("mariadb", "password") => {
            let (user, password) = USER;
            server.ask(&["-e", &format!("SET PASSWORD FOR {user} = PASSWORD('{password}')")]).map(drop)
        }
        ("mariadb", "no-connections") => {
            server.ask(&["-e", &format!("ALTER USER {} WITH MAX_USER_CONNECTIONS 0", USER.0)]).map(drop)
        }
        // A server that killed its backends takes a moment.
        ("postgres", "kill-backend") => server.wait_ready(),
        _ => Ok(()),
    }
}

/// What an administrator does to a server that goes on.
pub(crate) fn trouble(server: &Server, fault: &str) -> Result<(), Error> {
    let ask = |args: &[&str]| server.ask(args).map(drop);
    let user = USER.0;
    match (server.store(), fault) {
        (_, "slow-disk") => server.set_disk(Disk::Slow(Duration::from_millis(400))),
        (_, "full-disk") => server.set_disk(Disk::Full),
        (_, "failing-disk") => server.set_disk(Disk::Failing),
        // Those who are connected are let go, too: what they say next is their new password.
        ("redis", "password") => {
            ask(&["ACL", "SETUSER", user, "resetpass", ">other"])?;
            ask(&["CLIENT", "KILL", "USER", user])
        }
        // Here anybody is let in who may log in at all.
        ("postgres", "password") => {
            ask(&["-c", &format!("ALTER ROLE {user} NOLOGIN")])?;
            trouble(server, "kill-sessions")
        }
        ("postgres", "no-connections") => {
            ask(&["-c", &format!("ALTER ROLE {user} CONNECTION LIMIT 3")])?;
            trouble(server, "kill-sessions")
        }
        ("mariadb", "password") => {
            ask(&["-e", &format!("SET PASSWORD FOR {user} = PASSWORD('other')")])?;
            trouble(server, "kill-sessions")
        }
        ("mariadb", "no-connections") => {
            ask(&["-e", &format!("ALTER USER {user} WITH MAX_USER_CONNECTIONS 3")])?;
            trouble(server, "kill-sessions")
        }
        // Those who are connected have seen the right one: they come again.
        ("redis", "certificate") => {
            show_certificate(server, true)?;
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]).map(drop)
        }
        ("redis", "kill-sessions") => ask(&["CLIENT", "KILL", "TYPE", "normal"]),
        ("redis", "kill-listeners") => ask(&["CLIENT", "KILL", "TYPE", "pubsub"]),
        ("redis", "forget-scripts") => ask(&["SCRIPT", "FLUSH"]),
        ("redis", "out-of-memory") => ask(&["CONFIG", "SET", "maxmemory", "1"]),
        // One that is under way already is as good.
        ("redis", "rewrite-log") => {
            let _ = ask(&["BGREWRITEAOF"]);
            Ok(())
        }
        ("redis", "save") => {
            let _ = ask(&["BGSAVE", "SCHEDULE"]);
            Ok(())
        }
        ("redis", "pause-clients") => ask(&["CLIENT", "PAUSE", "3000", "ALL"]),
        ("redis", "refuse-writes") => ask(&["CONFIG", "SET", "min-replicas-to-write", "9"]),
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
        ("postgres", "kill-listeners") => ask(&[
            "-c",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND query ILIKE '%LISTEN%'",
        ]),
        ("postgres", "kill-backend") => {
            let pid = server.ask(&[
                "-c",
                "SELECT pid FROM pg_stat_activity \
                 WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' LIMIT 1",
            ])?;
            // As the kernel does when memory is short: the server restarts all of its sessions.
            if let Some(pid) = pid.split_whitespace().find(|word| word.parse::<u32>().is_ok()) {
                let killed = Command::new("kill").args(["-KILL", pid]).status();
                killed.map_err(|error| Error::new(error.to_string()))?;
            }
            Ok(())
        }
        ("postgres", "checkpoint") => ask(&["-c", "CHECKPOINT"]),
        ("postgres", "vacuum") => ask(&["-c", "VACUUM FULL"]),
        ("mariadb", "flush") => ask(&["-e", "FLUSH TABLES; FLUSH LOGS; FLUSH HOSTS"]),
        ("mariadb", "kill-sessions") => {
            let sessions = server.ask(&[
                "-e",
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Daemon'",
            ])?;
            let kills: Vec<_> =
                sessions.split_whitespace().map(|session| format!("KILL {session}")).collect();
            // Some may have ended meanwhile.
            let _ = server.ask(&["--force", "-e", &kills.join("; ")]);
            Ok(())
        }
        (store, fault) => Err(Error::new(format!("{store} knows no fault {fault:?}"))),
    }
}
