//! The examples, as processes: they do what they say, also when they are stopped, killed, or without a store.
//!
//! Cargo builds examples for `cargo test`, but not for `cargo test --test examples`: there, build them first.
#![cfg(all(unix, feature = "file"))]
#![allow(clippy::disallowed_methods, reason = "tests wait in real time")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tidelock::{Locks, Token};

/// Longer than anything here takes on a busy machine: it ends tests that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory for the locks and the results of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("examples-{pid}-{number}"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn url(&self) -> String {
        format!("file:{}", self.0.join("locks").display())
    }

    fn log(&self) -> String {
        self.0.join("results.log").display().to_string()
    }

    async fn locks(&self) -> Locks {
        Locks::connect(&self.url()).await.unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An example that runs, killed at the end of the test.
struct Example {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Example {
    fn start(name: &str, args: &[&str]) -> Self {
        let tests = std::env::current_exe().unwrap();
        let program = tests.parent().and_then(Path::parent).unwrap().join("examples").join(name);
        assert!(program.exists(), "{} is missing: run cargo build --examples", program.display());
        // The tests may be started with signals ignored, and their children would inherit that.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(program).args(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads the next line and returns what follows `start` in it.
    fn line(&mut self, start: &str) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let rest = line.trim_end().strip_prefix(start);
        rest.unwrap_or_else(|| panic!("{line:?} does not start with {start:?}")).to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        until("an example ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The workers that did each job, from a log with a line `JOB TOKEN WORKER` for each result.
fn results(log: &str) -> BTreeMap<u32, Vec<u32>> {
    let mut results = BTreeMap::<u32, Vec<u32>>::new();
    for line in fs::read_to_string(log).unwrap_or_default().lines() {
        let [job, token, worker] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        assert!(token.parse::<Token>().is_ok(), "{line:?}");
        results.entry(job.parse().unwrap()).or_default().push(worker.parse().unwrap());
    }
    results
}

/// Whether a process holds a lock, by its label.
async fn holds(locks: &Locks, pid: u32) -> bool {
    let label = format!("(pid {pid})");
    let seen = locks.look_all().await.unwrap();
    seen.iter().flat_map(|lock| &lock.holders).any(|holder| holder.label.contains(&label))
}

async fn until_it_holds(locks: &Locks, pid: u32) {
    let start = Instant::now();
    while !holds(locks, pid).await {
        assert!(start.elapsed() < PATIENCE, "{pid} holds no lock: {:?}", locks.look_all().await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Takes a worker that holds a lock out of the list.
async fn take_holder(locks: &Locks, workers: &mut Vec<Example>) -> Example {
    let start = Instant::now();
    loop {
        for number in 0..workers.len() {
            if holds(locks, workers[number].id()).await {
                return workers.remove(number);
            }
        }
        assert!(start.elapsed() < PATIENCE, "no worker holds a lock: {:?}", locks.look_all().await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn four_workers_do_every_job_once_though_one_is_stopped_and_one_is_killed() {
    let folder = Folder::new();
    let (url, log, locks) = (folder.url(), folder.log(), folder.locks().await);
    // So that work is left until both are gone.
    let last = locks.lock_all(["job/17", "job/18", "job/19"]).await.unwrap();
    let mut workers: Vec<_> = (0..4).map(|_| Example::start("worker_pool", &[&url, &log])).collect();
    let mut stopped = take_holder(&locks, &mut workers).await;
    stopped.signal(Signal::INT);
    assert_eq!(stopped.end().code(), Some(1));
    assert!(!holds(&locks, stopped.id()).await);
    let mut killed = take_holder(&locks, &mut workers).await;
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().code(), None);
    last.release().await.unwrap();
    for worker in &mut workers {
        assert!(worker.end().success());
    }
    let results = results(&log);
    assert!(results.keys().copied().eq(0..20), "{results:?}");
    assert!(results.values().all(|workers| workers.len() == 1), "{results:?}");
}

#[tokio::test]
async fn a_leader_that_loses_its_lock_steps_down_and_another_leads_a_later_term() {
    let folder = Folder::new();
    let (url, locks) = (folder.url(), folder.locks().await);
    let mut first = Example::start("leader", &[&url]);
    first.line("standing by");
    let term: Token = first.line("leading, term ").parse().unwrap();
    let mut second = Example::start("leader", &[&url]);
    second.line("standing by");
    let seen = loop {
        let seen = locks.look(["leader"]).await.unwrap();
        if seen[0].waiters.len() == 1 {
            break seen;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(locks.evict("leader", seen[0].holders[0].id, "maintenance").await.unwrap());
    assert_eq!(first.line("stepped down: "), "the lead was lost");
    let later: Token = second.line("leading, term ").parse().unwrap();
    assert!(later > term);
    second.signal(Signal::INT);
    assert_eq!(second.line("stepped down: "), "on request");
    second.line("stopped");
    assert!(second.end().success());
    let last: Token = first.line("leading, term ").parse().unwrap();
    assert!(last > later);
}

#[tokio::test]
async fn the_worker_of_a_service_runs_on_one_instance_and_all_say_on_which() {
    let folder = Folder::new();
    let url = folder.url();
    let mut first = Example::start("axum_leader", &[&url, "127.0.0.1:0"]);
    let one = first.line("listening on ");
    first.line("working in term ");
    let mut second = Example::start("axum_leader", &[&url, "127.0.0.1:0"]);
    let two = second.line("listening on ");
    assert_eq!(request(&two, "GET /leader"), (200, format!("http://{one}\n")));
    first.signal(Signal::INT);
    first.line("stopped");
    assert!(first.end().success());
    second.line("working in term ");
    assert_eq!(request(&two, "GET /leader"), (200, format!("http://{two}\n")));
}

/// Sends a request and returns the status and the text of the answer.
fn request(address: &str, what: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{what} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text.to_owned())
}

fn charge(address: &str, account: &str) -> (u16, String) {
    request(address, &format!("POST /accounts/{account}/charge"))
}

#[tokio::test]
async fn the_service_answers_409_with_the_holder_while_an_account_is_locked() {
    let folder = Folder::new();
    let locks = folder.locks().await;
    let mut service = Example::start("axum_service", &[&folder.url(), "127.0.0.1:0"]);
    let address = service.line("listening on ");
    let guard = locks.mutex("accounts/7").lock().await.unwrap();
    let (status, text) = charge(&address, "7");
    assert!(status == 409 && text.contains("\"accounts/7\"") && text.contains("(pid "), "{status} {text}");
    assert_eq!(charge(&address, "8").0, 200);
    guard.release().await.unwrap();
    let (status, text) = charge(&address, "7");
    assert!(status == 200 && text.starts_with("charged account 7 with token "), "{status} {text}");
    let (status, text) = charge(&address, &"x".repeat(2_000));
    assert!(status == 400 && text.contains("name"), "{status} {text}");
}

#[tokio::test]
async fn the_service_lets_a_request_finish_after_ctrl_c_and_releases_its_lock() {
    let folder = Folder::new();
    let locks = folder.locks().await;
    let mut service = Example::start("axum_service", &[&folder.url(), "127.0.0.1:0"]);
    let address = service.line("listening on ");
    let request = thread::spawn({
        let address = address.clone();
        move || charge(&address, "7")
    });
    until_it_holds(&locks, service.id()).await;
    service.signal(Signal::INT);
    let (status, text) = request.join().unwrap();
    assert!(status == 200 && text.starts_with("charged account 7"), "{status} {text}");
    service.line("stopped");
    assert!(service.end().success());
    assert!(locks.look_all().await.unwrap().is_empty());
}

#[cfg(feature = "redis")]
#[test]
fn the_service_answers_503_with_the_reason_while_its_store_is_down() {
    let server = test_servers::Redis::new().start().unwrap();
    let mut service = Example::start("axum_service", &[server.url(), "127.0.0.1:0"]);
    let address = service.line("listening on ");
    assert_eq!(charge(&address, "7").0, 200);
    server.kill().unwrap();
    let (status, text) = charge(&address, "7");
    assert!(status == 503 && text.contains("not reachable"), "{status} {text}");
}

#[cfg(feature = "testing")]
#[test]
fn the_tests_of_the_example_for_tests_pass() {
    let mut example = Example::start("testing_your_code", &[]);
    example.line("four tests, ");
    assert!(example.end().success());
}
