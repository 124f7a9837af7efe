//! The client processes: starts them, hears them, keeps the fence that they write through.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    history::{Log, label_of},
    record::Event,
    work::{CALM, URL, WORK, Work},
};

/// A client that runs.
#[derive(Debug)]
pub(super) struct Client {
    work: Work,
    url: String,
    process: Process,
    counts: Arc<Counts>,
    desk: Arc<Desk>,
    weather: &'static str,
}

/// One of the processes that a client is in the course of a run.
#[derive(Debug)]
struct Process {
    child: Child,
    input: Arc<Mutex<ChildStdin>>,
    is_at_work: Arc<AtomicBool>,
}

/// How far a client is, over all its generations.
#[derive(Debug, Default)]
pub(super) struct Counts {
    before: AtomicU64,
    asked: AtomicU64,
    granted_before: AtomicU64,
    granted: AtomicU64,
}

impl Counts {
    /// The requests and the grants.
    pub(super) fn get(&self) -> (u64, u64) {
        let sum =
            |one: &AtomicU64, other: &AtomicU64| one.load(Ordering::Relaxed) + other.load(Ordering::Relaxed);
        (sum(&self.before, &self.asked), sum(&self.granted_before, &self.granted))
    }

    fn see(&self, asked: u64, granted: u64) {
        self.asked.store(asked, Ordering::Relaxed);
        self.granted.store(granted, Ordering::Relaxed);
    }

    fn begin_again(&self) {
        self.before.fetch_add(self.asked.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.granted_before.fetch_add(self.granted.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The fence: a resource that refuses tokens smaller than the largest it has seen, per lock. It lives in the run, which
/// nobody kills, and notes its decisions in their order.
#[derive(Debug)]
pub(super) struct Desk {
    log: Arc<Log>,
    largest: Mutex<HashMap<u64, u64>>,
}

impl Desk {
    pub(super) fn new(log: Arc<Log>) -> Arc<Self> {
        Arc::new(Self { log, largest: Mutex::default() })
    }

    fn write(&self, (client, generation): (u32, u32), op: u32, name: u64, token: u64) -> io::Result<bool> {
        let mut largest = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        let largest = largest.entry(name).or_default();
        let accepted = token >= *largest;
        *largest = token.max(*largest);
        self.log.note(&Event::Wrote { client, generation, op, accepted })?;
        Ok(accepted)
    }
}

impl Client {
    pub(super) fn start(work: Work, url: String, desk: Arc<Desk>) -> io::Result<Self> {
        let counts = Arc::new(Counts::default());
        let process = spawn(&work, &url, &desk, &counts)?;
        Ok(Self { work, url, process, counts, desk, weather: CALM })
    }

    /// Kills it.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.process.child.kill()
    }

    /// Kills it and starts it again.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.process.child.wait()?;
        self.work.generation += 1;
        self.counts.begin_again();
        self.process = spawn(&self.work, &self.url, &self.desk, &self.counts)?;
        self.tell(self.weather);
        Ok(())
    }

    /// Whether it ended on its own.
    pub(super) fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.process.child.try_wait()?.is_some())
    }

    pub(super) fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Lets it open no file and no connection any more, or as many as this process may.
    #[cfg(target_os = "linux")]
    pub(super) fn let_open(&self, is_allowed: bool) -> io::Result<()> {
        use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let limit = Rlimit { current: if is_allowed { current } else { Some(0) }, maximum };
        prlimit(Some(Pid::from_child(&self.process.child)), Resource::Nofile, limit)?;
        Ok(())
    }

    /// Other systems set limits of the own process only.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn let_open(&self, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = Pid::from_child(&self.process.child);
        Ok(kill_process(pid, signal)?)
    }

    /// Tells it whether there is a storm. A new process hears it from its first line.
    pub(super) fn tell(&mut self, weather: &'static str) {
        self.weather = weather;
        // One that was killed needs no word.
        let _ = say(&self.process.input, &format!("{weather}\n"));
    }

    /// Tells it what is about to happen: a server fails, or the network.
    pub(super) fn warn(&self, word: &str) {
        // One that was killed needs no word.
        let _ = say(&self.process.input, &format!("{word}\n"));
    }

    /// Asks it to finish its requests and end.
    pub(super) fn end(&self) {
        // One that is gone needs no word.
        let _ = say(&self.process.input, "end\n");
    }

    /// As histories call it.
    pub(super) fn label(&self) -> String {
        label_of(self.work.client, self.work.generation)
    }

    /// Whether its process, and not an earlier one, has asked for a lock.
    pub(super) fn is_at_work(&self) -> bool {
        self.process.is_at_work.load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Gone already, if all went well.
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
    }
}

fn spawn(work: &Work, url: &str, desk: &Arc<Desk>, counts: &Arc<Counts>) -> io::Result<Process> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(WORK, serde_json::to_string(work)?)
        .env(URL, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let input = Arc::new(Mutex::new(input));
    let is_at_work = Arc::new(AtomicBool::new(false));
    let (desk, counts, answers) = (Arc::clone(desk), Arc::clone(counts), Arc::clone(&input));
    let works = Arc::clone(&is_at_work);
    let who = (work.client, work.generation);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            let word = words.next();
            let mut numbers = words.map_while(|word| word.parse::<u64>().ok());
            let mut next = || numbers.next();
            if word == Some("count") {
                if let (Some(asked), Some(granted)) = (next(), next()) {
                    counts.see(asked, granted);
                    works.store(asked > 0, Ordering::Relaxed);
                }
            } else if let (Some(id), Some(op), Some(name), Some(token)) = (next(), next(), next(), next()) {
                let op = u32::try_from(op).unwrap_or(u32::MAX);
                let Ok(accepted) = desk.write(who, op, name, token) else { return };
                // A client that was killed meanwhile does not hear it.
                let _ = say(&answers, &format!("{id} {}\n", u8::from(accepted)));
            }
        }
    });
    Ok(Process { child, input, is_at_work })
}

fn say(input: &Mutex<ChildStdin>, line: &str) -> io::Result<()> {
    input.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
}
