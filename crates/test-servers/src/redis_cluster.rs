//! Redis as a cluster: forming one, finding who holds what, and replacing masters.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::deadline::{START_LIMIT, now, wait_for_value};
use crate::replication::role;
use crate::{Cluster, Error, Redis, Server, ports, wait_for};

/// How far the bus port of a cluster member lies above its port for clients.
const BUS: u16 = 10_000;

/// Masters of a cluster, each with one replica: the fewest that can vote.
const MASTERS: usize = 3;

/// For how many milliseconds a master may be silent that is not to be replaced.
const PATIENT: &str = "20000";

/// After five seconds a replica no longer tries to take over in good order.
const FAIL_OVER_LIMIT: Duration = Duration::from_secs(6);

/// Starts a cluster, on ports that may turn out to be taken.
pub(crate) fn start(options: &Redis) -> Result<Cluster, Error> {
    // A dead master is replaced after about two seconds instead of thirty.
    let timeout = if options.patient { PATIENT } else { "1000" };
    let lines = [
        "cluster-enabled yes".to_owned(),
        "cluster-config-file nodes.conf".to_owned(),
        format!("cluster-node-timeout {timeout}"),
    ];
    let nodes = (0..2 * MASTERS)
        .map(|_| {
            let (port, bus) = ports::free_pair(BUS)?;
            options.launch(vec![port, bus], &lines)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    nodes.iter().try_for_each(Server::wait_ready)?;

    let wait_for_silent = |time: &str| {
        let set = ["CONFIG", "SET", "cluster-node-timeout", time];
        nodes.iter().try_for_each(|node| node.command(&set).map(drop))
    };
    // Until all are there, a busy machine shall not make them replace a master that is slow.
    wait_for_silent(PATIENT)?;
    let addrs: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
    let mut create = vec!["--cluster", "create"];
    create.extend(addrs.iter().map(String::as_str));
    create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    nodes[0].ask(&create)?;

    wait_for("the cluster is complete", START_LIMIT, || nodes.iter().all(is_joined))?;
    wait_for_silent(timeout)?;
    Ok(Cluster::new(&format!("{}+cluster", options.scheme()), nodes))
}

/// Whether a member serves, sees a replica behind every master, and, being a replica itself, is
/// in step with its master.
fn is_joined(node: &Server) -> bool {
    let role = role(node);
    view(node).is_ok_and(|view| {
        view.serves && view.members.iter().filter(|member| member.replica).count() == MASTERS
    }) && (role.starts_with("master") || role.contains("\nconnected\n"))
}

/// Of Redis clusters.
impl Cluster {
    /// The hash slot of a key.
    ///
    /// # Errors
    ///
    /// When no member answers, or it is not a Redis cluster.
    pub fn slot_of_key(&self, key: &str) -> Result<u16, Error> {
        let mut last = Error::new("the cluster has no members");
        for node in self.nodes() {
            match node.command(&["CLUSTER", "KEYSLOT", key]) {
                Ok(answer) => return answer.unwrap_or_default().parse().map_err(Error::context("no slot")),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The master of a hash slot. While it is being replaced, waits until all members that answer
    /// name the same one, and it answers itself.
    ///
    /// # Errors
    ///
    /// When there is none after a minute.
    pub fn master_of_slot(&self, slot: u16) -> Result<&Server, Error> {
        wait_for_value(&format!("slot {slot} has a master"), START_LIMIT, || {
            agreed_master(&self.views(), slot)
        })
    }

    /// The master of the hash slot of a key.
    ///
    /// # Errors
    ///
    /// As [`slot_of_key`](Self::slot_of_key) and [`master_of_slot`](Self::master_of_slot).
    pub fn master_of_key(&self, key: &str) -> Result<&Server, Error> {
        self.master_of_slot(self.slot_of_key(key)?)
    }

    /// The members that are masters by their own account.
    #[must_use]
    pub fn masters(&self) -> Vec<&Server> {
        self.nodes().iter().filter(|node| role(node).starts_with("master")).collect()
    }

    /// The replica of a master that answers.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn replica_of(&self, master: &Server) -> Result<&Server, Error> {
        let follows = format!("slave\n127.0.0.1\n{}\nconnected\n", master.addr().port());
        let replica = self.nodes().iter().find(|node| role(node).starts_with(&follows));
        replica.ok_or_else(|| Error::new(format!("no replica follows {}", master.addr())))
    }

    /// Lets the replica of a master take over without losing a write (`CLUSTER FAILOVER`), and
    /// returns it when all members know. The old master becomes its replica. Soon after another
    /// election among the same servers it takes some seconds, and clients that write wait.
    ///
    /// # Errors
    ///
    /// When the server is no master with a replica, or the members do not agree within a minute.
    pub fn fail_over(&self, master: &Server) -> Result<&Server, Error> {
        let slot = slot_of_master(master)?;
        let replica = self.replica_of(master)?;
        let start = now();
        loop {
            // Members do not vote twice within two seconds about the same master, and a replica
            // that gets no votes gives up in silence. One that just won refuses to try again.
            let asked = replica.command(&["CLUSTER", "FAILOVER"]);
            // One that a slot is on its way to may serve nothing afterwards, until it is told who has the slot.
            let is_there = |views: &[View<'_>], new: &Server| {
                views.iter().any(|view| view.of.addr() == new.addr() && view.serves)
            };
            match self.successor(slot, master, FAIL_OVER_LIMIT, is_there) {
                Err(_) if start.elapsed() < START_LIMIT => {}
                Err(error) => return Err(asked.err().unwrap_or(error)),
                done => return done,
            }
        }
    }

    /// Kills a master, and returns its replica when it took over and the cluster serves again.
    ///
    /// # Errors
    ///
    /// When the server is no master, or the members do not agree within a minute.
    pub fn kill_master(&self, master: &Server) -> Result<&Server, Error> {
        let slot = slot_of_master(master)?;
        master.kill()?;
        self.wait_for_successor(slot, master)
    }

    /// Waits until another server than `old`, which was killed or paused, is master of the slot:
    /// all members that answer say so, and that the cluster serves. Returns that server.
    ///
    /// # Errors
    ///
    /// When there is none after a minute.
    pub fn wait_for_successor(&self, slot: u16, old: &Server) -> Result<&Server, Error> {
        let all_serve = |views: &[View<'_>], _: &Server| views.iter().all(|view| view.serves);
        self.successor(slot, old, START_LIMIT, all_serve)
    }

    fn successor(
        &self,
        slot: u16,
        old: &Server,
        limit: Duration,
        is_there: impl Fn(&[View<'_>], &Server) -> bool,
    ) -> Result<&Server, Error> {
        let what = format!("{} is replaced as master of slot {slot}", old.addr());
        wait_for_value(&what, limit, || {
            let views = self.views();
            let new = agreed_master(&views, slot).filter(|new| new.addr() != old.addr())?;
            is_there(&views, new).then_some(new)
        })
    }

    /// Of the members that answer.
    fn views(&self) -> Vec<View<'_>> {
        self.nodes().iter().filter_map(|node| view(node).ok()).collect()
    }
}

/// Whom all members that answer name as master of the slot, if it answers itself.
fn agreed_master<'a>(views: &[View<'a>], slot: u16) -> Option<&'a Server> {
    let bus = views.first()?.bus_of_master(slot)?;
    let agreed = views.iter().all(|view| view.bus_of_master(slot) == Some(bus));
    let master = views.iter().find(|view| view.of.addr().port() + BUS == bus)?;
    agreed.then_some(master.of)
}

/// One that the master holds, by its own account.
fn slot_of_master(master: &Server) -> Result<u16, Error> {
    view(master)?
        .members
        .into_iter()
        .find(|member| member.myself)
        .and_then(|member| member.slots.first().map(|range| *range.start()))
        .ok_or_else(|| Error::new(format!("{} is master of no slot", master.addr())))
}

/// The cluster as one member sees it.
struct View<'a> {
    of: &'a Server,
    serves: bool,
    members: Vec<Member>,
}

impl View<'_> {
    fn bus_of_master(&self, slot: u16) -> Option<u16> {
        let owns = |member: &&Member| member.slots.iter().any(|range| range.contains(&slot));
        self.members.iter().find(owns).map(|member| member.bus)
    }
}

fn view(of: &Server) -> Result<View<'_>, Error> {
    // One connection: a paused member makes its asker wait once and not twice.
    let mut redis = of.administrator()?;
    let info = redis.call(&["CLUSTER", "INFO"])?.unwrap_or_default();
    let nodes = redis.call(&["CLUSTER", "NODES"])?.unwrap_or_default();
    let members = nodes.lines().map(member).collect::<Option<_>>();
    let members = members.ok_or_else(|| Error::new(format!("cannot read {nodes:?}")))?;
    Ok(View { of, serves: info.contains("cluster_state:ok"), members })
}

