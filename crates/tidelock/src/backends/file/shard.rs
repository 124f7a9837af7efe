//! One file of buckets, changed under its flock.
//!
//! ```text
//! header  4096 bytes: what this is, which version, which shard
//! bucket  1024 of them, each two slots of 256 bytes
//! extents behind the buckets, for payloads that do not fit into a slot: two halves, one for each slot
//! ```
//!
//! A change writes the *other* slot with the next sequence number. Killed at any byte, a process
//! leaves a slot with a wrong checksum, and the slot before is still there. A name's bucket is
//! found by its hash, so a change costs the same however many other names there are.
//!
//! `floor` is at least the epoch of every grant that was ever made in this bucket. A name without
//! claims is dropped at once; the floor stays, so that its next token is larger even if the wall
//! clock went back. Of claims that were written under another boot id only those count whose clients still
//! answer (see `boot`); floors always count.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, OnceLock, TryLockError as TryMutexError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::{
    bucket::{BUCKETS, Bucket, Desk, EXTENTS, HEAD, HEADER, SLOT, data_from},
    codec::hash,
    errors,
    fault::{Point, strike_at},
};
use crate::{backend::Failure, clock::Moment};

const MAGIC: &[u8; 16] = b"tidelock shard\n\0";
const VERSION: u32 = 1;
/// How long a file that was removed or replaced may go unnoticed. Locks held in it are lost at their next renewal anyway.
const LOOK_EVERY_MS: u64 = 10;

/// Reading must not make the file system note the time of it: that would cost as much as a write.
#[cfg(any(target_os = "linux", target_os = "android"))]
const QUIET: i32 = rustix::fs::OFlags::NOATIME.bits() as i32;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const QUIET: i32 = 0;

/// A shard. Its file is opened, and made, when it is first needed.
#[derive(Debug)]
pub(super) struct Shard {
    path: PathBuf,
    file: OnceLock<File>,
    /// When it was last looked whether the file is still in its directory.
    looked: AtomicU64,
    /// An flock belongs to the open file, not to the thread: threads of this client meet here.
    desk: Mutex<Desk>,
}

