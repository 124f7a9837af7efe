//! What every peer in Rust does: see `peers/README.md`. A library gives its locks; this times them.

use std::{
    error::Error,
    fmt,
    fs::{File, OpenOptions},
    future::Future,
    io::BufRead,
    os::unix::fs::FileExt,
    pin::Pin,
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinSet,
};

const WARM_UP: usize = 50;
/// What ends a program whose library has no such thing.
const NO_SUCH_THING: i32 = 3;
/// How long a holder of many locks may take to give them back before it just ends.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

pub type Answer<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;
type Doing<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// The library has no such thing.
#[derive(Debug)]
pub struct Missing(pub &'static str);

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "there is no {} of this library", self.0)
    }
}

impl Error for Missing {}

/// A lock that is taken and given back by one task.
pub trait Lock: Send + 'static {
    fn lock(&mut self) -> impl Future<Output = Answer> + Send;

    fn unlock(&mut self) -> impl Future<Output = Answer> + Send;
}

/// A [`Lock`] of any type.
pub trait AnyLock: Send {
    fn lock(&mut self) -> Doing<'_>;

    fn unlock(&mut self) -> Doing<'_>;
}

impl<L: Lock> AnyLock for L {
    fn lock(&mut self) -> Doing<'_> {
        Box::pin(Lock::lock(self))
    }

    fn unlock(&mut self) -> Doing<'_> {
        Box::pin(Lock::unlock(self))
    }
}

/// What is timed. The defaults are of a library that has only locks.
pub trait Library: Sized + Send + Sync + 'static {
    fn connect(servers: &str) -> impl Future<Output = Answer<Self>>;

    fn lock(&self, name: &str) -> impl Future<Output = Answer<Box<dyn AnyLock>>>;

    /// A lock that is kept, whatever its lease.
    async fn kept(&self, name: &str) -> Answer<Box<dyn AnyLock>> {
        self.lock(name).await
    }

    /// Whether a lock was taken.
    async fn attempt(&self, _name: &str) -> Answer<bool> {
        Err(Missing("try").into())
    }

    /// The two locks of a read-write lock: to read and to write.
    async fn read_write(&self, _name: &str) -> Answer<[Box<dyn AnyLock>; 2]> {
        Err(Missing("read").into())
    }

    /// What must be done before the program ends, when all locks are gone.
    async fn close(self) {}
}

/// For how long a client that dies still holds.
#[allow(dead_code, reason = "some locks end with their connection")]
pub fn lease() -> Duration {
    let millis = std::env::var("LEASE_MS").ok().and_then(|millis| millis.parse().ok());
    Duration::from_millis(millis.unwrap_or(30_000))
}

/// Does what the arguments say, and ends the program, whatever still runs in the background.
pub async fn main<L: Library>() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    std::process::exit(match drive::<L>(&words).await {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            if error.is::<Missing>() { NO_SUCH_THING } else { 1 }
        }
    })
}

async fn drive<L: Library>(words: &[&str]) -> Answer {
    let [verb, servers, name, more @ ..] = words else { return Err("VERB SERVERS NAME …".into()) };
    let number =
        |index: usize| -> Answer<usize> { Ok(more.get(index).ok_or("a number is missing")?.parse()?) };
    let library = L::connect(servers).await?;
    if *verb != "hold" {
        let mut warm = Task { locks: vec![library.lock(&format!("{name}-warm")).await?], turn: 0 };
        for _ in 0..WARM_UP {
            warm.pair().await?;
        }
    }
    match *verb {
        "pairs" => {
            let (distinct, mut tasks) = (more.contains(&"distinct"), Vec::new());
            for turn in 0..number(0)? {
                let its = if distinct { format!("{name}-{turn}") } else { (*name).to_owned() };
                tasks.push(Task { locks: vec![library.lock(&its).await?], turn });
            }
            timed(tasks, number(1)?).await
        }
        "read" => {
            let mut tasks = Vec::new();
            for turn in 0..number(0)? {
                tasks.push(Task { locks: library.read_write(name).await?.into(), turn });
            }
            timed(tasks, number(1)?).await
        }
        "try" => tries(&library, name, number(0)?).await,
        "hold" => hold(&library, name, number(0)?).await,
        "wait" => wait(&library, name).await,
        _ => Err(format!("nobody knows {verb}").into()),
    }?;
    library.close().await;
    Ok(())
}

/// Where the holder writes its number, and how often another one stood there in this turn.
static HANDS: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os("HANDS")?;
    OpenOptions::new().read(true).write(true).open(path).ok()
});
static HANDED: AtomicU64 = AtomicU64::new(0);

fn note() -> Answer {
    if let Some(hands) = &*HANDS {
        let (mut before, own) = ([0; 4], std::process::id().to_le_bytes());
        hands.read_exact_at(&mut before, 0)?;
        if before != own {
            HANDED.fetch_add(1, Ordering::Relaxed);
            hands.write_all_at(&own, 0)?;
        }
    }
    Ok(())
}

