//! Followers of names: what is left of those that are gone, and what they hear after their session, their row or their rights
//! were taken away.

use std::sync::Arc;

use test_servers::{Postgres, Server};
use tidelock::{
    Name,
    backend::{Backend, ClientId, Follow},
    backends::postgres::{PostgresBackend, PostgresConfig},
};
use tokio::task::JoinHandle;

use crate::{
    end_sessions, sql,
    support::{LONG, NAME, Place, eventually, got, waiter, within},
};

trials! {
    a_follower_that_is_gone_is_forgotten_with_the_next_change,
    followers_hear_of_locks_that_are_taken_and_released_together,
    a_follower_whose_session_was_ended_hears_of_changes_again,
    a_follower_whose_row_was_forgotten_hears_of_changes_again,
    a_role_that_may_not_follow_sees_changes_by_asking,
}

/// A client that follows names, and does nothing else.
struct Follower {
    backend: Arc<PostgresBackend>,
    listening: JoinHandle<()>,
}

impl Follower {
    async fn connect(place: &Place) -> Self {
        let config = PostgresConfig::from_url(&place.url()).unwrap();
        let backend = Arc::new(
            within("it connects", PostgresBackend::connect(config, ClientId::random())).await.unwrap(),
        );
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

const FOLLOWED: &str = "SELECT count(*) FROM tidelock.line WHERE followed";
const FOLLOWERS: &str = "SELECT count(*) FROM tidelock.follower";

fn server() -> (Server, Place) {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    (server, place)
}

/// Something changes, and the follower hears of it.
async fn hears(follow: &Follow, what: impl Future<Output = ()> + Send) {
    let before = follow.changes();
    what.await;
    within("it is told", follow.changed_since(before)).await;
}

async fn a_follower_that_is_gone_is_forgotten_with_the_next_change() {
    let (server, place) = server();
    let locks = place.connect().await;
    let follower = Follower::connect(&place).await;
    let follow = follower.live(NAME).await;
    assert_eq!((sql(&server, FOLLOWED), sql(&server, FOLLOWERS)), ("1".into(), "1".into()));
    drop((follow, follower));
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    assert_eq!((sql(&server, FOLLOWED), sql(&server, FOLLOWERS)), ("0".into(), "0".into()));
    guard.release().await.unwrap();
}

async fn followers_hear_of_locks_that_are_taken_and_released_together() {
    let (_server, place) = server();
    let locks = place.connect().await;
    let follower = Follower::connect(&place).await;
    let names: Vec<String> = (0..40).map(|number| format!("many {number}")).collect();
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

async fn a_follower_whose_session_was_ended_hears_of_changes_again() {
    let (server, place) = server();
    let locks = place.connect().await;
    let follower = Follower::connect(&place).await;
    let follow = follower.live(NAME).await;
    for _ in 0..5 {
        hears(&follow, async { assert_eq!(end_sessions(&server), 2) }).await;
        eventually("it is live again", || follow.is_live()).await;
        hears(&follow, async {
            within("it is taken", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap().release().await.unwrap();
        })
        .await;
        eventually("both are connected", || {
            let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidelock'";
            sql(&server, sessions) == "2"
        })
        .await;
    }
}

async fn a_follower_whose_row_was_forgotten_hears_of_changes_again() {
    let (server, place) = server();
    let locks = place.connect().await;
    let follower = Follower::connect(&place).await;
    let follow = follower.live(NAME).await;
    let forget = "UPDATE tidelock.line SET used = 0, epoch = 0; SELECT tidelock.sweep(1), tidelock.sweep(1)";
    hears(&follow, async { drop(sql(&server, forget)) }).await;
    eventually("it is followed", || sql(&server, FOLLOWED) == "1").await;
    hears(&follow, async {
        locks.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
    })
    .await;
}

async fn a_role_that_may_not_follow_sees_changes_by_asking() {
    let (server, place) = server();
    let locks = place.connect().await;
    sql(&server, "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA tidelock TO app");
    sql(
        &server,
        "GRANT EXECUTE ON FUNCTION tidelock.version, tidelock.hello, tidelock.enter, tidelock.renew, tidelock.exit, tidelock.together, tidelock.shut_out, tidelock.look, tidelock.peek TO app",
    );
    let app = place.logged_in("app", "");
    let observer = app.connect().await;
    let mut watch = observer.election(NAME).watch();
    assert_eq!(within("nobody leads", watch.next()).await.unwrap().unwrap(), None);
    let lead = locks.election(NAME).ttl(LONG).campaign().await.unwrap();
    let seen = within("it leads", watch.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(seen.token, lead.token());
    assert_eq!(sql(&server, FOLLOWERS), "0");
    lead.release().await.unwrap();
}
