//! Once per period: what is left behind for a slot that is done.

use std::time::Duration;

use crate::{
    Done, Locks, MAX_TTL, Outcome, Period,
    testing::suite::{LONG_TTL, World},
};

super::cases! { "once":
    slot_is_run_once_and_others_learn_by_whom,
    slot_of_a_month_is_left_behind_for_longer_than_any_lock,
    job_that_runs_is_not_started_again_for_any_slot,
    failed_run_keeps_its_slot_unless_it_is_to_be_retried,
    turn_that_is_dropped_frees_its_slot,
    clocks_that_differ_by_seconds_do_not_run_a_slot_twice,
}

fn job(locks: &Locks, name: &str, label: &str) -> crate::Once {
    locks.once(name, Period::monthly()).label(label).ttl(LONG_TTL)
}

async fn slot_is_run_once_and_others_learn_by_whom(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("job");
    assert_eq!(job(&one, &name, "first").run(|_| async { 12 }).await.unwrap(), Outcome::Ran(12));
    for (client, label) in [(&one, "first"), (&other, "second")] {
        let again = job(client, &name, label).run(|_| async { panic!("it runs twice") }).await.unwrap();
        let Outcome::Done(done) = again else { panic!("{again:?}") };
        assert_eq!((&*done.by, done.failed), ("first", false));
        assert!(done.began <= done.ended && done.ended < done.forgotten);
    }
    assert_eq!(world.holding(&name).await, 0, "the job's own name is free");
}

async fn slot_of_a_month_is_left_behind_for_longer_than_any_lock(world: World) {
    let client = world.client().await;
    let name = world.name("job");
    // A month that began today.
    let day = client.once(world.name("day"), Period::every(Duration::from_secs(86_400)));
    let Outcome::Ran(turn) = day.start().await.unwrap() else { panic!("it is free") };
    let today = turn.slot().to_string();
    turn.give_back().await.unwrap();
    job(&client, &name, "it").slot(today).run(|_| async {}).await.unwrap();
    let names = world.in_use().await;
    assert_eq!(names.len(), 1, "{names:?}");
    let view = world.seen(names[0].as_str()).await.unwrap();
    let done = Done::of(&view).unwrap();
    let kept = done.forgotten.duration_since(done.ended).unwrap();
    let lapse_in = view.holders[0].lapse_in;
    assert!(
        lapse_in <= kept + Duration::from_secs(2) && lapse_in + Duration::from_secs(60) >= kept,
        "{view:?}"
    );
    assert!(kept > 26 * MAX_TTL, "{kept:?}");
    // To locks, its length does not matter: they are granted as before.
    let lock = client.mutex(world.name("lock")).ttl(LONG_TTL).try_lock().await.unwrap();
    lock.expect("it is free").release().await.unwrap();
}

async fn job_that_runs_is_not_started_again_for_any_slot(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("job");
    let Outcome::Ran(turn) = job(&one, &name, "first").start().await.unwrap() else { panic!("it is free") };
    // Another period is another slot of the same job.
    let week = other.once(&name, Period::weekly()).label("second");
    for again in [week.start().await.unwrap(), job(&other, &name, "second").start().await.unwrap()] {
        let Outcome::Running(running) = again else { panic!("{again:?}") };
        assert_eq!(&*running.by, "first");
    }
    turn.done().await.unwrap();
    assert!(matches!(week.run(|_| async {}).await.unwrap(), Outcome::Ran(())));
}

async fn failed_run_keeps_its_slot_unless_it_is_to_be_retried(world: World) {
    let client = world.client().await;
    for retry in [false, true] {
        let name = world.name(&format!("retry {retry}"));
        let once = job(&client, &name, "it").retry_failed(retry);
        let failed =
            once.try_run(|_| async { Err::<(), _>(crate::Error::invalid_option("it failed")) }).await;
        assert!(failed.unwrap_err().to_string().contains("it failed"));
        let again = once.run(|_| async {}).await.unwrap();
        match again {
            Outcome::Ran(()) => assert!(retry),
            Outcome::Done(done) => assert!(!retry && done.failed),
            Outcome::Running(running) => panic!("{running:?}"),
        }
    }
}

async fn turn_that_is_dropped_frees_its_slot(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("job");
    let Outcome::Ran(turn) = job(&one, &name, "first").start().await.unwrap() else { panic!("it is free") };
    drop(turn);
    world.until_idle(&name).await;
    assert!(matches!(job(&other, &name, "second").run(|_| async {}).await.unwrap(), Outcome::Ran(())));
}

async fn clocks_that_differ_by_seconds_do_not_run_a_slot_twice(world: World) {
    let name = world.name("job");
    let [one, other] = world.clients().await;
    let start = |locks: &Locks, skew| locks.once(&name, Period::every(Duration::from_secs(60))).skewed(skew);
    let Outcome::Ran(turn) = start(&one, -5).start().await.unwrap() else { panic!("it is free") };
    let slot = turn.slot().to_string();
    turn.done().await.unwrap();
    // As a scheduler names it: before and after it by clocks that are off.
    for skew in [-5, 0, 5] {
        let again = start(&other, skew).slot(&slot).run(|_| async { panic!("it runs twice") }).await.unwrap();
        assert!(matches!(again, Outcome::Done(_)), "{again:?}");
    }
}
