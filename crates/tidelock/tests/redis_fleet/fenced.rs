//! `fenced=1`: the tokens of Redisson's fenced lock, counted by both sides.

use crate::{
    alternating::{Trial, place_for},
    programs::{NEW, Peer},
    support::{LONG, NAME, Place, SHORT, got, report, shared, until, until_waiting, waiter, within},
};

trials! {
    the_fencing_tokens_of_redisson_and_ours_are_one_series,
    a_fenced_lock_is_not_handed_on_with_its_number,
    a_counter_that_is_no_number_is_in_the_way_of_its_own_lock_only,
    without_the_option_there_is_no_foreign_token,
}

/// A place for fenced locks, and the key of its lock.
fn place() -> (Place, String) {
    let (place, name) = place_for(NEW, &Place::shared(), false);
    (place.with("fenced=1"), name)
}

fn ask(command: &[&str]) -> String {
    shared().command(command).unwrap().unwrap_or_default()
}

async fn the_fencing_tokens_of_redisson_and_ours_are_one_series() -> Trial {
    let mut program = tokio::task::spawn_blocking(|| NEW.program()).await.unwrap()?;
    let (place, name) = place();
    let (locks, other) = (place.connect().await, place.connect().await);
    let hosts = place.hosts().to_owned();
    let mut theirs = Peer::ready(program.args(["fenced", &hosts, &name])).await;
    let (mut last, mut own) = (0, None);
    let mut next = |who: &str, token: u64| {
        assert!(token > last, "{who}: {token} after {last}");
        last = token;
    };
    for turn in 0..50 {
        theirs.tell();
        next("they", within("they hold", theirs.hear()).await.parse().unwrap());
        // As the first, and out of the queue, where a renewal makes the entry.
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        next("we", guard.foreign_token().unwrap());
        let guard = if turn % 2 == 0 {
            guard
        } else {
            let waiting = waiter(&other, NAME, LONG);
            until_waiting(&locks, NAME, 1).await;
            guard.release().await.unwrap();
            let guard = got(waiting).await;
            next("we, in the queue", guard.foreign_token().unwrap());
            guard
        };
        assert!(own.replace(guard.token()) < Some(guard.token()));
        guard.release().await.unwrap();
    }
    report(&format!("{last} fencing tokens of Redisson and ours, each larger than the one before"));
    // A renewal keeps the number.
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let token = guard.foreign_token();
    tokio::time::sleep(SHORT).await;
    assert!(guard.is_held() && guard.foreign_token() == token);
    Ok(())
}

async fn a_fenced_lock_is_not_handed_on_with_its_number() {
    let (place, _) = place();
    let locks = place.connect().await;
    let mut turns = Vec::new();
    for _ in 0..8 {
        let locks = locks.clone();
        turns.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..5 {
                let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
                tokens.push((guard.token(), guard.foreign_token().unwrap()));
                guard.release().await.unwrap();
            }
            tokens
        }));
    }
    let mut tokens = Vec::new();
    for turn in turns {
        tokens.extend(within("a task had its turns", turn).await.unwrap());
    }
    tokens.sort_unstable();
    assert!(tokens.windows(2).all(|pair| pair[0].1 < pair[1].1), "{tokens:?}");
}

async fn a_counter_that_is_no_number_is_in_the_way_of_its_own_lock_only() {
    let (place, name) = place();
    let (locks, other) = (place.connect().await, "another lock");
    let kept = locks.mutex(other).ttl(SHORT).lock().await.unwrap();
    let counter = format!("redisson_lock_token:{{{name}}}");
    ask(&["SET", &counter, "seven"]);
    let waiting = waiter(&locks, NAME, LONG);
    until(&locks, NAME, |view| view.holders.len() + view.waiters.len() == 1).await;
    tokio::time::sleep(SHORT).await;
    assert!(kept.is_held() && !waiting.is_finished());
    assert_eq!(ask(&["EXISTS", &name]), "0");
    ask(&["SET", &counter, "7"]);
    assert_eq!(got(waiting).await.foreign_token(), Some(8));
}

async fn without_the_option_there_is_no_foreign_token() {
    let (place, name) = place_for(NEW, &Place::shared(), false);
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    assert_eq!(guard.foreign_token(), None);
    assert_eq!(ask(&["EXISTS", &format!("redisson_lock_token:{{{name}}}")]), "0");
    // Nor has a read-write lock one: Redisson counts for its plain lock only.
    guard.release().await.unwrap();
    let writer = place.with("fenced=1").connect().await.rw_lock(NAME).ttl(LONG).write().await.unwrap();
    assert_eq!(writer.foreign_token(), None);
}
