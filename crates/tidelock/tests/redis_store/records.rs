//! Records under the key of a lock: of this release, which every later one reads, and of others, which nobody touches.

use std::{sync::Arc, time::Duration};

use test_servers::{Redis, Server};
use tidelock::{
    Name,
    backend::{
        Ask, Backend, Claim, ClaimId, ClientId, Entered, FailureKind, Leave, Left, Scope, Share, Standing,
    },
    backends::redis::{RedisBackend, RedisConfig},
};

use crate::{
    cluster::{self, TURN},
    support::Place,
};

trials! {
    the_scripts_write_the_records_of_earlier_releases,
    the_records_of_earlier_releases_are_used_like_those_of_this_one,
    no_verb_changes_a_record_that_it_cannot_read_and_each_names_its_form,
    no_verb_changes_a_record_that_it_cannot_read_in_a_cluster,
    what_is_no_string_is_left_alone_by_every_verb,
    renewals_in_a_short_queue_keep_its_key_for_long_enough_and_seldom_change_more_than_a_time,
    those_who_are_renewed_in_a_short_queue_stay_and_the_others_lapse,
    a_long_queue_is_handed_over_in_order_with_and_without_the_right_to_read_parts_of_it,
    a_long_queue_that_does_not_end_where_it_says_is_refused,
}

const EPOCH: u64 = 7_000_000_000_000_005;

/// A record of the file that the unit tests of the codec read, too.
fn golden(name: &str) -> String {
    let records = include_str!("../../src/backends/redis/codec/records_v01.txt");
    let mut records = records.lines().filter_map(|line| line.split_once(' '));
    let (_, text) = records.find(|(known, _)| *known == name).unwrap();
    text.replace("\\n", "\n").replace("\\x1e", "\u{1e}")
}

fn id(number: u64) -> ClaimId {
    ClaimId::new(ClientId::from_u64(1), number)
}

fn claim(name: &str, id: ClaimId) -> Arc<Claim> {
    Arc::new(
        Claim::new(id, Name::new(name).unwrap(), Share::Exclusive, Duration::from_secs(30)).label("a test"),
    )
}

async fn connect(place: &Place) -> RedisBackend {
    RedisBackend::connect(RedisConfig::from_url(&place.url()).unwrap(), ClientId::random()).await.unwrap()
}

/// The name of a function in a library.
fn function(library: &str, verb: &str) -> String {
    let mut names =
        library.split("register_function('").filter_map(|text| text.split_once('\'')).map(|of| of.0);
    names.find(|name| name.starts_with(&format!("tidelock_{verb}_"))).unwrap().to_owned()
}

async fn the_scripts_write_the_records_of_earlier_releases() {
    let server = Redis::new().start().unwrap();
    let library = RedisConfig::function_library().replace("redis.call('TIME')", "{'7000000000', '5'}");
    server.command(&["FUNCTION", "LOAD", &library]).unwrap();
    let call = |verb: &str, key: &str, number: u64, args: &[&str]| {
        let (name, id) = (function(&library, verb), id(number).to_string());
        let begin = ["FCALL", &*name, "1", key, &*id];
        let command: Vec<_> = begin.into_iter().chain(args.iter().copied()).collect();
        server.command(&command).unwrap()
    };
    let enter = |key: &str, number: u64, tail: &str| {
        call("enter", key, number, &["q", "0000000030000000", "630000", tail]);
    };
    let is = |key: &str, record: &str| {
        assert_eq!(server.command(&["GET", key]).unwrap(), Some(golden(record)), "{record}");
    };
    enter("t:{a}", 1, "x0,\n\nfirst");
    is("t:{a}", "single");
    enter("t:{a}", 2, "x1,\n\nsecond");
    is("t:{a}", "queue");
    enter("t:{b}", 1, "p02,3\nann\nfirst");
    enter("t:{b}", 2, "p01,3\nann\nsecond");
    enter("t:{b}", 3, "x0,\n\nthird");
    is("t:{b}", "line");
    call("leave", "t:{b}", 2, &[]);
    is("t:{b}", "gap");
    enter("t:{c}", 1, "x0,\n\nfirst");
    call("leave", "t:{c}", 1, &[]);
    is("t:{c}", "idle");
}

