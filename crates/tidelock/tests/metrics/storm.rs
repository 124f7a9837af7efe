//! Whatever happens to many tasks on a store that fails, in the end nothing is held and nobody waits.

use std::time::Duration;

use tidelock::{
    Locks,
    backend::ClientId,
    testing::{
        Clock,
        defect::Defects,
        faulty::{Faults, FaultyStore},
    },
};

use crate::recorder::Figures;

/// A number from a seed, the same on every run.
fn pick(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// One task: acquires, waits or gives up, and lets go in one of the ways that there are.
async fn visitor(locks: Locks, mut seed: u64) {
    for _ in 0..8 {
        let name = ["a", "b"][pick(&mut seed, 2) as usize];
        let mutex = locks.mutex(name).ttl(Duration::from_secs(5)).wait(Duration::from_secs(10));
        let mutex =
            if pick(&mut seed, 4) == 0 { mutex.owner(format!("o{}", pick(&mut seed, 2))) } else { mutex };
        let limit = Duration::from_millis(pick(&mut seed, 4_000));
        let Ok(Ok(guard)) = tokio::time::timeout(limit, mutex.lock()).await else { continue };
        tokio::time::sleep(Duration::from_millis(pick(&mut seed, 7_000))).await;
        if pick(&mut seed, 2) == 0 {
            drop(guard);
        } else {
            let _ = guard.release().await;
        }
    }
}

#[test]
fn after_a_storm_nothing_is_held_and_nobody_waits() {
    for seed in 1..=20 {
        let figures = Figures::of(|figures| async move {
            let faults = Faults { delay_ms: 50, ..Faults::default() };
            let store = FaultyStore::new(seed, faults, Clock::driven(0), Defects::NONE);
            let id = ClientId::from_u64(1);
            let locks = Locks::on_clock(store.connect(id), Clock::driven(0), Defects::NONE);
            let visitors: Vec<_> =
                (0..12).map(|n| tokio::spawn(visitor(locks.clone(), seed * 100 + n))).collect();
            let mut dice = seed;
            for _ in 0..6 {
                tokio::time::sleep(Duration::from_millis(pick(&mut dice, 5_000))).await;
                match pick(&mut dice, 3) {
                    0 => store.forget("a"),
                    1 => store.cut(id, true),
                    _ => visitors[pick(&mut dice, 12) as usize].abort(),
                }
                tokio::time::sleep(Duration::from_millis(pick(&mut dice, 7_000))).await;
                store.cut(id, false);
                let (held, waiting) = figures.levels_of("faulty");
                assert!((0.0..=2.0).contains(&held) && (0.0..=12.0).contains(&waiting), "{held} {waiting}");
            }
            for visitor in visitors {
                // One that was aborted has an end as well.
                let _ = visitor.await;
            }
            assert_eq!(figures.levels_of("faulty"), (0.0, 0.0), "seed {seed}");
        });
        let grants = figures.now("tidelock_acquired_total{store=faulty,outcome=held}");
        let holds = figures.all("tidelock_hold_seconds{store=faulty}").len();
        assert!(grants > 0.0 && holds > 0, "seed {seed}: {grants} grants, {holds} holds");
    }
}
