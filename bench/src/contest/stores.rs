//! The stores, the servers they are measured on, and who takes part there.

use std::{fmt::Display, fs, path::PathBuf};

use test_servers::{Etcd, MariaDb, Postgres, Redis, Server, Zookeeper};

use super::{
    Effort, machine,
    peers::{self, FEW_CONNECTIONS, ONE_LEASE, Peer},
    program::{Absent, Launch},
    progress::Progress,
    results::Kind,
    scenario::Scenario,
};
use crate::protocol::THREADS;

/// A store, and whom it is measured against.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) name: &'static str,
    /// The Debian package of its server.
    pub(super) package: Option<&'static str>,
    pub(super) start: fn(Effort) -> Result<Stand, String>,
    pub(super) peers: &'static [Peer],
    /// What people write themselves, which our own program does as well.
    by_hand: &'static [ByHand],
    /// What its bare commands are.
    pub(super) bare: &'static str,
    /// What it cannot do.
    lacks: &'static [&'static str],
}

/// The word for our own program, its name, and whether it can hold many locks.
type ByHand = (&'static str, &'static str, Result<(), &'static str>);

const MAP: ByHand = ("map", "map of tokio mutexes", Ok(()));
const POLLED_ROW: ByHand = ("polled-row", "row polled every 100 ms", ONE_LEASE);
const GET_LOCK: ByHand = ("get-lock", "GET_LOCK", FEW_CONNECTIONS);

/// All of them.
pub(super) const STORES: &[Store] = &[
    Store {
        name: "memory",
        package: None,
        start: |_| Ok(Stand::without_server("memory:", 1)),
        peers: &[],
        by_hand: &[MAP],
        bare: "tokio's mutex",
        lacks: &["work", "processes", "election", "killed", "flash-sale"],
    },
    Store {
        name: "memory-2-threads",
        package: None,
        start: |_| Ok(Stand::without_server("memory:", 2)),
        peers: &[],
        by_hand: &[MAP],
        bare: "tokio's mutex",
        lacks: &["work", "processes", "election", "killed", "flash-sale", "held", "locks"],
    },
    Store {
        name: "file",
        package: None,
        start: |_| files(),
        peers: peers::FILE,
        by_hand: &[],
        bare: "flock of an open file and a counter in it",
        lacks: &["work"],
    },
    Store {
        name: "redis",
        package: Some("redis-server"),
        start: |_| Ok(Stand::of(Redis::new().start().map_err(text)?)),
        peers: peers::REDIS,
        by_hand: &[],
        bare: "SET NX PX and a script that compares and deletes",
        lacks: &[],
    },
    Store {
        name: "redlock",
        package: Some("redis-server"),
        start: five,
        peers: peers::REDLOCK,
        by_hand: &[],
        bare: "tidelock on one of the five servers",
        lacks: &["work", "flash-sale"],
    },
    Store {
        name: "etcd",
        package: Some("etcd-server"),
        start: |_| Ok(Stand::of(Etcd::new().durable().start().map_err(text)?)),
        peers: peers::ETCD,
        by_hand: &[],
        bare: "a put and a delete",
        lacks: &["flash-sale"],
    },
    Store {
        name: "zookeeper",
        package: Some("zookeeper"),
        start: |_| Ok(Stand::of(Zookeeper::new().durable().start().map_err(text)?)),
        peers: peers::ZOOKEEPER,
        by_hand: &[],
        bare: "an ephemeral node made and deleted",
        lacks: &["flash-sale"],
    },
    Store {
        name: "postgres",
        package: Some("postgresql"),
        start: |_| Ok(Stand::of(Postgres::new().durable().start().map_err(text)?)),
        peers: peers::POSTGRES,
        by_hand: &[POLLED_ROW],
        bare: "two calls that each change one row, committed asynchronously",
        lacks: &[],
    },
    Store {
        name: "mysql",
        package: Some("mariadb-server"),
        start: |_| Ok(Stand::of(MariaDb::new().durable().start().map_err(text)?)),
        peers: peers::MYSQL,
        by_hand: &[POLLED_ROW, GET_LOCK],
        bare: "two committed updates of one row",
        lacks: &[],
    },
];

fn text(error: impl Display) -> String {
    error.to_string()
}

/// The servers of a contest.
#[derive(Debug)]
pub(super) struct Stand {
    servers: Vec<Server>,
    folder: Option<PathBuf>,
    url: String,
    /// As peers are told.
    addresses: String,
    /// Where the bare commands go.
    bare: String,
    threads: u32,
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // What is left in a temporary directory harms nobody.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl Stand {
    fn without_server(url: &str, threads: u32) -> Self {
        let (url, addresses, bare) = (url.to_owned(), String::new(), url.to_owned());
        Self { servers: Vec::new(), folder: None, url, addresses, bare, threads }
    }

    fn of(server: Server) -> Self {
        let (url, addresses) = (server.url().to_owned(), server.addr().to_string());
        Self { bare: url.clone(), servers: vec![server], folder: None, url, addresses, threads: 1 }
    }

    /// Whether server and client can be kept on a core each without being something else.
    pub(super) fn can_be_placed(&self) -> bool {
        self.servers.len() <= 1 && self.threads == 1
    }

    /// The processes of the servers.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.servers.iter().filter_map(Server::pid).flat_map(machine::family).collect()
    }
}

