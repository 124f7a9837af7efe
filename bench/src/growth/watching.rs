//! Open pages of `tidelock serve` on a large Redis: how fresh they are, and what they cost.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use test_servers::{Redis, Server};
use tidelock::{Guard, Locks};

use super::{limit, listing, runtime, serving::Serve};
use crate::contest::machine;

/// How long rates are counted at a time, without and with pages in turn.
const WINDOW: Duration = Duration::from_secs(5);
/// How many names a page has on its screen.
const SCREEN: usize = 30;

/// How much there is to watch.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys of other programs on the same server
    #[arg(long, default_value_t = 1_000_000)]
    others: u64,
    /// Locks that are held
    #[arg(long, default_value_t = 10_000)]
    held: u64,
    /// Pages that are open
    #[arg(long, default_value_t = 10)]
    pages: usize,
    /// Rounds of four windows each: without and with pages, while nothing else happens and under load
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// New locks whose way to a page is measured
    #[arg(long, default_value_t = 20)]
    probes: usize,
}

pub(super) fn run(args: &Args) -> Result<bool, String> {
    let redis = Redis::new().start().map_err(|error| error.to_string())?;
    let runtime = runtime()?;
    eprintln!("{} keys are written and {} locks acquired …", args.others, args.held);
    let held = runtime.block_on(prepare(args, &redis))?;
    // They are renewed by a thread of their own, as by programs elsewhere.
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    let load = Load::start(redis.url())?;
    let serve = Serve::start(redis.url())?;
    let redis_pid: Vec<u32> = redis.pid().into_iter().collect();
    let mut rounds = Vec::new();
    for round in 1..=args.rounds {
        eprintln!("round {round} of {} …", args.rounds);
        let quiet = load.window(&redis_pid, &serve);
        let pages = open_pages(args, &serve.socket)?;
        // What a page costs when it is opened is no part of what it costs to keep it open.
        thread::sleep(WINDOW);
        let watched = load.window(&redis_pid, &serve);
        load.runs.store(true, Ordering::Relaxed);
        let watched_loaded = load.window(&redis_pid, &serve);
        drop(pages);
        thread::sleep(WINDOW / 5);
        let loaded = load.window(&redis_pid, &serve);
        load.runs.store(false, Ordering::Relaxed);
        rounds.push(Round { quiet, watched, loaded, watched_loaded });
    }
    let pages = open_pages(args, &serve.socket)?;
    load.runs.store(true, Ordering::Relaxed);
    let fresh = freshness(args, &redis, &pages)?;
    let median = |figure: &dyn Fn(&Round) -> f64| median(&mut rounds.iter().map(figure).collect::<Vec<_>>());
    let rate = median(&|round| round.loaded.rate);
    println!(
        "Redis, {} other keys, {} locks held, {} pages open; the load is {rate:.0} hand-overs a second:",
        args.others, args.held, args.pages
    );
    let store = median(&|round| round.watched_loaded.store / round.watched_loaded.rate * 1e6);
    let before = median(&|round| round.loaded.store / round.loaded.rate * 1e6);
    println!("  processor time of Redis for each hand-over: {before:.2} µs, with pages {store:.2} µs");
    let under_load = 100.0 * median(&|round| round.watched_loaded.serve);
    println!("  processor share of tidelock serve under that load: {under_load:.2} %");
    let loss = 1.0 - median(&|round| round.watched_loaded.rate) / rate;
    let kept = [
        limit("slowest new lock on a page", fresh, 2.0, "s"),
        limit(
            "share of Redis for the pages",
            100.0 * median(&|round| round.watched.store - round.quiet.store),
            2.0,
            "%",
        ),
        limit("share of tidelock serve", 100.0 * median(&|round| round.watched.serve), 2.0, "%"),
        limit("loss of hand-overs", 100.0 * loss, 3.0, "%"),
    ];
    std::mem::forget(held);
    Ok(kept.into_iter().all(|kept| kept))
}

async fn prepare(args: &Args, redis: &Server) -> Result<(Locks, Vec<Guard>), String> {
    listing::fill_others(redis, args.others).await?;
    let locks = Locks::connect(redis.url()).await.map_err(|error| error.to_string())?;
    let mut held = Vec::new();
    for number in 0..args.held {
        let lock = locks.mutex(format!("held/{number:05}")).lock().await;
        held.push(lock.map_err(|error| error.to_string())?);
    }
    Ok((locks, held))
}

/// What was measured in one round.
struct Round {
    quiet: Window,
    watched: Window,
    loaded: Window,
    watched_loaded: Window,
}

/// Two clients that hand one lock over to each other all the time, while they are to.
struct Load {
    hand_overs: Arc<AtomicU64>,
    runs: Arc<AtomicBool>,
}

/// How often a load that is not to run looks whether it is.
const IDLE: Duration = Duration::from_millis(20);

/// What happened in one window: hand-overs, and shares of a processor.
struct Window {
    rate: f64,
    store: f64,
    serve: f64,
}

