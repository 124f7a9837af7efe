//! The engine on the faulty store, in simulated time, replayable by one number.
//!
//! A seed decides everything: how many clients and tasks there are, what they ask for, how long
//! they hold, and what goes wrong when. After a while everything is repaired; then all must come to
//! an end, nothing may be left in line, and the [`history`] must pass its checks.

mod worker;

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use self::worker::Worker;
use super::{
    defect::Defects,
    faulty::{Faults, FaultyStore},
    history::{self, Hold},
    rng::Rng,
};
use crate::{
    Locks, Name,
    backend::ClientId,
    clock::{Clock, Moment},
};

/// When everything must have come to its end, in simulated time after the faults.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest lease in use, and what the fallback of a lost push takes.
const SETTLED: Duration = Duration::from_millis(2_000 + 4_000);
/// How long giving a place back may take: a call that is not answered, and one more.
const LEFT: Duration = Duration::from_millis(200);

/// What a run saw: to see that it was not vacuous.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Locks got.
    pub grants: u64,
    /// Locks got by hand-off inside a process.
    pub hand_offs: u64,
    /// Tries and waits that ended without.
    pub refused: u64,
    /// Acquires dropped half-way.
    pub dropped: u64,
    /// Locks lost while held.
    pub lost: u64,
    /// Acquires and releases that failed.
    pub errors: u64,
    /// Simulated time.
    pub simulated: Duration,
}

impl Outcome {
    /// Adds another run.
    pub fn merge(&mut self, other: &Self) {
        self.grants += other.grants;
        self.hand_offs += other.hand_offs;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.errors += other.errors;
        self.simulated += other.simulated;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, hand_offs, refused, dropped, lost, errors, simulated } = self;
        write!(
            f,
            "{grants} grants ({hand_offs} by hand-off), {refused} refused, {dropped} dropped half-way, {lost} lost, {errors} errors, {:.1} h simulated",
            simulated.as_secs_f64() / 3_600.0
        )
    }
}

/// What must not happen, and the seed that makes it happen again.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// What was seen.
    pub what: String,
    /// What the run was like.
    pub plan: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\n  {}", self.seed, self.what, self.plan)
    }
}

/// Runs one seed.
///
/// # Errors
/// What went wrong that must not.
pub fn run(seed: u64, defects: Defects) -> Result<Outcome, Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|e| Violation { seed, what: e.to_string(), plan: String::new() })?;
    runtime.block_on(World::run(seed, defects))
}

/// What the names of a run are used for.
#[derive(Clone, Copy, Debug)]
enum Use {
    Mutex,
    ReadWrite,
    Permits,
}

/// What a seed decides.
#[derive(Clone, Debug)]
struct Plan {
    clients: u64,
    tasks: u64,
    rounds: u64,
    names: Vec<(Name, Use)>,
    faults: Faults,
    /// Nothing goes wrong that could make a claim lapse: then none may.
    gentle: bool,
    cuts: bool,
    restarts: bool,
    /// The store is down for longer than the leases of those who wait.
    outages: bool,
    forgets: bool,
    restores: bool,
    clocks: bool,
    busy: bool,
}

impl Plan {
    fn new(rng: &mut Rng) -> Self {
        let gentle = rng.chance(250);
        let often = |rng: &mut Rng, most| if rng.chance(500) { rng.between(1, most) } else { 0 };
        let faults = Faults {
            instant: rng.pick(&[0, 100, 500, 900]),
            delay_ms: rng.pick(&[1, 4, 8]),
            long: if gentle { 0 } else { often(rng, 150) },
            long_ms: 45,
            lost_question: if gentle { 0 } else { often(rng, 100) },
            lost_answer: often(rng, 120),
            doubled: if gentle { 0 } else { often(rng, 100) },
            lost_push: often(rng, 300),
            doubled_push: often(rng, 200),
        };
        let uses = [Use::Mutex, Use::ReadWrite, Use::Permits];
        let names = (0..rng.between(1, 2)).filter_map(|i| Name::new(&format!("lock-{i}")).ok());
        let names = names.map(|name| (name, rng.pick(&uses))).collect();
        Self {
            clients: rng.between(1, 4),
            tasks: rng.between(1, 4),
            rounds: rng.between(2, 6),
            names,
            faults,
            gentle,
            cuts: !gentle && rng.chance(600),
            restarts: !gentle && rng.chance(300),
            outages: rng.chance(300),
            forgets: rng.chance(500),
            restores: !gentle && rng.chance(200),
            clocks: !gentle && rng.chance(300),
            busy: rng.chance(300),
        }
    }
}

struct World {
    plan: Plan,
    store: Arc<FaultyStore>,
    clock: Clock,
    tick: AtomicU64,
    seen: Mutex<Observed>,
}

#[derive(Default)]
struct Observed {
    asking: Vec<Asking>,
    holds: Vec<Hold>,
    outcome: Outcome,
    breach: Option<String>,
}

/// How many tasks of a client ask for a lock, and since when none does.
#[derive(Clone, Copy, Default)]
struct Asking {
    tasks: u32,
    idle_since: Moment,
}

impl Asking {
    fn idle_for(self, now: Moment) -> Duration {
        if self.tasks == 0 { now.since(self.idle_since) } else { Duration::ZERO }
    }
}

