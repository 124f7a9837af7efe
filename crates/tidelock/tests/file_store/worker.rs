//! What worker processes do on the store in files.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tidelock::{Locks, backend::ClientId};

use super::{ends, limits, sale};
pub(crate) use crate::process::{Job, Worker, say};

/// The lock that workers share.
pub(crate) const NAME: &str = "the lock";

/// For workers that are not to use the directory of the test.
pub(crate) const URL: &str = "TIDELOCK_TEST_URL";

/// A directory for one test, removed with it.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tl-{:?}", ClientId::random()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Where the locks are.
    pub(crate) fn locks(&self) -> PathBuf {
        self.0.join("locks")
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.locks().display())
    }

    pub(crate) async fn connect(&self) -> Locks {
        Locks::connect(&self.url()).await.unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where the files are, as workers are told it.
impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Worker {
    pub(crate) fn start_as(
        folder: &Folder,
        job: &str,
        ttl: Duration,
        user: Option<u32>,
    ) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(user) = user {
            command.uid(user);
        }
        Self::run(command, folder, job, ttl)
    }

    /// Starts a worker that signals itself inside a change: `point:signal:nth`.
    #[cfg(feature = "testing")]
    pub(crate) fn start_with_fault(folder: &Folder, job: &str, ttl: Duration, fault: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("TIDELOCK_FAULT", fault);
        Self::run(command, folder, job, ttl).unwrap()
    }
}

/// What a worker does, if this process is one.
pub(crate) fn work() {
    let Some(job) = Job::of_this_process() else { return };
    let (folder, ttl) = (PathBuf::from(&job.place), job.ttl);
    if let ("end", how) = job.words() {
        return ends::end(&format!("file:{}", folder.join("locks").display()), ttl, how);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = std::env::var(URL).unwrap_or_else(|_| format!("file:{}", folder.join("locks").display()));
        let locks = match Locks::connect(&url).await {
            Ok(locks) => locks,
            Err(error) => return say(&format!("refused {error}")),
        };
        match job.words() {
            ("hold", _) => hold(&locks, ttl).await,
            ("try", _) => try_once(&locks, ttl).await,
            ("ticket", _) => leave_behind(&locks, ttl).await,
            ("exhausted", _) => limits::hold_without_descriptors(&locks, ttl).await,
            ("exhausted-waiter", _) => limits::wait_without_descriptors(&locks, ttl).await,
            ("starved", _) => limits::hold_without_memory(&locks, ttl).await,
            ("read", _) => read_until_told(&locks, ttl).await,
            ("pass", _) => hold_until_told(&locks, ttl).await,
            ("turns", n) => turns(&locks, ttl, n.parse().unwrap()).await,
            ("grants", seconds) => grants(&locks, ttl, seconds.parse().unwrap()).await,
            ("sell", dies_at) => sale::sell(&locks, &folder, ttl, dies_at.parse().unwrap()).await,
            ("rounds", n) => rounds(&locks, &folder, ttl, n.parse().unwrap()).await,
            other => panic!("no such job: {other:?}"),
        }
    });
}

/// Holds until it is killed, and says when it has lost the lock.
async fn hold(locks: &Locks, ttl: Duration) {
    say("waits");
    let guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
    say(&format!("held {}", guard.token()));
    let loss = guard.lost().await;
    say(&format!("lost {loss}"));
    std::future::pending().await
}

/// Takes the lock if it is free, and holds it until it is told to give it back.
async fn try_once(locks: &Locks, ttl: Duration) {
    match locks.mutex(NAME).ttl(ttl).try_lock().await.unwrap() {
        None => say("busy"),
        Some(guard) => {
            say(&format!("held {}", guard.token()));
            told().await;
            guard.release().await.unwrap();
            say("done");
        }
    }
}

/// Takes the lock and leaves it to the owner of its ticket.
async fn leave_behind(locks: &Locks, ttl: Duration) {
    let guard = locks.mutex(NAME).ttl(ttl).detached(true).lock().await.unwrap();
    let ticket = guard.leave_behind().unwrap();
    say(&format!("ticket {ticket}"));
}

/// Resolves when the test says so.
pub(crate) async fn told() {
    let (tell, hear) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || tell.send(std::io::stdin().read_line(&mut String::new()).unwrap()));
    hear.await.unwrap();
}

/// Holds until it is told to give the lock back.
async fn hold_until_told(locks: &Locks, ttl: Duration) {
    let guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
    say(&format!("held {}", guard.token()));
    told().await;
    guard.release().await.unwrap();
    say("done");
}

