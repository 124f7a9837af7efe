//! Deployments of several servers, of which another one takes over.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use test_servers::{Cluster, Divisible, Error, Sentinel, Server, wait_for};

use crate::{
    administrator::{relieve, trouble},
    entries::four_letters,
    stand::Stand,
};

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct EtcdOfThree {
    divisible: Divisible,
    /// Whether a leader that was paused may end leases that are alive.
    revokes_late: bool,
    /// The member that is cut off from the others.
    cut_off: Mutex<Option<usize>>,
}

impl EtcdOfThree {
    pub(crate) fn new(divisible: Divisible) -> Result<Self, Error> {
        let status = divisible.cluster().nodes()[0].ask(&["endpoint", "status", "-w", "fields"])?;
        let version = status.lines().find_map(|line| line.strip_prefix("\"Version\" :")).unwrap_or_default();
        let version = version.trim().trim_matches('"');
        let revokes_late = revokes_late(version);
        if revokes_late {
            println!(
                "without pause-leader: etcd {version} then ends leases that are alive (etcd-io/etcd#15247)"
            );
        }
        Ok(Self { divisible, revokes_late, cut_off: Mutex::new(None) })
    }

    fn cluster(&self) -> &Cluster {
        self.divisible.cluster()
    }

    /// Cuts a member off from the others, and not from clients.
    fn cut_off(&self, leader: bool) -> Result<(), Error> {
        let leads = leader_of(self.cluster(), leads_etcd)?;
        let member = if leader { leads } else { (leads + 1) % self.cluster().nodes().len() };
        self.divisible.cut_off(member);
        *self.cut_off.lock().unwrap_or_else(PoisonError::into_inner) = Some(member);
        Ok(())
    }

    /// Adds a member that never starts: from then on the three that are there have nobody to spare.
    fn add_member(&self) -> Result<(), Error> {
        let add = ["member", "add", "absent", "--peer-urls=http://127.0.0.1:1"];
        // It is refused while the cluster is not sure of its members.
        wait_for("a member is added", PATIENCE, || self.cluster().nodes()[0].ask(&add).is_ok())
    }

    /// Takes it out again.
    fn remove_member(&self) -> Result<(), Error> {
        wait_for("the member is removed", PATIENCE, || {
            let node = &self.cluster().nodes()[0];
            let Ok(members) = node.ask(&["member", "list", "-w", "simple"]) else { return false };
            let absent = members.lines().find(|line| line.contains("http://127.0.0.1:1,"));
            let id = absent.and_then(|line| line.split(',').next());
            id.is_none_or(|id| node.ask(&["member", "remove", id]).is_ok())
        })
    }

    /// Lets another member lead.
    fn move_leader(&self) -> Result<(), Error> {
        let leads = leader_of(self.cluster(), leads_etcd)?;
        let nodes = self.cluster().nodes();
        let status = nodes[(leads + 1) % nodes.len()].ask(&["endpoint", "status", "-w", "fields"])?;
        let id =
            status.lines().find_map(|line| line.strip_prefix("\"MemberID\" :")).unwrap_or_default().trim();
        let id: u64 = id.parse().map_err(|_| Error::new("a member without a number"))?;
        nodes[leads].ask(&["move-leader", &format!("{id:x}")]).map(drop)
    }
}

impl Stand for EtcdOfThree {
    fn url(&self) -> String {
        self.cluster().url().to_owned()
    }

    fn doubles(&self) -> bool {
        true
    }

    fn keepers(&self) -> Vec<&Server> {
        vec![&self.cluster().nodes()[0]]
    }

    fn faults(&self) -> Vec<&'static str> {
        let mut faults = MEMBERS.to_vec();
        faults.retain(|fault| !self.revokes_late || *fault != "pause-leader");
        faults.extend([
            "compact",
            "defragment",
            "move-leader",
            "partition-leader",
            "partition-follower",
            "add-member",
        ]);
        faults
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "compact" => trouble(&self.cluster().nodes()[0], fault),
            "defragment" => self.cluster().nodes().iter().try_for_each(|node| trouble(node, fault)),
            "move-leader" => self.move_leader(),
            "partition-leader" => self.cut_off(true),
            "partition-follower" => self.cut_off(false),
            "add-member" => self.add_member(),
            _ => hit_member(self.cluster(), fault, leads_etcd),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        if let Some(member) = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.divisible.join(member)?;
        }
        if fault == "add-member" {
            self.remove_member()?;
        }
        heal_members(self.cluster(), fault)
    }
}

