//! The numbers of a segment and its entries, as bytes.

use crate::backends::file::codec::hash;

/// How large a state is, and an entry.
pub(super) const STATE: usize = 256;
pub(super) const ENTRY: u64 = 32;

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
    pub(super) table: u64,
    /// Entries that there is room for, a power of two.
    pub(super) capacity: u64,
    pub(super) used: u64,
    /// Which entry was last written.
    pub(super) index: u64,
    pub(super) entry: Entry,
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

    pub(super) fn write(&self, out: &mut [u8]) {
        out[..16].copy_from_slice(&self.key.to_le_bytes());
        out[16..24].copy_from_slice(&(self.n | (self.kind as u64) << KIND_AT).to_le_bytes());
        out[24..32].copy_from_slice(&self.time.to_le_bytes());
    }

    pub(super) fn read(bytes: &[u8]) -> Self {
        let word = word(bytes, 16);
        let key = u128::from(self::word(bytes, 0)) | u128::from(self::word(bytes, 8)) << 64;
        let kind = KINDS.get((word >> KIND_AT) as usize).copied().unwrap_or_default();
        Self { key, kind, n: word & ((1 << KIND_AT) - 1), time: self::word(bytes, 24) }
    }
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

    pub(super) fn write(&self) -> [u8; STATE] {
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
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
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
