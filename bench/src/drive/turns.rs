//! The verbs of the protocol, for any library.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, Write},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tidelock::{line::Moment, testing::Clock};
use tokio::{
    runtime::Runtime,
    sync::mpsc::{self, UnboundedReceiver},
    task::JoinSet,
};

use super::{
    lease,
    library::{Failed, Library, Lock, Use},
};
use crate::protocol::{HANDS, Turn, Waits};

/// Pairs before the first turn.
const WARM_UP: u32 = 50;
/// Pairs shorter than this are timed now and then only: a look at the clock would cost as much.
const SHORT: Duration = Duration::from_micros(5);
/// Of so many short pairs one is timed.
const SAMPLE: u32 = 64;
/// How many tasks take locks that are to be held.
const TAKERS: usize = 64;

/// What a contestant is asked.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Asked {
    /// pairs, lead, poll, try, read, hold, wait, crowd, trips, sell
    pub(super) verb: String,
    /// Where the store is
    pub(super) servers: String,
    /// The lock
    name: String,
    /// Tasks and milliseconds, or a count
    rest: Vec<String>,
}

impl Asked {
    fn number(&self, index: usize) -> Result<u64, Failed> {
        let word = self.rest.get(index).ok_or_else(|| Failed::because("a number is missing"))?;
        word.parse().map_err(|error| Failed::because(format!("{word}: {error}")))
    }

    fn millis(&self, index: usize) -> Result<Duration, Failed> {
        self.number(index).map(Duration::from_millis)
    }

    fn is_distinct(&self) -> bool {
        self.rest.iter().any(|word| word == "distinct")
    }

    /// The lock of a task.
    fn name_of(&self, task: u64) -> String {
        if self.is_distinct() { format!("{}-{task}", self.name) } else { self.name.clone() }
    }
}

/// Does what is asked, turn by turn.
pub(super) fn run<L, C>(runtime: &Runtime, asked: &Asked, connect: impl Fn() -> C) -> Result<(), Failed>
where
    L: Library,
    C: Future<Output = Result<L, Failed>> + Send,
{
    runtime.block_on(async {
        let library = connect().await?;
        let told = listen();
        match asked.verb.as_str() {
            "pairs" | "crowd" => pairs(&library, Use::Alone, asked, told).await,
            "lead" => pairs(&library, Use::Lead, asked, told).await,
            "poll" => pairs(&library, Use::Poll, asked, told).await,
            "read" => read(&library, asked, told).await,
            // What is in this process has no other clients.
            "try" if asked.servers.starts_with("memory:") => attempts(&library, &library, asked, told).await,
            "try" => attempts(&connect().await?, &library, asked, told).await,
            "hold" => hold(library, asked, told).await,
            "wait" => wait(&library, asked, told).await,
            "trips" => trips(&library, asked, told).await,
            "sell" => sell(library, asked, told).await,
            _ => Err(Failed::NoSuchThing),
        }
    })
}

/// The lines of the input. Read aside, so that locks are renewed meanwhile.
fn listen() -> UnboundedReceiver<()> {
    let (tell, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() || tell.send(()).is_err() {
                break;
            }
        }
    });
    told
}

fn say(what: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}").and_then(|()| out.flush()).map_err(Failed::because)
}

fn answer(turn: &Turn) -> Result<(), Failed> {
    say(&serde_json::to_string(turn).map_err(Failed::because)?)
}

/// A task's own count.
struct Worker<K> {
    lock: K,
    /// Where the one who held it last is written, if hand-overs are counted.
    hands: Option<Arc<File>>,
    /// Lets others run while it holds, so that they find the lock taken, as work would.
    yields: bool,
    waits: Vec<u64>,
    pairs: u64,
    handed: u64,
}

impl<K: Lock> Worker<K> {
    fn new(lock: K, hands: Option<Arc<File>>, yields: bool) -> Self {
        Self { lock, hands, yields, waits: Vec::new(), pairs: 0, handed: 0 }
    }

