//! Following: a follower of a name hears that its holders changed, whichever client changed them.

use crate::{
    backend::{Follow, Leave, Share, Standing},
    testing::suite::{LONG_TTL, PATIENCE, Raw, World},
};

super::cases! { "follow":
    follower_hears_of_a_grant_a_leave_and_an_eviction(follow),
    follower_hears_that_an_expired_holder_was_replaced(follow),
    followers_of_many_names_hear_of_their_own(follow),
    name_that_was_followed_before_is_followed_again(follow),
    watch_sees_each_change_of_leader(follow),
}

/// Follows a name, until the store has said that it tells of changes.
async fn live(world: &World, client: &Raw, name: &str) -> Follow {
    let follow = client.follow(name);
    world.until("it is live", || async { follow.is_live() }).await;
    follow
}

/// Something that happens, and that the follower must hear of.
async fn told<T>(follow: &Follow, what: &str, happens: impl Future<Output = T>) -> T {
    let before = follow.changes();
    let done = happens.await;
    let heard = tokio::time::timeout(PATIENCE, follow.changed_since(before)).await;
    assert!(heard.is_ok(), "not told within {PATIENCE:?}: {what}");
    done
}

async fn follower_hears_of_a_grant_a_leave_and_an_eviction(world: World) {
    let name = world.name("a");
    let [follower, one, other] = world.backends().await;
    let follow = live(&world, &follower, &name).await;
    let [first, second] = [&one, &other].map(|client| client.claim(&name, Share::Exclusive));
    told(&follow, "granted at once", one.hold(&first)).await;
    other.stand(&second).await;
    told(&follow, "left, and granted to the next", one.leave(&first)).await;
    world.until("it holds", || async { matches!(other.stands(&second).await, Standing::Held(_)) }).await;
    told(&follow, "evicted", one.leave_as(&second, Leave::evicted("by hand"))).await;
    let third = other.claim(&name, Share::Exclusive);
    told(&follow, "granted once more", other.hold(&third)).await;
    told(&follow, "left by the last", other.leave(&third)).await;
}

async fn follower_hears_that_an_expired_holder_was_replaced(world: World) {
    let name = world.name("a");
    let [follower, one, other] = world.backends().await;
    let first = one.claim_for(&name, Share::Exclusive, None, world.short_ttl());
    one.hold(&first).await;
    let second = other.claim_for(&name, Share::Exclusive, None, LONG_TTL);
    other.stand(&second).await;
    let follow = live(&world, &follower, &name).await;
    let replaced = async {
        let holds = || async { matches!(other.stands(&second).await, Standing::Held(_)) };
        world.until("the next holds", holds).await;
    };
    told(&follow, "expired, and granted to the next", replaced).await;
    other.leave(&second).await;
}

async fn followers_of_many_names_hear_of_their_own(world: World) {
    let [follower, client] = world.backends().await;
    let names: Vec<_> = (0..20).map(|n| world.name(&n.to_string())).collect();
    let mut follows = Vec::new();
    for name in &names {
        follows.push(live(&world, &follower, name).await);
    }
    for (name, follow) in names.iter().zip(&follows) {
        let claim = client.claim(name, Share::Exclusive);
        told(follow, name, client.hold(&claim)).await;
        told(follow, name, client.leave(&claim)).await;
    }
}

async fn name_that_was_followed_before_is_followed_again(world: World) {
    let name = world.name("a");
    let [follower, client] = world.backends().await;
    for _ in 0..5 {
        let follow = live(&world, &follower, &name).await;
        let claim = client.claim(&name, Share::Exclusive);
        told(&follow, "granted", client.hold(&claim)).await;
        drop(follow);
        let again = live(&world, &follower, &name).await;
        told(&again, "left", client.leave(&claim)).await;
    }
}

async fn watch_sees_each_change_of_leader(world: World) {
    let name = world.name("boss");
    let [leader, observer] = world.clients().await;
    let mut watch = observer.election(&name).watch();
    assert_eq!(watch.next().await.unwrap().unwrap(), None);
    for _ in 0..5 {
        let lead = leader.election(&name).ttl(LONG_TTL).campaign().await.unwrap();
        let seen = watch.next().await.unwrap().unwrap().expect("it leads");
        assert_eq!(seen.token, lead.token());
        lead.release().await.unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap(), None);
    }
}