/// Whether a server of this version that goes on after it was replaced as leader has leases revoked by its successor.
fn revokes_late(version: &str) -> bool {
    let numbers: Vec<u32> = version.split('.').map_while(|number| number.parse().ok()).collect();
    match numbers[..] {
        [3, 5, patch] => patch < 13,
        [major, minor, patch] => (major, minor, patch) < (3, 4, 31),
        // Not one that was released.
        _ => false,
    }
}

pub(crate) struct ZookeeperOfThree(pub(crate) Cluster);

impl Stand for ZookeeperOfThree {
    fn url(&self) -> String {
        self.0.url().to_owned()
    }

    fn keepers(&self) -> Vec<&Server> {
        vec![&self.0.nodes()[0]]
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
    let leader = leader_of(cluster, leads)?;
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

fn leader_of(cluster: &Cluster, leads: fn(&Server) -> bool) -> Result<usize, Error> {
    let mut leader = None;
    wait_for("a member leads", PATIENCE, || {
        leader = cluster.nodes().iter().position(leads);
        leader.is_some()
    })?;
    leader.ok_or_else(|| Error::new("no member leads"))
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
    four_letters(member, "srvr").is_ok_and(|text| text.contains("Mode: leader"))
}

pub(crate) struct Sentinels(pub(crate) Sentinel);

impl Sentinels {
    fn replica(&self, master: &Server) -> Result<&Server, Error> {
        let replica = self.0.servers().iter().find(|server| server.addr() != master.addr());
        replica.ok_or_else(|| Error::new("there is no replica"))
    }
}

impl Stand for Sentinels {
    fn url(&self) -> String {
        self.0.url().to_owned()
    }

    fn keepers(&self) -> Vec<&Server> {
        self.0.master_server().into_iter().collect()
    }

    fn faults(&self) -> Vec<&'static str> {
        let mut faults = vec!["failover", "pause-master", "pause-replica", "no-sentinels"];
        faults.extend(OF_REDIS);
        faults
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
            "pause-replica" => self.replica(master)?.pause(),
            // Nobody is there to be asked who the master is.
            "no-sentinels" => self.0.sentinels().iter().try_for_each(Server::pause),
            _ => trouble(master, fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        if fault == "no-sentinels" {
            return self.0.sentinels().iter().try_for_each(Server::resume);
        }
        for server in self.0.servers() {
            if server.pid().is_none() {
                server.restart()?;
            } else if fault.starts_with("pause-") && fault != "pause-clients" {
                server.resume()?;
            } else {
                relieve(server, fault)?;
            }
        }
        Ok(())
    }
}

/// What an administrator does to one server of several.
const OF_REDIS: [&str; 8] = [
    "kill-sessions",
    "kill-listeners",
    "forget-scripts",
    "rewrite-log",
    "save",
    "pause-clients",
    "refuse-writes",
    "out-of-memory",
];

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

    fn keepers(&self) -> Vec<&Server> {
        self.cluster.masters()
    }

    fn faults(&self) -> Vec<&'static str> {
        let mut faults = vec!["failover", "kill-master", "move-slot"];
        faults.extend(OF_REDIS);
        faults
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
            "move-slot" => {
                // One with a lock, if this master has any.
                let key = master.command(&["RANDOMKEY"])?.unwrap_or_default();
                let to = masters.iter().find(|other| other.addr() != master.addr());
                let to = *to.ok_or_else(|| Error::new("there is one master only"))?;
                self.cluster.move_slot(self.cluster.slot_of_key(&key)?, to)
            }
            _ => trouble(master, fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        for node in self.cluster.nodes() {
            if node.pid().is_none() {
                node.restart()?;
            } else {
                relieve(node, fault)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::revokes_late;

    #[test]
    fn servers_that_end_leases_late_are_told_by_their_version() {
        let known =
            [("3.4.23", true), ("3.4.31", false), ("3.5.12", true), ("3.5.13", false), ("3.6.0", false)];
        for (version, expected) in known {
            assert_eq!(revokes_late(version), expected, "{version}");
        }
    }
}
