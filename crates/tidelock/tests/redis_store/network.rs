//! Connections that are cut, and answers that are lost after the command was applied.

use test_servers::{Redis, Server};

use crate::{
    support::{
        LONG, NAME, Place, eventually, got, held_and_waited_for,
        network::{Line, in_order},
        shared, until_waiting,
    },
    witness::Storm,
};

trials! {
    a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place,
    a_waiter_that_is_cut_off_when_its_turn_comes_is_passed_over_and_asks_again,
    scripts_that_are_flushed_while_in_use_are_sent_again,
    a_connection_that_the_server_closes_costs_no_hand_over,
}

/// Cuts the first one off, until the server knows that it would not hear anything.
async fn cut_off(line: &Line) {
    line.proxy.cut();
    eventually("the server knows", || line.place.listeners(&shared()) == 2).await;
}

async fn a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place() {
    let line = Line::form(LONG).await;
    cut_off(&line).await;
    line.proxy.heal().unwrap();
    eventually("the waiter listens again", || line.place.listeners(&shared()) == 3).await;
    line.guard.release().await.unwrap();
    in_order(line.first, line.second).await;
}

async fn a_waiter_that_is_cut_off_when_its_turn_comes_is_passed_over_and_asks_again() {
    let line = Line::form(LONG).await;
    cut_off(&line).await;
    line.guard.release().await.unwrap();
    let second = got(line.second).await;
    line.proxy.heal().unwrap();
    until_waiting(&line.other, NAME, 1).await;
    second.release().await.unwrap();
    got(line.first).await.release().await.unwrap();
}

async fn scripts_that_are_flushed_while_in_use_are_sent_again() {
    let place = Place::shared();
    let storm = Storm::begin(&place, NAME, LONG, 3).await;
    let mut administrator = shared().administrator().unwrap();
    for _ in 0..8 {
        administrator.call(&["SCRIPT", "FLUSH"]).unwrap();
        storm.goes_on().await;
    }
    assert_eq!(storm.end().await, 0);
}

async fn a_connection_that_the_server_closes_costs_no_hand_over() {
    let server = Redis::new().start().unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    let own = listeners(&server);
    let other = place.connect().await;
    for at_once in [false, true, false, true] {
        let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
        let closed = listeners(&server).into_iter().find(|id| !own.contains(id)).unwrap();
        server.command(&["CLIENT", "KILL", "ID", &closed]).unwrap();
        if !at_once {
            eventually("the waiter listens again", || place.listeners(&server) == 2).await;
            assert_eq!(locks.look(&[NAME]).await.unwrap()[0].waiters.len(), 1, "it kept its place");
        }
        guard.release().await.unwrap();
        got(waiting).await.release().await.unwrap();
    }
}

/// The connections that a server would tell something.
fn listeners(server: &Server) -> Vec<String> {
    let list = server.command(&["CLIENT", "LIST"]).unwrap().unwrap();
    let listening = list.lines().filter(|line| line.contains(" sub=1 "));
    listening.map(|line| line.strip_prefix("id=").unwrap().split(' ').next().unwrap().to_owned()).collect()
}