fn files() -> Result<Stand, String> {
    let folder = std::env::temp_dir().join(format!("tidelock-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(text)?;
    let mut stand = Stand::without_server(&format!("file:{}", folder.join("locks").display()), 1);
    // Those who do not keep order must not do so in our folder.
    stand.addresses = folder.join("others").display().to_string();
    stand.bare = format!("file:{}", stand.addresses);
    fs::create_dir_all(&stand.addresses).map_err(text)?;
    stand.folder = Some(folder);
    Ok(stand)
}

fn five(effort: Effort) -> Result<Stand, String> {
    let servers = (0..5).map(|_| Redis::new().start()).collect::<Result<Vec<_>, _>>().map_err(text)?;
    let hosts: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    let addresses = hosts.join(",");
    let longest = effort.longest_lease().as_millis();
    Ok(Stand {
        url: format!("redlock://{addresses}?longest_ttl_ms={longest}"),
        bare: servers[0].url().to_owned(),
        servers,
        folder: None,
        addresses,
        threads: 1,
    })
}

/// Somebody who takes part.
#[derive(Debug)]
pub(super) struct Contestant {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) launch: Result<Launch, Absent>,
    /// As it is told.
    pub(super) servers: String,
    /// Whether it can hold many locks for longer than a lease, or why not.
    pub(super) holds: Result<(), &'static str>,
}

impl Store {
    /// Whether it can do what a scenario needs.
    pub(super) fn has(&self, scenario: &Scenario) -> bool {
        !self.lacks.contains(&scenario.name)
    }

    /// Ours first, then the bare commands, then the others.
    pub(super) fn contestants(&self, stand: &Stand, peers: bool, progress: &Progress) -> Vec<Contestant> {
        let own = |word: &str, name: &str, kind, servers: &str, holds| Contestant {
            name: name.to_owned(),
            kind,
            launch: own_program(word, stand.threads).map_err(Absent::Because),
            servers: servers.to_owned(),
            holds,
        };
        let bare = if self.name == "redlock" { "ours" } else { "bare" };
        let mut all = vec![
            own("ours", "tidelock", Kind::Ours, &stand.url, Ok(())),
            own(bare, "bare commands", Kind::Bare, &stand.bare, Ok(())),
        ];
        let by_hand = self.by_hand.iter();
        all.extend(by_hand.map(|(word, name, holds)| own(word, name, Kind::Peer, &stand.bare, *holds)));
        for peer in self.peers.iter().filter(|_| peers) {
            all.push(Contestant {
                name: peer.name.to_owned(),
                kind: Kind::Peer,
                launch: peer.prepare(progress).map_err(|why| {
                    progress.note(&format!("{} is skipped: {why}", peer.name));
                    Absent::Because(format!("missing: {why}"))
                }),
                servers: if peer.by_url { &stand.bare } else { &stand.addresses }.clone(),
                holds: peer.holds,
            });
        }
        all
    }
}

/// Ourselves, as a contestant.
fn own_program(word: &str, threads: u32) -> Result<Launch, String> {
    let program = std::env::current_exe().map_err(|error| format!("it does not find itself: {error}"))?;
    Ok(Launch {
        folder: std::env::temp_dir(),
        words: vec![program.display().to_string(), "drive".to_owned(), word.to_owned()],
        environment: vec![(THREADS.to_owned(), threads.to_string())],
    })
}
