//! The stores that candidates meet on, and what can happen to their servers.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use test_servers::{
    Cluster, Error, Etcd, MariaDb, MariaDbPair, Postgres, Proxy, Redis, Sentinel, Server, Zookeeper,
};

use crate::{Fault, PATIENCE, relay::Relay, worker::TTL};

/// A store, and what happens to it and to those who lead on it.
pub(crate) struct Stand {
    pub(crate) url: String,
    pub(crate) faults: &'static [Fault],
    /// Whether the faults go on for as many changes as are asked for; else each of them happens once.
    pub(crate) goes_on: bool,
    /// Whether GUARANTEES promises that no two lead at once: not where a fail-over may forget a grant. Terms grow there,
    /// too.
    pub(crate) excludes: bool,
    /// Between candidates and servers.
    pub(crate) doors: Vec<Proxy>,
    servers: Servers,
}

enum Servers {
    /// Files.
    Folder(tempfile::TempDir),
    /// Each for itself. What they confirmed is kept over a restart.
    Single(Vec<Server>),
    Sentinel(Sentinel),
    Etcd(Cluster),
    Zookeeper(Cluster),
    Postgres {
        primary: Server,
        standby: Server,
    },
    MariaDb {
        pair: MariaDbPair,
        relay: Relay,
    },
}

pub(crate) type Open = fn() -> Result<Stand, Error>;

pub(crate) const STANDS: [(&str, Open); 12] = [
    ("file", || {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("file:{}", folder.path().display());
        let faults = &[Fault::Kill, Fault::Evict, Fault::Stop];
        Ok(Stand { faults, ..Stand::new(url, Servers::Folder(folder)) })
    }),
    ("redis", || Stand::behind_doors(vec![Redis::new().patient().durable().start()?])),
    ("redlock", || {
        let servers = (0..3).map(|_| Redis::new().durable().start()).collect::<Result<_, _>>()?;
        let mut stand = Stand::behind_doors(servers)?;
        let hosts: Vec<_> = stand.doors.iter().map(|door| door.addr().to_string()).collect();
        stand.url = format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), TTL.as_millis());
        Ok(stand)
    }),
    ("etcd", || Stand::behind_doors(vec![Etcd::new().durable().start()?])),
    ("zookeeper", || Stand::behind_doors(vec![Zookeeper::new().durable().start()?])),
    ("postgres", || Stand::behind_doors(vec![Postgres::new().durable().start()?])),
    ("mysql", || {
        // Not cut off: in two of five runs on a machine with many times more work than cores, nobody led for two
        // minutes while one candidate was. That is not explained.
        let faults = &[Fault::Kill, Fault::Evict, Fault::Restart, Fault::Stop];
        Ok(Stand { faults, ..Stand::behind_doors(vec![MariaDb::new().durable().start()?])? })
    }),
    ("redis_with_sentinel", || {
        let sentinel = Redis::new().start_sentinel()?;
        let stand = Stand::failing_over(sentinel.url().to_owned(), Servers::Sentinel(sentinel), TWICE);
        Ok(Stand { excludes: false, ..stand })
    }),
    ("etcd_of_three", || {
        let cluster = Etcd::new().durable().start_cluster()?;
        Ok(Stand::failing_over(cluster.url().to_owned(), Servers::Etcd(cluster), TWICE))
    }),
    ("zookeeper_of_three", || {
        let ensemble = Zookeeper::new().durable().start_ensemble()?;
        Ok(Stand::failing_over(ensemble.url().to_owned(), Servers::Zookeeper(ensemble), TWICE))
    }),
    ("postgres_with_standby", || {
        let primary = Postgres::new().durable().start()?;
        let standby = Postgres::new().durable().start_standby(&primary)?;
        let url = format!("postgres://postgres@{},{}/postgres", primary.addr(), standby.addr());
        Ok(Stand::failing_over(url, Servers::Postgres { primary, standby }, ONCE))
    }),
    ("mysql_with_replica", || {
        // One that is told before the answer: another one may lack the last grants.
        let pair = MariaDb::new().durable().start_replicated(true)?;
        let relay = Relay::to(pair.primary().addr());
        let url = relay.url(pair.primary().url());
        Ok(Stand::failing_over(url, Servers::MariaDb { pair, relay }, ONCE))
    }),
];