/// A number that nobody may change without the lock, from when the program is ready: see `peers/README.md`.
static COUNT: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os("COUNT")?;
    OpenOptions::new().read(true).write(true).open(path).ok()
});
static BEGUN: AtomicBool = AtomicBool::new(false);

fn add() -> Answer {
    let Some(count) = &*COUNT else { return Ok(()) };
    if !BEGUN.load(Ordering::Relaxed) {
        return Ok(());
    }
    let (mut other, mut number) = ([0; 4], [0; 8]);
    count.read_exact_at(&mut other, 8)?;
    if other != [0; 4] {
        return Err(format!("the process {} holds the lock, too", u32::from_le_bytes(other)).into());
    }
    count.write_all_at(&std::process::id().to_le_bytes(), 8)?;
    count.read_exact_at(&mut number, 0)?;
    count.write_all_at(&(u64::from_le_bytes(number) + 1).to_le_bytes(), 0)?;
    count.write_all_at(&[0; 4], 8)?;
    Ok(())
}

/// A lock, or those of a read-write lock.
struct Task {
    locks: Vec<Box<dyn AnyLock>>,
    turn: usize,
}

impl Task {
    /// Takes and gives back, and says how long it waited. There are nine readers for each writer.
    async fn pair(&mut self) -> Answer<Duration> {
        let writes = self.turn % 10 == 9;
        self.turn += 1;
        let lock = if writes { self.locks.last_mut() } else { self.locks.first_mut() };
        let (lock, asked) = (lock.ok_or("no lock")?, Instant::now());
        lock.lock().await?;
        let waited = asked.elapsed();
        note()?;
        add()?;
        lock.unlock().await?;
        Ok(waited)
    }
}

/// All tasks at once, turn by turn.
async fn timed(mut tasks: Vec<Task>, millis: usize) -> Answer {
    let limit = Duration::from_millis(millis as u64);
    turns(async || {
        HANDED.store(0, Ordering::Relaxed);
        let (start, mut running) = (Instant::now(), JoinSet::new());
        for mut task in tasks.drain(..) {
            running.spawn(async move {
                let mut waits = Vec::new();
                while start.elapsed() < limit {
                    waits.push(task.pair().await?);
                }
                Answer::Ok((task, waits))
            });
        }
        let mut all = Vec::new();
        while let Some(done) = running.join_next().await {
            let (task, waits) = done??;
            tasks.push(task);
            all.extend(waits);
        }
        Ok(summary(all, start.elapsed()))
    })
    .await
}

async fn tries<L: Library>(library: &L, name: &str, millis: usize) -> Answer {
    let limit = Duration::from_millis(millis as u64);
    let mut held = library.lock(name).await?;
    held.lock().await?;
    // A library that cannot try says so before it is ready.
    library.attempt(name).await?;
    turns(async || {
        let (start, mut waits) = (Instant::now(), Vec::new());
        while start.elapsed() < limit {
            let asked = Instant::now();
            if library.attempt(name).await? {
                return Err("a lock that is held was taken".into());
            }
            waits.push(asked.elapsed());
        }
        Ok(summary(waits, start.elapsed()))
    })
    .await?;
    held.unlock().await
}

async fn hold<L: Library>(library: &L, name: &str, count: usize) -> Answer {
    let mut locks = Vec::new();
    for number in 0..count {
        let mut lock = library.kept(&format!("{name}-{number}")).await?;
        lock.lock().await?;
        locks.push(lock);
    }
    turns(async || Ok(summary(vec![Duration::ZERO; count], Duration::ZERO))).await?;
    let start = Instant::now();
    for lock in locks.iter_mut().take_while(|_| start.elapsed() < RELEASE_LIMIT) {
        lock.unlock().await?;
    }
    Ok(())
}

async fn wait<L: Library>(library: &L, name: &str) -> Answer {
    let mut lock = library.lock(name).await?;
    let mut lines = ready();
    while lines.recv().await.is_some() {
        let asked = Instant::now();
        lock.lock().await?;
        let waited = asked.elapsed();
        println!("{}", summary(vec![waited], waited));
        lock.unlock().await?;
    }
    Ok(())
}

/// Each line that is read is a turn.
async fn turns(mut turn: impl AsyncFnMut() -> Answer<Value>) -> Answer {
    let mut lines = ready();
    while lines.recv().await.is_some() {
        println!("{}", turn().await?);
    }
    Ok(())
}

/// Lines are read in a thread of their own: what libraries do in the background goes on.
fn ready() -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    BEGUN.store(true, Ordering::Relaxed);
    println!("ready");
    lines
}

fn summary(mut waits: Vec<Duration>, time: Duration) -> Value {
    waits.sort();
    let at = |part: f64| {
        let wait = waits.get((waits.len() as f64 * part) as usize).or(waits.last());
        wait.map_or(0.0, |wait| wait.as_secs_f64() * 1e6)
    };
    let waits_us = json!({ "p50": at(0.5), "p99": at(0.99), "max": at(1.0) });
    let handed = HANDS.as_ref().map(|_| HANDED.load(Ordering::Relaxed));
    json!({ "pairs": waits.len(), "seconds": time.as_secs_f64(), "waits_us": waits_us, "handed": handed })
}
