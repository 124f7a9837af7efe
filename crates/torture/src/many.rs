//! Deployments of several servers, of which another one takes over.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use test_servers::{Cluster, Error, Postgres, Sentinel, Server, wait_for};

use crate::stand::{Stand, trouble};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct EtcdOfThree(pub(crate) Cluster);

impl Stand for EtcdOfThree {
    fn url(&self) -> String {
        self.0.url().to_owned()
    }

    fn faults(&self) -> Vec<&'static str> {
        let mut faults = MEMBERS.to_vec();
        faults.extend(["compact", "defragment"]);
        faults
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "compact" => trouble(&self.0.nodes()[0], fault),
            "defragment" => self.0.nodes().iter().try_for_each(|node| trouble(node, fault)),
            _ => hit_member(&self.0, fault, leads_etcd),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        heal_members(&self.0, fault)
    }
}

pub(crate) struct ZookeeperOfThree(pub(crate) Cluster);

impl Stand for ZookeeperOfThree {
    fn url(&self) -> String {
        self.0.url().to_owned()
    }

    fn faults(&self) -> Vec<&'static str> {
        MEMBERS.to_vec()
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        hit_member(&self.0, fault, leads_zookeeper)
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        heal_members(&self.0, fault)
    }
}

const MEMBERS: &[&str] =
    &["kill-leader", "pause-leader", "kill-follower", "pause-follower", "restart-all", "kill-majority"];

fn hit_member(cluster: &Cluster, fault: &str, leads: fn(&Server) -> bool) -> Result<(), Error> {
    if fault == "restart-all" {
        return cluster.kill();
    }
    let mut leader = None;
    wait_for("a member leads", PATIENCE, || {
        leader = cluster.nodes().iter().position(leads);
        leader.is_some()
    })?;
    let leader = leader.unwrap_or(0);
    let nodes = cluster.nodes();
    let follower = &nodes[(leader + 1) % nodes.len()];
    match fault {
        "kill-leader" => nodes[leader].kill(),
        "pause-leader" => nodes[leader].pause(),
        "kill-follower" => follower.kill(),
        "pause-follower" => follower.pause(),
        _ => follower.kill().and_then(|()| nodes[leader].kill()),
    }
}

fn heal_members(cluster: &Cluster, fault: &str) -> Result<(), Error> {
    for node in cluster.nodes() {
        if fault.starts_with("pause") {
            node.resume()?;
        } else if node.pid().is_none() {
            node.relaunch()?;
        }
    }
    cluster.wait_ready()
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

pub(crate) struct Sentinels(pub(crate) Sentinel);

impl Stand for Sentinels {
    fn url(&self) -> String {
        self.0.url().to_owned()
    }

    fn faults(&self) -> Vec<&'static str> {
        vec!["failover", "pause-master", "kill-listeners"]
    }

    /// A replica may lack the last grants.
    fn excludes(&self) -> bool {
        false
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        let master = self.0.master_server()?;
        match fault {
            "failover" => master.kill().and_then(|()| self.0.wait_for_successor(master).map(drop)),
            "pause-master" => master.pause(),
            _ => trouble(master, fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        for server in self.0.servers() {
            if server.pid().is_none() {
                server.restart()?;
            } else if fault == "pause-master" {
                server.resume()?;
            }
        }
        Ok(())
    }
}

pub(crate) struct RedisCluster {
    cluster: Cluster,
    next: AtomicUsize,
}

impl RedisCluster {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, next: AtomicUsize::new(0) }
    }
}

impl Stand for RedisCluster {
    fn url(&self) -> String {
        self.cluster.url().replace("redis://", "redis+cluster://")
    }

    fn faults(&self) -> Vec<&'static str> {
        vec!["failover", "kill-master", "kill-sessions"]
    }

    fn excludes(&self) -> bool {
        false
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        let masters = self.cluster.masters();
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let master = *masters.get(next % masters.len().max(1)).ok_or_else(|| Error::new("no master"))?;
        match fault {
            "failover" => self.cluster.fail_over(master).map(drop),
            "kill-master" => self.cluster.kill_master(master).map(drop),
            _ => trouble(master, fault),
        }
    }

    fn heal(&self, _: &str) -> Result<(), Error> {
        self.cluster.nodes().iter().filter(|node| node.pid().is_none()).try_for_each(Server::restart)
    }
}

/// A primary and a standby that takes over once.
pub(crate) struct StandbyPair {
    servers: [Server; 2],
    primary: AtomicUsize,
}

impl StandbyPair {
    pub(crate) fn start() -> Result<Self, Error> {
        let primary = Postgres::new().durable().start()?;
        let standby = Postgres::new().durable().start_standby(&primary)?;
        Ok(Self { servers: [primary, standby], primary: AtomicUsize::new(0) })
    }

    fn primary(&self) -> &Server {
        &self.servers[self.primary.load(Ordering::Relaxed)]
    }
}

impl Stand for StandbyPair {
    fn url(&self) -> String {
        let [one, other] = &self.servers;
        format!("postgres://postgres@{},{}/postgres", one.addr(), other.addr())
    }

    fn faults(&self) -> Vec<&'static str> {
        vec!["failover", "restart", "pause", "kill-sessions"]
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "failover" if self.primary.load(Ordering::Relaxed) == 0 => {
                self.servers[0].kill()?;
                let standby = &self.servers[1];
                wait_for("the standby is promoted", PATIENCE, || {
                    // What it still replays may get in the way of the question.
                    let _ = standby.ask(&["-c", "SELECT pg_promote()"]);
                    standby.ask(&["-c", "SELECT pg_is_in_recovery()"]).is_ok_and(|is| is.trim() == "f")
                })?;
                self.primary.store(1, Ordering::Relaxed);
                Ok(())
            }
            // The first primary is gone for good: what it wrote last, the other one does not know.
            "failover" | "restart" => self.primary().kill(),
            "pause" => self.primary().pause(),
            _ => trouble(self.primary(), fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        let primary = self.primary();
        match fault {
            "failover" | "restart" if primary.pid().is_none() => primary.restart(),
            "pause" => primary.resume(),
            _ => Ok(()),
        }
    }
}
