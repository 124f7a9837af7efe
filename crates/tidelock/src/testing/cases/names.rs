//! Names are hostile input.

use std::sync::Arc;

use crate::{
    Guard, MAX_ADVERTISED_BYTES, MAX_OWNER_BYTES,
    backend::{Claim, Share, Standing},
    model::owner::join_label,
    testing::suite::{LONG_TTL, World},
};

super::cases! { "names":
    hostile_names_are_locks_of_their_own,
    hostile_names_below_a_prefix_are_locks_of_their_own,
    longest_names_are_locks_of_their_own,
    name_shows_in_line_as_it_was_given,
    look_at_no_name_in_use_shows_nothing,
    bad_name_is_one_clear_sentence,
    bad_owner_or_label_is_one_clear_sentence,
    hostile_owner_and_label_show_as_they_were_given,
    what_is_advertised_is_kept_whole_for_holders_and_waiters,
}

/// Each of these is a name, and no two of them are the same lock.
const HOSTILE: &[&str] = &[
    ".",
    "..",
    "...",
    "/",
    "//",
    "../..",
    "a",
    "A",
    "a/",
    "/a",
    "a/b",
    "a//b",
    "a/../a",
    "{a}",
    "{a}b",
    "{}",
    "a{",
    "}a",
    " ",
    "a ",
    " a",
    "a  b",
    "%2F",
    "%2f",
    "%",
    "%%",
    "a%2Fb",
    "a:b",
    "a\\b",
    "a*",
    "a?",
    "[a]",
    "_",
    "-",
    "a'b",
    "a\"b",
    "a`b",
    "'; drop table locks; --",
    "$1",
    "${a}",
    "0",
    "00",
    "-1",
    "null",
    "🔒",
    "🔒🔒",
    "é",
    "e\u{301}",
    "ß",
    "ss",
    "İ",
    "i",
    "\u{202e}a",
    "\u{feff}a",
    "a\u{200b}",
    "\u{10ffff}",
    "名",
];

/// All names at once: each is free, then held by one, then free again.
async fn are_distinct(world: &World, names: &[String]) {
    let [one, other] = world.clients().await;
    let mut guards: Vec<Guard> = Vec::new();
    for name in names {
        let guard = one.mutex(name).ttl(LONG_TTL).try_lock().await.unwrap();
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} is the same lock as one before")));
    }
    for name in names {
        assert!(other.mutex(name).try_lock().await.unwrap().is_none(), "{name:?} is held");
        let view = world.seen(name).await.unwrap_or_else(|| panic!("{name:?} is not shown"));
        assert_eq!((view.name.as_str(), view.holders.len()), (name.as_str(), 1));
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    for name in names {
        assert_eq!(world.seen(name).await, None, "{name:?} is free");
    }
}

async fn hostile_names_are_locks_of_their_own(world: World) {
    let names: Vec<_> = HOSTILE.iter().map(|&name| name.to_owned()).collect();
    are_distinct(&world, &names).await;
}

async fn hostile_names_below_a_prefix_are_locks_of_their_own(world: World) {
    let mut names: Vec<_> = HOSTILE.iter().map(|name| world.name(name)).collect();
    names.push(world.name(""));
    are_distinct(&world, &names).await;
}

async fn longest_names_are_locks_of_their_own(world: World) {
    let most = world.client().await.abilities().max_name;
    let longest = |last: &str| {
        let name = world.name("");
        let filler = "x".repeat(most - name.len() - last.len());
        format!("{name}{filler}{last}")
    };
    let names = ["x", "y", "X", "/", " ", "é", "🔒", "%2F"].map(longest);
    assert!(names.iter().all(|name| name.len() == most));
    are_distinct(&world, &names).await;
}

async fn name_shows_in_line_as_it_was_given(world: World) {
    let client = world.client().await;
    let mut given: Vec<_> = ["a/../b c", "{🔒}", "%2F"].iter().map(|name| world.name(name)).collect();
    let mut guards = Vec::new();
    for name in &given {
        guards.push(client.mutex(name).lock().await.unwrap());
    }
    let mut shown: Vec<_> = world.in_use().await.iter().map(|name| name.as_str().to_owned()).collect();
    given.sort();
    shown.sort();
    assert_eq!(shown, given);
}

