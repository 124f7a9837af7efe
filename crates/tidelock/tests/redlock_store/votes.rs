//! How votes of five servers become one holder, with one token.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tidelock::backend::{Ask, Backend, Scope};

use crate::{
    five::{Five, LONGEST, claim},
    support::{LONG, NAME, is_one_sentence, report, until_idle, within},
    witness::Witness,
};

trials! {
    epochs_that_differ_are_written_to_a_majority_before_the_lock_is_held,
    tokens_grow_though_the_majority_is_another_one_each_time,
    a_claim_that_only_a_minority_granted_is_left_everywhere,
    of_those_who_try_at_the_same_moment_one_gets_it,
    many_who_come_at_the_same_moment_all_get_it_in_turn,
    a_ttl_longer_than_servers_are_kept_from_voting_is_refused,
    permits_are_refused_with_the_reason,
}

async fn epochs_that_differ_are_written_to_a_majority_before_the_lock_is_held() {
    let five = Five::durable();
    // One of them is ahead: as after grants that only it and one other server, now gone, took part in.
    let ahead = 7_000_000_000_000_000_u64;
    five.servers[2].command(&["SET", "tidelock:{the lock}", &format!("I{ahead}")]).unwrap();
    five.servers[3].kill().unwrap();
    five.servers[4].kill().unwrap();
    let locks = five.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    assert_eq!(guard.token().epoch(), ahead + 1);
    // Servers that gave a smaller one have it now: it is larger on every majority from here on.
    for server in 0..3 {
        let one = five.one(server, 9).await;
        let view = one.look(&Scope::Names(vec![tidelock::Name::new(NAME).unwrap()])).await.unwrap();
        assert_eq!(view[0].holders[0].epoch, Some(ahead + 1), "server {server}");
    }
    guard.release().await.unwrap();
    five.servers[3].restart().unwrap();
    five.servers[4].restart().unwrap();
    five.servers[2].kill().unwrap();
    let next = within("it is granted without the one that was ahead", async {
        loop {
            if let Ok(guard) = locks.mutex(NAME).ttl(LONG).lock().await {
                return guard;
            }
        }
    });
    let next = next.await;
    assert!(next.token().epoch() > ahead + 1, "{}", next.token());
    next.release().await.unwrap();
}

async fn tokens_grow_though_the_majority_is_another_one_each_time() {
    let five = Five::durable();
    let witness = Witness::default();
    let locks = [five.connect().await, five.connect().await];
    for round in 0..30 {
        let (a, b) = (round % 5, (round + 1 + round / 5 % 4) % 5);
        five.servers[a].pause().unwrap();
        five.servers[b].pause().unwrap();
        let mutex = locks[round % 2].mutex(NAME).ttl(LONG);
        let guard = within("three of five suffice", witness.lock(&mutex)).await.unwrap();
        five.servers[a].resume().unwrap();
        five.servers[b].resume().unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(witness.doubles(), 0);
}

async fn a_claim_that_only_a_minority_granted_is_left_everywhere() {
    let five = Five::durable();
    // Others hold it on three servers, each on its own: nobody has a majority.
    for server in 0..3 {
        let other = five.one(server, 10 + server as u64).await;
        other.enter(&claim(10 + server as u64, 1, LONG), Ask::Try).await.unwrap();
        drop(other);
    }
    let locks = five.connect().await;
    assert!(locks.mutex(NAME).ttl(LONG).try_lock().await.unwrap().is_none());
    for server in 3..5 {
        let one = five.one(server, 9).await;
        let looking = async {
            let scope = Scope::Names(vec![tidelock::Name::new(NAME).unwrap()]);
            while !one.look(&scope).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within("the claim was left", looking).await;
    }
}

async fn of_those_who_try_at_the_same_moment_one_gets_it() {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 40;
    let five = Five::durable();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(five.connect().await);
    }
    let mut nobody = 0;
    for round in 0..ROUNDS {
        let name = format!("{NAME} {round}");
        let tries = clients.iter().map(|locks| {
            let mutex = locks.mutex(&*name).ttl(LONG);
            tokio::spawn(async move { mutex.try_lock().await.unwrap() })
        });
        let mut winners = Vec::new();
        for tried in tries.collect::<Vec<_>>() {
            winners.extend(within("an answer", tried).await.unwrap());
        }
        assert!(winners.len() <= 1, "{} hold it", winners.len());
        nobody += usize::from(winners.is_empty());
        for winner in winners {
            winner.release().await.unwrap();
        }
    }
    report(&format!("{ROUNDS} times {CLIENTS} clients tried at once; {nobody} times nobody got it"));
    assert!(nobody <= ROUNDS / 10, "{nobody} of {ROUNDS}");
}

async fn many_who_come_at_the_same_moment_all_get_it_in_turn() {
    const CLIENTS: usize = 12;
    let five = Five::durable();
    let witness = Arc::new(Witness::default());
    let mut turns = Vec::new();
    for _ in 0..CLIENTS {
        let (witness, mutex) = (Arc::clone(&witness), five.connect().await.mutex(NAME).ttl(LONG));
        turns.push(async move {
            for _ in 0..5 {
                witness.lock(&mutex).await.unwrap().release().await.unwrap();
            }
        });
    }
    let began = Instant::now();
    let turns: Vec<_> = turns.into_iter().map(tokio::spawn).collect();
    for turn in turns {
        within("everybody gets it", turn).await.unwrap();
    }
    let each = began.elapsed() / u32::try_from(5 * CLIENTS).unwrap();
    report(&format!("{CLIENTS} clients came at once, five times: {each:?} for each turn"));
    assert_eq!((witness.grants(), witness.doubles()), (5 * CLIENTS, 0));
    until_idle(&five.connect().await, NAME).await;
}

async fn a_ttl_longer_than_servers_are_kept_from_voting_is_refused() {
    let five = Five::forgetful();
    let locks = five.connect().await;
    let error = locks.mutex(NAME).ttl(2 * LONGEST).lock().await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.to_string().contains("longest_ttl_ms"), "{error}");
}

async fn permits_are_refused_with_the_reason() {
    let five = Five::durable();
    let locks = five.connect().await;
    let error = locks.semaphore(NAME, 3).acquire(1).await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.to_string().contains("majorities of different servers"), "{error}");
}