impl Shard {
    pub(super) fn new(directory: &Path, index: usize) -> Self {
        Self::at(directory.join(format!("{index:02x}.shard")))
    }

    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, file: OnceLock::new(), looked: AtomicU64::new(0), desk: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in the directory.
    pub(super) fn file_name(&self) -> &str {
        self.path.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    /// Begins a change if nobody else is at it.
    pub(super) fn try_begin(&self) -> Result<Option<Section<'_>>, Failure> {
        let desk = match self.desk.try_lock() {
            Ok(desk) => desk,
            Err(TryMutexError::WouldBlock) => return Ok(None),
            // The task that panicked wrote a slot or did not; the desk is only scratch.
            Err(TryMutexError::Poisoned(desk)) => desk.into_inner(),
        };
        let Some(file) = self.open(true)? else { return Ok(None) };
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Section { shard: self, file, desk, found: None })),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(error) => Err(self.failed("lock", &error.into())),
        }
    }

    /// Whether it is time to look if the file is still the one in its directory. Now and then only: asking costs,
    /// and it makes the file system note the time of every single write.
    pub(super) fn is_look_due(&self, now: Moment) -> bool {
        let now = now.as_nanos() / 1_000_000;
        let due = self.looked.load(Ordering::Relaxed) + LOOK_EVERY_MS <= now;
        if due {
            self.looked.store(now, Ordering::Relaxed);
        }
        due
    }

    /// Whether the file that is kept open is not the one of that name any more.
    pub(super) fn was_replaced(&self) -> bool {
        let kept = self.file.get().and_then(|file| file.metadata().ok());
        let Some(kept) = kept else { return false };
        std::fs::metadata(&self.path).map_or(true, |now| (now.dev(), now.ino()) != (kept.dev(), kept.ino()))
    }

    /// The inode, as the kernel lists it beside its locks.
    pub(super) fn inode(&self) -> Option<u64> {
        self.file.get()?.metadata().ok().map(|data| data.ino())
    }

    /// The file; [`None`] if it is not there and is not to be made, or if somebody is making it.
    fn open(&self, make: bool) -> Result<Option<&File>, Failure> {
        if let Some(file) = self.file.get() {
            return Ok(Some(file));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(make).truncate(false).mode(0o600);
        let file = options.custom_flags(QUIET).open(&self.path).or_else(|error| {
            // Only the owner of a file may ask for that.
            if error.kind() == io::ErrorKind::PermissionDenied {
                options.custom_flags(0).open(&self.path)
            } else {
                Err(error)
            }
        });
        let file = match file {
            Ok(file) => file,
            Err(error) if !make && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("open", &error)),
        };
        let data = file.metadata().map_err(|error| self.failed("examine", &error))?;
        if data.len() == 0 {
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(self.failed("lock", &error)),
            }
            let len = file.metadata().map_err(|error| self.failed("examine", &error))?.len();
            if len == 0 {
                file.write_all_at(&self.header(), 0)
                    // The buckets are a hole until they are used; the header first, or a crash here
                    // would leave a file that nobody knows.
                    .and_then(|()| file.set_len(EXTENTS))
                    .map_err(|error| self.failed("write", &error))?;
            }
            file.unlock().map_err(|error| self.failed("unlock", &error))?;
        }
        self.check_header(&file)?;
        Ok(Some(self.file.get_or_init(|| file)))
    }

    fn header(&self) -> [u8; 64] {
        let mut header = [0; 64];
        header[..16].copy_from_slice(MAGIC);
        header[16..20].copy_from_slice(&VERSION.to_le_bytes());
        header[20..24].copy_from_slice(&(BUCKETS as u32).to_le_bytes());
        header[24..28].copy_from_slice(&(SLOT as u32).to_le_bytes());
        let name = self.path.file_name().unwrap_or_default().as_encoded_bytes();
        header[32..40].copy_from_slice(&hash(0, name).to_le_bytes());
        let check = hash(1, &header[..56]);
        header[56..].copy_from_slice(&check.to_le_bytes());
        header
    }

    fn check_header(&self, file: &File) -> Result<(), Failure> {
        let mut found = [0; 64];
        let path = self.path.display();
        match file.read_exact_at(&mut found, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(self.failed("read", &error)),
        }
        if found == self.header() {
            return Ok(());
        }
        if found[..16] != *MAGIC {
            return Err(Failure::denied(format!(
                "{path} was not made by tidelock: nothing was written to it; move it away or use another directory"
            )));
        }
        let version = u32::from_le_bytes([found[16], found[17], found[18], found[19]]);
        if version != VERSION {
            return Err(Failure::denied(format!(
                "{path} has format {version} and this tidelock knows {VERSION}: use the same version for all programs or another directory"
            )));
        }
        Err(self.corrupt("its header does not fit"))
    }

    fn corrupt(&self, what: &str) -> Failure {
        Failure::denied(format!(
            "{} is damaged ({what}): nothing was written to it; stop the programs that use it and remove the file",
            self.path.display()
        ))
    }

    fn failed(&self, what: &str, error: &io::Error) -> Failure {
        errors::failed(what, &self.path, error)
    }

    /// Reads a bucket without a lock: the payload that counted a moment ago. [`None`]: it changes
    /// right now, so read it under the lock.
    pub(super) fn peek(&self, bucket: u64, judge: &impl Judge) -> Result<Option<Vec<u8>>, Failure> {
        let Some(file) = self.open(false)? else { return Ok(Some(Vec::new())) };
        let mut desk = Desk::default();
        for _ in 0..4 {
            let read = Bucket::read(file, &mut desk, bucket).map_err(|error| self.failed("read", &error))?;
            if let Some(read) = read {
                let payload = read.payload(&desk);
                return Ok(Some(counting(&read, payload, judge).into_owned()));
            }
        }
        Ok(None)
    }

    /// The buckets that were ever used.
    pub(super) fn used(&self) -> Result<Vec<u64>, Failure> {
        let mut used = Vec::new();
        self.each_used(|bucket, _| used.push(bucket))?;
        Ok(used)
    }

    /// A hash of the bytes of each bucket that was ever used: another one after each change.
    pub(super) fn prints(&self) -> Result<Vec<(u64, u64)>, Failure> {
        let mut prints = Vec::new();
        self.each_used(|bucket, slots| prints.push((bucket, hash(0, slots))))?;
        Ok(prints)
    }

    fn each_used(&self, mut each: impl FnMut(u64, &[u8])) -> Result<(), Failure> {
        let Some(file) = self.open(false)? else { return Ok(()) };
        let size = 2 * SLOT as u64;
        let len = file.metadata().map_err(|error| self.failed("examine", &error))?.len();
        let (end, mut at) = (len.min(EXTENTS), HEADER);
        while let Some((from, to)) = data_from(file, at).filter(|(from, _)| *from < end) {
            let (from, to) = (from.max(HEADER), to.min(end));
            let mut bytes = vec![0; (to - from) as usize];
            let read = file.read_at(&mut bytes, from).map_err(|error| self.failed("read", &error))?;
            for (index, slots) in bytes[..read].chunks(size as usize).enumerate() {
                if slots.iter().any(|byte| *byte != 0) {
                    each((from - HEADER) / size + index as u64, slots);
                }
            }
            at = to;
        }
        Ok(())
    }
}

