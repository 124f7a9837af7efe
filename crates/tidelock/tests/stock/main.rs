//! The shared cases of stock and the comparison with its model, on every store of one list.
//!
//! - `TIDELOCK_TEST_BACKEND=memory` runs one store only.
//! - `TIDELOCK_COMPARE_SEEDS=1000` compares with that many seeds.
//! - `TIDELOCK_FAULT_RUNS=100` plays that many sales in which buyers and servers are killed.
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

mod buyer;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
mod faults;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
mod left;
#[path = "../common/worker.rs"]
mod process;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
#[path = "../common/shared.rs"]
mod shared;
#[cfg(feature = "redis")]
mod slots;
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod sql;

use std::{
    pin::Pin,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
#[cfg(feature = "mysql")]
use test_servers::MariaDb;
#[cfg(feature = "postgres")]
use test_servers::Postgres;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
use test_servers::Server;
#[cfg(feature = "redis")]
use test_servers::{Cluster, Redis};
use tidelock::{
    stock::{StockStore, Stocks},
    testing::stock::{self, Case, Defect, Defective, Stand, World},
};
use tokio::runtime::Builder;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
use self::shared::Shared;

/// A trial that takes longer hangs.
const WATCHDOG: Duration = Duration::from_secs(120);

const SEEDS: u64 = 16;
const STEPS: u32 = 400;

/// The stores: a name, and how to get the URLs of one that this trial has for itself.
type Open = fn(usize) -> Vec<String>;
const STANDS: &[(&str, Open)] = &[
    ("memory", |number| vec![format!("memory:trial-{number}")]),
    ("memory_several", |number| (0..3).map(|place| format!("memory:trial-{number}-{place}")).collect()),
    #[cfg(all(unix, feature = "file"))]
    ("file", |number| vec![FOLDER.path(number)]),
    #[cfg(feature = "redis")]
    ("redis", |number| vec![format!("{}?prefix=trial-{number}:", one_url())]),
    #[cfg(feature = "redis")]
    ("redis_scripts", |number| vec![format!("{}?prefix=trial-{number}:&scripting=scripts", one_url())]),
    #[cfg(feature = "redis")]
    ("redis_few_rights", few_rights_url),
    #[cfg(feature = "redis")]
    ("redis_cluster", |number| vec![format!("{}?prefix=trial-{number}:", cluster_url())]),
    #[cfg(feature = "redis")]
    ("redis_several", |number| {
        several_urls().iter().map(|url| format!("{url}?prefix=trial-{number}:")).collect()
    }),
    #[cfg(feature = "mysql")]
    ("mysql", |number| vec![mysql_url(number)]),
    #[cfg(feature = "postgres")]
    ("postgres", |number| vec![format!("{}?prefix=trial-{number}/", postgres_url())]),
];

/// A folder for all trials, removed at the end.
#[cfg(all(unix, feature = "file"))]
static FOLDER: Folder = Folder;

#[cfg(all(unix, feature = "file"))]
struct Folder;

#[cfg(all(unix, feature = "file"))]
impl Folder {
    fn path(&self, number: usize) -> String {
        let folder = std::env::temp_dir().join(format!("tl-stock-{}", std::process::id()));
        format!("file:{}/{number}", folder.display())
    }

    fn remove(&self) {
        // Not there if no trial used it.
        let _ =
            std::fs::remove_dir_all(std::env::temp_dir().join(format!("tl-stock-{}", std::process::id())));
    }
}

#[cfg(feature = "redis")]
static ONE: Shared<Server> = Shared::new();
#[cfg(feature = "redis")]
static CLUSTER: Shared<Cluster> = Shared::new();
#[cfg(feature = "redis")]
static SEVERAL: Shared<Vec<Server>> = Shared::new();
#[cfg(feature = "mysql")]
static MYSQL: Shared<Server> = Shared::new();
#[cfg(feature = "postgres")]
static POSTGRES: Shared<Server> = Shared::new();

#[cfg(feature = "redis")]
fn one_url() -> String {
    ONE.get(|| Redis::new().start().expect("a server")).url().to_owned()
}

/// A user with the rights that the page of the store lists, and no others.
#[cfg(feature = "redis")]
fn few_rights_url(number: usize) -> Vec<String> {
    let page = include_str!("../../../../docs/backends/redis.md");
    let locks =
        page.lines().find(|line| line.starts_with("ACL SETUSER locks on ")).expect("the rights of locks");
    let stock = page.lines().find(|line| line.starts_with("+hset ")).expect("the rights of stock");
    let (user, prefix) = (format!("stock-{number}"), format!("trial-{number}:"));
    let (keys, inboxes) = (format!("~{prefix}*"), format!("&{prefix}in:*"));
    let mut command = vec!["ACL", "SETUSER", &user, "reset", "on", ">secret", &keys, &inboxes];
    command.extend(locks.split(' ').chain(stock.split_whitespace()).filter(|right| right.starts_with('+')));
    let server = ONE.get(|| Redis::new().start().expect("a server"));
    server.command(&command).expect("a user");
    vec![format!("redis://{user}:secret@{}?prefix={prefix}", server.addr())]
}

#[cfg(feature = "redis")]
fn cluster_url() -> String {
    CLUSTER.get(|| Redis::new().patient().start_cluster().expect("a cluster")).url().to_owned()
}

#[cfg(feature = "redis")]
fn several_urls() -> Vec<String> {
    let servers = SEVERAL.get(|| (0..3).map(|_| Redis::new().start().expect("a server")).collect());
    servers.iter().map(|server| server.url().to_owned()).collect()
}

#[cfg(feature = "postgres")]
fn postgres_url() -> String {
    POSTGRES.get(|| Postgres::new().start().expect("a server")).url().to_owned()
}

/// A database of its own: there is no prefix.
#[cfg(feature = "mysql")]
fn mysql_url(number: usize) -> String {
    let server = MYSQL.get(|| MariaDb::new().durable().start().expect("a server"));
    server.ask(&["-e", &format!("CREATE DATABASE trial_{number}")]).expect("a database");
    format!("mysql://root@{}/trial_{number}", server.addr())
}

/// Stops whatever was started.
fn stop() {
    #[cfg(feature = "mysql")]
    MYSQL.stop();
    #[cfg(feature = "redis")]
    {
        ONE.stop();
        CLUSTER.stop();
        SEVERAL.stop();
    }
    #[cfg(feature = "postgres")]
    POSTGRES.stop();
}

/// A store that this trial has for itself.
#[derive(Debug)]
struct Place {
    urls: Vec<String>,
    /// One client stays: a store in memory lives as long as somebody uses it.
    _first: Stocks,
}

impl Place {
    async fn open(open: Open) -> Arc<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let urls = open(NEXT.fetch_add(1, Ordering::Relaxed));
        let _first = Stocks::connect_all(&urls).await.expect("stores that answer");
        Arc::new(Self { urls, _first })
    }
}

