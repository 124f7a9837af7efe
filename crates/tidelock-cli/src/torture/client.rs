//! A client: a process of its own that uses locks as its seed says, and writes down what it saw.
//!
//! It talks with the run through its standard input and output, a line each: it asks the fence there, and hears when to
//! end. It ends as well when the run is gone.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write, stdin, stdout},
    process::exit,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::process::{Signal, set_parent_process_death_signal};
use tidelock::{Endings, HowEnded, Locks};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    history::{Log, client_file, label_of},
    player::Player,
    record::{Event, Nanos, Share},
    work::{BREAKS, BRINK, CALM, GUST, HUSH, Pace, STORM, URL, WORK, Work},
};
use crate::{clock::Moment, exit::Exit, output};

/// How long a client tries to reach its store.
const CONNECT: Duration = Duration::from_secs(120);
/// How long the last requests may take when everything is healed.
const DRAIN: Duration = Duration::from_secs(60);

/// For how long nothing is asked when a server is about to fail: longer than it takes until it does.
const HUSHED: Duration = Duration::from_millis(1_000);

/// How often the pulse of the store is felt, and how much later than that it counts as slow.
const PULSE: Duration = Duration::from_millis(300);
const SLOW_AFTER: Duration = Duration::from_millis(700);

/// Is a client if this process was started as one.
pub(crate) fn run_if_asked() -> Option<Exit> {
    let work = std::env::var(WORK).ok()?;
    Some(match run(&work) {
        Ok(()) => Exit::Done,
        Err(error) => {
            output::complain(&format!("a client of the torture: {error}"));
            Exit::Failed
        }
    })
}

fn run(work: &str) -> io::Result<()> {
    // A run that is killed leaves no clients behind, not even stopped ones.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let work: Work = serde_json::from_str(work)?;
    let url = std::env::var(URL).map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(live(work, &url));
    runtime.shutdown_background();
    done
}

async fn live(work: Work, url: &str) -> io::Result<()> {
    let log = Log::create(&work.folder.join(client_file(work.client, work.generation)))?;
    let journal = Arc::new(Journal {
        log,
        next: Mutex::new(0),
        others: AtomicU32::new(0),
        asked: AtomicU64::new(0),
        granted: AtomicU64::new(0),
    });
    journal.note(&Event::Hello { client: work.client, generation: work.generation });
    let run = Run::listen();
    let label = label_of(work.client, work.generation);
    let connected = tokio::select! {
        connected = connect(url, &label) => connected,
        () = run.ended() => {
            journal.note(&Event::Bye { why: "ended before it was connected".to_owned() });
            return Ok(());
        }
    };
    let locks = match connected {
        Ok(locks) => locks,
        Err(error) => {
            journal.note(&Event::Bye { why: error.to_string() });
            return Err(io::Error::other(error));
        }
    };
    let work = Arc::new(work);
    // It listens until the very end of the client.
    let mut listening = JoinSet::new();
    listening.spawn(listen(locks.endings(), Arc::clone(&journal), Arc::clone(&work)));
    let mut tasks = JoinSet::new();
    // More than the quick and the slow ones: for what is about to fail, for those who look, and for other clients.
    for task in 0..=work.tasks + 2 {
        let player =
            Player::new(locks.clone(), Arc::clone(&journal), Arc::clone(&run), Arc::clone(&work), task);
        tasks.spawn(player.play());
    }
    tasks.spawn(tell(Arc::clone(&journal), Arc::clone(&run)));
    let pulse = format!("{}-{}", work.pulse, work.client);
    tasks.spawn(feel(locks.clone(), pulse, Arc::clone(&journal), Arc::clone(&run)));
    run.ended().await;
    let drained = timeout(DRAIN, async { while tasks.join_next().await.is_some() {} }).await;
    // Requests that are still open stay without an answer in the history: the error that a shutdown gives them is none.
    drop(tasks);
    locks.shutdown(Duration::from_secs(5)).await;
    drop(listening);
    let why = if drained.is_ok() { "done" } else { "requests were not answered" };
    journal.note(&Event::Bye { why: why.to_owned() });
    Ok(())
}

