//! Members of a cluster that are killed, paused and started again.

use test_servers::{Cluster, Divisible, Etcd, Server};
use tidelock::LockState;

use crate::support::{
    LONG, NAME, Place, SHORT, eventually, got, held_and_waited_for, pass_on, report, until_idle, waiter,
    within,
    witness::{Storm, Witness},
};

trials! {
    locks_go_on_when_the_leader_is_killed,
    locks_go_on_when_a_follower_is_killed,
    locks_go_on_when_a_member_hangs,
    a_holder_with_the_minority_loses_its_lock_before_the_majority_grants_it,
    a_holder_with_the_majority_keeps_its_lock_when_a_minority_is_cut_off,
    a_holder_with_a_member_that_hangs_loses_its_lock_before_another_gets_it,
    a_holder_whose_cluster_lost_its_majority_loses_its_lock_and_others_get_it_when_it_is_back,
    locks_survive_a_restart_of_all_members,
    locks_of_one_server_survive_its_restart,
}

fn cluster() -> Cluster {
    Etcd::new().start_cluster().unwrap()
}

/// What a member says about itself in the table that `etcdctl` prints.
fn status<const N: usize>(node: &Server, fields: [&str; N]) -> [String; N] {
    let status = node.ask(&["endpoint", "status", "-w", "fields"]).unwrap();
    fields.map(|name| {
        let value = status.lines().find_map(|line| line.strip_prefix(&format!("\"{name}\" :")));
        value.unwrap_or_default().trim().to_owned()
    })
}

fn leader(cluster: &Cluster) -> &Server {
    let leads = |node: &&Server| {
        let [member, leader] = status(node, ["MemberID", "Leader"]);
        member == leader
    };
    cluster.nodes().iter().find(leads).expect("a leader")
}

fn followers(cluster: &Cluster) -> Vec<&Server> {
    let leads = leader(cluster).addr();
    cluster.nodes().iter().filter(|node| node.addr() != leads).collect()
}

async fn storm_while(cluster: &Cluster, breaks: impl FnOnce(), repairs: impl FnOnce()) {
    let storm = Storm::begin(&Place::on(cluster.url()), NAME, LONG, 3).await;
    breaks();
    storm.goes_on().await;
    repairs();
    storm.goes_on().await;
    let grants = storm.witness.grants();
    assert_eq!(storm.end().await, 0);
    report(&format!("{grants} grants, no two at once"));
}

async fn locks_go_on_when_the_leader_is_killed() {
    let cluster = cluster();
    let leads = leader(&cluster);
    storm_while(&cluster, || leads.kill().unwrap(), || leads.restart().unwrap()).await;
}

async fn locks_go_on_when_a_follower_is_killed() {
    let cluster = cluster();
    let follows = followers(&cluster)[0];
    storm_while(&cluster, || follows.kill().unwrap(), || follows.restart().unwrap()).await;
}

/// Clients are connected to the first member that the URL names.
async fn locks_go_on_when_a_member_hangs() {
    let cluster = cluster();
    let first = &cluster.nodes()[0];
    storm_while(&cluster, || first.pause().unwrap(), || first.resume().unwrap()).await;
}

/// A cluster of which a follower is cut off, and two clients: one reaches only that, the other only the rest.
struct Divided {
    divisible: Divisible,
    alone: usize,
    cut_off: Place,
    rest: Place,
}

impl Divided {
    fn start() -> Self {
        // Those who stay together shall not elect another leader because the machine is busy.
        let divisible = Etcd::new().patient().start_divisible().unwrap();
        let cluster = divisible.cluster();
        let leads = leader(cluster).addr();
        let alone = cluster.addrs().iter().position(|addr| *addr != leads).unwrap();
        let place = Place::on(cluster.url());
        let cut_off = place.through(cluster.nodes()[alone].url());
        let mut rest = cluster.addrs();
        rest.remove(alone);
        let rest: Vec<_> = rest.iter().map(ToString::to_string).collect();
        let rest = place.through(&format!("etcd://{}", rest.join(",")));
        Self { divisible, alone, cut_off, rest }
    }

    /// Who leads the rest, and since which election.
    fn reign(&self) -> [String; 2] {
        let stays = (self.alone + 1) % self.divisible.cluster().nodes().len();
        status(&self.divisible.cluster().nodes()[stays], ["Leader", "RaftTerm"])
    }

    fn divide(&self) {
        self.divisible.cut_off(self.alone);
    }

    fn join(&self) {
        self.divisible.join(self.alone).unwrap();
    }
}

