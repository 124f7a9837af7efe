//! How large the tables of a database get. `TIDELOCK_GRANTS=1000000` grants so often; without it a trial takes seconds.

use std::time::{Duration, Instant};

use super::{LONG, Place, report};

/// How many are asked for at the same time, for how many locks.
const TASKS: usize = 64;
const NAMES: usize = 1_000;

/// Locks are taken and given back by a client, again and again. Says how many, and how long it took.
pub(crate) async fn grant_often(place: &Place) -> (usize, Duration) {
    let grants = std::env::var("TIDELOCK_GRANTS").map_or(20_000, |grants| grants.parse().unwrap());
    let locks = place.connect().await;
    let each = grants / TASKS;
    let began = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for n in 0..each {
                    let name = format!("orders/{}", (n * TASKS + task) % NAMES);
                    locks.mutex(name).ttl(LONG).lock().await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    (each * TASKS, began.elapsed())
}

/// What the tables have come to is told, and is not much.
pub(crate) fn are_small((grants, took): (usize, Duration), bytes: u64, more: &str) {
    report(&format!("{grants} grants of {NAMES} names in {took:.1?}: {bytes} bytes{more}"));
    assert!(bytes < 10 << 20, "{bytes} bytes");
}