async fn the_records_of_earlier_releases_are_used_like_those_of_this_one() {
    let server = Redis::new().start().unwrap();
    // The record, those who hold, those who wait.
    let by_scripts: &[(&str, &[u64], &[u64])] = &[
        ("idle", &[], &[]),
        ("single", &[1], &[]),
        ("queue", &[1], &[2]),
        ("line", &[1, 2], &[3]),
        ("gap", &[1], &[3]),
    ];
    let by_transactions: &[(&str, &[u64], &[u64])] = &[("idle", &[], &[]), ("transactions", &[1], &[2])];
    for (scripting, records) in [("on", by_scripts), ("scripts", by_scripts), ("off", by_transactions)] {
        let place = Place::at(&server).with(&format!("scripting={scripting}"));
        let client = connect(&place).await;
        for (record, holders, waiters) in records {
            let said = format!("{record}, scripting={scripting}");
            server.command(&["SET", &place.key(record), &golden(record), "PX", "600000"]).unwrap();
            let name = Name::new(record).unwrap();
            let views = client.look(&Scope::Names(vec![name.clone()])).await.unwrap();
            assert_eq!(views.is_empty(), holders.is_empty(), "{said}");
            for view in views {
                let ids = |claims: &[tidelock::backend::ClaimView]| -> Vec<_> {
                    claims.iter().map(|claim| claim.id).collect()
                };
                let numbers = |numbers: &[u64]| -> Vec<_> { numbers.iter().copied().map(id).collect() };
                assert_eq!(ids(&view.holders), numbers(holders), "{said}");
                assert_eq!(ids(&view.waiters), numbers(waiters), "{said}");
                assert_eq!(view.epoch, EPOCH, "{said}");
                let tried = client.enter(&claim(record, ClaimId::from_u128(9)), Ask::Try).await.unwrap();
                assert_eq!(tried, Entered::Busy, "{said}");
            }
            for number in *holders {
                let standing = client.renew(&[claim(record, id(*number))]).await.unwrap()[0];
                assert!(
                    matches!(standing, Standing::Held(grant) if grant.epoch == EPOCH),
                    "{said}: {standing:?}"
                );
            }
            for number in *waiters {
                let standing = client.renew(&[claim(record, id(*number))]).await.unwrap()[0];
                assert!(matches!(standing, Standing::Waiting(_)), "{said}: {standing:?}");
            }
            // Those behind first: nobody would hear of a grant.
            for number in waiters.iter().chain(holders.iter().rev()) {
                let left = client.leave(&name, id(*number), Leave::Done).await.unwrap();
                assert_eq!(left, Left::Removed, "{said}");
            }
            let next = claim(record, ClaimId::from_u128(9));
            let entered = client.enter(&next, Ask::Try).await.unwrap();
            assert!(matches!(entered, Entered::Held(grant) if grant.epoch > EPOCH), "{said}: {entered:?}");
            client.leave(&name, next.id, Leave::Done).await.unwrap();
        }
    }
}

/// What is written by hand, and what each verb says of it.
fn unreadable(scripting: &str) -> Vec<(String, Vec<&'static str>)> {
    let newer = golden("line").replacen("V01", "V02", 1);
    let mut records = vec![
        (newer, vec!["newer", "form V02", "V01"]),
        ("V99".to_owned(), vec!["newer", "form V99", "V01"]),
        ("L1700000000000000,1,1,1,0,1,0,0,2,1,1".to_owned(), vec!["older", "form L", "V01"]),
        (golden("line")[..200].to_owned(), vec!["form V01", "damaged"]),
        ("hello".to_owned(), vec!["begins with \"hello\"", "V01"]),
    ];
    if scripting == "off" {
        for record in ["single", "queue", "line", "gap"] {
            records.push((golden(record), vec!["clients that use scripts", "scripting=off"]));
        }
    } else {
        records.push((golden("transactions"), vec!["clients with scripting=off", "form T"]));
    }
    records
}

