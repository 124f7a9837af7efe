//! Followers of names: what is left of those that are gone, and what they hear after their connections or their line were
//! taken away.

use std::sync::Arc;

use tidelock::{
    Name,
    backend::{Backend, ClientId, Follow},
    backends::mysql::{MysqlBackend, MysqlConfig},
};
use tokio::task::JoinHandle;

use crate::{
    sql,
    support::{LONG, NAME, Place, eventually, got, shared, waiter, within},
};

trials! {
    a_follower_that_is_gone_is_forgotten,
    followers_hear_of_locks_that_are_taken_and_released_together,
    a_follower_whose_connections_were_killed_hears_of_changes_again,
    a_follower_whose_line_was_forgotten_hears_of_changes_again,
    a_question_that_comes_late_does_not_undo_a_later_one,
}

/// A client that follows names, and does nothing else.
struct Follower {
    backend: Arc<MysqlBackend>,
    listening: JoinHandle<()>,
}

impl Follower {
    async fn connect(place: &Place) -> Self {
        let config = MysqlConfig::from_url(&place.url()).unwrap();
        let backend =
            Arc::new(within("it connects", MysqlBackend::connect(config, ClientId::random())).await.unwrap());
        let listener = Arc::clone(&backend);
        let listening = tokio::spawn(async move {
            loop {
                drop(listener.wait().await);
            }
        });
        Self { backend, listening }
    }

    async fn live(&self, name: &str) -> Follow {
        let follow = self.backend.follow(&Name::new(name).unwrap()).unwrap();
        eventually("it is live", || follow.is_live()).await;
        follow
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

const FOLLOWED: &str = "SELECT COUNT(*) FROM tidelock_lines WHERE followed = 1";

/// Something changes, and the follower hears of it.
async fn hears(follow: &Follow, what: impl Future<Output = ()> + Send) {
    let before = follow.changes();
    what.await;
    within("it is told", follow.changed_since(before)).await;
}

async fn a_follower_that_is_gone_is_forgotten() {
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    let follower = Follower::connect(&place).await;
    let follow = follower.live(NAME).await;
    assert_eq!(place.ask(&server, FOLLOWED), "1");
    drop((follow, follower));
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    assert_eq!(place.ask(&server, FOLLOWED), "0", "the next change is as quick as any");
    guard.release().await.unwrap();
    let followers = "SELECT COUNT(*) FROM tidelock_followers";
    assert_eq!(place.ask(&server, followers), "1", "it may still come to hear it");
    place.ask(&server, "UPDATE tidelock_followers SET since = 0");
    place.ask(&server, "CALL tidelock_sweep()");
    assert_eq!(place.ask(&server, followers), "0");
}

async fn followers_hear_of_locks_that_are_taken_and_released_together() {
    let place = Place::shared();
    let locks = place.connect().await;
    let follower = Follower::connect(&place).await;
    let names: Vec<String> = (0..20).map(|number| format!("many {number}")).collect();
    let mut follows = Vec::new();
    for name in &names {
        follows.push(follower.live(name).await);
    }
    for _ in 0..3 {
        let before: Vec<u64> = follows.iter().map(Follow::changes).collect();
        let taking: Vec<_> = names.iter().map(|name| waiter(&locks, name, LONG)).collect();
        let mut guards = Vec::new();
        for taking in taking {
            guards.push(got(taking).await);
        }
        for (follow, before) in follows.iter().zip(before) {
            within("a grant is told", follow.changed_since(before)).await;
        }
        let before: Vec<u64> = follows.iter().map(Follow::changes).collect();
        let releasing: Vec<_> = guards.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
        for releasing in releasing {
            releasing.await.unwrap().unwrap();
        }
        for (follow, before) in follows.iter().zip(before) {
            within("a release is told", follow.changed_since(before)).await;
        }
    }
}

async fn a_follower_whose_connections_were_killed_hears_of_changes_again() {
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    let follower = Follower::connect(&place).await;
    let follow = follower.live(NAME).await;
    for _ in 0..3 {
        let database = &place.prefix;
        let list = format!("SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{database}'");
        hears(&follow, async {
            for id in sql(&server, &list).lines() {
                // It may have gone already.
                let _ = server.ask(&["-e", &format!("KILL {id}")]);
            }
        })
        .await;
        eventually("it is live again", || follow.is_live()).await;
        hears(&follow, async {
            within("it is taken", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap().release().await.unwrap();
        })
        .await;
    }
}

async fn a_follower_whose_line_was_forgotten_hears_of_changes_again() {
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    let follower = Follower::connect(&place).await;
    let follow = follower.live(NAME).await;
    hears(&follow, async {
        place.ask(&server, "UPDATE tidelock_lines SET day = 0, epoch = 0");
        place.ask(&server, "CALL tidelock_sweep()");
    })
    .await;
    eventually("it is followed", || place.ask(&server, FOLLOWED) == "1").await;
    hears(&follow, async {
        locks.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
    })
    .await;
}

async fn a_question_that_comes_late_does_not_undo_a_later_one() {
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    for number in [1, 2] {
        place.ask(&server, &format!("CALL tidelock_follow('the lock', 7, {number})"));
    }
    locks.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
    place.ask(&server, "CALL tidelock_follow('the lock', 7, 1)");
    assert!(place.ask(&server, "CALL tidelock_listen(7, 5, '')").starts_with("F\t2\tthe lock"));
    assert_eq!(place.ask(&server, "CALL tidelock_listen(7, 0.1, 'f1')"), "F\t2\tthe lock\t0\t0\t0");
}
