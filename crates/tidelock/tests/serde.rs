//! Values for other programs: what is written, and that it is read again or refused with a sentence.
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

use std::time::Duration;

use tidelock::{
    Locks, Name, Owner, Ticket, Token,
    backend::{ClaimView, LockView},
};

#[tokio::test]
async fn tokens_and_tickets_travel_as_text() {
    let token = Token::from_u64(u64::MAX - 1);
    assert_eq!(serde_json::to_string(&token).unwrap(), "\"18446744073709551614\"");
    assert_eq!(serde_json::from_str::<Token>("\"18446744073709551614\"").unwrap(), token);

    let locks = Locks::connect("memory:").await.unwrap();
    let guard = locks.mutex("a \"quoted\" name").detached(true).lock().await.unwrap();
    let ticket = guard.leave_behind().unwrap();
    let written = serde_json::to_string(&ticket).unwrap();
    assert_eq!(written, format!("\"{ticket}\""));
    let read: Ticket = serde_json::from_str(&written).unwrap();
    assert_eq!(read, ticket);
    locks.release(&read).await.unwrap();
}

#[tokio::test]
async fn a_view_is_read_as_it_was_written_with_all_within_it() {
    let locks = Locks::builder("memory:").label("worker-7").connect().await.unwrap();
    let permits = locks.semaphore("permits", 5).owner("me");
    let writer = locks.mutex("mutex").lock().await.unwrap();
    let reader = locks.rw_lock("readers").read().await.unwrap();
    let two = permits.acquire(2).await.unwrap();
    let all = locks.clone().semaphore("permits", 5);
    let waiting = tokio::spawn(async move { all.acquire(5).await });
    let seen = loop {
        let seen = locks.look(&["mutex", "permits", "readers"]).await.unwrap();
        if seen.iter().any(|view| !view.waiters.is_empty()) {
            break seen;
        }
        tokio::task::yield_now().await;
    };
    let written = serde_json::to_value(&seen).unwrap();
    let read: Vec<LockView> = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), written);
    assert_eq!(read.len(), 3);
    for (read, seen) in read.iter().zip(&seen) {
        assert_eq!((&read.name, read.capacity, read.epoch), (&seen.name, seen.capacity, seen.epoch));
        assert!(
            same(&read.holders, &seen.holders) && same(&read.waiters, &seen.waiters),
            "{read:?} {seen:?}"
        );
    }
    let permits = written.as_array().unwrap().iter().find(|view| view["name"] == "permits").unwrap();
    assert_eq!(permits["capacity"], "5 permits");
    let (holder, waiter) = (&permits["holders"][0], &permits["waiters"][0]);
    assert_eq!(holder["claim"], seen_id(&seen, "permits"));
    assert_eq!(
        (&holder["share"], &holder["permits"], &holder["of"], &holder["owner"], &holder["label"]),
        (&"permits".into(), &2.into(), &5.into(), &"me".into(), &"worker-7".into())
    );
    assert!(waiter["token"].is_null() && waiter["permits"] == 5 && waiter["age_ms"].is_u64(), "{waiter}");
    let token = two.token().to_string();
    assert!(holder["token"] == token && permits["token"] == token, "{permits}");
    drop((writer, reader, two));
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[test]
fn the_locks_on_the_page_of_the_command_line_are_read_and_written_as_they_are_there() {
    let page = include_str!("../../../docs/json.md");
    for command in ["tidelock show --json", "tidelock ls --json"] {
        let (_, section) = page.split_once(&format!("\n## `{command}`\n")).expect("a section");
        let example = section.split_once("```json\n").and_then(|(_, rest)| rest.split_once("```"));
        let mut shown: serde_json::Value = serde_json::from_str(example.expect("an example").0).unwrap();
        if shown.is_object() {
            shown = serde_json::Value::Array(vec![shown]);
        }
        let read: Vec<LockView> = serde_json::from_value(shown.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), shown, "{command}");
        assert!(read.iter().all(|lock| lock.holders.iter().all(|holder| holder.token().is_some())));
    }
}

/// Whether two lists show the same claims; times are written in whole milliseconds.
fn same(read: &[ClaimView], seen: &[ClaimView]) -> bool {
    let is_near = |read: Duration, seen: Duration| read <= seen && seen - read < Duration::from_millis(1);
    read.len() == seen.len()
        && read.iter().zip(seen).all(|(read, seen)| {
            (read.id, read.share, &read.owner, &read.label, read.epoch)
                == (seen.id, seen.share, &seen.owner, &seen.label, seen.epoch)
                && is_near(read.age, seen.age)
                && is_near(read.lapse_in, seen.lapse_in)
        })
}

fn seen_id(seen: &[LockView], name: &str) -> String {
    let view = seen.iter().find(|view| view.name == name).expect("a view of the lock");
    view.holders[0].id.to_string()
}

#[test]
fn what_is_not_valid_is_refused_with_the_sentence_of_its_type() {
    let errors = [
        serde_json::from_str::<Token>("17").unwrap_err(),
        serde_json::from_str::<Token>("\"seven\"").unwrap_err(),
        serde_json::from_str::<Ticket>("\"tl9.x\"").unwrap_err(),
        serde_json::from_str::<Name>("\"\"").unwrap_err(),
        serde_json::from_str::<Owner>("\"a\\u0000\"").unwrap_err(),
    ];
    let says = ["fencing token as text", "is not a fencing token", "no ticket", "needs a name", "owner"];
    for (error, says) in errors.iter().zip(says) {
        assert!(error.to_string().contains(says), "{error}");
    }
    let view = |capacity: &str, claim: &str, share: &str| {
        let holder = format!(
            r#"{{"claim":"{claim}","label":"x","owner":null,{share},"token":"1024","age_ms":1,"expires_in_ms":1}}"#
        );
        let text = format!(
            r#"{{"name":"a","capacity":{capacity},"token":"1024","holders":[{holder}],"waiters":[]}}"#
        );
        serde_json::from_str::<LockView>(&text).map_err(|error| error.to_string())
    };
    let (id, exclusive) = ("0".repeat(32), r#""share":"exclusive""#);
    assert!(view("null", &id, exclusive).is_ok());
    for (refused, says) in [
        (view("\"5\"", &id, exclusive), "capacity"),
        (view("null", "+0", exclusive), "id of a claim"),
        (view("null", &format!("+{}", &id[1..]), exclusive), "id of a claim"),
        (view("null", &id, r#""share":"permits","permits":2"#), "lacks their number"),
        (view("null", &id, r#""share":"half""#), "half"),
    ] {
        assert!(refused.as_ref().is_err_and(|error| error.contains(says)), "{refused:?}");
    }
}
