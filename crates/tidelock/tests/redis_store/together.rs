//! Claims that share a call: where one of them cannot be granted by it, where the server does not know the script, and where
//! several such calls are under way.

use std::{collections::HashSet, pin::Pin, sync::Arc, time::Duration};

use test_servers::{Proxy, Redis, Server};
use tidelock::{
    Guard, Locks, Name,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Leave, Left, Scope, Share},
    backends::redis::{RedisBackend, RedisConfig},
};

use crate::support::{
    LONG, Place, Waiter,
    batches::{all, all_idle, ask, names, release, went_together},
    got, until_idle, within,
};

trials! {
    a_claim_that_is_refused_spoils_nothing_for_those_it_went_with,
    a_server_that_forgot_the_script_is_told_it_again,
    tokens_grow_where_the_last_epoch_is_ahead_of_the_clock,
    claims_that_share_a_call_are_fewer_calls,
    each_claim_goes_alone_where_other_programs_take_locks_or_scripts_are_off,
    claims_of_several_kinds_in_one_call_are_kept_as_if_each_came_alone,
    a_user_who_may_not_read_several_keys_at_once_still_shares_calls,
    answers_to_several_calls_that_come_at_once_reach_each_caller,
    a_connection_lost_with_several_calls_under_way_loses_no_claim_and_makes_none_twice,
    callers_that_give_up_with_several_calls_under_way_take_nothing_from_others,
    callers_that_give_up_before_or_just_after_they_are_sent_leave_nothing,
    questions_for_one_lock_that_are_asked_at_once_are_answered_in_their_order,
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
        // Each is asked alone meanwhile, and names that were left open go alone for a while. So each turn has names of
        // its own, until some went together: one call has to find out that the server forgot.
        within("claims go together again", async {
            for turn in 0.. {
                let others: Vec<_> = names().iter().map(|name| format!("{name} in turn {turn}")).collect();
                let guards = all(&locks, &others).await;
                let epochs: HashSet<_> = epochs(&guards).into_iter().collect();
                let went_together = epochs.len() < guards.len();
                release(guards).await;
                if went_together {
                    return;
                }
            }
        })
        .await;
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

async fn claims_of_several_kinds_in_one_call_are_kept_as_if_each_came_alone() {
    let (server, place, _proxy, locks) = slow("").await;
    let ttl = |number: usize| LONG + Duration::from_secs(number as u64 % 3);
    let asked: Vec<_> = names()
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let shared = locks.rw_lock(name).ttl(ttl(number));
            let alone = locks.mutex(name).ttl(ttl(number));
            tokio::spawn(async move {
                if number % 2 == 0 { shared.read().await.unwrap() } else { alone.lock().await.unwrap() }
            })
        })
        .collect();
    let mut guards = Vec::new();
    for asked in asked {
        guards.push(within("each holds", asked).await.unwrap());
    }
    went_together(&epochs(&guards));
    let other = place.connect().await;
    for (number, name) in names().iter().enumerate() {
        let head = server.command(&["GET", &place.key(name)]).unwrap().unwrap();
        let lease = format!("{:016}", ttl(number).as_micros());
        assert!(head.contains(&lease), "{name}: {head}");
        let read = other.rw_lock(name).ttl(LONG).try_read().await.unwrap();
        assert_eq!(read.is_some(), number % 2 == 0, "{name}");
        if let Some(read) = read {
            read.release().await.unwrap();
        }
    }
    release(guards).await;
    all_idle(&other).await;
}

async fn a_user_who_may_not_read_several_keys_at_once_still_shares_calls() {
    let (server, _place, _proxy, locks) = slow("").await;
    server.command(&["ACL", "SETUSER", "default", "-mget"]).unwrap();
    // For names that are new, and for those that were used.
    for _ in 0..2 {
        let guards = all(&locks, &names()).await;
        went_together(&epochs(&guards));
        release(guards).await;
    }
}

