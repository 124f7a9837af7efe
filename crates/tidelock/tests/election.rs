//! Elections in paused time, on the store in memory: who leads when, and who is told what.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{INSTANT, SLOW, TTL, client, store};
use tidelock::{
    Election, ErrorKind, Locks, MAX_ADVERTISED_BYTES, Term,
    backend::ClientId,
    backends::memory::{MemoryBackend, MemoryStore},
    testing::{Clock, defect::Defects},
};
use tokio::{sync::oneshot, time::sleep};

/// Clients of one store, on a clock that the test drives.
struct World {
    store: Arc<MemoryStore>,
    clock: Clock,
}

impl World {
    fn new() -> Self {
        let clock = Clock::driven(0);
        Self { store: MemoryStore::on_clock(clock.clone()), clock }
    }

    fn client(&self) -> Locks {
        let backend = MemoryBackend::connect(Arc::clone(&self.store), ClientId::random());
        Locks::on_clock(Arc::new(backend), self.clock.clone(), Defects::NONE)
    }

    fn election(&self, label: &str) -> Election {
        self.client().election("scheduler").label(label).ttl(TTL)
    }
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn said(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Says when it is dropped.
struct Dropped(Log, &'static str);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.say(self.1);
    }
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("it never happened: {what}");
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_at_a_time_and_terms_grow() {
    let world = World::new();
    let (leading, terms) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let mut candidates = Vec::new();
    for candidate in 0..5 {
        let election = world.election(&format!("candidate-{candidate}"));
        let (leading, terms) = (Arc::clone(&leading), Arc::clone(&terms));
        candidates.push(tokio::spawn(async move {
            let work = |term: Term| {
                let (leading, terms) = (Arc::clone(&leading), Arc::clone(&terms));
                async move {
                    assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "nobody else leads");
                    terms.lock().unwrap().push((candidate, term.token()));
                    sleep(Duration::from_secs(2)).await;
                    leading.fetch_sub(1, Ordering::SeqCst);
                }
            };
            election.lead(work).await
        }));
    }
    until("each led four times", || terms.lock().unwrap().len() >= 20).await;
    candidates.iter().for_each(tokio::task::JoinHandle::abort);
    let terms = terms.lock().unwrap();
    assert!(terms.windows(2).all(|pair| pair[0].1 < pair[1].1), "{terms:?}");
    for turn in terms[5..].iter().zip(terms.iter()) {
        assert_eq!(turn.0.0, turn.1.0, "who led goes to the end of the queue: {terms:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_work_has_ended_before_the_next_candidate_leads() {
    let (world, log) = (World::new(), Log::default());
    let (first, second) = (world.election("first"), world.election("second"));
    let (stop, stopped) = oneshot::channel::<()>();
    let one = tokio::spawn({
        let log = log.clone();
        async move {
            let work = |term: Term| {
                let log = log.clone();
                async move {
                    log.say("first leads");
                    term.ending().await;
                    // It takes its time, and leads meanwhile.
                    sleep(Duration::from_secs(8)).await;
                    assert!(term.is_leading());
                    log.say("first has ended");
                }
            };
            first.lead_until(stopped, work).await
        }
    });
    until("first leads", || log.said().len() == 1).await;
    let two = tokio::spawn({
        let log = log.clone();
        async move { second.once(|_| async move { log.say("second leads") }).await }
    });
    sleep(Duration::from_secs(1)).await;
    stop.send(()).unwrap();
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
    assert_eq!(log.said(), ["first leads", "first has ended", "second leads"]);
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_dropped_after_max_stop_and_then_the_lead_is_given_back() {
    let (world, log) = (World::new(), Log::default());
    let (first, second) =
        (world.election("first").max_stop(Duration::from_secs(3)), world.election("second"));
    let one = {
        let log = log.clone();
        tokio::spawn(async move {
            first
                .once(|term| async move {
                    let _dropped = Dropped(log, "dropped");
                    term.resign();
                    std::future::pending::<()>().await;
                })
                .await
        })
    };
    let two = {
        let log = log.clone();
        tokio::spawn(async move { second.once(|_| async move { log.say("second leads") }).await })
    };
    let error = one.await.unwrap().unwrap_err();
    assert!(error.is_timed_out() && error.to_string().contains("max_stop"), "{error}");
    two.await.unwrap().unwrap();
    assert_eq!(log.said(), ["dropped", "second leads"]);
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_the_lead_is_lost_and_the_process_is_a_candidate_again() {
    let (world, log) = (World::new(), Log::default());
    let (election, eyes) = (world.election("one"), world.client());
    let leading = tokio::spawn({
        let log = log.clone();
        async move {
            let work = |term: Term| {
                let log = log.clone();
                async move {
                    log.say("leads");
                    let _dropped = Dropped(log.clone(), "dropped");
                    let why = term.lost();
                    tokio::spawn(async move { log.say(format!("{:?}", why.await.kind())) });
                    std::future::pending::<()>().await;
                }
            };
            election.lead(work).await
        }
    });
    until("it leads", || log.said() == ["leads"]).await;
    let seen = eyes.look(["scheduler"]).await.unwrap();
    assert!(eyes.evict("scheduler", seen[0].holders[0].id, "by hand").await.unwrap());
    until("it leads again", || log.said().iter().filter(|said| *said == "leads").count() == 2).await;
    let said = log.said();
    assert!(said.contains(&"dropped".to_owned()) && said.contains(&"Lost".to_owned()), "{said:?}");
    assert_eq!(said.last().unwrap(), "leads");
    leading.abort();
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_before_the_lead_is_given_back_when_the_future_is_dropped() {
    let world = World::new();
    let (election, eyes) = (world.election("one"), world.client());
    let (began, led) = oneshot::channel();
    let held_at_drop = Arc::new(AtomicBool::new(false));

    /// Notes, when it is dropped, whether the process leads.
    struct Leads(Term, Arc<AtomicBool>);
    impl Drop for Leads {
        fn drop(&mut self) {
            self.1.store(self.0.is_leading(), Ordering::SeqCst);
        }
    }

    let leading = tokio::spawn({
        let held_at_drop = Arc::clone(&held_at_drop);
        async move {
            let work = |term| async move {
                let _leads = Leads(term, held_at_drop);
                began.send(()).unwrap();
                std::future::pending::<()>().await;
            };
            election.once(work).await
        }
    });
    led.await.unwrap();
    leading.abort();
    assert!(leading.await.unwrap_err().is_cancelled());
    assert!(held_at_drop.load(Ordering::SeqCst), "it led until its work was gone");
    assert!(eyes.look(["scheduler"]).await.unwrap().is_empty(), "and then gave the lead back");
}

#[tokio::test(start_paused = true)]
async fn two_candidates_of_one_client_take_turns_with_those_of_others() {
    let (world, log) = (World::new(), Log::default());
    let client = world.client();
    let elections = [
        (client.election("scheduler").ttl(TTL), "a1"),
        (world.election("b"), "b"),
        (client.election("scheduler").ttl(TTL), "a2"),
    ];
    let mut candidates = Vec::new();
    for (place, (election, name)) in elections.into_iter().enumerate() {
        let said = log.clone();
        candidates.push(tokio::spawn(async move {
            let work = |term: Term| async move {
                said.say(name);
                sleep(Duration::from_secs(5)).await;
                assert_eq!(term.token().get() % 1_024, 0, "each term is a grant of the store");
            };
            election.once(work).await
        }));
        let eyes = world.client();
        for _ in 0..1_000 {
            let seen = eyes.look(["scheduler"]).await.unwrap();
            if seen.first().is_some_and(|view| view.holders.len() + view.waiters.len() == place + 1) {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
    for candidate in candidates {
        candidate.await.unwrap().unwrap();
    }
    assert_eq!(log.said(), ["a1", "b", "a2"]);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_never_led_ends_without_work_and_leaves_the_queue() {
    let world = World::new();
    let (leader, candidate, eyes) = (world.election("leader"), world.election("candidate"), world.client());
    let leading = tokio::spawn(async move { leader.once(|_| std::future::pending::<()>()).await });
    until_held(&eyes).await;
    let shutdown = sleep(Duration::from_secs(5));
    candidate.lead_until(shutdown, |_| async { panic!("it never leads") }).await.unwrap();
    until_waiting(&eyes, 0).await;
    leading.abort();
}

async fn until_waiting(eyes: &Locks, count: usize) {
    for _ in 0..1_000 {
        let seen = eyes.look(["scheduler"]).await.unwrap();
        if seen.first().map_or(0, |view| view.waiters.len()) == count {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("{count} do not wait");
}

#[tokio::test(start_paused = true)]
async fn observers_see_who_leads_what_it_advertises_and_that_nobody_does() {
    let world = World::new();
    let observer = world.election("observer");
    let (mut watch, mut other) = (observer.watch(), observer.watch());
    assert_eq!(watch.next().await.unwrap().unwrap(), None);
    assert_eq!(other.next().await.unwrap().unwrap(), None);
    let leader = world.election("worker-7").advertise("http://10.0.0.7:8080");
    let (stop, stopped) = oneshot::channel::<()>();
    let leading =
        tokio::spawn(
            async move { leader.lead_until(stopped, |term| async move { term.ending().await }).await },
        );
    let seen = watch.next().await.unwrap().unwrap().unwrap();
    assert_eq!((&*seen.label, seen.advertised.as_deref()), ("worker-7", Some("http://10.0.0.7:8080")));
    assert_eq!(other.next().await.unwrap().unwrap().unwrap().token, seen.token);
    assert_eq!(observer.leader().await.unwrap().unwrap().token, seen.token);
    // Many renewals later it is still the same leader, and no change.
    assert!(tokio::time::timeout(4 * TTL, watch.next()).await.is_err());
    stop.send(()).unwrap();
    leading.await.unwrap().unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), None);
    assert_eq!(observer.leader().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_the_reason() {
    let world = World::new();
    let client = world.client();
    let mut watch = client.election("scheduler").watch();
    assert_eq!(watch.next().await.unwrap().unwrap(), None);
    let mut invalid = client.election("").watch();
    assert!(invalid.next().await.unwrap().unwrap_err().is_invalid_name());
    assert!(invalid.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_one_clear_sentence_and_nothing_is_held() {
    let world = World::new();
    let client = world.client();
    let too_long = "x".repeat(MAX_ADVERTISED_BYTES + 1);
    for bad in ["", "a\nb", too_long.as_str()] {
        let error = client.election("scheduler").advertise(bad).once(|_| async {}).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains("advertise") && !error.to_string().contains('\n'), "{error}");
    }
    let error = client.election("").lead(|_| async {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName);
    assert!(client.look_all().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn shutting_down_the_client_ends_the_lead_and_the_candidacy() {
    let world = World::new();
    let client = world.client();
    let election = client.election("scheduler");
    let leading = tokio::spawn(async move { election.lead(|_| std::future::pending()).await });
    until_held(&world.client()).await;
    client.shutdown(Duration::ZERO).await;
    assert_eq!(leading.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

async fn until_held(eyes: &Locks) {
    for _ in 0..1_000 {
        if !eyes.look(["scheduler"]).await.unwrap().is_empty() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("nobody leads");
}

#[test]
fn without_async_a_candidate_leads_until_it_breaks() {
    let locks = tidelock::blocking::Locks::connect("memory:").unwrap();
    let election = locks.election("scheduler").label("thread").advertise("here");
    let mut terms = Vec::new();
    election
        .lead(|term| {
            assert!(term.is_leading());
            let leader = election.leader().unwrap().unwrap();
            assert_eq!((&*leader.label, leader.advertised.as_deref()), ("thread", Some("here")));
            assert_eq!(leader.token, term.token());
            terms.push(term.token());
            if terms.len() == 3 {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        })
        .unwrap();
    assert!(terms.windows(2).all(|pair| pair[0] < pair[1]), "{terms:?}");
    assert_eq!(election.watch().next().unwrap().unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_leader_is_not_shown_for_longer_than_its_lease_to_an_observer_that_is_cut_off() {
    let store = store(SLOW);
    let (leader, observer) = (client(&store, 1), client(&store, 2));
    let election = leader.locks.election("scheduler").ttl(TTL);
    let leading = tokio::spawn(async move { election.lead(|_| std::future::pending()).await });
    until_held(&leader.locks).await;
    let mut watch = observer.locks.election("scheduler").watch();
    assert!(watch.next().await.unwrap().unwrap().is_some());
    store.cut(observer.id, true);
    let cut = tokio::time::Instant::now();
    assert_eq!(watch.next().await.unwrap().unwrap(), None, "nobody is known to lead");
    assert!(cut.elapsed() <= TTL, "{:?}", cut.elapsed());
    store.cut(observer.id, false);
    assert!(watch.next().await.unwrap().unwrap().is_some(), "it is in sight again");
    leading.abort();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_the_next_one_leads() {
    let (store, log) = (store(INSTANT), Log::default());
    let (first, second) = (client(&store, 1), client(&store, 2));
    let lead = |locks: &Locks, leads: &'static str, dropped: &'static str| {
        let (election, log) = (locks.election("scheduler").ttl(TTL), log.clone());
        tokio::spawn(async move {
            let work = |_| {
                let log = log.clone();
                async move {
                    log.say(leads);
                    let _dropped = Dropped(log, dropped);
                    std::future::pending::<()>().await;
                }
            };
            election.lead(work).await
        })
    };
    let one = lead(&first.locks, "first leads", "first was dropped");
    until("the first leads", || log.said().len() == 1).await;
    let two = lead(&second.locks, "second leads", "second was dropped");
    until_waiting(&second.locks, 1).await;
    store.cut(first.id, true);
    until("the second leads", || log.said().len() == 3).await;
    assert_eq!(log.said(), ["first leads", "first was dropped", "second leads"]);
    store.cut(first.id, false);
    until_waiting(&second.locks, 1).await;
    one.abort();
    two.abort();
}

#[tokio::test(start_paused = true)]
async fn all_watches_of_a_client_ask_the_store_together() {
    let store = store(SLOW);
    let observer = client(&store, 1);
    let watches: Vec<_> = (0..50)
        .map(|_| {
            let mut watch = observer.locks.election("scheduler").watch();
            tokio::spawn(async move { while watch.next().await.is_some() {} })
        })
        .collect();
    sleep(Duration::from_secs(60)).await;
    let looks = observer.calls.of(&observer.calls.look);
    assert!((60..=160).contains(&looks), "{looks} questions in a minute");
    watches.iter().for_each(tokio::task::JoinHandle::abort);
}
