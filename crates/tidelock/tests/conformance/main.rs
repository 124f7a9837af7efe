//! The conformance cases and the comparison with the model, on every store of one list.
//!
//! - `TIDELOCK_TEST_BACKEND=memory` runs one store only.
//! - `TIDELOCK_COMPARE_SEEDS=1000` compares with that many seeds, `17..18` with those.
//!
//! A store that cannot do what a case needs shows the case as ignored, with the reason. The trials
//! below `itself::` run the same on stores with a known mistake, which must be found.

mod behind;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(unix, feature = "file"))]
mod files;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
mod served;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
#[path = "../common/shared.rs"]
mod shared;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::{
    any::Any,
    pin::Pin,
    process::ExitCode,
    sync::{Arc, mpsc},
    time::Duration,
};

use behind::{Behind, Mistake, Way};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tidelock::{
    backend::{Backend, ClientId, Namespaced},
    backends::memory::{MemoryBackend, MemoryStore},
    testing::{
        Clock, compare,
        suite::{self, Case, Store, World},
    },
};
use tokio::runtime::{Builder, Runtime};

/// A trial that takes longer hangs.
const WATCHDOG: Duration = Duration::from_secs(180);

/// How many seeds are compared, and how many operations each stands for.
const SEEDS: u64 = 48;
const STEPS: u32 = 300;

/// The ttl of leases that are waited for on the machine's clock: a machine that stalls for half a
/// second, and server and clients with it, must not end a lease that is renewed.
#[cfg(any(
    all(unix, feature = "file"),
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
const SHORT_TTL: Duration = Duration::from_secs(2);

/// A thread of this name is expected to panic.
const EXPECTED: &str = "expected to fail";

type Outcome = Result<Completion, Failed>;

/// How to run trials on a store.
#[derive(Clone, Copy)]
struct Stand {
    name: &'static str,
    runtime: fn() -> Runtime,
    /// Called within the runtime, for each trial. A server is started by the first and shared by all.
    open: fn() -> Arc<dyn Store>,
    /// How many seeds are compared when nobody says how many: each takes seconds on a server.
    seeds: u64,
}

/// Every store.
const STANDS: &[Stand] = &[
    Stand { name: "memory", runtime: paused, open: || Memory::open(Way::Here), seeds: SEEDS },
    // As a server is: no answer is there at once.
    Stand { name: "memory_far", runtime: paused, open: || Memory::open(Way::Far), seeds: SEEDS },
    Stand { name: "memory_namespace", runtime: paused, open: || Memory::open(Way::Namespaced), seeds: SEEDS },
    // As servers that vote are: a claim that may hold is told to ask.
    Stand { name: "memory_asks", runtime: paused, open: || Memory::open(Way::Asks), seeds: SEEDS },
    #[cfg(all(unix, feature = "file"))]
    Stand { name: "file", runtime: real, open: files::one, seeds: SEEDS },
    // As in containers that see boot ids of their own.
    #[cfg(all(unix, feature = "file"))]
    Stand { name: "file_boots", runtime: real, open: files::boots, seeds: 8 },
    #[cfg(feature = "etcd")]
    Stand { name: "etcd", runtime: real, open: etcd::one, seeds: 4 },
    #[cfg(feature = "etcd")]
    Stand { name: "etcd_cluster", runtime: real, open: etcd::cluster, seeds: 2 },
    #[cfg(feature = "mysql")]
    Stand { name: "mysql", runtime: real, open: mysql::one, seeds: 4 },
    #[cfg(feature = "postgres")]
    Stand { name: "postgres", runtime: real, open: postgres::one, seeds: 4 },
    #[cfg(feature = "postgres")]
    Stand { name: "postgres_pooled", runtime: real, open: postgres::pooled, seeds: 4 },
    #[cfg(feature = "postgres")]
    Stand { name: "postgres_advisory", runtime: real, open: postgres::advisory, seeds: 4 },
    #[cfg(feature = "redis")]
    Stand { name: "redis", runtime: real, open: redis::one, seeds: 4 },
    #[cfg(feature = "redis")]
    Stand { name: "redis_sentinel", runtime: real, open: redis::sentinel, seeds: 4 },
    #[cfg(feature = "redis")]
    Stand { name: "redis_cluster", runtime: real, open: redis::cluster, seeds: 4 },
    #[cfg(feature = "redis")]
    Stand { name: "redis_functions", runtime: real, open: redis::functions, seeds: 4 },
    #[cfg(feature = "redis")]
    Stand { name: "redis_off", runtime: real, open: redis::off, seeds: 4 },
    #[cfg(feature = "redis")]
    Stand { name: "redis_off_cluster", runtime: real, open: redis::off_cluster, seeds: 4 },
    #[cfg(feature = "redis")]
    Stand { name: "redis_redisson", runtime: real, open: redis::redisson, seeds: 4 },
    #[cfg(feature = "redis")]
    Stand { name: "redlock", runtime: real, open: redlock::five, seeds: 4 },
    #[cfg(feature = "zookeeper")]
    Stand { name: "zookeeper", runtime: real, open: zookeeper::one, seeds: 4 },
    #[cfg(feature = "zookeeper")]
    Stand { name: "zookeeper_ensemble", runtime: real, open: zookeeper::ensemble, seeds: 2 },
];

