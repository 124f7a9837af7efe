//! All names, followed: the kernel tells which files of the directory changed, and they are read again.
//!
//! Nobody who changes a line does anything for it. A file has the lines of many names, so a hash of each bucket and of
//! each line is kept, and names are told whose lines differ. However often files change, they are read a few times a
//! second. Evictions are not told: their reasons are nowhere but in the doorbell of the client that lost a claim.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use super::{
    codec::{hash, records},
    errors,
    inotify::Inotify,
    store::FileStore,
};
use crate::{
    backend::{Failure, TellAll},
    model::name::Name,
};

/// After how long it is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How long files are not read after they were: for longer if that took long, of which reading is one part in
/// [`SHARE`], but not for so long that what changed is seen late. On a busy machine it is others that take the time.
const REST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(500);
const SHARE: u32 = 50;

/// What the buckets of a file said when they were last read.
type Known = HashMap<u64, Bucket>;

/// A hash of the bytes of a bucket, and one of each line in it.
struct Bucket {
    print: u64,
    lines: HashMap<Name, u64>,
}

impl FileStore {
    /// Listens to the kernel, again whenever that fails.
    pub(super) async fn hear_all(self: Arc<Self>, told: TellAll) -> Infallible {
        loop {
            // Why it failed is what looks say as well. Without a free descriptor viewers look at everything.
            let _ = self.listen_to_all(&told).await;
            told.cut();
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn listen_to_all(&self, told: &TellAll) -> Result<Infallible, Failure> {
        let failed = |error: std::io::Error| errors::failed("watch", &self.directory, &error);
        let inotify = Inotify::new().map_err(failed)?;
        inotify.watch(&self.directory).map_err(failed)?;
        // Read after they are watched, so that no change is between the two.
        let mut known: Vec<Known> = self.shards.iter().map(|_| Known::new()).collect();
        let mut unread: BTreeSet<usize> = (0..known.len()).collect();
        let mut is_live = false;
        loop {
            let begun = self.clock.now();
            for index in std::mem::take(&mut unread) {
                let changed = |name: &Name| {
                    // Before it is live, everything is looked at in any case.
                    if is_live {
                        told.changed(name.clone());
                    }
                };
                if !self.read_again(index, &mut known[index], changed)? {
                    unread.insert(index);
                }
                tokio::task::yield_now().await;
            }
            if !is_live {
                is_live = true;
                told.live();
            }
            tokio::time::sleep((self.clock.now().since(begun) * SHARE).clamp(REST, LONGEST)).await;
            tokio::select! {
                biased;
                files = inotify.changed_files() => {
                    let is_told = |index: &usize| match files.as_ref() {
                        Ok(Some(files)) => files.iter().any(|file| *file == self.shards[*index].file_name()),
                        Ok(None) => true,
                        Err(_) => false,
                    };
                    unread.extend((0..known.len()).filter(is_told));
                    files.map_err(failed)?;
                }
                () = std::future::ready(()), if !unread.is_empty() => {}
            }
        }
    }

    /// Reads what is different in a file, and says whose lines are. Says whether all of it could be read: a bucket that
    /// changes at this moment cannot.
    fn read_again(
        &self,
        index: usize,
        known: &mut Known,
        mut changed: impl FnMut(&Name),
    ) -> Result<bool, Failure> {
        let shard = &self.shards[index];
        let mut is_whole = true;
        for (bucket, print) in shard.prints()? {
            if known.get(&bucket).is_some_and(|before| before.print == print) {
                continue;
            }
            let Some(payload) = shard.peek(bucket, self)? else {
                is_whole = false;
                continue;
            };
            let line = |record: super::codec::Record<'_>| Some((record.read_name()?, hash(0, record.line)));
            let lines: HashMap<Name, u64> = records(&payload).filter_map(line).collect();
            let before = known.remove(&bucket).map(|before| before.lines).unwrap_or_default();
            before.keys().filter(|name| !lines.contains_key(*name)).for_each(&mut changed);
            let differs = |(name, print): &(&Name, &u64)| before.get(*name) != Some(*print);
            lines.iter().filter(differs).for_each(|(name, _)| changed(name));
            known.insert(bucket, Bucket { print, lines });
        }
        Ok(is_whole)
    }
}