async fn a_holder_with_the_minority_loses_its_lock_before_the_majority_grants_it() {
    let divided = Divided::start();
    let (cut_off, other) = (divided.cut_off.connect().await, divided.rest.connect().await);
    let witness = Witness::default();
    let guard = witness.lock(&cut_off.mutex(NAME).ttl(SHORT)).await.unwrap();
    let before = witness.before();
    divided.divide();
    let next = within("the lease ends", other.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    witness.saw(&next, before);
    assert_eq!(witness.doubles(), 0);
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    // Nobody gets anything on this side.
    let error =
        within("it is said", cut_off.mutex("another").ttl(SHORT).fail_fast(true).lock()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    divided.join();
    let waiting = waiter(&cut_off, "yet another", LONG);
    match within("they are served again", waiting).await.unwrap() {
        Ok(guard) => guard.release().await.unwrap(),
        // Asked before the member was back.
        Err(error) => assert!(error.is_unavailable(), "{error}"),
    }
    assert!(next.is_held());
    next.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn a_holder_with_the_majority_keeps_its_lock_when_a_minority_is_cut_off() {
    // Two members on a busy machine may elect a leader again and again. Nobody can renew meanwhile: such a time does not
    // count.
    while !keeps_its_lock_under_one_leader().await {}
}

/// Whether the rest had the same leader all the time.
async fn keeps_its_lock_under_one_leader() -> bool {
    let divided = Divided::start();
    let (cut_off, other) = (divided.cut_off.connect().await, divided.rest.connect().await);
    let guard = other.mutex(NAME).ttl(4 * SHORT).lock().await.unwrap();
    let reign = divided.reign();
    divided.divide();
    // Through several leases.
    for _ in 0..8 {
        tokio::time::sleep(SHORT).await;
        let is_held = guard.is_held();
        if !is_held && divided.reign() != reign {
            return false;
        }
        assert!(is_held, "{guard:?}");
        let tried = cut_off.mutex(NAME).ttl(SHORT).try_lock().await;
        assert!(!matches!(tried, Ok(Some(_))), "{tried:?}");
    }
    divided.join();
    guard.release().await.unwrap();
    until_idle(&other, NAME).await;
    true
}

async fn a_holder_with_a_member_that_hangs_loses_its_lock_before_another_gets_it() {
    let cluster = cluster();
    let alone = followers(&cluster)[0];
    let place = Place::on(cluster.url());
    let hangs = place.through(alone.url()).connect().await;
    let rest: Vec<_> = cluster.addrs().into_iter().filter(|addr| *addr != alone.addr()).collect();
    let rest: Vec<_> = rest.iter().map(ToString::to_string).collect();
    let other = place.through(&format!("etcd://{}", rest.join(","))).connect().await;
    let witness = Witness::default();
    let guard = witness.lock(&hangs.mutex(NAME).ttl(SHORT)).await.unwrap();
    let before = witness.before();
    alone.pause().unwrap();
    let next = within("the lease ends", other.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    witness.saw(&next, before);
    assert_eq!(witness.doubles(), 0);
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    alone.resume().unwrap();
    // Its client is served again, and waits for its turn.
    let waiting = waiter(&hangs, NAME, LONG);
    next.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn a_holder_whose_cluster_lost_its_majority_loses_its_lock_and_others_get_it_when_it_is_back() {
    let cluster = cluster();
    let (place, dead) = (Place::on(cluster.url()), [&cluster.nodes()[1], &cluster.nodes()[2]]);
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    dead.iter().for_each(|node| node.kill().unwrap());
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    let error =
        within("it is said", locks.mutex("another").ttl(SHORT).fail_fast(true).lock()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    dead.iter().for_each(|node| node.relaunch().unwrap());
    cluster.wait_ready().unwrap();
    let other = place.connect().await;
    let next = within("the lease ends", other.mutex(NAME).lock()).await.unwrap();
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn locks_survive_a_restart_of_all_members() {
    let cluster = cluster();
    let place = Place::on(cluster.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
    cluster.restart().unwrap();
    eventually("a renewal succeeds", || guard.state() == LockState::Held).await;
    let view = within("they answer", locks.look(&[NAME])).await.unwrap().remove(0);
    assert_eq!((view.holders[0].epoch, view.waiters.len()), (Some(guard.token().epoch()), 1));
    pass_on(guard, vec![waiting]).await;
}

async fn locks_of_one_server_survive_its_restart() {
    let server = Etcd::new().start().unwrap();
    let place = Place::on(server.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
    server.restart().unwrap();
    assert!(guard.is_held());
    let third = place.connect().await;
    assert!(third.mutex(NAME).try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&third, NAME).await;
}
