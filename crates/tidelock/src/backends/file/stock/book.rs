//! One file of a segment.
//!
//! ```text
//! header  what this is, and which version
//! state   twice: numbers, where the table is, and what was last put into the table, with a checksum
//! table   entries of 32 bytes, found by the hash of their id; a larger one is written behind it when it is half full
//! ```
//!
//! A change writes the *other* state, and then the entry. Killed before the state is whole, the process changed nothing;
//! killed before the entry is written, whoever comes next writes it, from the state.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Mutex, TryLockError},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::{failed, lock, open};
use crate::{
    backend::Failure,
    backends::file::codec::hash,
    clock::wall_micros,
    stock::{Answer, Step},
};

const MAGIC: &[u8; 16] = b"tidelock stock 1";
/// Where the states are, and how large they are.
const STATES: u64 = 512;
const STATE: usize = 256;
/// Where tables begin.
const TABLES: u64 = 4_096;
const ENTRY: u64 = 32;
/// Entries of the first table.
const FIRST: u64 = 1_024;

/// The file of a segment. It is opened when it is first needed.
#[derive(Debug)]
pub(super) struct Book {
    path: PathBuf,
    /// An flock belongs to the open file, not to the thread: threads of this client meet here.
    file: Mutex<Option<File>>,
}

/// The numbers of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Grows with each change. 0: there is no segment.
    pub(super) sequence: u64,
    pub(super) sale: u64,
    pub(super) fence: u64,
    pub(super) remaining: u64,
    /// Filled and brought, ever.
    pub(super) came: u64,
    /// Lent, ever.
    pub(super) left: u64,
    pub(super) held: u64,
    pub(super) returned: u64,
    /// Transfers lent and not settled.
    pub(super) pending: u64,
    /// When to look for reservations that are over; 0: there is none.
    pub(super) next_end: u64,
    /// When it is forgotten; 0: never.
    pub(super) over: u64,
    table: u64,
    /// Entries that there is room for, a power of two.
    capacity: u64,
    used: u64,
    /// Which entry was last written.
    index: u64,
    entry: Entry,
}

/// What is known of an order or a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Of its id; 0: there is none here.
    pub(super) key: u128,
    pub(super) kind: Kind,
    pub(super) n: u64,
    /// Of a reservation: its end. Of what was lent: since when.
    pub(super) time: u64,
}

/// What an entry says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    #[default]
    Nothing,
    Taken,
    Held,
    Returned,
    Void,
    Settled,
    Brought,
    /// To which segment is kept in place of its number: see [`Entry::lent`].
    Lent,
}

const KINDS: [Kind; 8] = [
    Kind::Nothing,
    Kind::Taken,
    Kind::Held,
    Kind::Returned,
    Kind::Void,
    Kind::Settled,
    Kind::Brought,
    Kind::Lent,
];

/// Where a number and a kind share a word. Numbers are smaller than 2^40.
const KIND_AT: u32 = 56;
/// Where the number of a segment is, in a transfer that was lent: it has at most ten bits.
const TO_AT: u32 = 44;

impl Entry {
    /// What was lent, and to which segment.
    pub(super) fn lent(key: u128, n: u64, to: u32, time: u64) -> Self {
        Self { key, kind: Kind::Lent, n: n | u64::from(to) << TO_AT, time }
    }

    /// How many were lent, and to which segment.
    pub(super) fn sent(&self) -> (u64, u32) {
        (self.n & ((1 << TO_AT) - 1), (self.n >> TO_AT) as u32)
    }

