//! Bytes: how claims are written into buckets, and what a doorbell carries.
//!
//! A bucket's payload is a row of records, one for each name in use:
//!
//! ```text
//! record  length u32 | name: length u16, text | last epoch u64 | claims u32 | claim … | rest …
//! claim   id u128 | share u8 (and 128 if detached), n u32, of u32 | ttl u64 | since u64 | lapses u64
//!         | hold u8 (0 no, 1 yes, 2 rides) | epoch u64 | held since u64
//!         | owner: length u8, text (0 is none) | label: length u8, text
//! rest    id u128 | length u16, text
//! ```
//!
//! A label with more than 255 bytes has something advertised with it, which stands in a *rest* behind the claims.
//! Programs of earlier versions read no rests. When they change a line, they leave rests out, so what is advertised
//! there is forgotten, but never cut.
//!
//! Numbers are little-endian, times nanoseconds of the boot-time clock. Nothing here is trusted:
//! whatever does not fit together is [`None`], never a panic.

use std::{sync::Arc, time::Duration};

use crate::{
    backend::{Claim, ClaimId, Grant, News, Share, What},
    clock::{Moment, nanos},
    model::line::{Line, Part, PartHold},
    model::name::Name,
    model::owner::Owner,
    model::token::LARGEST_EPOCH,
};

/// A hash that is the same in every process and version: for places in files and for checksums.
///
/// Not the standard library's, which may change between its versions, and not keyed: a user who
/// can choose names here can also write the files.
pub(super) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |state: u64, a: u64, b: u64| {
        let product = u128::from(state ^ a) * u128::from(b.rotate_left(32) ^ MULTIPLIER);
        (product as u64) ^ (product >> 64) as u64
    };
    // Not copied into an array: for the few bytes at the end that would be a call.
    let word = |bytes: &[u8]| match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    let mut state = mix(seed ^ 0x7469_6465_6C6F_636B, bytes.len() as u64, 0);
    let (pairs, rest) = bytes.as_chunks::<16>();
    for pair in pairs {
        state = mix(state, word(&pair[..8]), word(&pair[8..]));
    }
    let (first, second) = rest.split_at(rest.len().min(8));
    state = mix(state, word(first), word(second));
    mix(state, MULTIPLIER, 0)
}

/// Reads from the front of bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An epoch that another one can follow.
    fn epoch(&mut self) -> Option<u64> {
        self.u64().filter(|epoch| *epoch < LARGEST_EPOCH)
    }

    fn text(&mut self, len: usize) -> Option<&'a str> {
        std::str::from_utf8(self.take(len)?).ok()
    }
}

/// The records of a payload, each with its name; ends early where they do not fit together.
pub(super) fn records(payload: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut reader = Reader(payload);
    std::iter::from_fn(move || {
        let len = Reader(reader.0).u32()? as usize;
        let whole = reader.take(len.checked_add(4)?)?;
        let mut inner = Reader(&whole[4..]);
        let name = inner.u16()? as usize;
        let name = inner.take(name)?;
        Some(Record { whole, name, line: inner.0 })
    })
}

/// A record of a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// All of it, as it stands in the payload.
    pub(super) whole: &'a [u8],
    /// The bytes of the name.
    pub(super) name: &'a [u8],
    /// What follows it: the last epoch, and the claims.
    pub(super) line: &'a [u8],
}

impl Record<'_> {
    /// The epoch of the latest grant.
    pub(super) fn last_epoch(&self) -> Option<u64> {
        Reader(self.line).epoch()
    }

    /// Whether this claim is the only one in line. Found without taking the line apart.
    pub(super) fn is_only(&self, id: ClaimId) -> bool {
        let mut reader = Reader(self.line);
        let mut only = || {
            reader.u64()?;
            let claims = reader.u32()?;
            Some(claims == 1 && u128::from_le_bytes(reader.array()?) == id.get())
        };
        only().unwrap_or(false)
    }

    /// The name, if it is one.
    pub(super) fn read_name(&self) -> Option<Name> {
        Name::new(std::str::from_utf8(self.name).ok()?).ok()
    }

    /// The line of this name.
    pub(super) fn read_line(&self, name: &Name) -> Option<Line> {
        let mut reader = Reader(self.line);
        let last_epoch = reader.epoch()?;
        let claims = reader.u32()?;
        let mut parts = Vec::with_capacity((claims as usize).min(self.line.len() / 64));
        for _ in 0..claims {
            parts.push(read_part(&mut reader, name)?);
        }
        while !reader.0.is_empty() {
            read_rest(&mut reader, &mut parts)?;
        }
        Some(Line::from_parts(last_epoch, parts))
    }
}

