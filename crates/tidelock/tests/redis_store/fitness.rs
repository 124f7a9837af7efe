//! Servers that are not fit for locks, run out of memory, or keep something else under a lock's key.

use test_servers::Redis;

use crate::support::{
    LONG, NAME, Place, got, held_and_waited_for, is_one_sentence, shared, until_idle, within,
};

trials! {
    a_server_that_may_drop_locks_is_refused_with_the_fix_unless_that_is_accepted,
    a_server_without_memory_says_so_and_nothing_is_leaked,
    something_else_under_the_key_of_a_lock_is_left_alone_and_said,
    a_server_without_a_file_is_a_concern,
    a_server_that_forgets_scripts_because_of_its_default_user_is_a_concern,
}

async fn a_server_that_may_drop_locks_is_refused_with_the_fix_unless_that_is_accepted() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = Redis::new().config("maxmemory", "50mb").config("maxmemory-policy", policy);
        let server = server.start().unwrap();
        let place = Place::on(server.url());
        let error = within("it is refused", place.try_connect()).await.unwrap_err();
        is_one_sentence(&error);
        assert!(error.is_denied(), "{error}");
        for part in [policy, "set maxmemory-policy noeviction", "?eviction=allow"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        let locks = place.with("eviction=allow").connect().await;
        assert!(locks.concerns().iter().any(|concern| concern.contains(policy)), "{:?}", locks.concerns());
        locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    }
}

async fn a_server_without_memory_says_so_and_nothing_is_leaked() {
    let server = Redis::new().start().unwrap();
    let place = Place::on(server.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = within("it is said", locks.mutex("another").fail_fast(true).lock()).await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.is_unavailable() && error.to_string().contains("raise maxmemory"), "{error}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eq!(locks.look(&["another"]).await.unwrap(), []);
    locks.mutex("another").lock().await.unwrap().release().await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();

    // Giving back writes, and is refused too: it is tried further, and the lease ends in any case.
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let released = within("it ends", guard.release()).await;
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    if let Err(error) = released {
        assert!(error.is_unavailable(), "{error}");
    }
    until_idle(&locks, NAME).await;
}

async fn something_else_under_the_key_of_a_lock_is_left_alone_and_said() {
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    let foreign: &[(&str, &[&str])] = &[
        ("a list", &["RPUSH", "KEY", "a", "b"]),
        ("a text", &["SET", "KEY", "hello"]),
        ("a number", &["SET", "KEY", "42"]),
        ("a value of another lock", &["SET", "KEY", "0f8fad5b-d9cb-469f-a165-70867728950e"]),
        ("nothing at all", &["SET", "KEY", ""]),
        // These begin as the store's own heads do.
        ("a text with I", &["SET", "KEY", "I was here first"]),
        ("a text with S", &["SET", "KEY", "Somebody else's"]),
        ("a text with L", &["SET", "KEY", "Leave it alone"]),
    ];
    for (name, command) in foreign {
        let key = place.key(name);
        let command: Vec<_> = command.iter().map(|word| if *word == "KEY" { &*key } else { word }).collect();
        server.command(&command).unwrap();
        server.command(&["EXPIRE", &key, "60"]).unwrap();
        let before = server.command(&["DUMP", &key]).unwrap();
        for wait in [false, true] {
            let mutex = locks.mutex(name);
            let error = if wait {
                within("it is refused", mutex.lock()).await.unwrap_err()
            } else {
                within("it is refused", mutex.try_lock()).await.unwrap_err()
            };
            is_one_sentence(&error);
            assert!(error.is_denied(), "{name}: {error}");
            assert!(error.to_string().contains("something else"), "{name}: {error}");
            assert!(error.to_string().contains("?prefix="), "{name}: {error}");
        }
        // Looking at all locks is not stopped by what is none.
        locks.look_all().await.unwrap();
        assert_eq!(server.command(&["DUMP", &key]).unwrap(), before, "{name}");
        server.command(&["DEL", &key]).unwrap();
    }
}

async fn a_server_without_a_file_is_a_concern() {
    let locks = Place::shared().connect().await;
    assert!(locks.concerns().iter().any(|concern| concern.contains("appendonly yes")));
    let server = Redis::new().durable().start().unwrap();
    assert_eq!(Place::on(server.url()).connect().await.concerns(), Vec::<String>::new());
}

async fn a_server_that_forgets_scripts_because_of_its_default_user_is_a_concern() {
    let server = Redis::new()
        .append_only()
        .user("locks", "secret", "~* &* +@all")
        .without_default_user()
        .start()
        .unwrap();
    // What it is about: of a script with two writes nothing is left after a restart.
    let script = "redis.call('SET', KEYS[1], 1) redis.call('SET', KEYS[2], 2)";
    server.command(&["EVAL", script, "2", "{a}", "{a}b"]).unwrap();
    server.restart().unwrap();
    let is_forgotten = server.command(&["EXISTS", "{a}", "{a}b"]).unwrap().as_deref() != Some("2");
    let concern = |concern: &String| concern.contains("the default user lacks rights");
    let concerns = Place::on(server.url()).connect().await.concerns();
    assert!(concerns.iter().any(concern) || !is_forgotten, "{concerns:?}");
    server
        .command(&["ACL", "SETUSER", "default", "off", "nopass", "allkeys", "allchannels", "allcommands"])
        .unwrap();
    let concerns = Place::on(server.url()).connect().await.concerns();
    assert!(!concerns.iter().any(concern), "{concerns:?}");
}