/// A runtime whose clock jumps from one timer to the next: no trial waits for real.
fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

/// A runtime for stores that others change too, on the machine's clock.
#[cfg(any(
    all(unix, feature = "file"),
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
fn real() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The store in memory, itself or behind something.
#[derive(Debug)]
struct Memory {
    clock: Clock,
    store: Arc<MemoryStore>,
    way: Way,
}

impl Memory {
    fn open(way: Way) -> Arc<dyn Store> {
        let clock = Clock::driven(0);
        let store = MemoryStore::on_clock(clock.clone());
        Arc::new(Self { clock, store, way })
    }
}

impl Store for Memory {
    fn name(&self) -> &'static str {
        match self.way {
            Way::Here | Way::Wrong(_) => "memory",
            Way::Far => "memory_far",
            Way::Asks => "memory_asks",
            Way::Namespaced => "memory_namespace",
        }
    }

    fn client(&self, id: ClientId) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>> {
        let inner: Arc<dyn Backend> = Arc::new(MemoryBackend::connect(Arc::clone(&self.store), id));
        let backend = match self.way {
            Way::Here => inner,
            Way::Namespaced => Arc::new(Namespaced::new(inner, "shop/").expect("a namespace")),
            way => Arc::new(Behind { inner, way }),
        };
        Box::pin(std::future::ready(backend))
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn short_ttl(&self) -> Duration {
        Duration::from_millis(300)
    }
}

fn main() -> ExitCode {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some(EXPECTED) {
            hook(panic);
        }
    }));
    let mut arguments = Arguments::from_args();
    // Most trials on real time wait for leases to end.
    arguments.test_threads.get_or_insert(24);
    match trials() {
        Ok(trials) => {
            let conclusion = libtest_mimic::run(&arguments, trials);
            #[cfg(feature = "etcd")]
            etcd::stop();
            #[cfg(feature = "mysql")]
            mysql::stop();
            #[cfg(feature = "postgres")]
            postgres::stop();
            #[cfg(feature = "redis")]
            {
                redis::stop();
                redlock::stop();
            }
            #[cfg(feature = "zookeeper")]
            zookeeper::stop();
            conclusion.exit_code()
        }
        Err(mistake) => {
            eprintln!("{mistake}");
            ExitCode::FAILURE
        }
    }
}

