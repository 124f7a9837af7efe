//! The store in files against the least that processes of one machine could do: lock a file that is
//! kept open, write a counter into it, unlock it.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::PathBuf,
    time::Duration,
};

use tidelock::{Locks, clock::Clock};

use super::{Effort, Threads, duel::Duel, report::Row};
use crate::progress::Progress;

/// A directory of its own for the time of the measurement.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("tidelock-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| error.to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in a temporary directory harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The rows of the store in files.
pub(super) fn rows(effort: Effort, progress: &Progress) -> Result<Vec<Row>, String> {
    let folder = Folder::new()?;
    let runtime = Threads::One.runtime()?;
    let url = format!("file:{}", folder.0.join("locks").display());
    let locks = runtime.block_on(Locks::connect(&url)).map_err(|error| error.to_string())?;
    let mutex = locks.mutex("contest");
    let bare = File::create(folder.0.join("bare")).map_err(|error| error.to_string())?;
    let label = "file, 1 thread: lock and release, nobody else".to_owned();
    let clock = Clock::machine();
    let duel = Duel::fight(
        &label,
        effort,
        progress,
        |pairs| {
            runtime.block_on(async {
                let start = clock.now();
                for _ in 0..pairs {
                    let guard = mutex.lock().await.map_err(|error| error.to_string())?;
                    guard.release().await.map_err(|error| error.to_string())?;
                }
                Ok(clock.now().since(start))
            })
        },
        |pairs| lock_bare(&bare, pairs, &clock),
    )?;
    Ok(vec![Row::duel(label, &duel, duel.cost(), "cost ≤ 3 × bare flock", |ratio| ratio <= 3.0)])
}

fn lock_bare(file: &File, pairs: u32, clock: &Clock) -> Result<Duration, String> {
    let start = clock.now();
    for counter in 0..pairs {
        let pair = file
            .lock()
            .and_then(|()| file.write_all_at(&u64::from(counter).to_le_bytes(), 0))
            .and_then(|()| file.unlock());
        pair.map_err(|error| error.to_string())?;
    }
    Ok(clock.now().since(start))
}