/// Marks a share whose hold outlives its client.
pub(super) const DETACHED: u8 = 128;

fn read_part(reader: &mut Reader<'_>, name: &Name) -> Option<Part> {
    let id = ClaimId::from_u128(u128::from_le_bytes(reader.array()?));
    let (share, n, of) = (reader.u8()?, reader.u32()?, reader.u32()?);
    let detached = share & DETACHED != 0;
    let share = match share & !DETACHED {
        0 => Share::Exclusive,
        1 => Share::Shared,
        2 => Share::Permits { n, of },
        _ => return None,
    };
    let ttl = Duration::from_nanos(reader.u64()?);
    let since = Moment::from_nanos(reader.u64()?);
    let lapses = Moment::from_nanos(reader.u64()?);
    let (holds, epoch, held_since) = (reader.u8()?, reader.epoch()?, Moment::from_nanos(reader.u64()?));
    let hold = (holds > 0).then_some(PartHold { epoch, since: held_since, rides: holds == 2 });
    let owner = reader.u8()? as usize;
    let owner = reader.text(owner)?;
    let owner = if owner.is_empty() { None } else { Some(Owner::new(owner).ok()?) };
    let label = reader.u8()? as usize;
    let label = reader.text(label)?.into();
    let claim =
        Claim { id, name: name.clone(), share, owner, ttl, label, detached, auto_renew: true, writes: false };
    Some(Part { claim: Arc::new(claim), since, lapses, hold })
}

/// Reads the rest of a label, and puts it behind the label of its claim.
fn read_rest(reader: &mut Reader<'_>, parts: &mut [Part]) -> Option<()> {
    let id = ClaimId::from_u128(u128::from_le_bytes(reader.array()?));
    let len = reader.u16()? as usize;
    let rest = reader.text(len)?;
    if let Some(part) = parts.iter_mut().find(|part| part.claim.id == id) {
        let claim = Arc::make_mut(&mut part.claim);
        claim.label = format!("{}{rest}", claim.label).into();
    }
    Some(())
}

/// Splits a label into what stands in its claim and what stands behind all claims, if it is too long for that.
fn split(label: &str) -> (&str, &str) {
    if label.len() <= 255 {
        return (label, "");
    }
    // What is advertised begins with a control character, which no label has.
    label.split_at(label.find(char::is_control).unwrap_or(label.len()))
}