fn trials() -> Result<Vec<Trial>, String> {
    let seeds = seeds(std::env::var("TIDELOCK_COMPARE_SEEDS").ok().as_deref())?;
    let wanted = std::env::var("TIDELOCK_TEST_BACKEND").ok();
    let known: Vec<_> = STANDS.iter().map(|stand| stand.name).collect();
    if let Some(wanted) = wanted.as_deref().filter(|wanted| !known.contains(wanted)) {
        return Err(format!(
            "TIDELOCK_TEST_BACKEND={wanted} names no store; there are: {}",
            known.join(", ")
        ));
    }
    let mut trials = Vec::new();
    for stand in STANDS.iter().filter(|stand| wanted.as_deref().is_none_or(|wanted| wanted == stand.name)) {
        trials.extend(suite::all().into_iter().map(|case| case_trial(*stand, case)));
        let seeds = seeds.clone().unwrap_or(0..stand.seeds);
        trials.extend(seeds.map(|seed| compare_trial(*stand, seed)));
    }
    if wanted.is_none_or(|wanted| wanted == "memory") {
        trials.extend(Mistake::ALL.into_iter().flat_map(mistake_trials));
    }
    Ok(trials)
}

fn seeds(text: Option<&str>) -> Result<Option<std::ops::Range<u64>>, String> {
    let Some(text) = text else { return Ok(None) };
    let (from, to) = text.split_once("..").unwrap_or(("0", text));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) => Ok(Some(from..to)),
        _ => {
            Err(format!("TIDELOCK_COMPARE_SEEDS={text} is neither a number of seeds nor a range like 17..18"))
        }
    }
}

fn case_trial(stand: Stand, case: Case) -> Trial {
    let name = format!("{}::{}", stand.name, case.id());
    Trial::ignorable_test(name.clone(), move || {
        watched(&name, move || (stand.runtime)().block_on(async { run_case((stand.open)(), case).await }))
    })
}

fn compare_trial(stand: Stand, seed: u64) -> Trial {
    let name = format!("{}::compare::seed_{seed}", stand.name);
    Trial::ignorable_test(name.clone(), move || {
        watched(&name, move || (stand.runtime)().block_on(async { run_compare((stand.open)(), seed).await }))
    })
}

/// A store with a mistake fails a case of the group that is about it, and differs from the model.
fn mistake_trials(mistake: Mistake) -> Vec<Trial> {
    let group = mistake.group();
    let fails = move |case| {
        let run =
            move || paused().block_on(async { run_case(Memory::open(Way::Wrong(mistake)), case).await });
        watched(EXPECTED, run).is_err()
    };
    let differs = move |seed| {
        let run =
            move || paused().block_on(async { run_compare(Memory::open(Way::Wrong(mistake)), seed).await });
        watched(EXPECTED, run).is_err()
    };
    let by_case = move || {
        let mut cases = suite::all().into_iter().filter(|case| case.group == group);
        if cases.any(fails) { Ok(()) } else { Err("no case fails".into()) }
    };
    let by_comparison = move || if (0..SEEDS).any(differs) { Ok(()) } else { Err("no seed differs".into()) };
    vec![
        Trial::test(format!("itself::{group}_finds::{mistake:?}"), by_case),
        Trial::test(format!("itself::compare_finds::{mistake:?}"), by_comparison),
    ]
}

async fn run_case(store: Arc<dyn Store>, case: Case) -> Outcome {
    let world = World::open(store, &case.id()).await;
    if let Err(reason) = (case.needs)(world.abilities()) {
        return Ok(Completion::ignored_with(reason));
    }
    // Where time is paused a case that waits for ever comes here long before the watchdog bites.
    tokio::time::timeout(10 * WATCHDOG, (case.run)(world)).await.map_err(|_| "it waits for ever")?;
    Ok(Completion::Completed)
}

async fn run_compare(store: Arc<dyn Store>, seed: u64) -> Outcome {
    let world = World::open(store, &format!("compare::seed_{seed}")).await;
    if !world.abilities().fair {
        return Ok(Completion::ignored_with("this store does not grant in order of arrival"));
    }
    compare::run(&world, seed, STEPS).await?;
    Ok(Completion::Completed)
}

/// Runs a trial in a thread of its own: one that hangs fails with its name, and the others go on.
fn watched(name: &str, trial: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let (tell, hear) = mpsc::channel();
    let work = move || {
        // Nobody listens only when the watchdog bit.
        let _ = tell.send(trial());
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    match hear.recv_timeout(WATCHDOG) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("it hangs: no end after {WATCHDOG:?}").into()),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(thread.join().err().map_or("no outcome".to_owned(), |panic| said(&*panic)).into())
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