/// Lets each verb meet a record under the key of its lock.
async fn is_refused(
    server: &Server,
    client: &RedisBackend,
    (key, claim): (&str, &Arc<Claim>),
    (record, said): (&str, &[&str]),
) {
    server.command(&["SET", key, record, "PX", "600000"]).unwrap();
    let look = || {
        let value = server.command(&["GET", key]).unwrap();
        (value, server.command(&["PEXPIRETIME", key]).unwrap())
    };
    let before = look();
    let mut failures = Vec::new();
    for ask in [Ask::Try, Ask::Queue] {
        failures.push(client.enter(claim, ask).await.unwrap_err());
    }
    for why in [Leave::Done, Leave::evicted("a test")] {
        failures.push(client.leave(&claim.name, claim.id, why).await.unwrap_err());
    }
    for failure in failures {
        let all = said.iter().all(|part| failure.reason.contains(part));
        assert!(failure.kind == FailureKind::Denied && all, "{record}: {failure}");
    }
    // A batch goes on with the others: nothing is known of this one, and it is lost when its window ends.
    assert_eq!(client.renew(&[Arc::clone(claim)]).await.unwrap(), [Standing::Unknown], "{record}");
    let views = client.look(&Scope::Names(vec![claim.name.clone()])).await.unwrap();
    let shown = &views[0].holders[0];
    if shown.id == ClaimId::from_u128(0) {
        let all = said.iter().all(|part| shown.label.contains(part));
        assert!(all && shown.label.starts_with("unreadable: "), "{record}: {}", shown.label);
    } else {
        // Whatever this client can do with it, people see who holds.
        assert_eq!((shown.id, views[0].epoch), (id(1), EPOCH), "{record}");
    }
    assert_eq!(look(), before, "{record}");
    // Only who asks for it by force clears it.
    client.leave(&claim.name, ClaimId::from_u128(0), Leave::evicted("a test")).await.unwrap();
    assert!(look().0.unwrap().starts_with('I'), "{record}");
    server.command(&["DEL", key]).unwrap();
}

async fn no_verb_changes_a_record_that_it_cannot_read_and_each_names_its_form() {
    let server = Redis::new().start().unwrap();
    for scripting in ["on", "scripts", "off"] {
        let place = Place::at(&server).with(&format!("scripting={scripting}"));
        let client = connect(&place).await;
        for (number, (record, said)) in unreadable(scripting).into_iter().enumerate() {
            let name = number.to_string();
            is_refused(&server, &client, (&place.key(&name), &claim(&name, id(1))), (&record, &said)).await;
        }
    }
    // Servers that vote have one verb more.
    let server = Redis::new().start().unwrap();
    let library = RedisConfig::function_library();
    server.command(&["FUNCTION", "LOAD", &library]).unwrap();
    for (record, _) in unreadable("on") {
        server.command(&["SET", "t:{a}", &record]).unwrap();
        let (name, id) = (function(&library, "raise"), id(1).to_string());
        let answer =
            server.command(&["FCALL", &name, "1", "t:{a}", &id, "7000000000000009"]).unwrap().unwrap();
        assert!(answer.starts_with(&format!("9\n{}", &record[..record.len().min(64)])), "{answer}");
        assert_eq!(server.command(&["GET", "t:{a}"]).unwrap(), Some(record));
    }
}

async fn no_verb_changes_a_record_that_it_cannot_read_in_a_cluster() {
    let cluster = cluster::shared();
    let _turn = TURN.lock().await;
    let place = Place::on(cluster.url());
    for scripting in ["on", "off"] {
        let client = connect(&place.with(&format!("scripting={scripting}"))).await;
        for (number, (record, said)) in unreadable(scripting).into_iter().enumerate() {
            let name = format!("{scripting} {number}");
            let (key, claim) = (place.key(&name), claim(&name, id(1)));
            let server = cluster.master_of_key(&key).unwrap();
            is_refused(server, &client, (&key, &claim), (&record, &said)).await;
        }
    }
}

async fn what_is_no_string_is_left_alone_by_every_verb() {
    let server = Redis::new().start().unwrap();
    for scripting in ["on", "scripts", "off"] {
        let place = Place::at(&server).with(&format!("scripting={scripting}"));
        let client = connect(&place).await;
        let (key, claim) = (place.key("list"), claim("list", id(1)));
        server.command(&["RPUSH", &key, "hello"]).unwrap();
        for ask in [Ask::Try, Ask::Queue] {
            let failure = client.enter(&claim, ask).await.unwrap_err();
            assert_eq!(failure.kind, FailureKind::Denied, "{failure}");
        }
        let failure = client.leave(&claim.name, claim.id, Leave::Done).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Denied, "{failure}");
        assert_eq!(client.renew(&[Arc::clone(&claim)]).await.unwrap(), [Standing::Unknown]);
        let looked = client.look(&Scope::Names(vec![claim.name.clone()])).await;
        assert_eq!(looked.unwrap_err().kind, FailureKind::Denied);
        assert_eq!(server.command(&["LRANGE", &key, "0", "-1"]).unwrap().as_deref(), Some("hello"));
        server.command(&["DEL", &key]).unwrap();
    }
}

