//! Programs of others and clients of ours take one lock in turns, and nobody overlaps.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    programs::{Library, Peer, pairs},
    support::{LONG, NAME, Place, report, within},
};

pub(crate) type Trial = Result<(), &'static str>;

/// So many programs of theirs, and so many clients of ours.
const EACH: usize = 4;
/// For how long their programs take turns before they say how many.
const TURN: &str = "500";
/// The lease of those who do not die in a trial.
pub(crate) const LEASE: &str = "30000";

/// How many grants there have to be, of both sides together.
fn grants(usual: u64) -> u64 {
    std::env::var("TIDELOCK_INTEROP_GRANTS").ok().map_or(usual, |text| text.parse().unwrap())
}

/// A place whose locks other programs call by another name than any other trial; and the name of one. In a cluster that
/// is in the slot of ours.
pub(crate) fn place_for(library: Library, place: &Place, in_cluster: bool) -> (Place, String) {
    // What their library puts before a name is not told to it.
    let (tag, name) =
        if in_cluster { ("{{name}}", format!("{{{NAME}}}")) } else { ("{name}", NAME.to_owned()) };
    let prefix = format!("fleet-{}", place.prefix);
    let options = format!("mode={}&lock_key={}{prefix}{tag}", library.mode(), library.lock_key());
    (place.with(&options), format!("{prefix}{name}"))
}

/// A number in a file that nobody may change without the lock, as the programs do it.
pub(crate) struct Count {
    path: PathBuf,
    file: File,
}

impl Count {
    pub(crate) fn new(place: &Place) -> Self {
        let name = format!("count-{}-{}", std::process::id(), place.prefix.replace(':', ""));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.write_all_at(&[0; 12], 0).unwrap();
        Self { path, file }
    }

    /// Nobody who excludes us is inside.
    fn is_alone(&self) {
        let mut inside = [0; 4];
        self.file.read_exact_at(&mut inside, 8).unwrap();
        assert_eq!(u32::from_le_bytes(inside), 0, "the process of this number holds the lock, too");
    }

    pub(crate) fn add(&self) {
        self.is_alone();
        self.file.write_all_at(&std::process::id().to_le_bytes(), 8).unwrap();
        let sum = self.sum();
        self.file.write_all_at(&(sum + 1).to_le_bytes(), 0).unwrap();
        self.file.write_all_at(&[0; 4], 8).unwrap();
    }

    pub(crate) fn sum(&self) -> u64 {
        let mut sum = [0; 8];
        self.file.read_exact_at(&mut sum, 0).unwrap();
        u64::from_le_bytes(sum)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What each side does in its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Lock,
    /// Nine times of ten they read, else they write.
    ReadAndWrite,
}

/// Takes turns on a lock, and does something else now and then.
pub(crate) async fn take_turns(
    library: Library,
    place: Place,
    hosts: &str,
    kind: &str,
    does: Does,
    mut meanwhile: impl FnMut(),
) -> Trial {
    let mut program = tokio::task::spawn_blocking(move || library.program()).await.unwrap()?;
    let (place, name) = place_for(library, &place, kind == "cluster");
    let count = Arc::new(Count::new(&place));
    let verb = if does == Does::Lock { "pairs" } else { "read" };
    program.args([verb, hosts, &name, "1", TURN]);
    program.env("COUNT", &count.path).env("LEASE_MS", LEASE).env("REDISSON", kind);
    let mut theirs = Vec::new();
    for _ in 0..library.programs(hosts).unwrap_or(EACH) {
        theirs.push(Peer::ready(&mut program).await);
    }
    let (over, ours) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (their_grants, our_writes) = (&mut 0, Arc::new(AtomicU64::new(0)));
    let mut turns = Vec::new();
    for _ in 0..EACH {
        let (locks, count, over) = (place.connect().await, Arc::clone(&count), Arc::clone(&over));
        let (ours, writes) = (Arc::clone(&ours), Arc::clone(&our_writes));
        turns.push(tokio::spawn(async move {
            for turn in 0_u32.. {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let reads = does == Does::ReadAndWrite && turn % 10 != 9;
                let guard = match does {
                    Does::Lock => locks.mutex(NAME).ttl(LONG).lock().await.unwrap(),
                    Does::ReadAndWrite if reads => locks.rw_lock(NAME).ttl(LONG).read().await.unwrap(),
                    Does::ReadAndWrite => locks.rw_lock(NAME).ttl(LONG).write().await.unwrap(),
                };
                if reads {
                    count.is_alone();
                } else {
                    count.add();
                    writes.fetch_add(1, Ordering::SeqCst);
                }
                assert!(guard.is_held());
                guard.release().await.unwrap();
                ours.fetch_add(1, Ordering::SeqCst);
                // Both sides have something else to do now and then.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }));
    }
    let (begin, wanted) = (Instant::now(), grants(library.grants(hosts)));
    while ours.load(Ordering::SeqCst) + *their_grants < wanted || *their_grants < 10 {
        theirs.iter_mut().for_each(Peer::tell);
        tokio::task::block_in_place(&mut meanwhile);
        for peer in &mut theirs {
            *their_grants += pairs(&within("they take turns", peer.hear()).await);
        }
        assert!(turns.iter().all(|turn| !turn.is_finished()), "ours go on");
        assert!(begin.elapsed() < Duration::from_secs(590).max(Duration::from_millis(100) * wanted as u32));
    }
    over.store(true, Ordering::SeqCst);
    for turn in turns {
        within("our turns end", turn).await.unwrap();
    }
    let (we, sum) = (ours.load(Ordering::SeqCst), count.sum());
    report(&format!(
        "{library:?} {kind}: {we} grants of ours and {their_grants} of theirs in {:?}, 0 overlaps",
        begin.elapsed()
    ));
    if does == Does::Lock {
        assert_eq!(sum, we + *their_grants, "no increment is lost");
    } else {
        assert!(sum > our_writes.load(Ordering::SeqCst), "they wrote, too");
    }
    Ok(())
}