    /// Takes and gives back until the time is over.
    async fn work(&mut self, clock: &Clock, start: Moment, limit: Duration) -> Result<(), Failed> {
        loop {
            let asked = clock.now();
            if asked.since(start) >= limit {
                return Ok(());
            }
            let held = self.lock.take().await?;
            let waited = clock.now().since(asked);
            self.note()?;
            if self.yields {
                tokio::task::yield_now().await;
            }
            self.lock.give_back(held).await?;
            self.pairs += 1;
            self.waits.push(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
            if waited < SHORT && self.hands.is_none() {
                for _ in 1..SAMPLE {
                    let held = self.lock.take().await?;
                    if self.yields {
                        tokio::task::yield_now().await;
                    }
                    self.lock.give_back(held).await?;
                }
                self.pairs += u64::from(SAMPLE - 1);
            }
        }
    }

    /// Says that it holds, and whether somebody else did before.
    fn note(&mut self) -> Result<(), Failed> {
        let Some(hands) = &self.hands else { return Ok(()) };
        let (mut before, own) = ([0; 4], std::process::id().to_le_bytes());
        hands.read_exact_at(&mut before, 0).map_err(Failed::because)?;
        if before != own {
            self.handed += 1;
            hands.write_all_at(&own, 0).map_err(Failed::because)?;
        }
        Ok(())
    }
}

/// Turn by turn, each task with its own locks.
async fn take_turns<K: Lock>(
    mut workers: Vec<Worker<K>>,
    limit: Duration,
    mut told: UnboundedReceiver<()>,
) -> Result<(), Failed> {
    let clock = Clock::machine();
    say("ready")?;
    while told.recv().await.is_some() {
        let start = clock.now();
        if let [worker] = &mut *workers {
            // What is measured is not a task, either.
            worker.work(&clock, start, limit).await?;
        } else {
            let mut set = JoinSet::new();
            for mut worker in workers.drain(..) {
                let clock = clock.clone();
                set.spawn(async move {
                    let done = worker.work(&clock, start, limit).await;
                    done.map(|()| worker)
                });
            }
            while let Some(worker) = set.join_next().await {
                workers.push(worker.map_err(Failed::because)??);
            }
        }
        let seconds = clock.now().since(start).as_secs_f64();
        let counted = workers.iter().any(|worker| worker.hands.is_some());
        let sum = |count: fn(&Worker<K>) -> u64| workers.iter().map(count).sum::<u64>();
        let (pairs, handed) = (sum(|worker| worker.pairs), counted.then(|| sum(|worker| worker.handed)));
        let waits = workers.iter_mut().flat_map(|worker| worker.waits.drain(..)).collect();
        for worker in &mut workers {
            (worker.pairs, worker.handed) = (0, 0);
        }
        answer(&Turn { pairs, seconds, waits_us: Waits::of(waits), handed })?;
    }
    Ok(())
}

async fn pairs<L: Library>(
    library: &L,
    wanted: Use,
    asked: &Asked,
    told: UnboundedReceiver<()>,
) -> Result<(), Failed> {
    let mut warm = library.lock(&format!("{}-warm-{}", asked.name, std::process::id()), Use::Alone).await?;
    for _ in 0..WARM_UP {
        let held = warm.take().await?;
        warm.give_back(held).await?;
    }
    let hands = match std::env::var_os(HANDS) {
        Some(path) => {
            Some(Arc::new(OpenOptions::new().read(true).write(true).open(path).map_err(Failed::because)?))
        }
        None => None,
    };
    let (tasks, mut workers) = (asked.number(0)?, Vec::new());
    let meet = tasks > 1 && !asked.is_distinct();
    for task in 0..tasks {
        let lock = library.lock(&asked.name_of(task), wanted).await?;
        workers.push(Worker::new(lock, hands.clone(), meet));
    }
    take_turns(workers, asked.millis(1)?, told).await
}

/// Nine times to read and once to write.
struct ReadMostly<K> {
    read: K,
    write: K,
    turn: u64,
}

impl<K: Lock> Lock for ReadMostly<K> {
    type Held = K::Held;

    async fn take(&mut self) -> Result<K::Held, Failed> {
        self.turn += 1;
        if self.turn % 10 == 9 { self.write.take().await } else { self.read.take().await }
    }

    async fn give_back(&mut self, held: K::Held) -> Result<(), Failed> {
        if self.turn % 10 == 9 { self.write.give_back(held).await } else { self.read.give_back(held).await }
    }

    async fn attempt(&mut self) -> Result<bool, Failed> {
        Err(Failed::NoSuchThing)
    }
}

async fn read<L: Library>(library: &L, asked: &Asked, told: UnboundedReceiver<()>) -> Result<(), Failed> {
    let mut workers = Vec::new();
    for task in 0..asked.number(0)? {
        let read = library.lock(&asked.name, Use::Read).await?;
        let write = library.lock(&asked.name, Use::Write).await?;
        workers.push(Worker::new(ReadMostly { read, write, turn: task }, None, true));
    }
    take_turns(workers, asked.millis(1)?, told).await
}

/// Asks for what somebody else has.
struct Trying<K>(K);

impl<K: Lock> Lock for Trying<K> {
    type Held = ();

    async fn take(&mut self) -> Result<(), Failed> {
        match self.0.attempt().await? {
            true => Err(Failed::because("a lock that is held was taken")),
            false => Ok(()),
        }
    }

    async fn give_back(&mut self, (): ()) -> Result<(), Failed> {
        Ok(())
    }