/// Claims for one name: the first holds, the others wait.
async fn queue(client: &RedisBackend, name: &str, ttl: Duration) -> Vec<Arc<Claim>> {
    let claims: Vec<_> = (1..5)
        .map(|number| Arc::new(Claim::new(id(number), Name::new(name).unwrap(), Share::Exclusive, ttl)))
        .collect();
    for (ahead, claim) in claims.iter().enumerate() {
        match client.enter(claim, Ask::Queue).await.unwrap() {
            Entered::Held(_) => assert_eq!(ahead, 0),
            Entered::Waiting(place) => assert_eq!(place.ahead as usize, ahead),
            other => panic!("{other:?}"),
        }
    }
    claims
}

fn stands_at(standing: &Standing) -> Option<usize> {
    match standing {
        Standing::Held(_) => Some(0),
        Standing::Waiting(place) => Some(place.ahead as usize),
        _ => None,
    }
}

async fn renewals_in_a_short_queue_keep_its_key_for_long_enough_and_seldom_change_more_than_a_time() {
    const TTL: Duration = Duration::from_secs(30);
    let server = Redis::new().start().unwrap();
    for scripting in ["on", "scripts"] {
        let place = Place::at(&server).with(&format!("scripting={scripting}"));
        let client = connect(&place).await;
        let claims = queue(&client, "a queue", TTL).await;
        let key = place.key("a queue");
        let look = || {
            let head = server.command(&["GET", &key]).unwrap().unwrap();
            let expires: u64 = server.command(&["PEXPIRETIME", &key]).unwrap().unwrap().parse().unwrap();
            assert_eq!((&head[..1], head[17..33].parse().ok()), ("Q", Some(expires)), "{head:?}");
            (head, expires)
        };
        let renew = async |some: &[usize]| {
            let claims: Vec<_> = some.iter().map(|index| Arc::clone(&claims[*index])).collect();
            let standings = client.renew(&claims).await.unwrap();
            let places: Vec<_> = standings.iter().filter_map(stands_at).collect();
            assert_eq!(places, some, "{standings:?}");
        };
        // The first one sees to it that the key stays for a while, if it comes at least a millisecond after the enters.
        tokio::time::sleep(Duration::from_millis(5)).await;
        renew(&[3]).await;
        let (mut before, expires) = look();
        for some in [&[0][..], &[1], &[2], &[3], &[3, 1, 0]] {
            renew(some).await;
            let (head, expires_now) = look();
            assert_eq!((head.len(), expires_now), (before.len(), expires));
            let changed = head.bytes().zip(before.bytes()).filter(|(now, then)| now != then).count();
            assert!((1..=16 * some.len()).contains(&changed), "{before:?} {head:?}");
            let now: u64 =
                server.command(&["TIME"]).unwrap().unwrap().lines().next().unwrap().parse().unwrap();
            assert!(expires >= 1_000 * now + 630_000, "{expires} {now}");
            before = head;
        }
        // A key that would not stay for long enough gets more time, and the queue is as it was.
        let soon = expires - 60_000 - 1_000;
        let head = format!("{}{soon:016}{}", &before[..17], &before[33..]);
        server.command(&["SET", &key, &head, "PXAT", &soon.to_string()]).unwrap();
        renew(&[2]).await;
        assert!(look().1 >= expires);
        renew(&[0, 1, 2, 3]).await;
    }
}

async fn those_who_are_renewed_in_a_short_queue_stay_and_the_others_lapse() {
    const TTL: Duration = Duration::from_millis(1_500);
    let server = Redis::new().start().unwrap();
    let place = Place::at(&server);
    let client = connect(&place).await;
    let claims = queue(&client, "a queue", TTL).await;
    // The third is not renewed. The earliest lapse that was written down passes again and again.
    let mut some: Vec<_> = claims.iter().map(Arc::clone).collect();
    some.remove(2);
    for turn in 0..12 {
        tokio::time::sleep(TTL / 5).await;
        let standings = client.renew(&some).await.unwrap();
        let places: Vec<_> = standings.iter().filter_map(stands_at).collect();
        let last = if turn < 4 { 3 } else { *places.last().unwrap() };
        assert!(places == [0, 1, last] && [2, 3].contains(&last), "turn {turn}: {standings:?}");
        if turn > 6 {
            assert_eq!(last, 2, "turn {turn}");
        }
    }
    assert_eq!(client.renew(&claims[2..3]).await.unwrap(), [Standing::Gone]);
}

