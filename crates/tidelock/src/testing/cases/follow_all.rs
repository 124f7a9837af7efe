//! Following all names: a viewer that looks at what it is told of sees every change, whichever client made it.
//!
//! A store that cannot tell passes: its viewers look at everything.

use std::sync::Arc;

use crate::{
    backend::{FollowAll, Leave, LockView, Share},
    testing::suite::{LONG_TTL, PATIENCE, Raw, World},
};

super::cases! { "follow_all":
    viewer_of_all_names_sees_a_grant_a_waiter_a_hand_over_and_the_end(follow),
    viewer_of_all_names_sees_each_of_many(follow),
    viewer_of_all_names_is_told_once_to_look_at_everything(follow),
    viewer_of_all_names_hears_why_a_claim_was_evicted(follow),
}

/// A viewer, once the store has said that it tells of changes.
async fn live(client: &Raw) -> Option<FollowAll> {
    let mut all = client.backend.follow_all()?;
    let until_live = async {
        while !all.is_live() {
            all.next().await;
        }
    };
    tokio::time::timeout(PATIENCE, until_live).await.expect("it is live");
    Some(all)
}

/// Looks at a lock whenever the viewer is told to, until it is as it should be.
async fn seen(
    world: &World,
    all: &mut FollowAll,
    name: &str,
    is: impl Fn(Option<&LockView>) -> bool + Send + Sync,
) {
    let look = async {
        loop {
            let told = all.next().await;
            if (told.missed || told.names.iter().any(|told| told.as_str() == name))
                && is(world.seen(name).await.as_ref())
            {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("the viewer is told of each change");
}

async fn viewer_of_all_names_sees_a_grant_a_waiter_a_hand_over_and_the_end(world: World) {
    let name = world.name("a");
    let [viewer, one, other] = world.backends().await;
    let Some(mut all) = live(&viewer).await else { return };
    let [first, second] =
        [&one, &other].map(|client| client.claim_for(&name, Share::Exclusive, None, LONG_TTL));
    let counts = |view: Option<&LockView>| view.map(|view| (view.holders.len(), view.waiters.len()));
    one.hold(&first).await;
    seen(&world, &mut all, &name, |view| counts(view) == Some((1, 0))).await;
    other.stand(&second).await;
    seen(&world, &mut all, &name, |view| counts(view) == Some((1, 1))).await;
    one.leave(&first).await;
    let holds = |view: &LockView| view.holders.iter().any(|holder| holder.id == second.id);
    seen(&world, &mut all, &name, |view| view.is_some_and(holds)).await;
    one.leave_as(&second, Leave::evicted("by hand")).await;
    seen(&world, &mut all, &name, |view| counts(view).is_none()).await;
}

async fn viewer_of_all_names_sees_each_of_many(world: World) {
    let [viewer, one, other] = world.backends().await;
    let Some(mut all) = live(&viewer).await else { return };
    let names: Vec<_> = (0..40).map(|n| world.name(&format!("{}/{n}", n % 3))).collect();
    let mut held = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let client = if number % 2 == 0 { &one } else { &other };
        let claim = client.claim_for(name, Share::Exclusive, None, LONG_TTL);
        client.hold(&claim).await;
        held.push((client, claim));
    }
    told_of_all(&mut all, &names).await;
    for (client, claim) in held {
        client.leave(&claim).await;
    }
    told_of_all(&mut all, &names).await;
}

/// Waits until all of these names were told.
async fn told_of_all(all: &mut FollowAll, names: &[String]) {
    let mut left: Vec<_> = names.to_vec();
    let heard = async {
        while !left.is_empty() {
            let told = all.next().await;
            assert!(!told.missed, "nothing was missed");
            left.retain(|name| !told.names.iter().any(|told| told.as_str() == name));
        }
    };
    let heard = tokio::time::timeout(PATIENCE, heard).await;
    assert!(heard.is_ok(), "not told: {left:?}");
}

async fn viewer_of_all_names_is_told_once_to_look_at_everything(world: World) {
    let name = world.name("a");
    let [viewer, client] = world.backends().await;
    let claim = client.claim_for(&name, Share::Exclusive, None, LONG_TTL);
    client.hold(&claim).await;
    let Some(mut all) = client.backend.follow_all().and(viewer.backend.follow_all()) else { return };
    assert!(!all.is_live());
    let first = tokio::time::timeout(PATIENCE, all.next()).await.expect("it is told at first");
    assert!(first.missed && all.is_live(), "what was before is for a look at everything");
    client.leave(&claim).await;
    told_of_all(&mut all, std::slice::from_ref(&name)).await;
}

async fn viewer_of_all_names_hears_why_a_claim_was_evicted(world: World) {
    let name = world.name("a");
    let [viewer, one, other] = world.backends().await;
    let Some(mut all) = live(&viewer).await else { return };
    if !all.tells_evictions() {
        return;
    }
    let claim = one.claim_for(&name, Share::Exclusive, None, LONG_TTL);
    one.hold(&claim).await;
    other.leave_as(&claim, Leave::evicted("it hangs")).await;
    let reason: Arc<str> = "it hangs".into();
    let heard = async { while !all.next().await.evicted.contains(&(claim.id, Arc::clone(&reason))) {} };
    tokio::time::timeout(PATIENCE, heard).await.expect("every eviction is told");
}
