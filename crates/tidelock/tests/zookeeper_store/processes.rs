//! Holders that are killed and stopped, and very many that wait.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use test_servers::{Server, Zookeeper};

use crate::support::{NAME, Place, SHORT, got, processes, report, until_idle, until_waiting};

trials! {
    waiters_killed_with_9_are_passed_over,
    a_thousand_waiters_are_woken_one_by_one_in_order,
}

async fn waiters_killed_with_9_are_passed_over() {
    let (locks, guard, waiting) = processes::behind_dead_waiters(&Place::shared(), SHORT).await;
    until_waiting(&locks, NAME, 1).await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&locks, NAME).await;
}

/// How many watches of nodes that were deleted the server has fired.
fn fired(server: &Server) -> u64 {
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"mntr").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let sum = text.lines().find_map(|line| line.strip_prefix("zk_sum_node_deleted_watch_count\t"));
    sum.unwrap_or_else(|| panic!("the server counts no watches: {text}")).parse().unwrap()
}

async fn a_thousand_waiters_are_woken_one_by_one_in_order() {
    const WAITERS: usize = 1_000;
    let server = Zookeeper::new().start().unwrap();
    let crowd = processes::Crowd::gather(&Place::on(server.url()), WAITERS, 4).await;
    let before = fired(&server);
    crowd.gets_the_lock_in_order().await;
    let fired = fired(&server) - before;
    report(&format!("{fired} watches fired on the server for {WAITERS} waiters"));
    assert!(fired <= WAITERS as u64 + 1, "more than one watch for a release: {fired} of {WAITERS}");
}
