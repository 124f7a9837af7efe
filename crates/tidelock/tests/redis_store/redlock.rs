//! Five servers that vote: any two of them are killed, paused, emptied or cut off.
//!
//! `TIDELOCK_GRANTS=10000` makes the storm of processes as long as that.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use test_servers::{Proxy, Redis, Server};
use tidelock::{
    LockState, Locks,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Leave, Scope, Share, Standing},
    backends::{
        redis::{RedisBackend, RedisConfig},
        redlock::{RedlockBackend, RedlockConfig},
    },
};

use crate::{
    support::{
        LONG, NAME, SHORT, eventually, got, is_one_sentence, nobody, report,
        turns::{Turns, Verdict},
        until_idle, until_waiting, waiter, within,
    },
    witness::Witness,
    worker::Worker,
};

trials! {
    any_two_of_five_may_fail_in_any_way_while_processes_take_turns,
    a_majority_that_is_gone_is_an_error_with_what_each_server_said_and_comes_back_by_itself,
    a_majority_that_does_not_answer_is_an_error_and_not_a_hang,
    a_server_that_was_restarted_empty_has_no_vote_until_leases_from_before_are_over,
    servers_restarted_one_after_the_other_cost_the_holder_nothing,
    a_server_that_came_back_from_a_pause_is_told_what_it_missed,
    epochs_that_differ_are_written_to_a_majority_before_the_lock_is_held,
    tokens_grow_though_the_majority_is_another_one_each_time,
    a_claim_that_only_a_minority_granted_is_left_everywhere,
    of_those_who_try_at_the_same_moment_one_gets_it,
    many_who_come_at_the_same_moment_all_get_it_in_turn,
    a_server_under_two_names_would_vote_twice_and_is_refused,
    a_ttl_longer_than_servers_are_kept_from_voting_is_refused,
    permits_are_refused_with_the_reason,
    a_wrong_password_on_one_of_five_is_said_when_connecting,
    an_eviction_reaches_the_holder_with_its_reason,
    a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends,
    a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on,
    a_holder_cut_off_from_all_servers_has_lost_the_lock_before_another_holds,
    a_holder_cut_off_from_two_of_five_keeps_its_lock,
}

/// For so long a server that was started has no vote: the longest lease that these trials use, or so.
const LONGEST: Duration = Duration::from_secs(2);

/// Five servers, and the URL of all of them.
struct Five {
    servers: Vec<Server>,
    longest: Duration,
}

impl Five {
    /// Servers that keep what they confirm: they have a vote at once, and after a restart.
    fn durable() -> Self {
        let servers = (0..5).map(|_| Redis::new().durable().start().unwrap()).collect();
        Self { servers, longest: 20 * LONG }
    }

    /// Servers that forget all when they end.
    fn forgetful() -> Self {
        let servers = (0..5).map(|_| Redis::new().start().unwrap()).collect();
        Self { servers, longest: LONGEST }
    }

    fn url(&self) -> String {
        self.url_of(self.servers.iter().map(|server| server.addr().to_string()))
    }

    fn url_of(&self, hosts: impl Iterator<Item = String>) -> String {
        let hosts: Vec<_> = hosts.collect();
        format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), self.longest.as_millis())
    }

    async fn connect(&self) -> Locks {
        Locks::connect(&self.url()).await.unwrap()
    }

    /// A client as the engine has it.
    async fn backend(&self, client: u64) -> RedlockBackend {
        let config = RedlockConfig::from_url(&self.url()).unwrap();
        RedlockBackend::connect(config, ClientId::from_u64(client)).await.unwrap()
    }

    /// A client of one of the servers alone.
    async fn one(&self, server: usize, client: u64) -> RedisBackend {
        let config = RedisConfig::from_url(self.servers[server].url()).unwrap();
        RedisBackend::connect(config, ClientId::from_u64(client)).await.unwrap()
    }

    /// Waits until all servers have a vote, whoever counts the time: they tell it in whole seconds.
    async fn can_vote(&self) {
        let is_old = |server: &Server| {
            let info = server.command(&["INFO", "server"]).unwrap().unwrap_or_default();
            let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap();
            uptime.trim().parse::<u64>().unwrap() >= self.longest.as_secs() + 2
        };
        eventually("the servers are up for long", || self.servers.iter().all(is_old)).await;
    }
}

