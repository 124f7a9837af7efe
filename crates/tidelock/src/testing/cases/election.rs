//! Elections: one leads, others see who.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::oneshot;

use crate::{
    Election, Locks, Token,
    testing::suite::{LONG_TTL, World},
};

super::cases! { "election":
    candidates_lead_in_turn_and_terms_grow,
    leader_is_shown_with_what_it_advertises,
    evicted_leader_is_a_candidate_again(push),
}

fn election(locks: &Locks, name: &str, label: &str) -> Election {
    locks.election(name).label(label).advertise(format!("http://{label}:8080")).ttl(LONG_TTL)
}

async fn candidates_lead_in_turn_and_terms_grow(world: World) {
    let name = world.name("boss");
    let leading = Arc::new(AtomicUsize::new(0));
    let mut terms = Vec::new();
    for candidate in 0..3 {
        let election = election(&world.client().await, &name, "x");
        let leading = Arc::clone(&leading);
        terms.push(world.spawn(async move {
            let work = |term: crate::Term| async move {
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "nobody else leads");
                tokio::task::yield_now().await;
                leading.fetch_sub(1, Ordering::SeqCst);
                term.token()
            };
            election.once(work).await.unwrap()
        }));
        // One after the other, so that their order is known where the store grants in order.
        let done = &terms[..];
        let is_in = || async {
            let seen = world.seen(&name).await.map_or(0, |view| view.holders.len() + view.waiters.len());
            seen + done.iter().filter(|term| term.is_done()).count() > candidate
        };
        world.until("it is a candidate", is_in).await;
    }
    let mut got: Vec<Token> = Vec::new();
    for term in terms {
        got.push(term.await);
    }
    let mut sorted = got.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 3, "each term has a number of its own: {got:?}");
    assert!(!world.abilities().fair || sorted == got, "terms grow: {got:?}");
}

async fn leader_is_shown_with_what_it_advertises(world: World) {
    let name = world.name("boss");
    let [leader, observer] = world.clients().await;
    let eyes = election(&observer, &name, "observer");
    let mut watch = eyes.watch();
    assert_eq!(watch.next().await.unwrap().unwrap(), None);
    let (stop, stopped) = oneshot::channel::<()>();
    let leading = election(&leader, &name, "worker-7");
    let leading = world.spawn(async move {
        leading.lead_until(stopped, |term| async move { term.ending().await }).await.unwrap();
    });
    let seen = watch.next().await.unwrap().unwrap().unwrap();
    assert_eq!((&*seen.label, seen.advertised.as_deref()), ("worker-7", Some("http://worker-7:8080")));
    assert_eq!(eyes.leader().await.unwrap().unwrap().token, seen.token);
    stop.send(()).unwrap();
    leading.await;
    assert_eq!(watch.next().await.unwrap().unwrap(), None);
    assert_eq!(eyes.leader().await.unwrap(), None);
}

async fn evicted_leader_is_a_candidate_again(world: World) {
    let name = world.name("boss");
    let client = world.client().await;
    let terms = Arc::new(std::sync::Mutex::new(Vec::new()));
    let candidate = election(&client, &name, "one");
    let led = Arc::clone(&terms);
    let leading = world.spawn(async move {
        let work = |term: crate::Term| {
            led.lock().unwrap().push(term.token());
            std::future::pending()
        };
        candidate.lead(work).await
    });
    let count = || terms.lock().unwrap().len();
    world.until("it leads", || async { count() == 1 }).await;
    world.evict_holder(&name).await;
    world.until("it leads again", || async { count() == 2 }).await;
    let terms = terms.lock().unwrap().clone();
    assert!(terms[0] < terms[1], "{terms:?}");
    leading.cancel();
}