impl World {
    async fn run(seed: u64, defects: Defects) -> Result<Outcome, Violation> {
        let mut rng = Rng::new(seed);
        let plan = Plan::new(&mut rng);
        let clock = Clock::driven(0);
        let store = FaultyStore::new(rng.bits(), plan.faults, clock.clone(), defects);
        let start = clock.now();
        let asking = vec![Asking { tasks: 0, idle_since: start }; plan.clients as usize];
        let seen = Mutex::new(Observed { asking, ..Observed::default() });
        let world = Arc::new(Self { plan, store, clock, tick: AtomicU64::new(1), seen });
        let what = world.clone().story(&mut rng, defects).await;
        let mut seen = world.seen();
        seen.outcome.simulated = world.clock.now().since(start);
        let breach = seen.breach.take().map_or(what, Err);
        let plan = format!("{:?}", world.plan);
        let checked = breach.and_then(|()| history::check(&seen.holds).map_err(|breach| breach.to_string()));
        checked.map(|()| seen.outcome.clone()).map_err(|what| Violation { seed, what, plan })
    }

    async fn story(self: Arc<Self>, rng: &mut Rng, defects: Defects) -> Result<(), String> {
        let mut clients = Vec::new();
        let mut workers = tokio::task::JoinSet::new();
        for index in 0..self.plan.clients {
            let id = ClientId::from_u64(rng.bits());
            let drift = if self.plan.gentle { 0 } else { rng.between(0, 8_000) as i64 - 4_000 };
            let clock = Clock::driven(drift);
            let locks = Locks::on_clock(self.store.connect(id), clock.clone(), defects);
            for _ in 0..self.plan.tasks {
                let worker =
                    Worker { world: Arc::clone(&self), locks: locks.clone(), client: index, rng: rng.fork() };
                workers.spawn(worker.work());
            }
            clients.push((id, clock, locks));
        }
        self.storm(rng, &clients).await;
        self.store.heal();
        let all = async {
            loop {
                self.look_for_places_of_nobody(&clients);
                if let Ok(None) = tokio::time::timeout(Duration::from_millis(50), workers.join_next()).await {
                    break;
                }
            }
        };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            return Err(format!("somebody still waits; in line: {:?}", self.store.left_behind()));
        }
        tokio::time::sleep(SETTLED).await;
        let left = self.store.left_behind();
        if !left.is_empty() {
            return Err(format!("left behind: {left:?}"));
        }
        if let Some(overtaken) = self.store.overtaken() {
            return Err(overtaken);
        }
        let lapsed = self.store.lapsed();
        if self.plan.gentle && lapsed > 0 {
            return Err(format!("{lapsed} claims lapsed though their clients were alive and connected"));
        }
        for (_, _, locks) in clients {
            if locks.shutdown(Duration::ZERO).await > 0 {
                return Err("a lock was held at the end".to_owned());
            }
        }
        Ok(())
    }

    /// What goes wrong for a while, beyond what happens to each call.
    async fn storm(&self, rng: &mut Rng, clients: &[(ClientId, Clock, Locks)]) {
        for _ in 0..rng.between(4, 12) {
            tokio::time::sleep(rng.millis(5, 150)).await;
            let (id, clock, _) = &clients[rng.below(clients.len() as u64) as usize];
            if self.plan.cuts && rng.chance(600) {
                self.store.cut(*id, true);
                tokio::time::sleep(rng.millis(5, 500)).await;
                self.store.cut(*id, false);
            }
            if self.plan.restarts && rng.chance(400) {
                self.store.stop();
                let longest = if self.plan.outages { 4_000 } else { 80 };
                tokio::time::sleep(rng.millis(1, longest)).await;
                self.store.start(!self.plan.forgets);
            }
            if self.plan.restores && rng.chance(400) {
                self.store.back_up();
                tokio::time::sleep(rng.millis(5, 300)).await;
                self.store.stop();
                self.store.restore();
                self.store.start(true);
            }
            if self.plan.clocks && rng.chance(300) {
                clock.jump(rng.millis(1, 200));
            }
            if self.plan.clocks && rng.chance(300) {
                // Back only where the store remembers: LIMIT, see GUARANTEES.md.
                let hours =
                    rng.between(0, 4) as i64 - if self.plan.forgets || self.plan.restores { 0 } else { 2 };
                self.store.step_clock(hours * 3_600_000_000);
            }
        }
    }

    /// A client in which nobody has asked for anything for a while has no claim that waits.
    fn look_for_places_of_nobody(&self, clients: &[(ClientId, Clock, Locks)]) {
        let now = self.clock.now();
        for (index, (id, _, _)) in clients.iter().enumerate() {
            let idle = self.seen().asking[index].idle_for(now);
            if self.plan.gentle && idle > LEFT && self.store.has_waiting(*id) {
                self.breach(format!("client {index} has a place in line, and nobody has asked for {idle:?}"));
            }
        }
    }

    fn tick(&self) -> u64 {
        self.tick.fetch_add(1, Ordering::Relaxed)
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Observed> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breach(&self, what: String) {
        self.seen().breach.get_or_insert(what);
    }
}