/// Reads until it is told to give the lock back.
async fn read_until_told(locks: &Locks, ttl: Duration) {
    let guard = locks.rw_lock(NAME).ttl(ttl).read().await.unwrap();
    say(&format!("held {}", guard.token()));
    told().await;
    guard.release().await.unwrap();
    say("done");
}

/// Takes the lock as often as it gets it within so many seconds, beginning when it is told.
async fn grants(locks: &Locks, ttl: Duration, seconds: u64) {
    let mutex = locks.mutex(NAME).ttl(ttl);
    say("ready");
    told().await;
    let (end, mut grants) = (now() + Duration::from_secs(seconds), 0_u32);
    while now() < end {
        mutex.lock().await.unwrap().release().await.unwrap();
        grants += 1;
    }
    say(&format!("done {grants}"));
}

/// Takes the lock again and again, and does nothing with it. Says how long the longest wait was: a bell
/// that was lost shows as two seconds.
async fn turns(locks: &Locks, ttl: Duration, turns: usize) {
    let mut longest = Duration::ZERO;
    let mutex = locks.mutex(NAME).ttl(ttl);
    for _ in 0..turns {
        let asked = now();
        let guard = mutex.lock().await.unwrap();
        longest = longest.max(now() - asked);
        guard.release().await.unwrap();
    }
    say(&format!("done {longest:?}"));
}

/// Takes the lock again and again, and writes down what it saw.
async fn rounds(locks: &Locks, folder: &Path, ttl: Duration, rounds: usize) {
    let path = folder.join(format!("history-{:?}", ClientId::random()));
    let mut history = OpenOptions::new().create(true).append(true).open(path).unwrap();
    // One write each, so that a kill leaves whole lines.
    let mut note = |line: String| history.write_all(line.as_bytes()).unwrap();
    let mutex = locks.mutex(NAME).ttl(ttl);
    for _ in 0..rounds {
        let guard = mutex.lock().await.unwrap();
        let got = now().as_nanos();
        let token = guard.token();
        note(format!("got {token} {got} {}\n", guard.is_held()));
        // A resource that is not safe on its own: workers that overlap lose a count.
        let (count, fence) = read(folder);
        if fence >= token.get() {
            note(format!("old {fence}\n"));
        }
        fs::write(folder.join("count.new"), format!("{} {token}", count + 1)).unwrap();
        fs::rename(folder.join("count.new"), folder.join("count")).unwrap();
        note(format!("used {}\n", now().as_nanos()));
        guard.release().await.unwrap();
    }
    say("done");
}

/// The time by a clock that all processes of the machine share.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The count, and the token of the last that counted.
pub(crate) fn read(folder: &Path) -> (u64, u64) {
    let text = fs::read_to_string(folder.join("count")).unwrap_or_default();
    let (count, fence) = text.split_once(' ').unwrap_or(("0", "0"));
    (count.parse().unwrap(), fence.parse().unwrap())
}

/// One time that a worker had the lock, on the clock that all processes share.
#[derive(Clone, Copy, Debug)]
struct Hold {
    token: u64,
    got: u64,
    used: u64,
    usable: bool,
}

/// Checks all that workers wrote down. Says how often the lock was held, and each breach.
pub(crate) fn check(folder: &Path) -> (usize, Vec<String>) {
    let (mut holds, mut breaches) = (Vec::<Hold>::new(), Vec::new());
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("history-")) {
        for line in fs::read_to_string(path).unwrap().lines() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                // Of a hold that was cut short only the beginning is known.
                "got" => holds.push(Hold {
                    token: number(1),
                    got: number(2),
                    used: number(2),
                    usable: words[3] == "true",
                }),
                "used" => holds.last_mut().unwrap().used = number(1),
                other => {
                    breaches.push(format!("{other}: a larger token was there before, {:?}", holds.last()))
                }
            }
        }
    }
    holds.sort_by_key(|hold| hold.got);
    breaches.extend(holds.iter().filter(|hold| !hold.usable).map(|hold| format!("not held: {hold:?}")));
    for pair in holds.windows(2) {
        if pair[1].got < pair[0].used {
            breaches.push(format!("two at once: {pair:?}"));
        }
        if pair[1].token <= pair[0].token {
            breaches.push(format!("a token did not grow: {pair:?}"));
        }
    }
    (holds.len(), breaches)
}