async fn a_long_queue_is_handed_over_in_order_with_and_without_the_right_to_read_parts_of_it() {
    const MANY: usize = 100;
    for rights in ["+getrange", "-getrange"] {
        let server = Redis::new().start().unwrap();
        server.command(&["ACL", "SETUSER", "default", rights]).unwrap();
        let (place, own) = (Place::at(&server), ClientId::random());
        let client = RedisBackend::connect(RedisConfig::from_url(&place.url()).unwrap(), own).await.unwrap();
        let name = Name::new("a queue").unwrap();
        let claim = |number: usize| {
            let id = ClaimId::new(own, number as u64 + 1);
            // Some are longer than what is read of those who are next.
            let label = "x".repeat(if number % 7 == 3 { 700 } else { 20 });
            let claim = Claim::new(id, name.clone(), Share::Exclusive, Duration::from_secs(30));
            Arc::new(claim.label(label.as_str()))
        };
        let mut claims: Vec<_> = (0..MANY).map(claim).collect();
        for (ahead, claim) in claims.iter().enumerate() {
            match client.enter(claim, Ask::Queue).await.unwrap() {
                Entered::Held(_) => assert_eq!(ahead, 0),
                Entered::Waiting(place) => assert_eq!(place.ahead as usize, ahead),
                other => panic!("{other:?}"),
            }
        }
        // One that is asked for again keeps its place, and is not in line twice.
        let again = client.enter(&claims[70], Ask::Queue).await.unwrap();
        assert!(matches!(again, Entered::Waiting(place) if place.ahead == 70), "{again:?}");
        for expected in [Left::Removed, Left::Absent] {
            assert_eq!(client.leave(&name, claims[70].id, Leave::Done).await.unwrap(), expected, "{rights}");
        }
        claims.remove(70);
        let (mut last, mut left) = (0, claims.len());
        for (number, claim) in claims.iter().enumerate() {
            left -= 1;
            let standing = client.renew(std::slice::from_ref(claim)).await.unwrap()[0];
            let Standing::Held(grant) = standing else { panic!("{rights}, {number}: {standing:?}") };
            assert!(grant.epoch > last && grant.waiting as usize == left, "{rights}, {number}: {grant:?}");
            last = grant.epoch;
            if left > 0 && number % 9 == 0 {
                let standing = client.renew(&claims[claims.len() - 1..]).await.unwrap();
                assert_eq!(stands_at(&standing[0]), Some(left), "{rights}, {number}");
                let view = client.look(&Scope::Names(vec![name.clone()])).await.unwrap();
                assert_eq!((view[0].holders.len(), view[0].waiters.len()), (1, left));
            }
            let removed = client.leave(&name, claim.id, Leave::Done).await.unwrap();
            assert_eq!(removed, Left::Removed, "{rights}, {number}");
        }
        assert!(client.look(&Scope::Names(vec![name])).await.unwrap().is_empty());
    }
}

async fn a_long_queue_that_does_not_end_where_it_says_is_refused() {
    let server = Redis::new().start().unwrap();
    let place = Place::at(&server);
    let client = connect(&place).await;
    let name = Name::new("a queue").unwrap();
    let claim = |number| {
        let label = "x".repeat(200);
        let claim = Claim::new(id(number), name.clone(), Share::Exclusive, Duration::from_secs(30));
        Arc::new(claim.label(label.as_str()))
    };
    for number in 1..=50 {
        client.enter(&claim(number), Ask::Queue).await.unwrap();
    }
    let key = place.key("a queue");
    let whole = server.command(&["GET", &key]).unwrap().unwrap();
    assert!(whole.starts_with("V01"));
    for spoilt in [format!("{whole}x"), whole[..whole.len() - 1].to_owned(), whole[..2_048].to_owned()] {
        server.command(&["SET", &key, &spoilt, "PX", "600000"]).unwrap();
        let left = client.leave(&name, id(1), Leave::Done).await;
        assert!(left.is_err(), "{left:?}");
        let standing = client.renew(&[claim(1)]).await.unwrap();
        assert_eq!(standing, [Standing::Unknown]);
        assert!(client.enter(&claim(60), Ask::Queue).await.is_err());
        assert_eq!(server.command(&["GET", &key]).unwrap(), Some(spoilt));
    }
}
