//! One file of a segment, while its flock is held.
//!
//! ```text
//! header  what this is, which version, and the key by which ids are told apart
//! state   twice: numbers, where the table is, and what was last put into the table, with a checksum
//! table   entries of 32 bytes, found by the hash of their id; a larger one is written behind it when it is half full
//! ```
//!
//! Entries have the hash of an id and not the id, which may be four times as long as all the rest. It is SipHash-2-4 of 128
//! bits with a key of 128 bits that is drawn at random for each file and never leaves it. Without the key nobody, not even a
//! buyer who chooses ids, finds two that are taken for one: among a billion orders of a segment any two are, with a chance of
//! less than 2^-66, because 126 bits of the hash are compared.
//!
//! A change writes the *other* state, and then the entry. Killed before the state is whole, the process changed nothing;
//! killed before the entry is written, the next program writes it, from the state.

use std::{fs::File, hash::Hasher, io, os::unix::fs::FileExt, path::Path};

use siphasher::sip128::{Hasher128, SipHasher24};

use super::{
    failed,
    state::{ENTRY, Entry, STATE, State},
};
use crate::{backend::Failure, clock::wall_micros, model::claim::random_u64};

pub(super) const MAGIC: &[u8; 16] = b"tidelock stock 2";
/// Of the version before, which differs in how ids are hashed.
pub(super) const MAGIC_BEFORE: &[u8; 16] = b"tidelock stock 1";
/// Where the states are.
const STATES: u64 = 512;
/// Where tables begin.
const TABLES: u64 = 4_096;
/// Entries of the first table.
const FIRST: u64 = 1_024;

/// A file under its flock.
#[derive(Debug)]
pub(super) struct Page<'a> {
    path: &'a Path,
    file: &'a File,
    /// By which ids of orders are hashed.
    key: [u8; 16],
    pub(super) state: State,
}

impl<'a> Page<'a> {
    pub(super) fn open(path: &'a Path, file: &'a File, versions: &[&[u8; 16]]) -> Result<Self, Failure> {
        let mut bytes = [0; STATES as usize + 2 * STATE];
        let read = read_at(file, &mut bytes, 0).map_err(|error| failed("read", path, &error))?;
        let damaged = |what: &str| {
            Failure::denied(format!(
                "{} {what}: nothing was written to it; stop the programs that use it and move it away",
                path.display()
            ))
        };
        let mut page = Self { path, file, key: [0; 16], state: State::default() };
        if read == 0 {
            return Ok(page);
        }
        page.key.copy_from_slice(&bytes[16..32]);
        if !versions.iter().any(|version| bytes[..16] == **version) {
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
        // The program that wrote the state may have died before the entry.
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
        self.key[..8].copy_from_slice(&random_u64().to_le_bytes());
        self.key[8..].copy_from_slice(&random_u64().to_le_bytes());
        let mut header = [0; 32];
        header[..16].copy_from_slice(MAGIC);
        header[16..].copy_from_slice(&self.key);
        let written = self.file.set_len(0).and_then(|()| self.file.write_all_at(&header, 0));
        written.map_err(|error| failed("write", self.path, &error))?;
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
        written.map_err(|error| failed("write", self.path, &error))
    }

    fn put(&self, index: u64, entry: &Entry) -> Result<(), Failure> {
        let mut bytes = [0; ENTRY as usize];
        entry.write(&mut bytes);
        let written = self.file.write_all_at(&bytes, self.state.table + index * ENTRY);
        written.map_err(|error| failed("write", self.path, &error))
    }

    /// The key of an order.
    pub(super) fn of_order(&self, order: &str) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(order.as_bytes());
        // Transfers have even keys.
        hasher.finish128().as_u128() | 1 << 127 | 1
    }

    /// The entry of an id, if there is one.
    pub(super) fn get(&self, key: u128) -> Result<Option<Entry>, Failure> {
        Ok(self.find(key)?.1)
    }

    /// Where the entry of an id is or would be.
    fn find(&self, key: u128) -> Result<(u64, Option<Entry>), Failure> {
        let mut index = first_index(key, self.state.capacity);
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
        read.map_err(|error| failed("read", self.path, &error))?;
        Ok(Entry::read(&bytes))
    }

    /// All entries.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, Failure> {
        let mut bytes = vec![0; (self.state.capacity * ENTRY) as usize];
        read_at(self.file, &mut bytes, self.state.table)
            .map_err(|error| failed("read", self.path, &error))?;
        Ok(bytes.chunks(ENTRY as usize).map(Entry::read).filter(|entry| entry.key != 0).collect())
    }

    /// Writes a table of twice the size behind everything. It counts when the next state is written.
    fn grow(&mut self) -> Result<(), Failure> {
        let entries = self.entries()?;
        let length = self.file.metadata().map_err(|error| failed("examine", self.path, &error))?.len();
        let (table, capacity) = (length.next_multiple_of(TABLES), self.state.capacity * 2);
        let mut bytes = vec![0; (capacity * ENTRY) as usize];
        for entry in entries {
            let mut index = first_index(entry.key, capacity);
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
        written.map_err(|error| failed("write", self.path, &error))?;
        (self.state.table, self.state.capacity) = (table, capacity);
        Ok(())
    }

    /// Room for an empty table: a file is zero where it was never written.
    fn grow_to(&self, table: u64, capacity: u64) -> Result<(), Failure> {
        let length = table + capacity * ENTRY;
        self.file.set_len(length).map_err(|error| failed("write", self.path, &error))
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

/// Where the search for a key begins.
fn first_index(key: u128, capacity: u64) -> u64 {
    ((key >> 64) as u64 ^ (key >> 1) as u64) & (capacity - 1)
}