impl Stand for Place {
    fn connect(&self) -> Pin<Box<dyn Future<Output = Stocks> + Send>> {
        let urls = self.urls.clone();
        Box::pin(async move { Stocks::connect_all(&urls).await.expect("stores that answer") })
    }
}

fn main() -> ExitCode {
    if buyer::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(4);
    let conclusion = libtest_mimic::run(&arguments, trials());
    stop();
    #[cfg(all(unix, feature = "file"))]
    FOLDER.remove();
    conclusion.exit_code()
}

fn trials() -> Vec<Trial> {
    let wanted = std::env::var("TIDELOCK_TEST_BACKEND").ok();
    let seeds = std::env::var("TIDELOCK_COMPARE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let mut trials = Vec::new();
    for (name, open) in
        STANDS.iter().filter(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name))
    {
        trials.extend(stock::all().into_iter().map(|case| case_trial(name, *open, case)));
        trials.extend((0..seeds.unwrap_or(SEEDS)).map(|seed| compare_trial(name, *open, seed)));
    }
    trials.extend(Defect::ALL.map(defect_trial));
    #[cfg(feature = "redis")]
    trials.extend(slots::trials());
    #[cfg(all(feature = "mysql", feature = "postgres"))]
    trials.extend(sql::trials());
    #[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
    trials.extend(left::trials());
    trials.retain(|trial| {
        wanted.as_deref().is_none_or(|wanted| trial.name().starts_with(&format!("{wanted}::")))
    });
    #[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
    if wanted.is_none() {
        trials.extend(faults::trials());
    }
    trials
}

fn case_trial(stand: &str, open: Open, case: Case) -> Trial {
    Trial::test(format!("{stand}::{}", case.name), move || {
        run(async move { (case.run)(World::new(Place::open(open).await, case.name)).await })
    })
}

fn compare_trial(stand: &str, open: Open, seed: u64) -> Trial {
    Trial::test(format!("{stand}::compare::seed_{seed}"), move || {
        run(async move {
            let stocks = Place::open(open).await.connect().await;
            let compared = stock::compare::run(&stocks.stores()[0], "compare", seed, STEPS).await;
            compared.unwrap_or_else(|difference| panic!("{difference}"));
        })
    })
}

/// The comparison finds a store that is wrong, within as many seeds as each store is compared with.
fn defect_trial(defect: Defect) -> Trial {
    Trial::test(format!("memory::compare::finds_the_defect_{defect:?}"), move || {
        run(async move {
            for seed in 0..SEEDS {
                let stocks =
                    Place::open(|number| vec![format!("memory:trial-{number}")]).await.connect().await;
                let store = Arc::clone(&stocks.stores()[0]);
                let store: Arc<dyn StockStore> = Arc::new(Defective::new(store, defect));
                if stock::compare::run(&store, "compare", seed, STEPS).await.is_err() {
                    return;
                }
            }
            panic!("{SEEDS} seeds do not find it");
        })
    })
}

/// Runs a trial; one that hangs fails.
fn run(trial: impl Future<Output = ()> + Send + 'static) -> Result<(), Failed> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let trial = tokio::time::timeout(WATCHDOG, trial);
        trial.await.map_err(|_| Failed::from(format!("it hangs: no end after {WATCHDOG:?}")))
    })
}