    fn write(&self, out: &mut [u8]) {
        out[..16].copy_from_slice(&self.key.to_le_bytes());
        out[16..24].copy_from_slice(&(self.n | (self.kind as u64) << KIND_AT).to_le_bytes());
        out[24..32].copy_from_slice(&self.time.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Self {
        let word = word(bytes, 16);
        let key = u128::from(self::word(bytes, 0)) | u128::from(self::word(bytes, 8)) << 64;
        let kind = KINDS.get((word >> KIND_AT) as usize).copied().unwrap_or_default();
        Self { key, kind, n: word & ((1 << KIND_AT) - 1), time: self::word(bytes, 24) }
    }
}

/// Where the search for a key begins.
fn place(key: u128, capacity: u64) -> u64 {
    ((key >> 64) as u64 ^ (key >> 1) as u64) & (capacity - 1)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

impl State {
    fn words(&self) -> [u64; 15] {
        [
            self.sequence,
            self.sale,
            self.fence,
            self.remaining,
            self.came,
            self.left,
            self.held,
            self.returned,
            self.pending,
            self.next_end,
            self.over,
            self.table,
            self.capacity,
            self.used,
            self.index,
        ]
    }

    fn write(&self) -> [u8; STATE] {
        let mut out = [0; STATE];
        for (index, word) in self.words().iter().enumerate() {
            out[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        self.entry.write(&mut out[120..152]);
        let check = hash(21, &out[..152]);
        out[152..160].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// [`None`]: it was never written whole.
    fn read(bytes: &[u8]) -> Option<Self> {
        if hash(21, &bytes[..152]) != word(bytes, 152) {
            return None;
        }
        let at = |index: usize| word(bytes, index * 8);
        Some(Self {
            sequence: at(0),
            sale: at(1),
            fence: at(2),
            remaining: at(3),
            came: at(4),
            left: at(5),
            held: at(6),
            returned: at(7),
            pending: at(8),
            next_end: at(9),
            over: at(10),
            table: at(11),
            capacity: at(12),
            used: at(13),
            index: at(14),
            entry: Entry::read(&bytes[120..152]),
        })
    }
}

impl Book {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: Mutex::new(None) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a step. [`None`]: somebody else is at it.
    pub(super) fn try_apply(&self, step: &Step) -> Result<Option<Answer>, Failure> {
        let mut file = match self.file.try_lock() {
            Ok(file) => file,
            Err(TryLockError::WouldBlock) => return Ok(None),
            // Whoever panicked has left the file as it was, or with a step done.
            Err(TryLockError::Poisoned(file)) => file.into_inner(),
        };
        if file.is_none() {
            if !matches!(step, Step::Fill { .. }) && !self.path.exists() {
                return Ok(Some(Answer::Absent));
            }
            *file = Some(open(&self.path)?);
        }
        let Some(open) = &*file else { return Ok(None) };
        match flock(open, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) => return Err(failed("lock", &self.path, &error.into())),
        }
        let page = Page::open(self, open);
        let gone =
            matches!(&page, Ok(page) if page.state.sequence == 0 || page.is_over()) && was_removed(open);
        let done = page.and_then(|mut page| page.step(step, wall_micros()));
        // Cannot fail on a lock that is held; and if it did, closing the file would free it.
        let _ = flock(open, FlockOperation::Unlock);
        if gone {
            // A new sale has another file of that name.
            *file = None;
            return Ok(None);
        }
        done.map(Some)
    }

    /// Removes the file of a sale that is forgotten. Says whether there was one.
    pub(super) fn remove_if_over(&self) -> Result<bool, Failure> {
        if !self.path.exists() {
            return Ok(false);
        }
        let opened = open(&self.path)?;
        flock(&opened, FlockOperation::LockExclusive)
            .map_err(|error| failed("lock", &self.path, &error.into()))?;
        let page = Page::open(self, &opened)?;
        if page.state.sequence != 0 && !page.is_over() {
            // A plan that was lost: whoever fills says that there is another sale.
            return Ok(false);
        }
        std::fs::remove_file(&self.path).map_err(|error| failed("remove", &self.path, &error))?;
        *lock(&self.file) = None;
        Ok(true)
    }
}

fn was_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|data| data.nlink() == 0)
}

/// A file under its flock.
#[derive(Debug)]
pub(super) struct Page<'a> {
    book: &'a Book,
    file: &'a File,
    pub(super) state: State,
}

impl<'a> Page<'a> {
    fn open(book: &'a Book, file: &'a File) -> Result<Self, Failure> {
        let mut bytes = [0; STATES as usize + 2 * STATE];
        let read = read_at(file, &mut bytes, 0).map_err(|error| failed("read", &book.path, &error))?;
        let damaged = |what: &str| {
            Failure::denied(format!(
                "{} {what}: nothing was written to it; stop whoever uses it and move it away",
                book.path.display()
            ))
        };
        let mut page = Self { book, file, state: State::default() };
        if read == 0 {
            return Ok(page);
        }
        if bytes[..16] != *MAGIC {
            return Err(damaged("was not made by this version of tidelock"));
        }
        let states = [0, 1].map(|copy| State::read(&bytes[STATES as usize + copy * STATE..]));
        let newest = states.into_iter().flatten().max_by_key(|state| state.sequence);
        if newest.is_none() && bytes[STATES as usize..].iter().any(|byte| *byte != 0) {
            // The first one may have been cut off while it was written: then the second is empty.
            let second = &bytes[STATES as usize..STATES as usize + STATE];
            if second.iter().any(|byte| *byte != 0) {
                return Err(damaged("is damaged"));
            }
        }
        page.state = newest.unwrap_or_default();
        // Whoever wrote the state may have died before the entry.
        if page.state.index != u64::MAX
            && page.state.sequence > 0
            && page.entry(page.state.index)? != page.state.entry
        {
            page.put(page.state.index, &page.state.entry)?;
        }
        Ok(page)
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.over != 0 && self.state.over <= wall_micros()
    }

    /// A new segment.
    pub(super) fn begin(&mut self, sale: u64, fence: u64, n: u64) -> Result<(), Failure> {
        // Nothing of a sale before may be left.
        let header = self.file.set_len(0).and_then(|()| self.file.write_all_at(MAGIC, 0));
        header.map_err(|error| failed("write", &self.book.path, &error))?;
        self.grow_to(TABLES, FIRST)?;
        let (table, capacity) = (TABLES, FIRST);
        self.state = State {
            sale,
            fence,
            remaining: n,
            came: n,
            table,
            capacity,
            index: u64::MAX,
            ..State::default()
        };
        self.commit()
    }

    /// Makes the numbers count.
    pub(super) fn commit(&mut self) -> Result<(), Failure> {
        self.state.index = u64::MAX;
        self.state.entry = Entry::default();
        self.write_state()
    }

    /// Makes the numbers and an entry count, both or none.
    pub(super) fn commit_with(&mut self, entry: Entry) -> Result<(), Failure> {
        let (index, found) = self.find(entry.key)?;
        let index = if found.is_some() || (self.state.used + 1) * 2 <= self.state.capacity {
            index
        } else {
            self.grow()?;
            self.find(entry.key)?.0
        };
        self.state.used += u64::from(found.is_none());
        self.state.index = index;
        self.state.entry = entry;
        self.write_state()?;
        self.put(index, &entry)
    }

    fn write_state(&mut self) -> Result<(), Failure> {
        self.state.sequence += 1;
        let at = STATES + (self.state.sequence % 2) * STATE as u64;
        let written = self.file.write_all_at(&self.state.write(), at);
        written.map_err(|error| failed("write", &self.book.path, &error))
    }

    fn put(&self, index: u64, entry: &Entry) -> Result<(), Failure> {
        let mut bytes = [0; ENTRY as usize];
        entry.write(&mut bytes);
        let written = self.file.write_all_at(&bytes, self.state.table + index * ENTRY);
        written.map_err(|error| failed("write", &self.book.path, &error))
    }

    /// The entry of an id, if there is one.
    pub(super) fn get(&self, key: u128) -> Result<Option<Entry>, Failure> {
        Ok(self.find(key)?.1)
    }

    /// Where the entry of an id is or would be.
    fn find(&self, key: u128) -> Result<(u64, Option<Entry>), Failure> {
        let mut index = place(key, self.state.capacity);
        loop {
            let entry = self.entry(index)?;
            match entry.key {
                0 => return Ok((index, None)),
                found if found == key => return Ok((index, Some(entry))),
                _ => index = (index + 1) & (self.state.capacity - 1),
            }
        }
    }

    fn entry(&self, index: u64) -> Result<Entry, Failure> {
        let mut bytes = [0; ENTRY as usize];
        let read = read_at(self.file, &mut bytes, self.state.table + index * ENTRY);
        read.map_err(|error| failed("read", &self.book.path, &error))?;
        Ok(Entry::read(&bytes))
    }

    /// All entries.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, Failure> {
        let mut bytes = vec![0; (self.state.capacity * ENTRY) as usize];
        read_at(self.file, &mut bytes, self.state.table)
            .map_err(|error| failed("read", &self.book.path, &error))?;
        Ok(bytes.chunks(ENTRY as usize).map(Entry::read).filter(|entry| entry.key != 0).collect())
    }

    /// Writes a table of twice the size behind everything. It counts when the next state is written.
    fn grow(&mut self) -> Result<(), Failure> {
        let entries = self.entries()?;
        let length = self.file.metadata().map_err(|error| failed("examine", &self.book.path, &error))?.len();
        let (table, capacity) = (length.next_multiple_of(TABLES), self.state.capacity * 2);
        let mut bytes = vec![0; (capacity * ENTRY) as usize];
        for entry in entries {
            let mut index = place(entry.key, capacity);
            loop {
                let at = (index * ENTRY) as usize;
                if bytes[at..at + 16].iter().all(|byte| *byte == 0) {
                    entry.write(&mut bytes[at..at + ENTRY as usize]);
                    break;
                }
                index = (index + 1) & (capacity - 1);
            }
        }
        let written = self.file.write_all_at(&bytes, table);
        written.map_err(|error| failed("write", &self.book.path, &error))?;
        (self.state.table, self.state.capacity) = (table, capacity);
        Ok(())
    }

    /// Room for an empty table: a file is zero where it was never written.
    fn grow_to(&self, table: u64, capacity: u64) -> Result<(), Failure> {
        let length = table + capacity * ENTRY;
        self.file.set_len(length).map_err(|error| failed("write", &self.book.path, &error))
    }
}

/// Reads until the end of the file at most.
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