fn claim(client: u64, serial: u64, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim {
        id: ClaimId::new(ClientId::from_u64(client), serial),
        name: tidelock::Name::new(NAME).unwrap(),
        share: Share::Exclusive,
        owner: None,
        ttl,
        label: "trial".into(),
        detached: false,
        auto_renew: true,
        writes: false,
    })
}

async fn any_two_of_five_may_fail_in_any_way_while_processes_take_turns() {
    const PROCESSES: usize = 3;
    let grants: usize = std::env::var("TIDELOCK_GRANTS").map_or(1_000, |grants| grants.parse().unwrap());
    let five = Five::forgetful();
    let proxies: Vec<_> = five.servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
    five.can_vote().await;
    let url = five.url_of(proxies.iter().map(|proxy| proxy.addr().to_string()));
    let turns = Turns::begin(&url, PROCESSES, grants.div_ceil(PROCESSES), LONGEST);
    // Two of them at a time, each in another way, until all turns were taken.
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    let mut number = 0_usize;
    while !turns.are_over() {
        let (first, second) = (number % 5, (number + 1 + number / 5 % 4) % 5);
        for (server, way) in [(first, number % 4), (second, (number / 4 + 1) % 4)] {
            let name = match way {
                0 => {
                    five.servers[server].kill().unwrap();
                    "killed and started empty"
                }
                1 => {
                    five.servers[server].pause().unwrap();
                    "paused"
                }
                2 => {
                    proxies[server].cut();
                    "cut off"
                }
                _ => {
                    proxies[server].swallow_replies();
                    "not heard"
                }
            };
            *faults.entry(name).or_default() += 1;
        }
        tokio::time::sleep(Duration::from_millis(300 + (number as u64 * 37) % 400)).await;
        for server in [first, second] {
            let _ = five.servers[server].resume();
            if five.servers[server].ping().is_err() {
                five.servers[server].restart().unwrap();
            }
            proxies[server].heal().unwrap();
        }
        // Two others may only fail when these have their vote again.
        five.can_vote().await;
        number += 1;
    }
    let Verdict { turns, overlaps, unordered, errors } = turns.end().await;
    report(&format!(
        "{turns} turns of {PROCESSES} processes, {errors} errors, {overlaps} overlaps, {unordered} tokens out of order; {number} pairs of servers failed: {faults:?}"
    ));
    assert!(turns >= grants && number > 0);
    assert_eq!((overlaps, unordered), (0, 0));
}

async fn a_majority_that_is_gone_is_an_error_with_what_each_server_said_and_comes_back_by_itself() {
    let five = Five::durable();
    let locks = five.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    for server in &five.servers[..3] {
        server.kill().unwrap();
    }
    let asked = Instant::now();
    let error = within("an answer", locks.mutex("another").ttl(LONG).lock()).await.unwrap_err();
    report(&format!("three of five gone, said after {:?}: {error}", asked.elapsed()));
    is_one_sentence(&error);
    assert!(error.is_retryable() && error.to_string().contains("2 of 5 servers can vote"), "{error}");
    for server in &five.servers[..3] {
        assert!(error.to_string().contains(&server.addr().to_string()), "{error}");
        server.restart().unwrap();
    }
    let mutex = locks.mutex("another").ttl(LONG);
    let again = within("they are found again", async {
        loop {
            if let Ok(guard) = mutex.lock().await {
                return guard;
            }
        }
    });
    again.await.release().await.unwrap();
    // It was within its lease all the time, and the servers kept it.
    eventually("it is renewed", || guard.state() == LockState::Held).await;
    guard.release().await.unwrap();
}