/// Connects, also where the store refuses logins for a while. Others see the label.
async fn connect(url: &str, label: &str) -> tidelock::Result<Locks> {
    let began = Moment::now();
    loop {
        match Locks::builder(url).label(label).connect_within(CONNECT).await {
            Err(_) if Moment::now().since(began) < CONNECT => sleep(Duration::from_millis(300)).await,
            connected => return connected,
        }
    }
}

/// Tells the run how far this client is, for its progress.
async fn tell(journal: Arc<Journal>, run: Arc<Run>) {
    while !run.is_ending() {
        let (asked, granted) =
            (journal.asked.load(Ordering::Relaxed), journal.granted.load(Ordering::Relaxed));
        run.say(&format!("count {asked} {granted}\n"));
        tokio::select! {
            () = sleep(Duration::from_millis(500)) => {}
            () = run.ended() => {}
        }
    }
}

/// Notes what the client is told of the ends of its claims.
async fn listen(mut endings: Endings, journal: Arc<Journal>, work: Arc<Work>) {
    journal.note(&Event::Listens);
    let locks: HashMap<&str, (u16, Pace)> =
        (0..).zip(&work.locks).map(|(lock, it)| (&*it.name, (lock, it.pace))).collect();
    while let Some(ended) = endings.next().await {
        let Some((lock, pace)) = locks.get(ended.name.as_str()).copied() else { continue };
        let how = match ended.how {
            // Those are too many.
            HowEnded::Released if matches!(pace, Pace::Quick | Pace::Slow) => continue,
            HowEnded::Released => "released".to_owned(),
            HowEnded::Evicted(reason) if &*reason == BREAKS => "evicted".to_owned(),
            HowEnded::Evicted(reason) => format!("evicted for {reason:?}"),
            other => format!("{other:?}"),
        };
        journal.note(&Event::Told { lock, how });
    }
}

/// Feels the pulse of the store from here. What is late because a server, the network or the machine is, is noted, so that
/// the checker blames nobody for it.
async fn feel(locks: Locks, name: String, journal: Arc<Journal>, run: Arc<Run>) {
    while !run.is_ending() {
        let from = Moment::now();
        sleep(PULSE).await;
        // An error is an answer, too.
        let _ = locks.look([&name]).await;
        if Moment::now().since(from) > PULSE + SLOW_AFTER {
            journal.note(&Event::Slow { from: from.as_nanos() });
        }
    }
}

/// The history of this process.
#[derive(Debug)]
pub(super) struct Journal {
    log: Log,
    next: Mutex<u32>,
    others: AtomicU32,
    asked: AtomicU64,
    granted: AtomicU64,
}

impl Journal {
    /// Notes a request that is about to be made, and gives it its number: numbers are in the order of the lines.
    pub(super) fn ask(&self, lock: usize, share: Share, owner: u32, patience: Nanos) -> u32 {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let op = *next;
        *next += 1;
        let lock = u16::try_from(lock).unwrap_or(u16::MAX);
        self.note(&Event::Asked { op, lock, share, owner, patience });
        self.asked.fetch_add(1, Ordering::Relaxed);
        op
    }