impl Load {
    fn start(url: &str) -> Result<Self, String> {
        let hand_overs = Arc::new(AtomicU64::new(0));
        let runs = Arc::new(AtomicBool::new(false));
        let (counted, runs_now, url) = (Arc::clone(&hand_overs), Arc::clone(&runs), url.to_owned());
        let runtime = runtime()?;
        thread::spawn(move || {
            runtime.block_on(async {
                let client = || async {
                    let locks = Locks::connect(&url).await?;
                    loop {
                        while !runs_now.load(Ordering::Relaxed) {
                            tokio::time::sleep(IDLE).await;
                        }
                        locks.mutex("load").lock().await?.release().await?;
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    #[allow(unreachable_code, reason = "it says which error there could be")]
                    Ok::<(), tidelock::Error>(())
                };
                let (one, two) = tokio::join!(client(), client());
                eprintln!("bench: the load ended: {one:?} {two:?}");
            });
        });
        Ok(Self { hand_overs, runs })
    }

    fn window(&self, redis: &[u32], serve: &Serve) -> Window {
        let read = || {
            (
                self.hand_overs.load(Ordering::Relaxed) as f64,
                machine::worked(redis),
                machine::worked(&[serve.pid()]),
                now(),
            )
        };
        let before = read();
        thread::sleep(WINDOW);
        let after = read();
        let seconds = after.3.duration_since(before.3).as_secs_f64();
        let share = |after: f64, before: f64| (after - before) / seconds;
        Window {
            rate: share(after.0, before.0),
            store: share(after.1, before.1),
            serve: share(after.2, before.2),
        }
    }
}

/// A page that is open: a thread reads its events, until it is dropped.
struct Page {
    stream: UnixStream,
    /// What was read, piece by piece, while somebody listens.
    read: mpsc::Receiver<(Vec<u8>, Instant)>,
    listens: Arc<AtomicBool>,
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

fn open_pages(args: &Args, socket: &Path) -> Result<Vec<Page>, String> {
    (0..args.pages)
        .map(|number| Page::open(args, socket, number).map_err(|error| error.to_string()))
        .collect()
}

impl Page {
    fn open(args: &Args, socket: &Path, number: usize) -> std::io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(b"GET /ui/events HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut first = vec![0; 4_096];
        let mut hello = String::new();
        while !hello.contains("\"viewer\":") {
            let size = stream.read(&mut first)?;
            hello.push_str(&String::from_utf8_lossy(&first[..size]));
        }
        let viewer = hello.split("\"viewer\":").nth(1).and_then(|rest| rest.split(&[',', '}'][..]).next());
        let from = number * SCREEN % usize::try_from(args.held).unwrap_or(1).max(1);
        let names: Vec<String> = (from..from + SCREEN).map(|name| format!("\"held/{name:05}\"")).collect();
        focus(socket, &format!("{{\"viewer\":{},\"names\":[{}]}}", viewer.unwrap_or("0"), names.join(",")))?;
        let (send, read) = mpsc::channel();
        let listens = Arc::new(AtomicBool::new(false));
        let (mut reading, is_heard) = (stream.try_clone()?, Arc::clone(&listens));
        thread::spawn(move || {
            let mut piece = vec![0; 256 * 1_024];
            while let Ok(size) = reading.read(&mut piece)
                && size > 0
            {
                if is_heard.load(Ordering::Relaxed) {
                    let _ = send.send((piece[..size].to_vec(), now()));
                }
            }
        });
        Ok(Self { stream, read, listens })
    }

    /// Waits until the page is told of a text, and says when.
    fn told(&self, text: &str, limit: Duration) -> Result<Instant, String> {
        let mut tail = String::new();
        loop {
            let (piece, at) = self.read.recv_timeout(limit).map_err(|_| format!("{text} never came"))?;
            tail.push_str(&String::from_utf8_lossy(&piece));
            if tail.contains(text) {
                return Ok(at);
            }
            // A text may be in two pieces.
            let keep = tail.char_indices().rev().nth(text.len()).map_or(0, |(at, _)| at);
            tail.drain(..keep);
        }
    }
}

fn focus(socket: &Path, body: &str) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let length = body.len();
    let head = "POST /ui/focus HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}")?;
    stream.read_to_end(&mut Vec::new()).map(drop)
}

/// The longest time from when a new lock was granted until a page was told.
fn freshness(args: &Args, redis: &Server, pages: &[Page]) -> Result<f64, String> {
    // What comes with the opening of a page is read before.
    thread::sleep(WINDOW);
    let page = pages.last().ok_or("there is no page")?;
    page.listens.store(true, Ordering::Relaxed);
    let runtime = runtime()?;
    let said = |error: tidelock::Error| error.to_string();
    let locks = runtime.block_on(Locks::connect(redis.url())).map_err(said)?;
    let mut times = Vec::new();
    for number in 0..args.probes {
        let name = format!("probe/{number:04}");
        let guard = runtime.block_on(locks.mutex(&name).lock()).map_err(said)?;
        let granted = now();
        let told = page.told(&name, Duration::from_secs(300))?;
        times.push(told.duration_since(granted).as_secs_f64());
        runtime.block_on(guard.release()).map_err(said)?;
    }
    println!("  a new lock is on a page after {:.2} s in the median", median(&mut times.clone()));
    Ok(times.into_iter().fold(0.0, f64::max))
}

/// A moment that threads can compare.
#[allow(
    clippy::disallowed_methods,
    reason = "nothing here is paused or jumps, and the library's moments have no name"
)]
fn now() -> Instant {
    Instant::now()
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
