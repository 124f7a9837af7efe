//! `tidelock serve` as its clients see it: the real binary, and HTTP by hand.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use common::{
    serve::{Hold, Server},
    until,
};
use serde_json::{Value, json};

/// A lock in a path, with every byte escaped.
fn escaped(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn a_stream_is_a_hold_and_its_end_is_the_next_ones_turn() {
    let server = Server::start();
    let first = server.hold("job", r#"{"label":"worker-7"}"#);
    assert_eq!(first.first["event"], "granted");
    let mut second = server.hold("job", "");
    assert_eq!(second.first, json!({"event": "waiting", "ahead": 0, "behind": "worker-7"}));
    let third = server.hold("job", "");
    assert_eq!(third.first, json!({"event": "waiting", "ahead": 1, "behind": "worker-7"}));
    let token = first.token();
    first.connection.close();
    second.first = second.outcome();
    assert_eq!(second.first["event"], "granted");
    assert!(second.token() > token);
}

#[test]
fn a_waiter_that_closes_its_stream_leaves_the_queue() {
    let server = Server::start();
    let first = server.hold("job", "");
    let second = server.hold("job", "");
    let mut third = server.hold("job", "");
    assert_eq!(third.first["ahead"], 1);
    second.connection.close();
    assert_eq!(third.event().expect("news")["ahead"], 0);
    first.connection.close();
    assert_eq!(third.outcome()["event"], "granted");
}

#[test]
fn a_release_is_answered_when_the_lock_is_free() {
    let server = Server::start();
    let mut hold = server.hold("job", "");
    assert!(server.is_held("job"));
    assert_eq!(server.ask("DELETE", &hold.path(), ""), (200, json!({"released": true})));
    assert!(!server.is_held("job"));
    assert_eq!(hold.outcome(), json!({"event": "released"}));
    assert_eq!(hold.event(), None);
    // A client that did not hear the answer asks again.
    assert_eq!(server.ask("DELETE", &hold.path(), ""), (200, json!({"released": true})));
    assert_eq!(server.ask("POST", &hold.path(), "").0, 410);
}

#[test]
fn a_connection_serves_one_stream_after_another() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let mut hold = Hold::new(connection, "job", "");
        tokens.push(hold.token());
        assert_eq!(server.ask("DELETE", &hold.path(), "").0, 200);
        assert_eq!(hold.outcome(), json!({"event": "released"}));
        assert_eq!(hold.event(), None);
        connection = hold.connection;
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[test]
fn a_hold_is_ended_in_its_own_body_and_the_connection_is_used_again() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let mut hold = Hold::opened(connection, "/v1/locks/job", r#"{"ttl":"10s"}"#);
        tokens.push(hold.token());
        assert!(server.is_held("job"));
        hold.connection.say(r#"{"end":"release"}"#);
        hold.connection.end_body();
        assert_eq!(hold.outcome(), json!({"event": "released"}));
        assert!(!server.is_held("job"));
        assert_eq!(hold.event(), None);
        connection = hold.connection;
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    let mut slot = Hold::opened(server.connect(), "/v1/once/report", r#"{"every":"1d"}"#);
    slot.connection.say(r#"{"end":"done"}"#);
    assert_eq!(slot.outcome(), json!({"event": "released"}));
    assert_eq!(server.ask("POST", "/v1/once/report", r#"{"every":"1d"}"#).1["kind"], "done_already");
}

#[test]
fn a_hold_with_an_open_body_ends_with_its_connection_and_by_other_requests() {
    let server = Server::start();
    let mut hold = Hold::opened(server.connect(), "/v1/locks/job", "{}");
    assert_eq!(server.ask("DELETE", &hold.path(), ""), (200, json!({"released": true})));
    assert_eq!(hold.outcome(), json!({"event": "released"}));
    let hold = Hold::opened(server.connect(), "/v1/locks/job", "{}");
    let waiter = Hold::opened(server.connect(), "/v1/locks/job", "{}");
    assert_eq!(waiter.first["event"], "waiting");
    let mut next = server.hold("job", "");
    assert_eq!(next.first["ahead"], 1);
    waiter.connection.close();
    assert_eq!(next.event().expect("news")["ahead"], 0);
    hold.connection.close();
    assert_eq!(next.outcome()["event"], "granted");
    // A body that has ended says nothing more, and the stream is still the hold.
    let mut other = Hold::opened(server.connect(), "/v1/locks/other", "{}");
    other.connection.end_body();
    assert_eq!(server.ask("POST", &other.path(), "").0, 200);
    assert!(server.is_held("other"));
    other.connection.close();
    until("it is free", || !server.is_held("other"));
}

#[test]
fn a_client_that_says_nonsense_in_its_body_is_told_and_loses_its_lock_when_it_has_heard() {
    let server = Server::start();
    for said in ["nonsense", "{}", r#"{"end":"sometime"}"#, r#"{"end":"done"}"#] {
        let mut hold = Hold::opened(server.connect(), "/v1/locks/job", "{}");
        hold.connection.say(said);
        let wrong = hold.outcome();
        assert_eq!((&wrong["event"], &wrong["reason"]), (&json!("lost"), &json!("bad_request")), "{said}");
        // It may still rely on the lock, and does not any more when it closes its stream.
        assert!(server.is_held("job"), "{said}");
        hold.connection.close();
        until("it is free", || !server.is_held("job"));
    }
    // What waits has nothing that it could end.
    let _hold = server.hold("job", "");
    let mut waiter = Hold::opened(server.connect(), "/v1/locks/job", "{}");
    waiter.connection.say(r#"{"end":"release"}"#);
    assert_eq!(waiter.outcome()["kind"], "bad_request");
}

#[test]
fn a_try_that_finds_the_lock_taken_names_its_holder() {
    let server = Server::start();
    let _hold = server.hold("job", r#"{"label":"worker-7"}"#);
    let (status, busy) = server.ask("POST", "/v1/locks/job", r#"{"wait":0}"#);
    assert_eq!((status, &busy["kind"], &busy["retryable"]), (409, &json!("busy"), &json!(true)));
    assert_eq!(busy["holder"]["label"], "worker-7");
}

#[test]
fn a_wait_that_is_too_short_times_out_with_and_without_progress() {
    let server = Server::start();
    let _hold = server.hold("job", "");
    let (status, late) = server.ask("POST", "/v1/locks/job", r#"{"wait":"50ms","progress":false}"#);
    assert_eq!((status, &late["kind"]), (408, &json!("timed_out")));
    let mut waiter = server.hold("job", r#"{"wait":"300ms"}"#);
    assert_eq!(waiter.first["event"], "waiting");
    let late = waiter.outcome();
    assert_eq!(
        (&late["event"], &late["kind"], &late["status"]),
        (&json!("error"), &json!("timed_out"), &json!(408))
    );
    assert_eq!(waiter.event(), None);
}

#[test]
fn readers_and_permits_share_and_a_writer_does_not() {
    let server = Server::start();
    let _readers = [0, 1].map(|_| server.hold("index", r#"{"share":"shared"}"#));
    assert_eq!(server.ask("POST", "/v1/locks/index", r#"{"wait":0}"#).0, 409);
    let permits = r#"{"share":{"permits":2,"of":5}}"#;
    let _two = [0, 1].map(|_| server.hold("licenses", permits));
    assert_eq!(server.ask("POST", "/v1/locks/licenses", r#"{"wait":0,"share":{"permits":2,"of":5}}"#).0, 409);
    let (status, other) =
        server.ask("POST", "/v1/locks/licenses", r#"{"wait":0,"share":{"permits":1,"of":6}}"#);
    assert_eq!((status, &other["kind"]), (409, &json!("capacity_mismatch")));
}

#[test]
fn several_names_are_held_together_or_not_at_all() {
    let server = Server::start();
    let b = server.hold("b", "");
    let names = r#"{"names":["a","b","a"],"wait":0}"#;
    assert_eq!(server.ask("POST", "/v1/locks", names).0, 409);
    assert!(!server.is_held("a"));
    b.connection.close();
    until("b is free", || !server.is_held("b"));
    let mut connection = server.connect();
    connection.send("POST", "/v1/locks", "", names);
    assert_eq!(connection.head().0, 200);
    let granted = connection.event().expect("a line");
    assert_eq!(granted["tokens"].as_array().map(Vec::len), Some(2), "{granted}");
    assert!(server.is_held("a") && server.is_held("b"));
}

#[test]
fn an_owner_enters_its_lock_again() {
    let server = Server::start();
    let _outer = server.hold("job", r#"{"owner":"order-7"}"#);
    let inner = server.hold("job", r#"{"owner":"order-7","wait":0}"#);
    assert_eq!(inner.first["event"], "granted");
    assert_eq!(server.ask("POST", "/v1/locks/job", r#"{"owner":"order-8","wait":0}"#).0, 409);
}

#[test]
fn a_name_may_have_every_character() {
    let server = Server::start();
    let long = "x".repeat(tidelock_max_name());
    for name in [
        "a/b", "a//b", "/", ".", "..", "a b", "a?b#c", "100%", "%2F", "a+b", "\"'\\", "ключ", "🔒", "renew",
        &long,
    ] {
        let path = escaped(name);
        let hold = server.hold(&path, r#"{"wait":0}"#);
        let (_, lock) = server.ask("GET", &format!("/v1/locks/{path}"), "");
        assert_eq!((&lock["name"], lock["holders"].as_array().map(Vec::len)), (&json!(name), Some(1)));
        assert_eq!(server.ask("DELETE", &hold.path(), "").0, 200, "{name}");
    }
    let plain = server.hold("a/b", "");
    assert_eq!(server.ask("POST", "/v1/locks/a%2Fb", r#"{"wait":0}"#).0, 409, "it is the same name");
    drop(plain);
    for bad in ["%00", "%0A", "%FF", "%", "", &escaped(&"x".repeat(tidelock_max_name() + 1))] {
        let (status, refused) = server.ask("POST", &format!("/v1/locks/{bad}"), "");
        assert_eq!(status, 400, "{bad}: {refused}");
    }
}

fn tidelock_max_name() -> usize {
    512
}

#[test]
fn an_eviction_is_heard_with_its_reason() {
    let server = Server::start();
    let mut hold = server.hold("a/b", "");
    let (_, locks) = server.ask("GET", "/v1/locks?prefix=a%2F", "");
    let claim = locks[0]["holders"][0]["claim"].as_str().expect("an id").to_owned();
    let path = format!("/v1/locks/a/b/claims/{claim}?reason=it+hangs%21");
    assert_eq!(server.ask("DELETE", &path, ""), (200, json!({"evicted": true})));
    let lost = hold.outcome();
    assert_eq!(
        (&lost["event"], &lost["kind"], &lost["reason"]),
        (&json!("lost"), &json!("lost"), &json!("evicted"))
    );
    assert!(lost["message"].as_str().is_some_and(|text| text.contains("it hangs!")), "{lost}");
    assert_eq!(hold.event(), None);
    assert_eq!(server.ask("DELETE", &hold.path(), "").0, 410);
    assert_eq!(server.ask("DELETE", &path, "").0, 404);
}

#[test]
fn a_hold_is_renewed_and_says_so() {
    let server = Server::start();
    let mut hold = server.hold("job", r#"{"ttl":"600ms"}"#);
    let mut until = hold.first["until_us"].as_u64().expect("a number");
    assert!(until <= 600_000, "{until}");
    for _ in 0..4 {
        let renewed = hold.event().expect("a line");
        assert_eq!(renewed["event"], "renewed", "{renewed}");
        let later = renewed["until_us"].as_u64().expect("a number");
        assert!(later > until, "{later} after {until}");
        until = later;
    }
    let (status, confirmed) = server.ask("POST", &hold.path(), "");
    assert_eq!((status, &confirmed["token"]), (200, &hold.first["token"]));
    assert!(confirmed["until_us"].as_u64().is_some_and(|until| until <= 600_000), "{confirmed}");
}

#[test]
fn a_client_that_does_not_confirm_loses_its_lock() {
    let server = Server::start();
    let mut silent = server.hold("job", r#"{"ttl":"500ms","confirm":true}"#);
    let lost = silent.outcome();
    assert_eq!((&lost["event"], &lost["reason"]), (&json!("lost"), &json!("unconfirmed")), "{lost}");
    until("its lock is free", || !server.is_held("job"));
    assert_eq!(server.ask("POST", &silent.path(), "").0, 410);
}

#[test]
fn a_client_that_confirms_keeps_its_lock_for_longer_than_a_ttl() {
    let server = Server::start();
    let mut live = server.hold("job", r#"{"ttl":"1s","confirm":true}"#);
    // It is renewed every third of the ttl, and less often if the machine is busy.
    for _ in 0..6 {
        assert_eq!(server.ask("POST", &live.path(), "").0, 200);
        assert_eq!(live.event().expect("a line")["event"], "renewed");
    }
    assert_eq!(server.ask("DELETE", &live.path(), "").0, 200);
    assert_eq!(live.outcome(), json!({"event": "released"}));
}

#[test]
fn a_hold_ends_at_its_longest_time_or_at_that_of_the_server() {
    let server = Server::with(&["--max-hold", "400ms"]);
    for body in [r#"{"max_hold":"200ms"}"#, r#"{"max_hold":"1h"}"#, "{}"] {
        let mut hold = server.hold("job", body);
        assert!(hold.first["until_us"].as_u64().is_some_and(|until| until < 20_000_000), "{}", hold.first);
        assert_eq!(hold.outcome()["reason"], "max_hold");
    }
    assert_eq!(server.ask("POST", "/v1/tickets/job", r#"{"ttl":"1s"}"#).0, 400);
    let mut connection = server.connect();
    connection.send("POST", "/v1/elections/job", "", "");
    assert_eq!(connection.head().0, 200);
    assert_eq!(connection.event().expect("a line")["event"], "granted");
    let end = std::iter::from_fn(|| connection.event()).find(|event| event["event"] == "lost");
    assert_eq!(end.expect("an end")["reason"], "max_hold");
}

#[test]
fn a_ticket_holds_without_a_stream() {
    let server = Server::start();
    let (status, left) = server.ask("POST", "/v1/tickets/deploy", r#"{"ttl":"10s"}"#);
    assert_eq!(status, 200, "{left}");
    assert!(left["until_us"].as_u64().is_some_and(|until| until < 10_000_000), "{left}");
    assert_eq!(server.ask("POST", "/v1/tickets/deploy", r#"{"wait":0}"#).0, 409);
    let ticket = json!({"ticket": left["ticket"]}).to_string();
    assert_eq!(server.ask("POST", "/v1/tickets/renew", &ticket).0, 200);
    assert_eq!(server.ask("POST", "/v1/tickets/release", &ticket).0, 200);
    let (status, gone) = server.ask("POST", "/v1/tickets/renew", &ticket);
    assert_eq!((status, &gone["kind"]), (410, &json!("lost")));
    assert_eq!(server.ask("POST", "/v1/tickets/renew", r#"{"ticket":"x"}"#).0, 404);
}

#[test]
fn a_candidate_leads_while_its_stream_is_open() {
    let server = Server::start();
    assert_eq!(server.ask("GET", "/v1/elections/main", "").1["kind"], "no_leader");
    let mut observer = server.connect();
    observer.send("GET", "/v1/elections/main/watch", "", "");
    assert_eq!(observer.head().0, 200);
    assert_eq!(observer.event().expect("a line")["leader"], Value::Null);
    let mut candidate = server.connect();
    candidate.send("POST", "/v1/elections/main", "", r#"{"advertise":"http://10.0.0.7"}"#);
    assert_eq!(candidate.head().0, 200);
    assert_eq!(candidate.event().expect("a line")["event"], "granted");
    assert_eq!(observer.event().expect("a line")["leader"]["advertised"], "http://10.0.0.7");
    assert_eq!(server.ask("GET", "/v1/elections/main", "").1["leader"]["advertised"], "http://10.0.0.7");
    candidate.close();
    assert_eq!(observer.event().expect("a line")["leader"], Value::Null);
}

#[test]
fn a_slot_is_run_once() {
    let server = Server::start();
    let start = |body: &str| {
        let mut connection = server.connect();
        connection.send("POST", "/v1/once/report", "", body);
        assert_eq!(connection.head().0, 200);
        let granted = connection.event().expect("a line");
        let path = format!("/v1/holds/{}", granted["hold"].as_str().expect("a hold"));
        (connection, path)
    };
    let (first, path) = start(r#"{"every":"1d","retry_failed":true}"#);
    assert_eq!(server.ask("POST", "/v1/once/report", r#"{"every":"1d"}"#).1["kind"], "running_now");
    assert_eq!(server.ask("POST", &format!("{path}/failed"), "").0, 200);
    drop(first);
    let (_second, path) = start(r#"{"every":86400}"#);
    assert_eq!(server.ask("POST", &format!("{path}/done"), "").0, 200);
    let (status, done) = server.ask("POST", "/v1/once/report", r#"{"every":"1d"}"#);
    assert_eq!((status, &done["kind"], &done["failed"]), (409, &json!("done_already"), &json!(false)));
    let lock = server.hold("job", "");
    assert_eq!(server.ask("POST", &format!("{}/done", lock.path()), "").0, 400, "it is no slot");
}

#[test]
fn stock_is_sold_once_for_each_order() {
    let server = Server::start();
    let ask = |verb: &str, body: &str| server.ask("POST", &format!("/v1/stock/10001/{verb}"), body).1;
    assert_eq!(server.ask("GET", "/v1/stock/10001", "").0, 404);
    assert_eq!(ask("open", r#"{"amount":5,"segments":1}"#)["segments"], 1);
    assert_eq!(ask("take", r#"{"order":"a","amount":2}"#)["sale"], "taken");
    assert_eq!(ask("take", r#"{"order":"a","amount":2}"#)["sale"], "taken");
    assert_eq!(ask("reserve", r#"{"order":"b","amount":3,"ttl":"1m"}"#)["sale"], "reserved");
    assert_eq!(ask("take", r#"{"order":"c"}"#)["sale"], "sold_out");
    assert_eq!(ask("confirm", r#"{"order":"b"}"#)["confirmed"], true);
    assert_eq!(ask("give_back", r#"{"order":"a"}"#)["given_back"], true);
    let (_, tally) = server.ask("GET", "/v1/stock/10001", "");
    assert_eq!(tally, json!({"remaining": 2, "reserved": 0, "sold": 3, "returned": 2}));
}

#[test]
fn every_mistake_has_its_status_and_its_kind() {
    let server = Server::start();
    for (method, path, body, status, kind) in [
        ("POST", "/v1/locks/a", "{", 400, "bad_request"),
        ("POST", "/v1/locks/a", "[]", 400, "bad_request"),
        ("POST", "/v1/locks/a", r#"{"wat":1}"#, 400, "bad_request"),
        ("POST", "/v1/locks/a", r#"{"wait":-1}"#, 400, "bad_request"),
        ("POST", "/v1/locks/a", r#"{"share":"mine"}"#, 400, "bad_request"),
        ("POST", "/v1/locks/a", r#"{"share":{"permits":6,"of":5}}"#, 400, "config"),
        ("POST", "/v1/locks/a", r#"{"ttl":"1ms"}"#, 400, "config"),
        ("POST", "/v1/locks/a", r#"{"owner":""}"#, 400, "config"),
        ("POST", "/v1/locks/a", r#"{"names":["b"]}"#, 400, "bad_request"),
        ("POST", "/v1/locks", "", 400, "bad_request"),
        ("POST", "/v1/once/a", "", 400, "bad_request"),
        ("POST", "/v1/stock/a/reserve", r#"{"order":"b"}"#, 400, "bad_request"),
        ("PUT", "/v1/locks/a", "", 405, "bad_request"),
        ("GET", "/v1/nothing", "", 404, "not_found"),
        ("POST", "/v1/holds/0123", "", 404, "not_found"),
        ("DELETE", "/v1/holds/0123456789abcdef0123456789abcdef", "", 404, "not_found"),
        ("DELETE", "/v1/locks/a/claims/1", "", 404, "not_found"),
    ] {
        let (answered, problem) = server.ask(method, path, body);
        assert_eq!((answered, &problem["kind"]), (status, &json!(kind)), "{method} {path} {body}: {problem}");
        assert_eq!(problem["retryable"], false);
        assert!(problem["message"].as_str().is_some_and(|text| !text.is_empty() && !text.contains('\n')));
    }
}

#[test]
fn the_description_has_all_calls() {
    let server = Server::start();
    let (status, document) = server.ask("GET", "/v1/openapi.json", "");
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    for path in
        ["/v1/locks/{name}", "/v1/holds/{hold}", "/v1/tickets/renew", "/v1/stock/{item}/take", "/healthz"]
    {
        assert!(document["paths"][path].is_object(), "{path}");
    }
    assert_eq!(server.ask("GET", "/v1/abilities", "").1["store"], "file");
    assert_eq!(server.ask("GET", "/healthz", "").1["status"], "serving");
}