    /// The number that the next request will have, if no other task asks before.
    pub(super) fn next(&self) -> u32 {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of another client of this process, or of something else that is counted.
    pub(super) fn number(&self) -> u32 {
        self.others.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn note(&self, event: &Event) {
        check(self.log.note(event));
    }

    pub(super) fn note_at(&self, at: Nanos, event: &Event) {
        if matches!(event, Event::Granted { .. }) {
            self.granted.fetch_add(1, Ordering::Relaxed);
        }
        check(self.log.note_at(at, event));
    }
}

/// A history that lacks a line proves nothing.
fn check(written: io::Result<()>) {
    if let Err(error) = written {
        output::complain(&format!("the history cannot be written: {error}"));
        exit(i32::from(Exit::Failed.code()));
    }
}

/// The run that this client is part of.
#[derive(Debug, Default)]
pub(super) struct Run {
    ending: AtomicBool,
    storm: AtomicBool,
    brink: AtomicU64,
    /// Whether the last warning was of a light fault.
    gust: AtomicBool,
    /// Until when nothing is asked.
    hush: AtomicU64,
    end: Notify,
    warned: Notify,
    next: AtomicU64,
    asked: Mutex<HashMap<u64, oneshot::Sender<bool>>>,
}

impl Run {
    /// Listens to what the run says, in a thread: reading standard input blocks.
    fn listen() -> Arc<Self> {
        let run = Arc::new(Self::default());
        let heard = Arc::clone(&run);
        std::thread::spawn(move || {
            for line in stdin().lock().lines().map_while(Result::ok) {
                if line == "end" {
                    heard.end();
                } else if line == BRINK || line == HUSH || line == GUST {
                    if line == HUSH {
                        heard.hush.store(Moment::now().plus(HUSHED).as_nanos(), Ordering::Relaxed);
                    }
                    heard.gust.store(line == GUST, Ordering::Relaxed);
                    heard.brink.fetch_add(1, Ordering::Release);
                    heard.warned.notify_waiters();
                } else if line == STORM || line == CALM {
                    heard.storm.store(line == STORM, Ordering::Relaxed);
                } else if let Some((id, accepted)) = line.split_once(' ')
                    && let Some(waiting) = id.parse().ok().and_then(|id| heard.asked().remove(&id))
                {
                    // One that went away does not want to know.
                    let _ = waiting.send(accepted == "1");
                }
            }
            heard.end();
        });
        run
    }

    fn end(&self) {
        self.ending.store(true, Ordering::Release);
        self.end.notify_waiters();
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Whether faults of all kinds come now, so that this client may cause some of its own.
    pub(super) fn is_storm(&self) -> bool {
        self.storm.load(Ordering::Relaxed)
    }

    /// Whether the last warning was of a light fault, and not of a server that fails.
    pub(super) fn is_gust(&self) -> bool {
        self.gust.load(Ordering::Relaxed)
    }

    /// Whether nothing is to be asked.
    pub(super) fn is_hushed(&self) -> bool {
        Moment::now().as_nanos() < self.hush.load(Ordering::Relaxed)
    }

    /// Waits while nothing is to be asked.
    pub(super) async fn hushed(&self) {
        while self.is_hushed() {
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until something is about to fail, as it was not when `seen` counted the times, or until the run ends. Counts
    /// the times.
    pub(super) async fn warned(&self, seen: u64) -> u64 {
        loop {
            let warned = self.warned.notified();
            let times = self.brink.load(Ordering::Acquire);
            if times != seen || self.is_ending() {
                return times;
            }
            // Looked at again: the word may have come before anybody listened.
            let _ = timeout(Duration::from_millis(200), warned).await;
        }
    }

    /// Waits until the run asks for an end.
    pub(super) async fn ended(&self) {
        loop {
            let end = self.end.notified();
            if self.is_ending() {
                return;
            }
            // Looked at again: the word may have come before anybody listened.
            let _ = timeout(Duration::from_millis(200), end).await;
        }
    }

    /// Writes through the fence. Says whether the write was accepted; `None` if the run is gone.
    pub(super) async fn write(&self, op: u32, name: usize, token: u64) -> Option<bool> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, heard) = oneshot::channel();
        self.asked().insert(id, answer);
        self.say(&format!("write {id} {op} {name} {token}\n"));
        timeout(Duration::from_secs(30), heard).await.ok()?.ok()
    }

    fn say(&self, line: &str) {
        // In one write, so that the lines of several tasks do not mix. A run that is gone ends us soon.
        let mut out = stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }

    fn asked(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<bool>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
