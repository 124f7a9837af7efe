//! Clients of other makes that want the same locks: `etcdctl lock`, and Go's concurrency package.
//!
//! - `TIDELOCK_INTEROP_GRANTS=10000` takes that many turns with the Go program instead of a few.

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidelock::Locks;

use crate::support::{
    LONG, NAME, Place, eventually, got, report, shared, until, until_idle, until_waiting, waiter, within,
};

trials! {
    etcdctl_waits_for_us_and_we_wait_for_etcdctl,
    a_lock_does_not_see_the_locks_below_it_of_other_makes,
    a_holder_of_another_make_can_be_seen_and_put_out,
    a_go_program_and_we_take_turns_and_never_overlap,
}

/// How long the longest run may take.
pub(crate) const LONGEST: Duration = Duration::from_secs(600);

impl Place {
    /// What other clients call a lock of this place.
    fn foreign(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// A process that is killed when it is dropped.
struct Other {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said }
    }

    /// `etcdctl lock` of a name, until it is told to let go.
    fn etcdctl(name: &str) -> Self {
        Self::start(shared().client().args(["lock", "--ttl=10", name]))
    }

    /// Waits until it says something.
    async fn hear(mut self) -> (Self, String) {
        let heard = tokio::task::spawn_blocking(move || {
            let line = self.said.next().expect("it says something").unwrap();
            (self, line)
        });
        within("the other says something", heard).await.unwrap()
    }

    /// Lets go as somebody does who presses a key.
    async fn let_go(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let ended = tokio::task::spawn_blocking(move || self.child.wait());
        within("the other ends", ended).await.unwrap().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn etcdctl_waits_for_us_and_we_wait_for_etcdctl() {
    let place = Place::shared();
    let locks = place.connect().await;
    let mut last = None;
    for _ in 0..3 {
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        assert!(last < Some(guard.token()));
        let other = Other::etcdctl(&place.foreign(NAME));
        until_waiting(&locks, NAME, 1).await;
        let ours = waiter(&place.connect().await, NAME, LONG);
        until_waiting(&locks, NAME, 2).await;
        last = Some(guard.token());
        guard.release().await.unwrap();
        let (other, key) = other.hear().await;
        assert!(key.starts_with(&place.foreign(NAME)), "{key}");
        assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
        assert!(!ours.is_finished(), "etcdctl was ahead");
        other.let_go().await;
        let guard = got(ours).await;
        assert!(last < Some(guard.token()));
        guard.release().await.unwrap();
    }
    until_idle(&locks, NAME).await;
}

async fn a_lock_does_not_see_the_locks_below_it_of_other_makes() {
    let place = Place::shared();
    let locks = place.connect().await;
    let other = Other::etcdctl(&place.foreign("a/b"));
    let (other, _) = other.hear().await;
    let guard = locks.mutex("a").try_lock().await.unwrap().expect("another lock is held");
    let ours = locks.mutex("a/b").try_lock().await.unwrap().expect("written as a%2Fb, so another lock");
    ours.release().await.unwrap();
    guard.release().await.unwrap();
    // As it is written it is the same lock.
    let same = Other::etcdctl(&place.foreign("a%2Fb"));
    let (same, _) = same.hear().await;
    assert!(locks.mutex("a/b").try_lock().await.unwrap().is_none());
    same.let_go().await;
    other.let_go().await;
}

async fn a_holder_of_another_make_can_be_seen_and_put_out() {
    let place = Place::shared();
    let locks = place.connect().await;
    let (other, _) = Other::etcdctl(&place.foreign(NAME)).hear().await;
    until(&locks, NAME, |view| view.holders.len() == 1).await;
    let view = locks.look(&[NAME]).await.unwrap().remove(0);
    assert!(view.holders[0].label.contains("another client"), "{view:?}");
    let waiting = waiter(&locks, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    locks.evict(NAME, view.holders[0].id, "").await.unwrap();
    got(waiting).await.release().await.unwrap();
    drop(other);
}

/// Counts how many are inside at the same time, of either side: both connect while they hold.
struct Referee {
    listener: std::net::SocketAddr,
    inside: Arc<AtomicUsize>,
    overlaps: Arc<AtomicUsize>,
    ours: Arc<AtomicUsize>,
    theirs: Arc<AtomicUsize>,
}

impl Referee {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let referee = Self {
            listener: listener.local_addr().unwrap(),
            inside: Arc::default(),
            overlaps: Arc::default(),
            ours: Arc::default(),
            theirs: Arc::default(),
        };
        let (inside, overlaps) = (Arc::clone(&referee.inside), Arc::clone(&referee.overlaps));
        let (ours, theirs) = (Arc::clone(&referee.ours), Arc::clone(&referee.theirs));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (inside, overlaps) = (Arc::clone(&inside), Arc::clone(&overlaps));
                let (ours, theirs) = (Arc::clone(&ours), Arc::clone(&theirs));
                std::thread::spawn(move || {
                    let mut said = [0];
                    // In: one byte that says who. Out: another byte. Each is answered.
                    while stream.read_exact(&mut said).is_ok() {
                        match said[0] {
                            b'o' | b'g' => {
                                if inside.fetch_add(1, Ordering::SeqCst) > 0 {
                                    overlaps.fetch_add(1, Ordering::SeqCst);
                                }
                                let who = if said[0] == b'o' { &ours } else { &theirs };
                                who.fetch_add(1, Ordering::SeqCst);
                            }
                            _ => {
                                inside.fetch_sub(1, Ordering::SeqCst);
                            }
                        }
                        if stream.write_all(b".").is_err() {
                            return;
                        }
                    }
                });
            }
        });
        referee
    }

    /// Whether there were so many grants, and a fifth of them at least on each side.
    fn has_seen(&self, grants: usize) -> bool {
        let (ours, theirs) = (self.ours.load(Ordering::SeqCst), self.theirs.load(Ordering::SeqCst));
        ours + theirs >= grants && ours.min(theirs) > grants / 5
    }
}