fn write_rest(out: &mut Vec<u8>, claim: &Claim) {
    let (_, rest) = split(&claim.label);
    if let Ok(len) = u16::try_from(rest.len())
        && len > 0
    {
        out.extend_from_slice(&claim.id.get().to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(rest.as_bytes());
    }
}

/// Appends the record of a line.
pub(super) fn write_record(out: &mut Vec<u8>, name: &Name, line: &Line) {
    let start = begin_record(out, name, line.last_epoch(), line.len() as u32);
    for part in line.parts() {
        write_part(out, &part.claim, part.since, part.lapses, part.hold);
    }
    for part in line.parts() {
        write_rest(out, &part.claim);
    }
    end_record(out, start);
}

/// Appends the record of a line with a single claim, which holds.
pub(super) fn write_only_holder(out: &mut Vec<u8>, claim: &Claim, hold: PartHold) {
    let start = begin_record(out, &claim.name, hold.epoch, 1);
    write_part(out, claim, hold.since, hold.since + claim.ttl, Some(hold));
    write_rest(out, claim);
    end_record(out, start);
}

pub(super) fn begin_record(out: &mut Vec<u8>, name: &Name, last_epoch: u64, claims: u32) -> usize {
    let start = out.len();
    let text = name.as_str().as_bytes();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(&last_epoch.to_le_bytes());
    out.extend_from_slice(&claims.to_le_bytes());
    start
}

pub(super) fn end_record(out: &mut [u8], start: usize) {
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

pub(super) fn write_part(
    out: &mut Vec<u8>,
    claim: &Claim,
    since: Moment,
    lapses: Moment,
    hold: Option<PartHold>,
) {
    let (share, n, of): (u8, u32, u32) = match claim.share {
        Share::Exclusive => (0, 0, 0),
        Share::Shared => (1, 0, 0),
        Share::Permits { n, of } => (2, n, of),
    };
    let (holds, epoch, held_since) = match hold {
        None => (0_u8, 0, 0),
        Some(hold) => (1 + u8::from(hold.rides), hold.epoch, hold.since.as_nanos()),
    };
    // Put together first: ten short appends would take longer than all else here.
    let mut fixed = [0; 66];
    fixed[..16].copy_from_slice(&claim.id.get().to_le_bytes());
    fixed[16] = if claim.detached { share | DETACHED } else { share };
    fixed[17..21].copy_from_slice(&n.to_le_bytes());
    fixed[21..25].copy_from_slice(&of.to_le_bytes());
    fixed[25..33].copy_from_slice(&nanos(claim.ttl).to_le_bytes());
    fixed[33..41].copy_from_slice(&since.as_nanos().to_le_bytes());
    fixed[41..49].copy_from_slice(&lapses.as_nanos().to_le_bytes());
    fixed[49] = holds;
    fixed[50..58].copy_from_slice(&epoch.to_le_bytes());
    fixed[58..].copy_from_slice(&held_since.to_le_bytes());
    out.extend_from_slice(&fixed);
    write_text(out, claim.owner.as_ref().map_or("", |owner| owner.as_str()));
    write_text(out, split(&claim.label).0);
}

/// Owners, labels and reasons have 128 bytes at most; a longer one of somebody who built it by hand
/// is cut, because it is for people only.
fn write_text(out: &mut Vec<u8>, text: &str) {
    let mut len = text.len().min(255);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    out.push(len as u8);
    out.extend_from_slice(&text.as_bytes()[..len]);
}

/// What a datagram says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    /// Something that the client's engine should hear.
    News(News),
    /// Somebody else is ahead of this claim now: watch that one.
    Moved(ClaimId),
}

/// No doorbell is longer: the numbers, the longest reason and the longest name.
pub(super) const LONGEST_RING: usize = 64 + 255 + crate::MAX_NAME_BYTES;

impl Ring {
    pub(super) fn write(&self) -> Vec<u8> {
        let (kind, id, grant, reason, name) = match self {
            Self::Moved(id) => (0_u8, id, None, "", ""),
            Self::News(News { name, id, what }) => match what {
                What::Granted(grant) => (1, id, Some(grant), "", name.as_str()),
                What::Evicted(reason) => (2, id, None, &**reason, name.as_str()),
                What::Ask => (3, id, None, "", name.as_str()),
            },
        };
        let mut out = Vec::with_capacity(64 + name.len());
        out.push(kind);
        out.extend_from_slice(&id.get().to_le_bytes());
        out.extend_from_slice(&grant.map_or(0, |grant| grant.epoch).to_le_bytes());
        out.extend_from_slice(&grant.map_or(0, |grant| nanos(grant.ttl)).to_le_bytes());
        out.extend_from_slice(&grant.map_or(0, |grant| grant.waiting).to_le_bytes());
        write_text(&mut out, reason);
        out.extend_from_slice(name.as_bytes());
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let kind = reader.u8()?;
        let id = ClaimId::from_u128(u128::from_le_bytes(reader.array()?));
        let (epoch, ttl, waiting) = (reader.u64()?, Duration::from_nanos(reader.u64()?), reader.u32()?);
        let reason = reader.u8()? as usize;
        let reason = reader.text(reason)?;
        let what = match kind {
            0 => return Some(Self::Moved(id)),
            1 => What::Granted(Grant::new(epoch, ttl, waiting)),
            2 => What::Evicted(reason.into()),
            3 => What::Ask,
            _ => return None,
        };
        let name = Name::new(std::str::from_utf8(reader.0).ok()?).ok()?;
        Some(Self::News(News { name, id, what }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{Ask, ClientId},
        model::line::StoreTime,
    };

    fn long_label() -> Arc<str> {
        format!("test\u{1f}{}", "é".repeat(512)).into()
    }

    fn line(name: &Name, claims: u64) -> Line {
        let mut line = Line::default();
        for serial in 0..claims {
            let claim = Claim {
                id: ClaimId::new(ClientId::from_u64(9), serial),
                name: name.clone(),
                share: if serial == 2 { Share::Shared } else { Share::Exclusive },
                owner: (serial % 2 == 0).then(|| Owner::new("ann").unwrap()),
                ttl: Duration::from_secs(30),
                // The second advertises more than its label has room for.
                label: if serial == 1 { long_label() } else { "test 🔒".into() },
                detached: serial == 3,
                writes: false,
                auto_renew: true,
            };
            let at = StoreTime { lease: Moment::from_nanos(5 + serial), micros: 77 };
            line.enter(&Arc::new(claim), Ask::Queue, at, &mut Vec::new());
        }
        line
    }

    #[test]
    fn lines_are_read_as_they_were_written_and_cut_ones_are_nothing() {
        let names = ["a", "..", "🔒"].map(|name| Name::new(name).unwrap());
        let mut payload = Vec::new();
        for (name, claims) in names.iter().zip([1, 0, 4]) {
            write_record(&mut payload, name, &line(name, claims));
        }
        let found: Vec<_> = records(&payload).collect();
        assert_eq!(found.len(), 3);
        for ((record, name), claims) in found.iter().zip(&names).zip([1, 0, 4]) {
            let read = record.read_line(name).unwrap();
            assert_eq!(record.read_name().as_ref(), Some(name));
            assert!(read.parts().eq(line(name, claims).parts()));
            assert_eq!(record.last_epoch(), Some(read.last_epoch()));
            assert_eq!(record.is_only(ClaimId::new(ClientId::from_u64(9), 0)), claims == 1);
        }
        for cut in 0..payload.len() {
            for record in records(&payload[..cut]) {
                record.read_name().and_then(|name| record.read_line(&name)).unwrap();
            }
        }
    }

    #[test]
    fn what_is_advertised_is_forgotten_but_not_cut_by_programs_that_read_no_rests() {
        let name = Name::new("a").unwrap();
        let mut payload = Vec::new();
        write_record(&mut payload, &name, &line(&name, 2));
        let record = records(&payload).next().unwrap();
        let mut reader = Reader(record.line);
        let (_, claims) = (reader.u64().unwrap(), reader.u32().unwrap());
        let parts: Vec<_> = (0..claims).map(|_| read_part(&mut reader, &name).unwrap()).collect();
        assert_eq!((parts.len(), &*parts[1].claim.label), (2, "test"));
        assert!(!reader.0.is_empty(), "the rest follows the claims");
    }

    #[test]
    fn doorbells_are_read_as_they_were_written() {
        let id = ClaimId::from_u128(7 << 70 | 5);
        let grant = Grant::new(5, Duration::from_secs(3), 2);
        let news = |what| Ring::News(News { name: Name::new("x").unwrap(), id, what });
        for ring in
            [Ring::Moved(id), news(What::Granted(grant)), news(What::Evicted("why".into())), news(What::Ask)]
        {
            let bytes = ring.write();
            assert_eq!(Ring::read(&bytes), Some(ring));
            assert_eq!(Ring::read(&bytes[..20]), None);
        }
        assert_eq!(Ring::read(b""), None);
    }

    #[test]
    fn the_hash_never_changes_and_sees_every_bit() {
        // Written in files: another value is another format.
        assert_eq!(hash(0, b"orders/42"), 0x87E3_B32E_81F4_F3B0);
        assert_ne!(hash(0, b"a"), hash(1, b"a"));
        let base = [7_u8; 40];
        for bit in 0..320 {
            let mut other = base;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(hash(0, &base), hash(0, &other));
        }
        assert_ne!(hash(0, &[0; 8]), hash(0, &[0; 9]));
    }
}