async fn a_majority_that_does_not_answer_is_an_error_and_not_a_hang() {
    let five = Five::durable();
    let locks = five.connect().await;
    for server in &five.servers[..3] {
        server.pause().unwrap();
    }
    let asked = Instant::now();
    let error = within("an answer", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap_err();
    report(&format!("three of five paused, said after {:?}: {error}", asked.elapsed()));
    is_one_sentence(&error);
    assert!(error.to_string().contains("no answer in time"), "{error}");
    for server in &five.servers[..3] {
        server.resume().unwrap();
    }
    // What they were asked before is not in the way of anybody.
    let guard = within("they are found again", async {
        loop {
            if let Ok(guard) = locks.mutex(NAME).ttl(LONG).lock().await {
                return guard;
            }
        }
    });
    guard.await.release().await.unwrap();
    until_idle(&locks, NAME).await;
}

/// Without the rule the claims of two clients would each have a majority: the second one of servers that forgot
/// the first.
async fn a_server_that_was_restarted_empty_has_no_vote_until_leases_from_before_are_over() {
    let five = Five::forgetful();
    five.can_vote().await;
    // One that does not even listen: nobody renews.
    let first = five.backend(1).await;
    let held = claim(1, 1, LONGEST);
    let Entered::Held(grant) = first.enter(&held, Ask::Try).await.unwrap() else { panic!("nobody holds") };
    let since = Instant::now();
    for server in &five.servers[..3] {
        server.kill().unwrap();
        server.restart().unwrap();
    }
    // A client that knows nothing of that.
    let second = five.backend(2).await;
    let mut serial = 0;
    let later = within("they have a vote again", async {
        loop {
            serial += 1;
            match second.enter(&claim(2, serial, LONGEST), Ask::Try).await {
                Ok(Entered::Held(grant)) => return grant,
                Ok(_) => {}
                Err(failure) => {
                    assert!(failure.reason.contains("has no vote for another"), "{failure}");
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let later = later.await;
    assert!(since.elapsed() >= LONGEST, "granted after {:?}", since.elapsed());
    assert!(later.epoch > grant.epoch, "tokens grow though three of five forgot them");
}

async fn servers_restarted_one_after_the_other_cost_the_holder_nothing() {
    let five = Five::forgetful();
    five.can_vote().await;
    let locks = five.connect().await;
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    for server in &five.servers {
        server.kill().unwrap();
        server.restart().unwrap();
        five.can_vote().await;
        // Renewed there: the next one may go.
        let name = tidelock::Name::new(NAME).unwrap();
        let one = RedisBackend::connect(RedisConfig::from_url(server.url()).unwrap(), ClientId::from_u64(9));
        let one = one.await.unwrap();
        let looking = async {
            while one.look(&Scope::Names(vec![name.clone()])).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("the holder is known again", looking).await;
    }
    assert_eq!(guard.state(), LockState::Held);
    assert!(five.connect().await.mutex(NAME).ttl(SHORT).try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

async fn a_server_that_came_back_from_a_pause_is_told_what_it_missed() {
    let five = Five::durable();
    let locks = five.connect().await;
    let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    five.servers[4].pause().unwrap();
    guard.release().await.unwrap();
    five.servers[4].resume().unwrap();
    let one = five.one(4, 9).await;
    let name = tidelock::Name::new(NAME).unwrap();
    let looking = async {
        while !one.look(&Scope::Names(vec![name.clone()])).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // Its lease does not end during the trial.
    within("the server knows that the lock was released", looking).await;
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

async fn a_server_under_two_names_would_vote_twice_and_is_refused() {
    let server = Redis::new().start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let other = Redis::new().start().unwrap();
    let url = format!("redlock://{},{},{}", server.addr(), other.addr(), proxy.addr());
    let error = Locks::connect(&url).await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.to_string().contains("the same server"), "{error}");
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

async fn a_wrong_password_on_one_of_five_is_said_when_connecting() {
    let open: Vec<_> = (0..2).map(|_| Redis::new().start().unwrap()).collect();
    let closed = Redis::new().password("other").start().unwrap();
    let hosts: Vec<_> = open.iter().chain([&closed]).map(|server| server.addr().to_string()).collect();
    let error = Locks::connect(&format!("redlock://:secret@{}", hosts.join(","))).await.unwrap_err();
    is_one_sentence(&error);
    assert!(!error.to_string().contains("secret") && error.to_string().contains("password"), "{error}");
    // Two that nobody listens at leave one of three.
    let url = format!("redlock://{},{},{}", open[0].addr(), nobody(), nobody());
    let error = Locks::connect(&url).await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.to_string().contains("1 of 3 servers can vote, and 2 have to"), "{error}");
}

async fn an_eviction_reaches_the_holder_with_its_reason() {
    let five = Five::durable();
    let (locks, other) = (five.connect().await, five.connect().await);
    let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    let holder = other.look(&[NAME]).await.unwrap()[0].holders[0].id;
    other.evict(NAME, holder, "the deploy hangs").await.unwrap();
    let loss = within("the holder hears it", guard.lost()).await;
    assert!(loss.to_string().contains("the deploy hangs"), "{loss}");
    let next = got(waiting).await;
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

async fn a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends() {
    let five = Five::durable();
    let locks = five.connect().await;
    let mut holder = Worker::start(&five.url(), "hold", SHORT);
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

async fn a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on() {
    let five = Five::durable();
    let locks = five.connect().await;
    let mut holder = Worker::start(&five.url(), "hold", SHORT);
    let before: u64 = holder.hear("held").parse().unwrap();
    holder.signal(Signal::STOP);
    let guard = within("the lease ends", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    assert!(guard.token().get() > before);
    holder.signal(Signal::CONT);
    assert!(holder.hear("lost").contains(NAME));
    assert!(guard.is_held());
    // What it still sends ends nobody else's hold.
    let id = five.backend(7).await;
    id.leave(&tidelock::Name::new(NAME).unwrap(), claim(1, 1, LONG).id, Leave::Done).await.unwrap();
    assert_eq!(id.renew(&[claim(1, 1, LONG)]).await.unwrap(), [Standing::Gone]);
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn a_holder_cut_off_from_all_servers_has_lost_the_lock_before_another_holds() {
    let five = Five::durable();
    let proxies: Vec<_> = five.servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
    let url = five.url_of(proxies.iter().map(|proxy| proxy.addr().to_string()));
    let cut_off = Locks::connect(&url).await.unwrap();
    let guard = cut_off.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let locks = five.connect().await;
    let waiting = waiter(&locks, NAME, SHORT);
    until_waiting(&locks, NAME, 1).await;
    proxies.iter().for_each(Proxy::cut);
    let next = got(waiting).await;
    // Read after the other one holds: the deadline must have been before that.
    assert_eq!(guard.state(), LockState::Lost);
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

async fn a_holder_cut_off_from_two_of_five_keeps_its_lock() {
    let five = Five::durable();
    let proxies: Vec<_> = five.servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
    let url = five.url_of(proxies.iter().map(|proxy| proxy.addr().to_string()));
    let cut_off = Locks::connect(&url).await.unwrap();
    let guard = cut_off.mutex(NAME).ttl(LONGEST).lock().await.unwrap();
    let locks = five.connect().await;
    proxies[..2].iter().for_each(Proxy::cut);
    let renewed = guard.valid_for();
    let until = Instant::now() + 2 * LONGEST;
    while Instant::now() < until {
        assert!(locks.mutex(NAME).ttl(LONGEST).try_lock().await.unwrap().is_none(), "it lapsed");
        tokio::time::sleep(LONGEST / 8).await;
    }
    assert!(guard.is_held(), "it was valid for {renewed:?} when the servers were cut off");
    guard.release().await.unwrap();
    until_idle(&locks, NAME).await;
}