/// The Go program, built once; nothing if there is no Go here.
fn go_program() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers/etcd-concurrency");
    Command::new("go").arg("version").output().ok()?;
    let folder = std::env::temp_dir().join("tidelock-peers");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(format!("etcd-concurrency-{}", std::process::id()));
    let built =
        Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

async fn a_go_program_and_we_take_turns_and_never_overlap() -> Result<(), &'static str> {
    let grants =
        std::env::var("TIDELOCK_INTEROP_GRANTS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let Some(program) = tokio::task::spawn_blocking(go_program).await.unwrap() else {
        return Err("there is no Go: install golang to run it");
    };
    let place = Place::shared();
    let referee = Referee::start();
    let mut theirs = Vec::new();
    for _ in 0..2 {
        theirs.push(Other::start(
            Command::new(&program)
                .arg("turns")
                .arg(shared().addr().to_string())
                .arg(place.foreign(NAME))
                .arg(referee.listener.to_string()),
        ));
    }
    let over = Arc::new(AtomicUsize::new(0));
    let mut ours = Vec::new();
    for _ in 0..2 {
        let (locks, at, over) = (place.connect().await, referee.listener, Arc::clone(&over));
        ours.push(tokio::spawn(async move { take_turns(&locks, at, &over).await }));
    }
    let waiting = async {
        // In order of arrival: both sides get their turns.
        while !referee.has_seen(grants) {
            for other in &mut theirs {
                assert!(other.child.try_wait().unwrap().is_none(), "a Go program gave up: see its message");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONGEST, waiting).await.expect("enough grants on both sides");
    over.store(1, Ordering::SeqCst);
    for ours in ours {
        within("our turns end", ours).await.unwrap();
    }
    drop(theirs);
    fs::remove_file(program).unwrap();
    let (we, they) = (referee.ours.load(Ordering::SeqCst), referee.theirs.load(Ordering::SeqCst));
    report(&format!(
        "{we} grants of ours and {they} of Go's, {} overlaps",
        referee.overlaps.load(Ordering::SeqCst)
    ));
    assert_eq!(referee.overlaps.load(Ordering::SeqCst), 0);
    eventually("the killed ones are gone", || referee.inside.load(Ordering::SeqCst) <= 1).await;
    Ok(())
}

/// Holds the lock again and again, and tells the referee.
async fn take_turns(locks: &Locks, referee: std::net::SocketAddr, over: &AtomicUsize) {
    let mut stream = TcpStream::connect(referee).unwrap();
    let mut tell = |what: &[u8]| {
        stream.write_all(what).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    };
    while over.load(Ordering::SeqCst) == 0 {
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        tell(b"o");
        tokio::task::yield_now().await;
        tell(b"x");
        guard.release().await.unwrap();
    }
}
