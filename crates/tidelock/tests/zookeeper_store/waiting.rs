//! Claims that wait cost their client, not each claim, and whatever happens to one of them is found all the same.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use test_servers::{Proxy, Server, Zookeeper};
use tidelock::{
    backend::{Backend as _, Claim, Leave, Standing},
    backends::zookeeper::ZookeeperBackend,
};

use crate::{
    support::{Place, report, within},
    tasks::{claim, connect, holds, waits},
};

trials! {
    very_many_that_wait_are_renewed_with_one_question,
    those_whose_turn_came_while_they_were_cut_off_are_found,
}

/// How many claims wait, each for a lock of its own.
const WAITERS: u64 = 40;

/// How many messages of clients the server got.
fn received(server: &Server) -> u64 {
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"mntr").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let received = text.lines().find_map(|line| line.strip_prefix("zk_packets_received\t"));
    received.unwrap_or_else(|| panic!("the server counts no messages: {text}")).parse().unwrap()
}

/// A client that holds locks, and one that waits for all of them.
struct Lines {
    holder: ZookeeperBackend,
    waiter: ZookeeperBackend,
    held: Vec<Arc<Claim>>,
    waiting: Vec<Arc<Claim>>,
}

impl Lines {
    async fn form(holder: &Place, waiter: &Place) -> Self {
        let (holder, waiter) = (connect(holder).await, connect(waiter).await);
        let held: Vec<_> = (0..WAITERS).map(|number| claim(1, number)).collect();
        let waiting: Vec<_> = (0..WAITERS).map(|number| claim(2, number)).collect();
        for (held, waiting) in held.iter().zip(&waiting) {
            holds(&holder, held).await;
            waits(&waiter, waiting).await;
        }
        Self { holder, waiter, held, waiting }
    }

    /// Renews all that wait, until this is so.
    async fn until(&self, what: &str, mut is_so: impl FnMut(&[Standing]) -> bool + Send) {
        let renewed = async {
            // While the connection is being made again there is no answer.
            while !self.waiter.renew(&self.waiting).await.is_ok_and(|standings| is_so(&standings)) {}
        };
        within(what, renewed).await;
    }
}

fn is_held(standing: &Standing) -> bool {
    matches!(standing, Standing::Held(_))
}

fn is_waiting(standing: &Standing) -> bool {
    matches!(standing, Standing::Waiting(_))
}

async fn very_many_that_wait_are_renewed_with_one_question() {
    let server = Zookeeper::new().start().unwrap();
    let place = Place::on(server.url());
    let lines = Lines::form(&place, &place).await;
    let mut before = received(&server);
    let mut asked = 0;
    lines
        .until("all that they wait for is watched", |standings| {
            assert!(standings.iter().all(is_waiting), "{standings:?}");
            let now = received(&server);
            asked = now - before;
            before = now;
            // One question, and perhaps signs of life.
            asked <= 5
        })
        .await;
    report(&format!("{asked} messages for a renewal of {WAITERS} that wait"));
    // One gets its turn, one is put out: neither hears of it, because nobody waits for news.
    let [left, evicted] = [&lines.held[3], &lines.waiting[5]];
    lines.holder.leave(&left.name, left.id, Leave::Done).await.unwrap();
    lines.holder.leave(&evicted.name, evicted.id, Leave::evicted("no more")).await.unwrap();
    lines
        .until("one holds and one is gone", |standings| {
            let others = standings.iter().enumerate().filter(|(index, _)| ![3, 5].contains(index));
            assert!(others.map(|(_, standing)| standing).all(is_waiting), "{standings:?}");
            is_held(&standings[3]) && standings[5] == Standing::Gone
        })
        .await;
}

async fn those_whose_turn_came_while_they_were_cut_off_are_found() {
    let server = Zookeeper::new().start().unwrap();
    let place = Place::on(server.url());
    let proxy = Proxy::start(server.addr()).unwrap();
    let lines = Lines::form(&place, &place.behind(&proxy)).await;
    lines.until("all wait", |standings| standings.iter().all(is_waiting)).await;
    // What is watched on the connection that is cut is not told on the next one.
    proxy.cut();
    for held in &lines.held[..10] {
        lines.holder.leave(&held.name, held.id, Leave::Done).await.unwrap();
    }
    proxy.heal().unwrap();
    lines
        .until("those hold whose turn came, and no others", |standings| {
            assert!(!standings[10..].iter().any(is_held), "{standings:?}");
            standings[..10].iter().all(is_held) && standings[10..].iter().all(is_waiting)
        })
        .await;
}