/// A member of the cluster as another one, or itself, sees it.
#[derive(Debug, PartialEq)]
struct Member {
    /// Its port for other members. The one for clients is another for those who come without
    /// TLS, as the administrator does.
    bus: u16,
    myself: bool,
    replica: bool,
    /// Empty for a replica.
    slots: Vec<RangeInclusive<u16>>,
}

/// Reads `id host:port@bus,name flags master ping pong epoch link slots…`.
fn member(line: &str) -> Option<Member> {
    let mut words = line.split_whitespace().skip(1);
    let (_, bus) = words.next()?.split_once('@')?;
    let flags: Vec<_> = words.next()?.split(',').collect();
    // Slots in square brackets are on the move and still belong to their old master.
    let slots = words.skip(5).filter(|word| !word.starts_with('['));
    Some(Member {
        bus: bus.split(',').next()?.parse().ok()?,
        myself: flags.contains(&"myself"),
        replica: flags.contains(&"slave"),
        slots: slots.map(slot_range).collect::<Option<_>>()?,
    })
}

fn slot_range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_read_with_its_slots_and_without_those_on_the_move() {
        let line = "07c3 127.0.0.1:30004@40004,name myself,master - 0 1426238317239 4 connected \
                    0-5460 7000 [93->-292f] [77-<-e7d1]";
        let slots = vec![0..=5460, 7000..=7000];
        assert_eq!(member(line), Some(Member { bus: 40004, myself: true, replica: false, slots }));

        let line = "824f 127.0.0.1:0@40005 slave,fail 292f 1426238316232 1426238318243 5 disconnected";
        assert_eq!(member(line), Some(Member { bus: 40005, myself: false, replica: true, slots: vec![] }));
        assert_eq!(member("07c3 nonsense"), None);
    }
}
