//! Holders that are killed and stopped, and very many that wait.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use test_servers::{Server, Zookeeper};
use tidelock::Locks;

use crate::{
    process::{Job, Worker, say},
    support::{LONG, NAME, Place, SHORT, got, report, until, until_idle, until_waiting, waiter, within},
};

trials! {
    a_holder_killed_with_9_lets_the_next_in_when_its_session_ends,
    a_holder_stopped_past_its_session_has_lost_the_lock_when_it_goes_on,
    waiters_killed_with_9_are_passed_over,
    a_thousand_waiters_are_woken_one_by_one_in_order,
}

/// Does a worker's job, if this process is one: holds until it is killed, and says when it has lost the lock.
pub(crate) fn work() -> bool {
    let Some(job) = Job::of_this_process() else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::connect(&job.place).await.unwrap();
        let guard = locks.mutex(NAME).ttl(job.ttl).lock().await.unwrap();
        say(&format!("held {}", guard.token()));
        let loss = guard.lost().await;
        say(&format!("lost {loss}"));
        std::future::pending().await
    })
}

async fn a_holder_killed_with_9_lets_the_next_in_when_its_session_ends() {
    let place = Place::shared();
    let locks = place.connect().await;
    let mut holder = Worker::start(&place.url(), "hold", SHORT);
    let before: u64 = holder.hear("held").parse().unwrap();
    let waiting = waiter(&locks, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    let killed = Instant::now();
    holder.kill();
    let guard = got(waiting).await;
    report(&format!("from kill -9 of a holder with a ttl of {SHORT:?} to the next: {:?}", killed.elapsed()));
    assert!(guard.token().get() > before);
    guard.release().await.unwrap();
}

async fn a_holder_stopped_past_its_session_has_lost_the_lock_when_it_goes_on() {
    let place = Place::shared();
    let locks = place.connect().await;
    let mut holder = Worker::start(&place.url(), "hold", SHORT);
    let before: u64 = holder.hear("held").parse().unwrap();
    holder.signal(Signal::STOP);
    let guard = within("the session ends", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    assert!(guard.token().get() > before);
    holder.signal(Signal::CONT);
    assert!(holder.hear("lost").contains(NAME));
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn waiters_killed_with_9_are_passed_over() {
    let place = Place::shared();
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut dead: Vec<_> = (0..3).map(|_| Worker::start(&place.url(), "hold", SHORT)).collect();
    until_waiting(&locks, NAME, 3).await;
    let waiting = waiter(&place.connect().await, NAME, LONG);
    until_waiting(&locks, NAME, 4).await;
    dead.iter_mut().for_each(Worker::kill);
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

/// An owner each, so that every one has a place of its own in the line.
async fn a_thousand_waiters_are_woken_one_by_one_in_order() {
    const CLIENTS: usize = 4;
    const WAITERS: usize = 1_000;
    let server = Zookeeper::new().start().unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let (tell, mut hear) = tokio::sync::mpsc::unbounded_channel();
    for client in 0..CLIENTS {
        let client_locks = place.connect().await;
        for n in (client..WAITERS).step_by(CLIENTS) {
            let mutex = client_locks.mutex(NAME).ttl(LONG).owner(n.to_string());
            let tell = tell.clone();
            tokio::spawn(async move {
                let guard = mutex.lock().await.unwrap();
                tell.send((n.to_string(), guard.token())).unwrap();
                guard.release().await.unwrap();
            });
        }
    }
    until(&locks, NAME, |view| view.waiters.len() == WAITERS).await;
    let line = locks.look(&[NAME]).await.unwrap().remove(0).waiters;
    let order: Vec<_> = line.iter().map(|claim| claim.owner.clone().unwrap().to_string()).collect();
    let (began, before) = (Instant::now(), fired(&server));
    let mut last = guard.token();
    guard.release().await.unwrap();
    for expected in order {
        let (owner, token) = within("the next holds", hear.recv()).await.unwrap();
        assert_eq!(owner, expected);
        assert!(token > last);
        last = token;
    }
    let each = began.elapsed() / u32::try_from(WAITERS).unwrap();
    let fired = fired(&server) - before;
    report(&format!(
        "{WAITERS} waiters of {CLIENTS} clients: {each:?} for each hand-over, {fired} watches fired on the server"
    ));
    assert!(fired <= WAITERS as u64 + 1, "more than one watch for a release: {fired} of {WAITERS}");
    until_idle(&locks, NAME).await;
}