/// More than one call takes.
fn many() -> Vec<String> {
    (0..50).map(|number| format!("one of many {number:02}")).collect()
}

/// Asks for all of them while no answer comes, and waits until the server has granted them, in several calls. Returns the
/// epochs.
async fn granted_unheard(proxy: &Proxy, locks: &Locks, other: &Locks) -> (Vec<Waiter>, Vec<u64>) {
    proxy.hold_replies();
    let asked = ask(locks, &many());
    let names = many();
    let looked: Vec<&str> = names.iter().map(String::as_str).collect();
    let granted = within("all are granted", async {
        loop {
            let mut views = other.look(&looked).await.unwrap();
            if views.len() == names.len() {
                views.sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
                return views.iter().map(|view| view.holders[0].epoch.unwrap()).collect::<Vec<_>>();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let times = granted.iter().collect::<HashSet<_>>().len();
    assert!((2..granted.len()).contains(&times), "{granted:?}");
    (asked, granted)
}

async fn none_is_left(other: &Locks) {
    for name in many() {
        until_idle(other, &name).await;
    }
}

async fn answers_to_several_calls_that_come_at_once_reach_each_caller() {
    let (_server, place, proxy, locks) = slow("").await;
    let other = place.connect().await;
    for _ in 0..3 {
        let (asked, granted) = granted_unheard(&proxy, &locks, &other).await;
        proxy.heal().unwrap();
        let mut guards = Vec::new();
        for waiter in asked {
            guards.push(got(waiter).await);
        }
        assert_eq!(epochs(&guards), granted);
        release(guards).await;
        none_is_left(&other).await;
    }
}

async fn a_connection_lost_with_several_calls_under_way_loses_no_claim_and_makes_none_twice() {
    let (_server, place, proxy, locks) = slow("").await;
    let other = place.connect().await;
    let (asked, granted) = granted_unheard(&proxy, &locks, &other).await;
    proxy.disconnect();
    proxy.heal().unwrap();
    let mut guards = Vec::new();
    for waiter in asked {
        guards.push(got(waiter).await);
    }
    assert_eq!(epochs(&guards), granted, "each asked again with the same id");
    release(guards).await;
    none_is_left(&other).await;
}

async fn callers_that_give_up_with_several_calls_under_way_take_nothing_from_others() {
    let (_server, place, proxy, locks) = slow("").await;
    let other = place.connect().await;
    let (asked, granted) = granted_unheard(&proxy, &locks, &other).await;
    for waiter in asked.iter().step_by(2) {
        waiter.abort();
    }
    proxy.heal().unwrap();
    let mut guards = Vec::new();
    for waiter in asked.into_iter().skip(1).step_by(2) {
        guards.push(got(waiter).await);
    }
    assert_eq!(epochs(&guards), granted.into_iter().skip(1).step_by(2).collect::<Vec<_>>());
    for name in many().iter().step_by(2) {
        until_idle(&other, name).await;
    }
    release(guards).await;
    none_is_left(&other).await;
}

async fn callers_that_give_up_before_or_just_after_they_are_sent_leave_nothing() {
    let (_server, place, proxy, locks) = slow("").await;
    let other = place.connect().await;
    // Calls under way, so that all that follow share theirs.
    proxy.hold_replies();
    let busy = ask(&locks, &names());
    let mut given_up = Vec::new();
    for (steps, name) in many().iter().enumerate() {
        let waiter = ask(&locks, std::slice::from_ref(name)).remove(0);
        // The more tasks run meanwhile, the further it has come.
        for _ in 0..steps % 10 {
            tokio::task::yield_now().await;
        }
        waiter.abort();
        given_up.push(waiter);
    }
    proxy.heal().unwrap();
    for waiter in given_up {
        assert!(within("it has ended", waiter).await.is_err_and(|error| error.is_cancelled()));
    }
    none_is_left(&other).await;
    let mut guards = Vec::new();
    for waiter in busy {
        guards.push(got(waiter).await);
    }
    release(guards).await;
    all_idle(&other).await;
}

/// An enter that is granted, with its epoch, or a leave that finds its claim, with zero.
type Question<'a> = Pin<Box<dyn Future<Output = u64> + Send + 'a>>;

fn enters<'a>(client: &'a RedisBackend, claim: &'a Arc<Claim>) -> Question<'a> {
    Box::pin(async move {
        match client.enter(claim, Ask::Queue).await {
            Ok(Entered::Held(grant)) => grant.epoch,
            other => panic!("{}: {other:?}", claim.name),
        }
    })
}

fn leaves<'a>(client: &'a RedisBackend, claim: &'a Arc<Claim>) -> Question<'a> {
    Box::pin(async move {
        let left = client.leave(&claim.name, claim.id, Leave::Done).await;
        assert!(matches!(left, Ok(Left::Removed)), "{}: {left:?}", claim.name);
        0
    })
}

/// Two questions for one lock never share a call: the second depends on the first. They go in calls that follow each other on
/// one connection, without waiting for an answer.
async fn questions_for_one_lock_that_are_asked_at_once_are_answered_in_their_order() {
    let (server, place, proxy, _locks) = slow("").await;
    let config = RedisConfig::from_url(&place.behind(&proxy).url()).unwrap();
    let client = RedisBackend::connect(config, ClientId::from_u64(7)).await.unwrap();
    let claim = |serial: u64, name: &str| {
        let id = ClaimId::new(ClientId::from_u64(7), serial);
        Arc::new(Claim::new(id, Name::new(name).unwrap(), Share::Exclusive, LONG).label("trial"))
    };
    // How many others are asked for before each question: calls that are full, and calls with room.
    for (turn, between) in [0, 1, 3, 7].into_iter().enumerate() {
        let serial = 100 * (turn as u64 + 1);
        let turns: Vec<_> = (0..3).map(|number| claim(serial + number, "one lock")).collect();
        let others: Vec<_> = (0..4 + 5 * between)
            .map(|number| claim(serial + 10 + number, &format!("{turn} {number}")))
            .collect();
        let mut rest = others.iter();
        // So many go alone before any share a call.
        let mut questions: Vec<Question<'_>> =
            rest.by_ref().take(4).map(|one| enters(&client, one)).collect();
        for (number, one) in turns.iter().enumerate() {
            if number > 0 {
                questions.extend(rest.by_ref().take(between as usize).map(|one| enters(&client, one)));
                questions.push(leaves(&client, &turns[number - 1]));
            }
            questions.extend(rest.by_ref().take(between as usize).map(|one| enters(&client, one)));
            questions.push(enters(&client, one));
        }
        let (before, asked) = (calls(&server), questions.len());
        let told = within("all are answered", in_turn(questions)).await;
        let called = calls(&server) - before;
        // How many share a call depends on which thread is faster. Where there are no others, none do.
        if between > 3 {
            assert!(called < asked, "{called} calls for {asked} questions");
        }
        let views = client.look(&Scope::Names(vec![turns[0].name.clone()])).await.unwrap();
        let holder = &views[0].holders[0];
        assert_eq!((views[0].holders.len(), views[0].waiters.len(), holder.id), (1, 0, turns[2].id));
        assert!(told.iter().any(|epoch| Some(*epoch) == holder.epoch));
        for one in others.iter().chain(&turns[2..]) {
            leaves(&client, one).await;
        }
    }
}

/// Asks all of them at the same moment, in their order, and waits for all answers.
async fn in_turn(mut questions: Vec<Question<'_>>) -> Vec<u64> {
    let mut told = vec![None; questions.len()];
    std::future::poll_fn(|context| {
        for (question, told) in questions.iter_mut().zip(&mut told) {
            if told.is_none()
                && let std::task::Poll::Ready(answer) = question.as_mut().poll(context)
            {
                *told = Some(answer);
            }
        }
        if told.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    told.into_iter().flatten().collect()
}