    async fn attempt(&mut self) -> Result<bool, Failed> {
        Err(Failed::NoSuchThing)
    }
}

async fn attempts<L: Library>(
    holder: &L,
    library: &L,
    asked: &Asked,
    told: UnboundedReceiver<()>,
) -> Result<(), Failed> {
    let mut lock = holder.lock(&asked.name, Use::Alone).await?;
    let held = lock.take().await?;
    let trying = Trying(library.lock(&asked.name, Use::Alone).await?);
    take_turns(vec![Worker::new(trying, None, false)], asked.millis(0)?, told).await?;
    lock.give_back(held).await
}

async fn hold<L: Library>(library: L, asked: &Asked, mut told: UnboundedReceiver<()>) -> Result<(), Failed> {
    let names: Vec<_> = (0..asked.number(0)?).map(|n| format!("{}-{n}", asked.name)).collect();
    let library = Arc::new(library);
    let (names, clock) = (Arc::new(names), Clock::machine());
    let (start, mut set) = (clock.now(), JoinSet::new());
    for first in 0..TAKERS {
        let (library, names) = (Arc::clone(&library), Arc::clone(&names));
        set.spawn(async move {
            let mut held = Vec::new();
            for name in names.iter().skip(first).step_by(TAKERS) {
                let mut lock = library.lock(name, Use::Alone).await?;
                let taken = lock.take().await?;
                held.push((lock, taken));
            }
            Ok::<_, Failed>(held)
        });
    }
    let mut held = Vec::new();
    while let Some(some) = set.join_next().await {
        held.extend(some.map_err(Failed::because)??);
    }
    let seconds = clock.now().since(start).as_secs_f64();
    say("ready")?;
    let mut renewal = tokio::time::interval(lease() / 3);
    renewal.tick().await;
    loop {
        tokio::select! {
            told = told.recv() => match told {
                Some(()) => answer(&Turn { pairs: held.len() as u64, seconds, waits_us: Waits::default(), handed: None })?,
                None => break,
            },
            _ = renewal.tick() => library.renew(&names).await?,
        }
    }
    let mut set = JoinSet::new();
    for (mut lock, taken) in held {
        set.spawn(async move { lock.give_back(taken).await });
    }
    while let Some(done) = set.join_next().await {
        done.map_err(Failed::because)??;
    }
    Ok(())
}

async fn wait<L: Library>(library: &L, asked: &Asked, mut told: UnboundedReceiver<()>) -> Result<(), Failed> {
    let (mut lock, clock) = (library.lock(&asked.name, Use::Alone).await?, Clock::machine());
    say("ready")?;
    let mut renewal = tokio::time::interval(lease() / 3);
    loop {
        tokio::select! {
            told = told.recv() => if told.is_none() { break },
            _ = renewal.tick() => {
                library.renew(&[]).await?;
                continue;
            }
        }
        let start = clock.now();
        let held = loop {
            tokio::select! {
                held = lock.take() => break held?,
                _ = renewal.tick() => library.renew(&[]).await?,
            }
        };
        let waited = clock.now().since(start);
        let waits = vec![u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX)];
        answer(&Turn { pairs: 1, seconds: waited.as_secs_f64(), waits_us: Waits::of(waits), handed: None })?;
        lock.give_back(held).await?;
    }
    Ok(())
}

/// One change after the other.
async fn trips<L: Library>(
    library: &L,
    asked: &Asked,
    mut told: UnboundedReceiver<()>,
) -> Result<(), Failed> {
    let (limit, clock) = (asked.millis(1)?, Clock::machine());
    library.trip(&asked.name).await?;
    say("ready")?;
    while told.recv().await.is_some() {
        let (start, mut pairs) = (clock.now(), 0);
        while clock.now().since(start) < limit {
            library.trip(&asked.name).await?;
            pairs += 1;
        }
        let seconds = clock.now().since(start).as_secs_f64();
        answer(&Turn { pairs, seconds, waits_us: Waits::default(), handed: None })?;
    }
    Ok(())
}

async fn sell<L: Library>(library: L, asked: &Asked, mut told: UnboundedReceiver<()>) -> Result<(), Failed> {
    let (tasks, limit, clock) = (asked.number(0)?, asked.millis(1)?, Clock::machine());
    library.open(&asked.name).await?;
    let (library, name) = (Arc::new(library), Arc::new(asked.name.clone()));
    let next = Arc::new(AtomicU64::new(u64::from(std::process::id()) << 40));
    say("ready")?;
    while told.recv().await.is_some() {
        let (start, mut set) = (clock.now(), JoinSet::new());
        for _ in 0..tasks {
            let (library, name, next) = (Arc::clone(&library), Arc::clone(&name), Arc::clone(&next));
            let clock = clock.clone();
            set.spawn(async move {
                let mut waits = Vec::new();
                loop {
                    let asked = clock.now();
                    if asked.since(start) >= limit {
                        return Ok::<_, Failed>(waits);
                    }
                    library.sell(&name, next.fetch_add(1, Ordering::Relaxed)).await?;
                    waits.push(u64::try_from(clock.now().since(asked).as_nanos()).unwrap_or(u64::MAX));
                }
            });
        }
        let mut waits = Vec::new();
        while let Some(some) = set.join_next().await {
            waits.extend(some.map_err(Failed::because)??);
        }
        let (pairs, seconds) = (waits.len() as u64, clock.now().since(start).as_secs_f64());
        answer(&Turn { pairs, seconds, waits_us: Waits::of(waits), handed: None })?;
    }
    Ok(())
}
