//! A bucket: two slots, each with a checksum, of which the newer whole one counts.
//!
//! ```text
//! slot    sequence u64 | boot u64 | floor u64 | extent u64, capacity u32 | length u32 | checksum u64 | payload
//! ```
//!
//! A payload that does not fit into a slot is in an extent behind the buckets, which has a half for
//! each slot.

use std::{fs::File, io, os::unix::fs::FileExt};

use rustix::io::{Errno, pread, pwrite};

use super::{
    codec::hash,
    fault::{Point, strike_at},
};
use crate::model::token::LARGEST_EPOCH;

/// Buckets of a shard; a power of two.
pub(super) const BUCKETS: u64 = 1024;
pub(super) const SLOT: usize = 256;
pub(super) const HEAD: usize = 48;
/// What fits into a slot.
const INLINE: usize = SLOT - HEAD;
pub(super) const HEADER: u64 = 4096;
pub(super) const EXTENTS: u64 = HEADER + BUCKETS * 2 * SLOT as u64;
/// No payload is larger: some hundred thousand claims.
const LARGEST: usize = 64 << 20;

/// Room to work in, kept so that a change allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Desk {
    bucket: Vec<u8>,
    extent: Vec<u8>,
    pub(super) out: Vec<u8>,
}

/// What a bucket says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// The slot that counts, if any was ever written.
    newest: Option<usize>,
    sequence: u64,
    pub(super) boot: u64,
    pub(super) floor: u64,
    extent: u64,
    capacity: u32,
    len: usize,
}

impl Bucket {
    /// Reads the two slots of a bucket into `desk` and says what counts. [`None`]: neither is whole.
    pub(super) fn read(file: &File, desk: &mut Desk, bucket: u64) -> io::Result<Option<Self>> {
        desk.bucket.resize(2 * SLOT, 0);
        let at = HEADER + bucket * 2 * SLOT as u64;
        let mut filled = 0;
        while filled < 2 * SLOT {
            match pread(file, &mut desk.bucket[filled..], at + filled as u64) {
                // Behind the end of the file nothing was ever written.
                Ok(0) => {
                    desk.bucket[filled..].fill(0);
                    break;
                }
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let sequence = |slot: usize| number(&desk.bucket, slot * SLOT);
        let (first, second) = if sequence(0) >= sequence(1) { (0, 1) } else { (1, 0) };
        for slot in [first, second] {
            if let Some(found) = Self::read_slot(file, desk, slot)? {
                return Ok(Some(found));
            }
        }
        // The second slot is written first when a bucket is first used, so a torn slot there beside
        // an empty one is a beginning that was cut short. Anything else was whole once.
        let begun = desk.bucket[..SLOT].iter().all(|byte| *byte == 0);
        Ok(begun.then(Self::default))
    }

    /// A slot, if it is whole.
    fn read_slot(file: &File, desk: &mut Desk, slot: usize) -> io::Result<Option<Self>> {
        let bytes = &desk.bucket[slot * SLOT..(slot + 1) * SLOT];
        let lens = number(bytes, 32);
        let found = Self {
            newest: Some(slot),
            sequence: number(bytes, 0),
            boot: number(bytes, 8),
            floor: number(bytes, 16),
            extent: number(bytes, 24),
            capacity: lens as u32,
            len: (lens >> 32) as usize,
        };
        if found.sequence == 0 || found.floor >= LARGEST_EPOCH || found.len > LARGEST {
            return Ok(None);
        }
        let payload = if found.len <= INLINE {
            &bytes[HEAD..HEAD + found.len]
        } else {
            // Not trusted before the checksum is seen: a torn head may say anything.
            if (found.capacity as usize) < found.len || found.extent >> 48 != 0 {
                return Ok(None);
            }
            desk.extent.clear();
            desk.extent.resize(found.len, 0);
            let at = found.extent + slot as u64 * u64::from(found.capacity);
            match file.read_exact_at(&mut desk.extent, at) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            }
            &desk.extent
        };
        Ok((hash(hash(2, &bytes[..40]), payload) == number(bytes, 40)).then_some(found))
    }

    /// The payload, as it was written.
    pub(super) fn payload<'a>(&self, desk: &'a Desk) -> &'a [u8] {
        match self.newest {
            Some(_) if self.len > INLINE => &desk.extent,
            Some(slot) => {
                let start = slot * SLOT + HEAD;
                &desk.bucket[start..start + self.len]
            }
            None => &[],
        }
    }

    /// Writes what `out` has behind its first [`HEAD`] bytes as the next state of a bucket, into the
    /// slot that does not count now.
    pub(super) fn write(mut self, file: &File, bucket: u64, out: &mut [u8]) -> io::Result<()> {
        let at = HEADER + bucket * 2 * SLOT as u64;
        let slot = match self.newest {
            Some(newest) => 1 - newest,
            None => {
                let mut empty = [0; HEAD];
                self.sequence = 1;
                seal(&mut empty, &Self { len: 0, ..self });
                file.write_all_at(&empty, at + SLOT as u64)?;
                0
            }
        };
        self.sequence += 1;
        self.len = out.len() - HEAD;
        if self.len > LARGEST {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too many claims in one line"));
        }
        if self.len > INLINE {
            if (self.capacity as usize) < self.len {
                (self.extent, self.capacity) = grow(file, self.len)?;
            }
            file.write_all_at(&out[HEAD..], self.extent + slot as u64 * u64::from(self.capacity))?;
        }
        seal(out, &self);
        let len = if self.len > INLINE { HEAD } else { out.len() };
        let at = at + (slot * SLOT) as u64;
        strike_at(Point::HalfWritten, || drop(write_all(file, &out[..len / 2], at)));
        write_all(file, &out[..len], at)
    }
}

/// A new extent at the end of the file. Both halves are written now, so that a later change
/// that makes the line shorter cannot fail on a full disk. The old extent is left behind:
/// each is at least twice as large as the one before, so no more than that is ever wasted.
fn grow(file: &File, len: usize) -> io::Result<(u64, u32)> {
    let capacity = len.next_power_of_two().max(1024);
    let at = file.metadata()?.len().max(EXTENTS).next_multiple_of(SLOT as u64);
    file.write_all_at(&vec![0; 2 * capacity], at)?;
    Ok((at, capacity as u32))
}

/// Writes the head of a slot in front of its payload.
fn seal(out: &mut [u8], next: &Bucket) {
    let lens = u64::from(next.capacity) | (next.len as u64) << 32;
    for (word, number) in [next.sequence, next.boot, next.floor, next.extent, lens].into_iter().enumerate() {
        out[word * 8..word * 8 + 8].copy_from_slice(&number.to_le_bytes());
    }
    let check = hash(hash(2, &out[..40]), &out[HEAD..]);
    out[40..HEAD].copy_from_slice(&check.to_le_bytes());
}

/// As in the standard library, but without the way through the C library: this is the one write
/// of nearly every change.
fn write_all(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => (bytes, at) = (&bytes[written..], at + written as u64),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// The next stretch of a file that was ever written.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn data_from(file: &File, at: u64) -> Option<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let from = seek(file, SeekFrom::Data(at)).ok()?;
    Some((from, seek(file, SeekFrom::Hole(from)).ok()?))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn data_from(file: &File, at: u64) -> Option<(u64, u64)> {
    let len = file.metadata().ok()?.len();
    (at < len).then_some((at, len))
}