async fn look_at_no_name_in_use_shows_nothing(world: World) {
    let client = world.client().await;
    let (idle, used) = (world.name("idle"), world.name("used"));
    let guard = client.mutex(&used).lock().await.unwrap();
    let seen = client.look([&idle, &used]).await.unwrap();
    assert_eq!(seen.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), [used.as_str()]);
    guard.release().await.unwrap();
}

async fn bad_name_is_one_clear_sentence(world: World) {
    let client = world.client().await;
    let too_long = "x".repeat(client.abilities().max_name + 1);
    for bad in ["", "a\0b", "a\nb", "\t", "a\u{7f}", "\u{85}", too_long.as_str()] {
        for error in [
            client.mutex(bad).lock().await.unwrap_err(),
            client.rw_lock(bad).try_read().await.unwrap_err(),
            client.semaphore(bad, 2).acquire(1).await.unwrap_err(),
            client.lock_all(["good", bad]).await.unwrap_err(),
            client.look(&[bad]).await.unwrap_err(),
        ] {
            assert!(error.is_invalid_name() && !error.is_retryable(), "{bad:?}: {error}");
            assert!(!error.to_string().contains('\n'), "{bad:?}: {error}");
        }
    }
    assert!(client.lock_all([""; 0]).await.unwrap_err().is_invalid_name());
}

async fn bad_owner_or_label_is_one_clear_sentence(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let too_long = "x".repeat(129);
    for bad in ["", "a\0b", "a\nb", too_long.as_str()] {
        for error in [
            client.mutex(&name).owner(bad).lock().await.unwrap_err(),
            client.mutex(&name).label(bad).lock().await.unwrap_err(),
        ] {
            assert!(error.is_invalid_option(), "{bad:?}: {error}");
            assert!(!error.to_string().contains('\n'), "{bad:?}: {error}");
        }
    }
    assert_eq!(world.seen(&name).await, None);
}

async fn hostile_owner_and_label_show_as_they_were_given(world: World) {
    let client = world.client().await;
    for (number, hostile) in HOSTILE.iter().enumerate() {
        let name = world.name(&format!("{number}"));
        let guard = client.mutex(&name).owner(hostile).label(hostile).lock().await.unwrap();
        let view = world.seen(&name).await.unwrap();
        let holder = &view.holders[0];
        assert_eq!(&*holder.label, *hostile);
        assert_eq!(holder.owner.as_ref().map(|owner| owner.as_str()), Some(*hostile));
        guard.release().await.unwrap();
    }
}

async fn what_is_advertised_is_kept_whole_for_holders_and_waiters(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("election");
    let text = |last: &str| format!("{}{last}", "é/".repeat(MAX_ADVERTISED_BYTES / 3 - 2));
    let label = "🔒".repeat(MAX_OWNER_BYTES / 4);
    let claims = [(&one, "one"), (&two, "two"), (&three, "3")].map(|(client, last)| {
        let claim = Claim::clone(&client.claim(&name, Share::Exclusive));
        (client, Arc::new(claim.label(join_label(&label, &text(last)))), text(last))
    });
    one.hold(&claims[0].1).await;
    two.stand(&claims[1].1).await;
    three.stand(&claims[2].1).await;
    for (turn, (client, claim, _)) in claims.iter().enumerate() {
        // The last pushes have come when it holds.
        world.until("it holds", || async { matches!(client.stands(claim).await, Standing::Held(_)) }).await;
        let view = world.seen(&name).await.unwrap();
        let shown = view.holders.iter().chain(&view.waiters);
        let shown: Vec<_> = shown.map(|claim| (&*claim.label, claim.advertised.as_deref())).collect();
        let wanted = claims[turn..].iter().map(|(_, _, text)| (&*label, Some(&**text)));
        assert_eq!(shown, wanted.collect::<Vec<_>>());
        client.leave(claim).await;
    }
    world.until_idle(&name).await;
}
