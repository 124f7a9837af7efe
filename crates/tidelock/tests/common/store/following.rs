//! Viewers of all names whose connection is cut. Stores that cannot tell of all names pass.

use tidelock::{Locks, backend::FollowAll};

use super::{LONG, Place, network::two, report, within};

trials! {
    a_viewer_of_all_names_that_was_cut_off_is_told_to_look_at_everything_and_hears_again,
}

/// Waits until the viewer was told of a name.
pub(crate) async fn told(all: &mut FollowAll, name: &str) {
    let heard = async { while !all.next().await.names.iter().any(|told| told.as_str() == name) {} };
    within(&format!("{name} is told"), heard).await;
}

/// Waits until the store tells of changes, or does not. Says whether the viewer is to look at everything.
pub(crate) async fn until_live(all: &mut FollowAll, is_live: bool) -> bool {
    let change = async {
        let mut missed = false;
        while all.is_live() != is_live {
            missed |= all.next().await.missed;
        }
        missed
    };
    within(if is_live { "it is live" } else { "it is cut" }, change).await
}

/// Takes a lock and releases it: the viewer hears of both.
pub(crate) async fn hears(all: &mut FollowAll, other: &Locks, name: &str) {
    let guard = other.mutex(name).ttl(LONG).lock().await.unwrap();
    told(all, name).await;
    guard.release().await.unwrap();
    told(all, name).await;
}

async fn a_viewer_of_all_names_that_was_cut_off_is_told_to_look_at_everything_and_hears_again() {
    let place = Place::shared();
    let (proxy, behind, other) = two(&place).await;
    let Some(mut all) = behind.follow_all() else {
        return report("this store does not tell of all names");
    };
    assert!(until_live(&mut all, true).await, "what was before may be unknown");
    hears(&mut all, &other, "before").await;
    for round in ["first", "second"] {
        proxy.cut();
        until_live(&mut all, false).await;
        let meanwhile = other.mutex(round).ttl(LONG).lock().await.unwrap();
        proxy.heal().unwrap();
        assert!(until_live(&mut all, true).await, "what was meanwhile was not told");
        let seen = async {
            while behind.look(&[round]).await.map_or(0, |views| views.len()) == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        within("a look shows it", seen).await;
        meanwhile.release().await.unwrap();
        told(&mut all, round).await;
        hears(&mut all, &other, "after").await;
    }
}
