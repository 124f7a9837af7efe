//! Slots of a cluster on the move, in every way and at every stage, with lines of every kind in them.

use test_servers::{Cluster, Server};

use crate::{
    cluster::{TURN, another_master, shared},
    load::{Kind, Load},
    support::{LONG, Place, eventually, report, until, until_idle, within},
};

trials! {
    a_slot_that_is_only_marked_for_a_move_serves_lines_of_every_kind,
    lines_of_every_kind_go_on_under_load_while_their_slots_move_there_and_back,
    lines_of_every_kind_go_on_while_redis_cli_reshards_the_cluster,
    lines_of_every_kind_go_on_under_load_while_a_replica_takes_over_in_good_order,
    a_fail_over_of_the_old_master_keeps_lines_whose_keys_did_not_move_yet,
}

/// The name of the line of a kind.
fn name_of(place: &Place, kind: Kind) -> String {
    format!("{}{kind:?}", place.prefix)
}

fn slot_of(cluster: &Cluster, place: &Place, name: &str) -> u16 {
    cluster.slot_of_key(&place.key(name)).unwrap()
}

/// A key that a script emptied used to vanish there, and the script was aborted when it needed it again.
async fn a_slot_that_is_only_marked_for_a_move_serves_lines_of_every_kind() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let clients = [place.connect().await, place.connect().await, place.connect().await];
    for kind in Kind::ALL {
        let name = &name_of(&place, kind);
        let slot = slot_of(&cluster, &place, name);
        // The second is a writer, or takes all permits.
        let (first, amount) = kind.take(&clients[0], name, LONG, 0, 1).await.unwrap();
        let (locks, other) = (clients[1].clone(), name.clone());
        let waiting = tokio::spawn(async move { kind.take(&locks, &other, LONG, 1, 2).await });
        until(&clients[2], name, |view| view.holders.len() == 1 && view.waiters.len() == 1).await;

        let from = cluster.master_of_slot(slot).unwrap();
        let half_way = cluster.begin_slot_move(slot, another_master(&cluster, from)).unwrap();
        let (token, _) = (first.token(), amount);
        first.release().await.unwrap();
        let (second, _) = within("the next one holds", waiting).await.unwrap().unwrap();
        assert!(second.token() > token, "{kind:?}");
        until(&clients[2], name, |view| view.holders.len() == 1 && view.waiters.is_empty()).await;

        let (locks, other) = (clients[2].clone(), name.clone());
        let waiting = tokio::spawn(async move { kind.take(&locks, &other, LONG, 2, 3).await });
        until(&clients[0], name, |view| view.waiters.len() == 1).await;
        let token = second.token();
        second.release().await.unwrap();
        let (third, _) = within("a newcomer holds", waiting).await.unwrap().unwrap();
        assert!(third.token() > token, "{kind:?}");
        third.release().await.unwrap();
        until_idle(&clients[0], name).await;
        half_way.finish().unwrap();
    }
}

/// Begins load on a line of each kind.
async fn begin(place: &Place, clients: u32) -> Vec<Load> {
    begin_on(place, Kind::ALL.map(|kind| name_of(place, kind)), clients).await
}

async fn begin_on(place: &Place, names: [String; 4], clients: u32) -> Vec<Load> {
    let mut loads = Vec::new();
    for (kind, name) in Kind::ALL.into_iter().zip(names) {
        loads.push(Load::begin(place, kind, &name, clients).await);
    }
    loads
}

async fn go_on(loads: &[Load], grants: usize) {
    for load in loads {
        load.goes_on(grants).await;
    }
}

/// Ends the load: nobody overlapped, and nobody is left in line.
async fn end(place: &Place, loads: Vec<Load>, during: &str) {
    let (mut grants, mut overlaps) = (0, 0);
    let names: Vec<_> = loads.iter().map(|load| load.name.clone()).collect();
    for load in loads {
        let (more, too_many) = load.end().await;
        grants += more;
        overlaps += too_many;
    }
    report(&format!("{overlaps} overlaps among {grants} grants of four lines {during}"));
    assert_eq!(overlaps, 0);
    let locks = place.connect().await;
    for name in names {
        until_idle(&locks, &name).await;
    }
}