const ONCE: &[Fault] = &[Fault::FailOver, Fault::Kill];
const TWICE: &[Fault] = &[Fault::FailOver, Fault::Kill, Fault::FailOver];

impl Stand {
    fn new(url: String, servers: Servers) -> Self {
        let faults = &[Fault::Kill, Fault::Evict, Fault::Restart, Fault::Stop, Fault::CutOff];
        Self { url, faults, goes_on: true, excludes: true, doors: Vec::new(), servers }
    }

    /// Servers that a candidate can be cut off from.
    fn behind_doors(servers: Vec<Server>) -> Result<Self, Error> {
        let doors =
            servers.iter().map(|server| Proxy::start(server.addr())).collect::<Result<Vec<_>, _>>()?;
        let (server, door) = (servers[0].addr().to_string(), doors[0].addr().to_string());
        let url = servers[0].url().replace(&server, &door);
        assert!(url.contains(&door), "{url} names {server} in another way");
        Ok(Self { doors, ..Self::new(url, Servers::Single(servers)) })
    }

    fn failing_over(url: String, servers: Servers, faults: &'static [Fault]) -> Self {
        Self { faults, goes_on: false, ..Self::new(url, servers) }
    }

    /// Restarts all servers.
    pub(crate) fn restart(&self) -> Result<(), Error> {
        let Servers::Single(servers) = &self.servers else { panic!("nothing here is restarted") };
        servers.iter().try_for_each(Server::restart)
    }

    /// Kills the server that leads, and waits until another one does.
    pub(crate) fn fail_over(&self) -> Result<(), Error> {
        match &self.servers {
            Servers::Folder(folder) => panic!("{} has no servers", folder.path().display()),
            Servers::Single(servers) => panic!("nobody follows {}", servers[0].addr()),
            Servers::Sentinel(sentinel) => {
                let master = sentinel.master_server()?;
                master.kill()?;
                sentinel.wait_for_successor(master).map(drop)
            }
            Servers::Etcd(cluster) => replace(cluster, leads_etcd),
            Servers::Zookeeper(ensemble) => replace(ensemble, leads_zookeeper),
            Servers::Postgres { primary, standby } => {
                primary.kill()?;
                until("the standby is promoted", || {
                    // What it still replays may get in the way of the question.
                    let _ = standby.ask(&["-c", "SELECT pg_promote()"]);
                    standby.ask(&["-c", "SELECT pg_is_in_recovery()"]).is_ok_and(|is| is.trim() == "f")
                });
                Ok(())
            }
            Servers::MariaDb { pair, relay } => {
                pair.primary().kill()?;
                pair.promote()?;
                relay.lead_to(pair.replica().addr());
                Ok(())
            }
        }
    }
}

/// Starts the member again that was killed before, and kills the one that leads.
fn replace(cluster: &Cluster, leads: fn(&Server) -> bool) -> Result<(), Error> {
    for node in cluster.nodes().iter().filter(|node| node.pid().is_none()) {
        node.restart()?;
    }
    let leader = || cluster.nodes().iter().find(|node| node.pid().is_some() && leads(node));
    until("a member leads", || leader().is_some());
    leader().expect("it leads").kill()?;
    until("another member leads", || leader().is_some());
    Ok(())
}

fn leads_etcd(member: &Server) -> bool {
    let Ok(status) = member.ask(&["endpoint", "status", "-w", "fields"]) else { return false };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let leader = field("\"Leader\" :");
    // Nobody is number 0.
    leader.is_some_and(|leader| leader != "0") && leader == field("\"MemberID\" :")
}

fn leads_zookeeper(member: &Server) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(member.addr())?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"srvr")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().is_ok_and(|text| text.contains("Mode: leader"))
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
