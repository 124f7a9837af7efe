//! Replicas, clusters and Sentinels.

use super::*;

#[tokio::test]
async fn a_grant_waits_for_replicas_or_is_given_back() {
    let servers = Redis::new().start_with_replicas(1).unwrap();
    // For up to a second after it got its data a replica confirms nothing: what the master sends waits
    // for its first word.
    let mut master = servers.master().administrator().unwrap();
    master.call(&["SET", "warm", "up"]).unwrap();
    while master.call(&["WAIT", "1", "100"]).unwrap().as_deref() != Some("1") {}
    let url = format!("{}?scripting=off&replicas=1&replicas_timeout_ms=200", servers.master().url());
    let client = Client::connect(&url).await;
    let claim = client.claim(NAME, LONG);
    client.hold(&claim).await;
    assert!(matches!(client.renew(&claim).await, Ok(Standing::Held(_))));
    client.leave(&claim).await.unwrap();
    servers.replicas()[0].kill().unwrap();
    let failure = client.enter(&client.claim(NAME, LONG)).await.unwrap_err();
    assert!(failure.reason.contains("0 of 1 replicas"), "{failure}");
    assert_eq!(client.look(NAME).await, None);
}

#[tokio::test]
async fn a_slot_that_moves_takes_its_locks_along() {
    let cluster = Redis::new().start_cluster().unwrap();
    let client = Client::connect(&off(cluster.url())).await;
    let claim = client.claim(NAME, LONG);
    let epoch = client.hold(&claim).await.epoch;
    let key = format!("tidelock:{{{NAME}}}");
    let slot = cluster.nodes()[0].ask(&["CLUSTER", "KEYSLOT", &key]).unwrap().trim().parse().unwrap();
    let is_master = |node: &&Server| node.ask(&["ROLE"]).unwrap().starts_with("master");
    let has_it = |node: &&Server| node.ask(&["GET", &key]).unwrap().starts_with('T');
    let to = cluster.nodes().iter().filter(is_master).find(|node| !has_it(node)).unwrap();
    let half_way = cluster.begin_slot_move(slot, to).unwrap();
    assert!(matches!(client.renew(&claim).await, Ok(Standing::Held(_))), "it is where it was");
    half_way.move_keys().unwrap();
    assert_eq!(client.renew(&claim).await.unwrap_err().kind, FailureKind::Unreachable);
    half_way.finish().unwrap();
    let standing = within("it is found", until_answered(&client, &claim)).await;
    assert!(matches!(standing, Standing::Held(grant) if grant.epoch == epoch), "{standing:?}");
    client.leave(&claim).await.unwrap();
    assert_eq!(client.look(NAME).await, None);
}

#[tokio::test]
async fn a_new_master_is_found_by_transactions_too() {
    let servers = Redis::new().append_only().start_sentinel().unwrap();
    let url = format!("{}?scripting=off&replicas=1", servers.url());
    let client = Client::connect(&url).await;
    let claim = client.claim(NAME, LONG);
    let grant = client.hold(&claim).await;
    let old = servers.master_server().unwrap();
    old.kill().unwrap();
    servers.wait_for_successor(old).unwrap();
    let standing = within("the new one answers", until_answered(&client, &claim)).await;
    assert!(matches!(standing, Standing::Held(again) if again.epoch == grant.epoch), "{standing:?}");
}
