//! Curator and kazoo want the same locks. Their programs are in `peers/`; where Java, Maven or Python cannot
//! get them, the trials are shown as ignored.

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

use tidelock::{Guard, Locks};

use crate::support::{LONG, NAME, Place, got, report, until_waiting, waiter, within};

trials! {
    curator_and_a_mutex_take_turns,
    curator_writers_and_ours_take_turns,
    curator_readers_wait_for_our_writers,
    curator_writers_wait_for_our_readers,
    curator_waits_for_permits,
    curator_waits_for_us_and_we_for_curator,
    kazoo_and_a_mutex_take_turns,
    kazoo_writers_wait_for_our_readers,
    kazoo_readers_wait_for_our_writers,
    kazoo_waits_for_us_and_we_for_kazoo,
    a_lock_in_both_dialects_takes_turns_with_curator,
    a_lock_in_both_dialects_takes_turns_with_kazoo,
}

type Trial = Result<(), &'static str>;

/// How often each side takes a lock.
fn times(usually: usize) -> usize {
    std::env::var("TIDELOCK_INTEROP_GRANTS").ok().map_or(usually, |times| times.parse().unwrap())
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers")
}

fn built() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers")
}

fn runs(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|done| done.success())
}

/// The program that uses Curator, built by the first trial that needs it.
fn curator() -> Result<Command, &'static str> {
    static BUILT: OnceLock<bool> = OnceLock::new();
    let target = built().join("curator");
    let build = || {
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-f"]).arg(peers().join("curator/pom.xml"));
        runs(maven.arg(format!("-Dpeer.target={}", target.display())).arg("package"))
    };
    if !*BUILT.get_or_init(build) {
        return Err("Java, Maven or Curator is missing: mvn package in peers/curator fails");
    }
    let mut java = Command::new("java");
    let (jar, jars) = (target.join("curator-peer.jar"), target.join("jars/*"));
    java.args(["-XX:-UsePerfData", "-XX:+UseSerialGC", "-Xmx128m", "-cp"]);
    java.arg(format!("{}:{}", jar.display(), jars.display())).arg("Peer");
    Ok(java)
}

/// The program that uses kazoo.
fn kazoo() -> Result<Command, &'static str> {
    static BUILT: OnceLock<bool> = OnceLock::new();
    let environment = built().join("kazoo");
    let python = environment.join("bin/python");
    let build = || {
        let requirements = peers().join("kazoo/requirements.txt");
        runs(Command::new("python3").args(["-m", "venv"]).arg(&environment))
            && runs(Command::new(&python).args(["-m", "pip", "install", "-q", "-r"]).arg(requirements))
    };
    if !*BUILT.get_or_init(build) {
        return Err("Python or kazoo is missing: pip install -r peers/kazoo/requirements.txt fails");
    }
    let mut command = Command::new(python);
    command.arg(peers().join("kazoo/peer.py"));
    Ok(command)
}

/// Another program. Killed when it is dropped.
struct Peer {
    child: Child,
    said: Option<Lines<BufReader<ChildStdout>>>,
}