/// Says which claims count.
pub(super) trait Judge {
    /// The number of this start of the machine.
    fn boot(&self) -> u64;

    /// What still counts of a payload that was written under another number.
    fn survivors(&self, payload: &[u8]) -> Vec<u8>;
}

/// The part of a payload that counts.
fn counting<'a>(bucket: &Bucket, payload: &'a [u8], judge: &impl Judge) -> Cow<'a, [u8]> {
    if bucket.boot == judge.boot() || payload.is_empty() {
        Cow::Borrowed(payload)
    } else {
        Cow::Owned(judge.survivors(payload))
    }
}

/// A change under way: nobody else reads or writes this shard for a change.
#[derive(Debug)]
pub(super) struct Section<'a> {
    shard: &'a Shard,
    file: &'a File,
    desk: MutexGuard<'a, Desk>,
    /// The bucket that is on the desk: nobody else can have changed it since it was read.
    found: Option<(u64, Bucket)>,
}

/// What a change makes of a payload.
pub(super) enum Change<T> {
    /// The new payload was written out, and no epoch in it, or dropped from it, is larger than this.
    Write(T, u64),
    /// Nothing changed.
    Keep(T),
}

impl Section<'_> {
    /// Reads a bucket, lets it be changed (old payload, floor, room for the new payload), writes it.
    pub(super) fn change<T>(
        &mut self,
        bucket: u64,
        judge: &impl Judge,
        change: impl FnOnce(&[u8], u64, &mut Vec<u8>) -> Change<T>,
    ) -> Result<T, Failure> {
        let found = match self.found {
            Some((there, found)) if there == bucket => found,
            _ => {
                let found = Bucket::read(self.file, &mut self.desk, bucket);
                let found = found.map_err(|error| self.shard.failed("read", &error))?;
                found.ok_or_else(|| self.shard.corrupt(&format!("bucket {bucket}")))?
            }
        };
        let mut out = std::mem::take(&mut self.desk.out);
        out.clear();
        // Room for the head: slot and payload are written at once.
        out.resize(HEAD, 0);
        let payload = counting(&found, found.payload(&self.desk), judge);
        let answer = match change(&payload, found.floor, &mut out) {
            Change::Keep(answer) => {
                self.found = Some((bucket, found));
                Ok(answer)
            }
            Change::Write(answer, epoch) => {
                self.found = None;
                let mut next = found;
                next.boot = judge.boot();
                next.floor = found.floor.max(epoch);
                let written = next.write(self.file, bucket, &mut out);
                strike_at(Point::Written, || ());
                written.map(|()| answer).map_err(|error| self.shard.failed("write", &error))
            }
        };
        self.desk.out = out;
        answer
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        // Cannot fail on a lock that is held; and if it did, closing the file would free it.
        let _ = flock(self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ClientId;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("tl-shard-{:?}", ClientId::random()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Under any other boot id nothing but a `!` counts.
    struct Booted(u64);

    impl Judge for Booted {
        fn boot(&self) -> u64 {
            self.0
        }

        fn survivors(&self, payload: &[u8]) -> Vec<u8> {
            payload.iter().copied().filter(|byte| *byte == b'!').collect()
        }
    }

    /// Writes a payload and says what was there before, and the floor.
    fn put(shard: &Shard, boot: u64, payload: &[u8], epoch: u64) -> (Vec<u8>, u64) {
        let mut section = shard.try_begin().unwrap().unwrap();
        let change = |before: &[u8], floor, out: &mut Vec<u8>| {
            out.extend_from_slice(payload);
            Change::Write((before.to_vec(), floor), epoch)
        };
        section.change(7, &Booted(boot), change).unwrap()
    }

    #[test]
    fn of_another_boot_only_survivors_count_and_floors_do() {
        let folder = Folder::new();
        let shard = Shard::new(&folder.0, 3);
        assert_eq!(put(&shard, 1, b"claims", 50), (Vec::new(), 0));
        assert_eq!(put(&shard, 1, b"more", 40), (b"claims".to_vec(), 50));
        assert_eq!(put(&shard, 2, b"new!", 1), (Vec::new(), 50));
        assert_eq!(shard.peek(7, &Booted(2)).unwrap().unwrap(), b"new!");
        assert_eq!(shard.peek(7, &Booted(1)).unwrap().unwrap(), b"!");
        assert_eq!(put(&shard, 1, b"", 0), (b"!".to_vec(), 50));
        assert_eq!(shard.used().unwrap(), [7]);
    }

    #[test]
    fn a_bucket_whose_epoch_no_other_can_follow_is_damaged() {
        let folder = Folder::new();
        let shard = Shard::new(&folder.0, 3);
        put(&shard, 1, b"claims", u64::MAX);
        assert_eq!(shard.peek(7, &Booted(1)).unwrap(), None);
    }

    #[test]
    fn payloads_of_every_size_are_read_as_they_were_written() {
        let folder = Folder::new();
        let shard = Shard::new(&folder.0, 3);
        let mut before = Vec::new();
        for size in [0, 1, 207, 208, 209, 1_024, 1_025, 100, 5_000, 300_000, 40, 0, 4_000] {
            let payload: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
            assert_eq!(put(&shard, 1, &payload, 0).0, before, "before {size}");
            assert_eq!(shard.peek(7, &Booted(1)).unwrap().unwrap(), payload);
            before = payload;
        }
    }

    #[test]
    fn a_large_payload_cut_short_leaves_the_one_before() {
        let folder = Folder::new();
        let shard = Shard::new(&folder.0, 3);
        let (old, new) = (vec![1; 3_000], vec![2; 3_500]);
        put(&shard, 1, &old, 0);
        put(&shard, 1, &new, 0);
        // The half of the newer slot: find its bytes and spoil one.
        let bytes = std::fs::read(&shard.path).unwrap();
        let at = bytes.windows(8).rposition(|window| window == [2; 8]).unwrap();
        shard.file.get().unwrap().write_all_at(&[9], at as u64).unwrap();
        assert_eq!(shard.peek(7, &Booted(1)).unwrap().unwrap(), old);
        assert_eq!(put(&shard, 1, b"next", 0).0, old);
    }

    #[test]
    fn a_shard_in_use_is_not_waited_for() {
        let folder = Folder::new();
        let (one, other) = (Shard::new(&folder.0, 3), Shard::new(&folder.0, 3));
        let section = one.try_begin().unwrap().unwrap();
        assert!(one.try_begin().unwrap().is_none(), "by another thread");
        assert!(other.try_begin().unwrap().is_none(), "by another client");
        drop(section);
        assert!(other.try_begin().unwrap().is_some());
    }
}
