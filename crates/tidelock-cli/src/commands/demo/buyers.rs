//! One process of buyers.

use std::{
    fs::OpenOptions,
    io::{BufRead, Write, stdin, stdout},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tidelock::{
    Locks, Mutex,
    stock::{Stock, Stocks},
};
use tokio::task::JoinSet;

use super::way::Way;
use crate::{clock::Moment, exit::Exit, output::Trouble};

/// The environment variable with the URLs, a line each: they may hold a password, which `ps` would show.
pub(super) const URLS: &str = "TIDELOCK_DEMO_URLS";
/// How many buyers of a process are at it at once.
const TASKS: u32 = 8;
/// How long a slice of the time line is.
pub(super) const SLICE: Duration = Duration::from_millis(2);
/// How often a process says how far it is.
const TELL: Duration = Duration::from_millis(50);

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Work {
    way: Way,
    sale: String,
    /// The shop's own books: a file with a number.
    books: PathBuf,
    buyers: u32,
    /// How many processes there are, and which this is.
    processes: u32,
    process: u32,
}

impl Work {
    pub(super) fn new(
        way: Way,
        sale: &str,
        books: &Path,
        (buyers, processes, process): (u32, u32, u32),
    ) -> Self {
        Self { way, sale: sale.to_owned(), books: books.to_owned(), buyers, processes, process }
    }
}

/// What a process did.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) sold: u32,
    pub(super) served: u32,
    /// Sold in each slice of time.
    pub(super) slices: Vec<u32>,
    pub(super) waits: Waits,
    /// When the last buyer was served, in seconds.
    pub(super) seconds: f64,
}

/// How long buyers waited: how many in each of many steps, eight for each doubling.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Waits(Vec<u32>);

impl Waits {
    fn note(&mut self, wait: Duration) {
        let micros = wait.as_secs_f64() * 1e6;
        let step = (micros.max(1.0).log2() * 8.0) as usize;
        if self.0.len() <= step {
            self.0.resize(step + 1, 0);
        }
        self.0[step] += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum += more);
    }

    /// How long this part of all waited at most, in seconds.
    pub(super) fn percentile(&self, part: f64) -> f64 {
        let total: u32 = self.0.iter().sum();
        let mut left = (f64::from(total) * part).ceil().max(1.0);
        for (step, count) in self.0.iter().enumerate() {
            left -= f64::from(*count);
            if left <= 0.0 {
                return ((step as f64 + 1.0) / 8.0).exp2() / 1e6;
            }
        }
        0.0
    }
}

/// How this process sells.
#[derive(Clone)]
enum Till {
    Books(PathBuf),
    Locked(Mutex, PathBuf),
    Stock(Stock),
}

/// The process itself: says that it is ready, waits for the start, works, says what it did.
pub(crate) async fn run(work: &str) -> Result<Exit, Trouble> {
    let work: Work =
        serde_json::from_str(work).map_err(|_| Trouble::Usage("tidelock itself starts this".into()))?;
    let urls = std::env::var(URLS).unwrap_or_default();
    let urls: Vec<_> = urls.lines().collect();
    let till = match work.way {
        Way::NoLock => Till::Books(work.books.clone()),
        Way::OneLock => {
            let url = urls.first().copied().unwrap_or_default();
            Till::Locked(Locks::connect(url).await?.mutex(&work.sale), work.books.clone())
        }
        Way::Counter | Way::Segments => {
            Till::Stock(Stocks::connect_all(&urls).await?.find(&work.sale).await?)
        }
    };
    say("ready")?;
    let mut start = String::new();
    stdin().lock().read_line(&mut start)?;
    let start = Moment::from_nanos(start.trim().parse().unwrap_or(0));
    let done = serve(&work, till, start).await?;
    say(&format!("done {}", serde_json::to_string(&done).map_err(std::io::Error::from)?))?;
    Ok(Exit::Done)
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    out.flush()
}

async fn serve(work: &Work, till: Till, start: Moment) -> Result<Done, Trouble> {
    let (next, sold) = (Arc::new(AtomicU32::new(work.process)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (work, till, next, sold) = (work.clone(), till.clone(), Arc::clone(&next), Arc::clone(&sold));
        tasks.spawn(async move {
            let (mut done, mut told) = (Done::default(), start);
            loop {
                let buyer = next.fetch_add(work.processes, Ordering::Relaxed);
                if buyer >= work.buyers {
                    done.seconds = Moment::now().since(start).as_secs_f64();
                    return Ok::<_, Trouble>(done);
                }
                let came = Moment::now();
                let has_one = till.sell(&format!("buyer-{buyer}")).await?;
                let now = Moment::now();
                done.waits.note(now.since(came));
                done.served += 1;
                if has_one {
                    done.sold += 1;
                    sold.fetch_add(1, Ordering::Relaxed);
                    let slice = (now.since(start).as_nanos() / SLICE.as_nanos()) as usize;
                    if done.slices.len() <= slice {
                        done.slices.resize(slice + 1, 0);
                    }
                    done.slices[slice] += 1;
                }
                if task == 0 && now.since(told) >= TELL {
                    told = now;
                    say(&format!("count {} {}", sold.load(Ordering::Relaxed), buyer / work.processes))?;
                }
            }
        });
    }
    let mut all = Done::default();
    while let Some(done) = tasks.join_next().await {
        all.add(&done.map_err(std::io::Error::from)??);
    }
    Ok(all)
}

impl Done {
    pub(super) fn add(&mut self, other: &Self) {
        self.sold += other.sold;
        self.served += other.served;
        self.seconds = self.seconds.max(other.seconds);
        self.waits.add(&other.waits);
        if self.slices.len() < other.slices.len() {
            self.slices.resize(other.slices.len(), 0);
        }
        self.slices.iter_mut().zip(&other.slices).for_each(|(sum, more)| *sum += more);
    }
}

impl Till {
    async fn sell(&self, buyer: &str) -> Result<bool, Trouble> {
        match self {
            Self::Books(books) => Ok(take_one_off(books)?),
            Self::Locked(mutex, books) => {
                let guard = mutex.lock().await?;
                let has_one = take_one_off(books)?;
                guard.release().await?;
                Ok(has_one)
            }
            Self::Stock(stock) => Ok(stock.take(buyer, 1).await?.is_taken()),
        }
    }
}

/// Reads the number, takes one off and writes it back: right only if nobody else does so at the same time.
fn take_one_off(books: &Path) -> std::io::Result<bool> {
    let file = OpenOptions::new().read(true).write(true).open(books)?;
    let mut text = [0; 10];
    file.read_exact_at(&mut text, 0)?;
    let left: u32 = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    if left == 0 {
        return Ok(false);
    }
    // A shop does something between reading and writing: others get their chance.
    std::thread::yield_now();
    file.write_all_at(format!("{:010}", left - 1).as_bytes(), 0)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_known_to_a_tenth() {
        let mut waits = Waits::default();
        for micros in 1..=1_000 {
            waits.note(Duration::from_micros(micros));
        }
        let mut twice = waits.clone();
        twice.add(&waits);
        for (part, micros) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found = twice.percentile(part) * 1e6;
            assert!((micros..micros * 1.1).contains(&found), "{part}: {found}");
        }
        assert_eq!(Waits::default().percentile(0.5), 0.0);
    }
}