impl Peer {
    fn start(mut command: Command, what: &str, place: &Place, kind: &str, more: &[String]) -> Self {
        command.args([what, place.hosts(), &place.node(NAME), kind]).args(more);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said: Some(said) }
    }

    /// Waits until it says something that begins so, and gives the rest.
    async fn hear(&mut self, beginning: &'static str) -> String {
        let mut said = self.said.take().unwrap();
        let heard = tokio::task::spawn_blocking(move || {
            for line in said.by_ref() {
                let line = line.unwrap();
                if let Some(rest) = line.strip_prefix('@').and_then(|line| line.strip_prefix(beginning)) {
                    return (rest.trim().to_owned(), said);
                }
            }
            panic!("the peer ended without saying {beginning:?}")
        });
        let (rest, said) = heard.await.unwrap();
        self.said = Some(said);
        rest
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What we take.
#[derive(Clone, Copy, Debug)]
enum Ours {
    Mutex,
    Read,
    Write,
    Permit,
}

async fn take(locks: &Locks, ours: Ours) -> Guard {
    let taken = async {
        match ours {
            Ours::Mutex => locks.mutex(NAME).ttl(LONG).lock().await,
            Ours::Read => locks.rw_lock(NAME).ttl(LONG).read().await,
            Ours::Write => locks.rw_lock(NAME).ttl(LONG).write().await,
            Ours::Permit => locks.semaphore(NAME, 3).ttl(LONG).acquire(1).await,
        }
    };
    within("it is granted", taken).await.unwrap()
}

/// Both acquire the lock this many times; the holder makes a file that must not be there.
async fn take_turns(command: Command, options: &str, theirs: &str, ours: Ours, times: usize) {
    let place = Place::shared();
    let witness = built().join(format!("witness{}", place.prefix.replace('/', "-")));
    let _ = fs::remove_file(&witness);
    let (locks, bare) = (place.with(options).connect().await, place.bare().await);
    let more = [witness.display().to_string(), times.to_string()];
    let mut peer = Peer::start(command, "contend", &place, theirs, &more);
    peer.hear("ready").await;
    peer.tell();
    let (mut overlaps, mut contended, mut last) = (0, 0, None);
    for _ in 0..times {
        let guard = take(&locks, ours).await;
        match fs::OpenOptions::new().write(true).create_new(true).open(&witness) {
            Ok(_) => fs::remove_file(&witness).unwrap(),
            Err(_) => overlaps += 1,
        }
        assert!(last < Some(guard.token()));
        last = Some(guard.token());
        // Of whatever dialect: others wait while we hold.
        let nodes = bare.children(&place.node(NAME)).await.unwrap();
        contended += usize::from(nodes.len() > if options.contains("both") { 2 } else { 1 });
        guard.release().await.unwrap();
    }
    let theirs_saw: usize = peer.hear("overlaps").await.parse().unwrap();
    report(&format!(
        "{times} grants each, ours {ours:?}, theirs {theirs} {options}: {} overlaps, {contended} of ours while they waited",
        overlaps + theirs_saw
    ));
    assert_eq!(overlaps + theirs_saw, 0, "two held at once");
    assert!(contended > times / 10, "they hardly met: {contended} of {times}");
}

async fn curator_and_a_mutex_take_turns() -> Trial {
    take_turns(curator()?, "", "mutex", Ours::Mutex, times(200)).await;
    Ok(())
}

async fn curator_writers_and_ours_take_turns() -> Trial {
    take_turns(curator()?, "", "write", Ours::Write, times(100)).await;
    Ok(())
}

async fn curator_readers_wait_for_our_writers() -> Trial {
    take_turns(curator()?, "", "read", Ours::Write, times(100)).await;
    Ok(())
}

async fn curator_writers_wait_for_our_readers() -> Trial {
    take_turns(curator()?, "", "write", Ours::Read, times(100)).await;
    Ok(())
}

async fn curator_waits_for_permits() -> Trial {
    take_turns(curator()?, "", "mutex", Ours::Permit, times(100)).await;
    Ok(())
}

async fn kazoo_and_a_mutex_take_turns() -> Trial {
    take_turns(kazoo()?, "dialect=kazoo", "mutex", Ours::Mutex, times(200)).await;
    Ok(())
}

async fn kazoo_writers_wait_for_our_readers() -> Trial {
    take_turns(kazoo()?, "dialect=kazoo", "write", Ours::Read, times(100)).await;
    Ok(())
}

async fn kazoo_readers_wait_for_our_writers() -> Trial {
    take_turns(kazoo()?, "dialect=kazoo", "read", Ours::Write, times(100)).await;
    Ok(())
}

async fn a_lock_in_both_dialects_takes_turns_with_curator() -> Trial {
    take_turns(curator()?, "dialect=both", "mutex", Ours::Mutex, times(100)).await;
    Ok(())
}

async fn a_lock_in_both_dialects_takes_turns_with_kazoo() -> Trial {
    take_turns(kazoo()?, "dialect=both", "mutex", Ours::Mutex, times(100)).await;
    Ok(())
}

/// Each waits while the other holds.
async fn both_directions(make: fn() -> Result<Command, &'static str>, options: &str) -> Trial {
    let place = Place::shared();
    let locks = place.with(options).connect().await;
    for kind in ["mutex", "write"] {
        let theirs = || Peer::start(make().unwrap(), "hold", &place, kind, &[]);
        make()?;
        let ours = if kind == "mutex" { Ours::Mutex } else { Ours::Write };
        let guard = take(&locks, ours).await;
        let mut peer = theirs();
        until_waiting(&locks, NAME, 1).await;
        guard.release().await.unwrap();
        peer.hear("held").await;
        assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
        let waiting = waiter(&locks, NAME, LONG);
        until_waiting(&locks, NAME, 1).await;
        assert!(!waiting.is_finished());
        peer.tell();
        got(waiting).await.release().await.unwrap();
    }
    Ok(())
}

async fn curator_waits_for_us_and_we_for_curator() -> Trial {
    both_directions(curator, "").await
}

async fn kazoo_waits_for_us_and_we_for_kazoo() -> Trial {
    both_directions(kazoo, "dialect=kazoo").await
}
