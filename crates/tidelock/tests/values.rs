//! Guards, handles and names as values: what is printed of them, and how they are taken apart and used.

use std::fmt::Debug;

use tidelock::{Locks, Name, Owner, blocking};

/// Asserts what is printed, in one line.
fn prints(value: &impl Debug, expected: &str) {
    let text = format!("{value:?}");
    assert_eq!(text, expected);
    assert!(!text.contains('\n') && text.len() < 120, "{text}");
}

#[tokio::test]
async fn what_is_printed_of_a_guard_or_a_handle_is_one_short_line() {
    let locks = Locks::connect("memory:").await.unwrap();
    prints(&locks, r#"Locks { store: "memory" }"#);
    let mutex = locks.mutex("orders/42");
    prints(&mutex, r#"Mutex { name: "orders/42", store: "memory" }"#);
    prints(&locks.rw_lock("prices"), r#"RwLock { name: "prices", store: "memory" }"#);
    prints(&locks.semaphore("work", 5), r#"Semaphore { name: "work", store: "memory", permits: 5 }"#);
    let multi = locks.multi(["b", "a"]);
    prints(&multi, r#"Multi { names: ["a", "b"], store: "memory" }"#);
    let bad = format!("{:?} {:?}", locks.mutex(""), locks.multi([""]));
    assert!(bad.contains("InvalidName") && !bad.contains('\n') && bad.len() < 300, "{bad}");

    let guard = mutex.lock().await.unwrap();
    let (token, holding) = (guard.token(), guard.holding());
    prints(&guard, &format!(r#"Guard {{ name: "orders/42", token: {token}, state: Held }}"#));
    prints(&holding, &format!(r#"Holding {{ name: "orders/42", token: {token}, state: Held }}"#));
    guard.release().await.unwrap();
    prints(&holding, &format!(r#"Holding {{ name: "orders/42", token: {token}, state: Released }}"#));

    let guards = multi.lock().await.unwrap();
    let each: Vec<_> = guards.iter().map(|guard| format!("{guard:?}")).collect();
    assert_eq!(format!("{guards:?}"), format!("Guards [{}]", each.join(", ")));
}

#[test]
fn what_is_printed_of_the_blocking_twins_is_the_same() {
    let locks = blocking::Locks::connect("memory:").unwrap();
    prints(&locks, r#"Locks { store: "memory" }"#);
    prints(&locks.mutex("a"), r#"Mutex { name: "a", store: "memory" }"#);
    prints(&locks.rw_lock("a"), r#"RwLock { name: "a", store: "memory" }"#);
    prints(&locks.semaphore("a", 2), r#"Semaphore { name: "a", store: "memory", permits: 2 }"#);
    let guard = locks.mutex("a").lock().unwrap();
    let expected = format!(r#"Guard {{ name: "a", token: {}, state: Held }}"#, guard.token());
    prints(&guard, &expected);
    guard.release().unwrap();
    let guards = locks.lock_all(["a"]).unwrap();
    assert!(format!("{guards:?}").starts_with(r#"Guards [Guard { name: "a", token: "#), "{guards:?}");
}

#[tokio::test]
async fn the_name_of_a_guard_leads_to_the_same_lock() {
    let locks = Locks::connect("memory:").await.unwrap();
    let guard = locks.mutex("orders/42").owner(Owner::new("me").unwrap()).lock().await.unwrap();
    assert!(locks.mutex(guard.name()).try_lock().await.unwrap().is_none());
    assert!(locks.look(&[guard.name().as_ref()]).await.unwrap()[0].name == "orders/42");
}

#[test]
fn names_and_owners_convert_to_and_from_text_and_are_checked() {
    let name: Name = "a".parse().unwrap();
    assert_eq!(name, "a");
    assert_eq!("a", name);
    assert_eq!(&name, "a");
    assert_eq!("a", &name);
    assert_ne!(name, "b");
    assert_eq!(Name::try_from("a").unwrap(), Name::try_from(String::from("a")).unwrap());
    assert_eq!((name.as_ref(), name.to_string(), String::from(name.clone())), ("a", "a".into(), "a".into()));
    assert!("".parse::<Name>().unwrap_err().is_invalid_name());
    let owner: Owner = "me".parse().unwrap();
    assert_eq!(owner, "me");
    assert_eq!("me", owner);
    assert_eq!(&owner, "me");
    assert_ne!(owner, "you");
    assert_eq!(Owner::try_from("me").unwrap(), Owner::try_from(String::from("me")).unwrap());
    assert_eq!(
        (owner.as_ref(), owner.to_string(), String::from(owner.clone())),
        ("me", "me".into(), "me".into())
    );
    assert!(Owner::try_from("a\n").unwrap_err().is_invalid_option());
}

#[tokio::test]
async fn guards_of_several_locks_are_counted_and_taken_apart() {
    let locks = Locks::connect("memory:").await.unwrap();
    let guards = locks.lock_all(["c", "a", "b", "a"]).await.unwrap();
    assert!(guards.len() == 3 && !guards.is_empty());
    let tokens: Vec<_> = guards.iter().map(|guard| (guard.name(), guard.token())).collect();
    assert_eq!(guards.tokens(), tokens);
    assert_eq!(tokens.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let mut each = guards.into_iter();
    each.next().unwrap().release().await.unwrap();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
    assert!(locks.mutex("b").try_lock().await.unwrap().is_none());
    drop(each);
    let b = locks.mutex("b").lock().await.unwrap();
    let c = locks.mutex("c").lock().await.unwrap();
    assert!(b.is_held() && c.is_held());
}
