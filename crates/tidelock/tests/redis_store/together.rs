//! Claims that share a call: where one of them cannot be granted by it, and where the server does not know the script.

use std::time::Duration;

use test_servers::{Proxy, Redis, Server};
use tidelock::{Guard, Locks};

use crate::support::{
    LONG, Place,
    batches::{all, all_idle, names, release, went_together},
    within,
};

trials! {
    a_claim_that_is_refused_spoils_nothing_for_those_it_went_with,
    a_server_that_forgot_the_script_is_told_it_again,
    tokens_grow_where_the_last_epoch_is_ahead_of_the_clock,
    claims_that_share_a_call_are_fewer_calls,
    each_claim_goes_alone_where_other_programs_take_locks_or_scripts_are_off,
}

/// A server, and a client of it whose calls take a while, so that those that come at once meet.
async fn slow(options: &str) -> (Server, Place, Proxy, Locks) {
    let server = Redis::new().start().unwrap();
    let place = Place::at(&server).with(options);
    let proxy = Proxy::start(server.addr()).unwrap();
    let locks = place.behind(&proxy).connect().await;
    locks.mutex("another").ttl(LONG).lock().await.unwrap().release().await.unwrap();
    proxy.delay(Duration::from_millis(10));
    (server, place, proxy, locks)
}

fn epochs(guards: &[Guard]) -> Vec<u64> {
    guards.iter().map(|guard| guard.token().epoch()).collect()
}

/// How often a script or function was called.
fn calls(server: &Server) -> usize {
    let stats = server.command(&["INFO", "commandstats"]).unwrap().unwrap();
    let of = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        ["fcall", "evalsha", "eval"].contains(&name).then(|| rest.split(',').next()?.parse::<usize>().ok())?
    };
    stats.lines().filter_map(of).sum()
}

async fn a_claim_that_is_refused_spoils_nothing_for_those_it_went_with() {
    let (server, place, _proxy, locks) = slow("").await;
    let names = names();
    let (list, newer) = (place.key(&names[7]), place.key(&names[9]));
    server.command(&["RPUSH", &list, "not ours"]).unwrap();
    server.command(&["SET", &newer, "V99of another release"]).unwrap();
    for _ in 0..3 {
        let asked: Vec<_> = names
            .iter()
            .map(|name| {
                let mutex = locks.mutex(name).ttl(LONG);
                tokio::spawn(async move { mutex.lock().await })
            })
            .collect();
        let mut guards = Vec::new();
        for (number, asked) in asked.into_iter().enumerate() {
            match within("each is answered", asked).await.unwrap() {
                Ok(guard) => guards.push(guard),
                Err(error) => assert!(error.is_denied() && [7, 9].contains(&number), "{number}: {error}"),
            }
        }
        assert_eq!(guards.len(), names.len() - 2);
        went_together(&epochs(&guards));
        release(guards).await;
    }
    assert_eq!(server.command(&["LRANGE", &list, "0", "-1"]).unwrap().as_deref(), Some("not ours"));
    assert_eq!(server.command(&["GET", &newer]).unwrap().as_deref(), Some("V99of another release"));
}

async fn a_server_that_forgot_the_script_is_told_it_again() {
    for scripting in ["on", "scripts"] {
        let (server, _place, _proxy, locks) = slow(&format!("scripting={scripting}")).await;
        release(all(&locks, &names()).await).await;
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        server.command(&["FUNCTION", "FLUSH"]).unwrap();
        // Each is asked alone meanwhile.
        release(all(&locks, &names()).await).await;
        // Names that were left open go alone for a while.
        let others: Vec<_> = names().iter().map(|name| format!("{name} again")).collect();
        let guards = all(&locks, &others).await;
        went_together(&epochs(&guards));
        release(guards).await;
    }
}

async fn tokens_grow_where_the_last_epoch_is_ahead_of_the_clock() {
    const AHEAD: u64 = 7_000_000_000_000_005;
    let (server, place, _proxy, locks) = slow("").await;
    for name in names() {
        server.command(&["SET", &place.key(&name), &format!("I{AHEAD}")]).unwrap();
    }
    for turn in 1..4 {
        let guards = all(&locks, &names()).await;
        assert!(epochs(&guards).iter().all(|epoch| *epoch == AHEAD + turn), "{:?}", epochs(&guards));
        release(guards).await;
    }
}

async fn claims_that_share_a_call_are_fewer_calls() {
    for scripting in ["on", "scripts"] {
        let (server, place, proxy, locks) = slow(&format!("scripting={scripting}")).await;
        // A script is sent the first time that it is needed.
        let others: Vec<_> = names().iter().map(|name| format!("{name} before")).collect();
        release(all(&locks, &others).await).await;
        let (names, before) = (names(), calls(&server));
        let guards = all(&locks, &names).await;
        let entered = calls(&server) - before;
        assert!(entered < names.len(), "{entered} calls for {} claims", names.len());
        release(guards).await;
        let left = calls(&server) - before - entered;
        assert!(left < names.len(), "{left} calls for {} claims", names.len());
        // Those that come one after the other have nobody to share with.
        proxy.delay(Duration::ZERO);
        let before = calls(&server);
        for name in &names {
            locks.mutex(name).ttl(LONG).lock().await.unwrap().release().await.unwrap();
        }
        assert_eq!(calls(&server) - before, 2 * names.len());
        all_idle(&place.connect().await).await;
    }
}

async fn each_claim_goes_alone_where_other_programs_take_locks_or_scripts_are_off() {
    for options in ["mode=setnx", "scripting=off"] {
        let (server, place, _proxy, locks) = slow(options).await;
        let before = calls(&server);
        let guards = all(&locks, &names()).await;
        let is_off = options == "scripting=off";
        assert_eq!(calls(&server) - before, if is_off { 0 } else { names().len() }, "{options}");
        release(guards).await;
        all_idle(&place.connect().await).await;
    }
}