async fn lines_of_every_kind_go_on_under_load_while_their_slots_move_there_and_back() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let loads = begin(&place, 5).await;
    let slots = Kind::ALL.map(|kind| slot_of(&cluster, &place, &name_of(&place, kind)));
    let next = |slot| another_master(&cluster, cluster.master_of_slot(slot).unwrap());

    // Marked, then key by key.
    let moves: Vec<_> =
        slots.iter().map(|slot| cluster.begin_slot_move(*slot, next(*slot)).unwrap()).collect();
    go_on(&loads, 20).await;
    for (half_way, kind) in moves.iter().zip(Kind::ALL) {
        half_way.move_key(&place.key(&name_of(&place, kind))).unwrap();
    }
    // There nobody can be told of a grant: each is found by asking.
    go_on(&loads, 2).await;
    moves.into_iter().for_each(|half_way| half_way.finish().unwrap());
    go_on(&loads, 20).await;

    // In pipelines, there and back.
    for _ in 0..2 {
        slots.iter().for_each(|slot| cluster.move_slot(*slot, next(*slot)).unwrap());
        go_on(&loads, 10).await;
    }
    end(&place, loads, "whose slots moved").await;
}

/// How many slots redis-cli moves.
const RESHARDED: u16 = 24;

/// The first slots of a master are those that are moved, so the lines are in them.
async fn lines_of_every_kind_go_on_while_redis_cli_reshards_the_cluster() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let from = cluster.master_of_slot(0).unwrap();
    let to = another_master(&cluster, from);
    let moved = |name: &String| slot_of(&cluster, &place, name) < RESHARDED;
    let names = Kind::ALL.map(|kind| (0..).map(|n| format!("{kind:?} {n}")).find(moved).unwrap());
    let slots = names.clone().map(|name| slot_of(&cluster, &place, &name));
    let loads = begin_on(&place, names, 4).await;
    let id = |server: &Server| server.command(&["CLUSTER", "MYID"]).unwrap().unwrap();
    let (address, from_id, to_id) = (from.addr().to_string(), id(from), id(to));
    // Of the slots in front of these none may be on the move, and all belong to one master.
    let reshard = ["--cluster", "reshard", &address, "--cluster-from", &from_id, "--cluster-to", &to_id];
    let count = RESHARDED.to_string();
    let reshard: Vec<_> = reshard.into_iter().chain(["--cluster-slots", &count, "--cluster-yes"]).collect();
    tokio::task::block_in_place(|| from.ask(&reshard)).unwrap();
    for slot in slots {
        assert_eq!(cluster.wait_for_successor(slot, from).unwrap().addr(), to.addr());
    }
    go_on(&loads, 10).await;
    end(&place, loads, "while redis-cli moved their slots").await;
}

async fn lines_of_every_kind_go_on_under_load_while_a_replica_takes_over_in_good_order() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let loads = begin(&place, 5).await;
    for kind in Kind::ALL {
        let slot = slot_of(&cluster, &place, &name_of(&place, kind));
        cluster.fail_over(cluster.master_of_slot(slot).unwrap()).unwrap();
        go_on(&loads, 5).await;
    }
    end(&place, loads, "while replicas took over").await;
}

/// The new master does not know of the move, so it serves what it has; the move has to be begun anew.
///
/// The member that was to get the slot does not hear of its new owner before it is told to. When it hears that the old
/// master is a replica now, the slot has no owner for it, and it serves nothing.
async fn a_fail_over_of_the_old_master_keeps_lines_whose_keys_did_not_move_yet() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let loads = begin(&place, 4).await;
    let slot = slot_of(&cluster, &place, &name_of(&place, Kind::ReadWrite));
    let from = cluster.master_of_slot(slot).unwrap();
    let to = another_master(&cluster, from);
    let master_of = |load: &Load| cluster.master_of_slot(slot_of(&cluster, &place, &load.name)).unwrap();
    let others: Vec<_> = loads.iter().filter(|load| master_of(load).addr() != to.addr()).collect();
    let half_way = cluster.begin_slot_move(slot, to).unwrap();
    go_on(&loads, 5).await;
    cluster.fail_over(half_way.from()).unwrap();
    let state = || to.command(&["CLUSTER", "INFO"]).unwrap().unwrap_or_default();
    eventually("it has heard", || state().contains("cluster_state:fail")).await;
    for load in others {
        load.goes_on(10).await;
    }
    // Clients that know no other member find the owner, too. Many, as each asks the members in an order of its own.
    let (only, name) =
        (place.through(&format!("redis+cluster://{}", to.addr())), name_of(&place, Kind::ReadWrite));
    for _ in 0..24 {
        let lock = only.connect().await.rw_lock(&name).ttl(LONG);
        within("it holds", lock.write()).await.unwrap().release().await.unwrap();
    }
    half_way.give_up().unwrap();
    cluster.move_slot(slot, to).unwrap();
    go_on(&loads, 10).await;
    end(&place, loads, "while a replica took over in the middle of a move").await;
}
