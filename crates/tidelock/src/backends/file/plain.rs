//! The two commonest changes of a line with others in it, made in its bytes: an exclusive claim queues behind others, and
//! an exclusive holder hands over to the next.
//!
//! To take a line apart and put it together again costs more for each claim in it than either change as a whole. What is
//! not this simple (leases that have ended, owners, long labels, other shares) is left to `model::line`; a test compares the two.

use std::{sync::Arc, time::Duration};

use super::{
    codec::{DETACHED, Record, Ring, begin_record, end_record, records, write_part},
    shard::{Change, Section},
    store::FileStore,
};
use crate::{
    backend::{Claim, ClaimId, ClientId, Failure, Grant, News, Place, Share, What},
    clock::Moment,
    model::{line::StoreTime, name::Name},
};

/// Before the claims: the last epoch and their number.
const HEAD: usize = 12;

/// Where things stand in a claim, as `codec` writes it.
const SHARE: usize = 16;
const TTL: usize = 25;
const LAPSES: usize = 41;
const HOLD: usize = 49;
const EPOCH: usize = 50;
const HELD_SINCE: usize = 58;
const OWNER: usize = 66;

impl FileStore {
    /// Most others queue behind claims like their own. [`None`]: not so, or not to be seen at once.
    pub(super) fn queue(
        &self,
        section: &mut Section<'_>,
        bucket: u64,
        claim: &Arc<Claim>,
        at: StoreTime,
    ) -> Result<Option<Place>, Failure> {
        section.change(bucket, self, |payload, _, out| {
            let mut queued = None;
            for record in records(payload) {
                if record.name != claim.name.as_str().as_bytes() {
                    out.extend_from_slice(record.whole);
                    continue;
                }
                queued = queue(out, &record, claim, at);
                if queued.is_none() {
                    break;
                }
            }
            let Some(Queued { place, ahead, last_epoch }) = queued else { return Change::Keep(None) };
            // Noted before anybody else can move the line.
            self.note_behind(claim, ahead);
            Change::Write(Some(place), last_epoch)
        })
    }

    /// Most others hand over to a claim like their own. [`None`]: not so, or not to be seen at once.
    pub(super) fn hand_over(
        &self,
        section: &mut Section<'_>,
        bucket: u64,
        name: &Name,
        id: ClaimId,
        at: StoreTime,
    ) -> Result<Option<(ClaimId, Ring)>, Failure> {
        section.change(bucket, self, |payload, _, out| {
            let mut handed = None;
            for record in records(payload) {
                if record.name != name.as_str().as_bytes() {
                    out.extend_from_slice(record.whole);
                    continue;
                }
                handed = hand_over(out, &record, name, id, at);
                if handed.is_none() {
                    break;
                }
            }
            let Some((next, grant)) = handed else { return Change::Keep(None) };
            let news = News { name: name.clone(), id: next, what: What::Granted(grant) };
            Change::Write(Some((next, Ring::News(news))), grant.epoch)
        })
    }
}

/// The bytes of a claim.
#[derive(Clone, Copy)]
struct Piece<'a>(&'a [u8]);

impl<'a> Piece<'a> {
    /// The first claim, and what follows it.
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let label = OWNER + 1 + usize::from(*bytes.get(OWNER)?);
        let len = label + 1 + usize::from(*bytes.get(label)?);
        let (piece, rest) = bytes.split_at_checked(len)?;
        Some((Self(piece), rest))
    }

    fn number(self, at: usize) -> u64 {
        let mut number = [0; 8];
        number.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(number)
    }

    fn id(self) -> ClaimId {
        ClaimId::from_u128(u128::from(self.number(8)) << 64 | u128::from(self.number(0)))
    }

    fn lapses(self) -> Moment {
        Moment::from_nanos(self.number(LAPSES))
    }

    /// 0: it waits, 1: it holds, 2: it rides on another hold.
    fn hold(self) -> u8 {
        self.0[HOLD]
    }

    fn is_exclusive_without_owner(self) -> bool {
        self.0[SHARE] & !DETACHED == 0 && self.0[OWNER] == 0
    }

    fn ends_with_its_client(self) -> bool {
        self.0[SHARE] & DETACHED == 0 || self.hold() == 0
    }
}

/// A line of which every lease goes on.
struct Pieces<'a> {
    last_epoch: u64,
    claims: Vec<Piece<'a>>,
    /// All claims.
    bytes: &'a [u8],
}

impl<'a> Pieces<'a> {
    fn of(record: &Record<'a>, now: Moment) -> Option<Self> {
        let last_epoch = record.last_epoch()?;
        let (_, rest) = record.line.split_at_checked(8)?;
        let (count, bytes) = rest.split_first_chunk()?;
        debug_assert_eq!(record.line.len() - bytes.len(), HEAD);
        let count = u32::from_le_bytes(*count) as usize;
        let mut claims = Vec::with_capacity(count.min(bytes.len() / OWNER));
        let mut rest = bytes;
        for _ in 0..count {
            let (piece, more) = Piece::split(rest)?;
            if piece.lapses() <= now {
                return None;
            }
            claims.push(piece);
            rest = more;
        }
        // Else more of labels follows.
        rest.is_empty().then_some(Self { last_epoch, claims, bytes })
    }
}

/// Writes the line without its holder, which hands over to the next. Returns the grant and for whom; [`None`] if nothing was
/// written.
fn hand_over(
    out: &mut Vec<u8>,
    record: &Record<'_>,
    name: &Name,
    id: ClaimId,
    at: StoreTime,
) -> Option<(ClaimId, Grant)> {
    let line = Pieces::of(record, at.lease)?;
    let [holder, next, others @ ..] = &line.claims[..] else { return None };
    let is_simple = holder.id() == id
        && (holder.hold(), next.hold()) == (1, 0)
        && holder.is_exclusive_without_owner()
        && next.is_exclusive_without_owner();
    if !is_simple {
        return None;
    }
    let epoch = at.micros.max(line.last_epoch + 1);
    let start = begin_record(out, name, epoch, 1 + others.len() as u32);
    let first = out.len();
    out.extend_from_slice(&line.bytes[holder.0.len()..]);
    out[first + HOLD] = 1;
    out[first + EPOCH..first + EPOCH + 8].copy_from_slice(&epoch.to_le_bytes());
    out[first + HELD_SINCE..first + HELD_SINCE + 8].copy_from_slice(&at.lease.as_nanos().to_le_bytes());
    end_record(out, start);
    let waiting = u32::try_from(others.len()).unwrap_or(u32::MAX);
    Some((next.id(), Grant::new(epoch, Duration::from_nanos(next.number(TTL)), waiting)))
}

/// A claim that queues.
struct Queued {
    place: Place,
    /// Whose death would move it on.
    ahead: Vec<ClientId>,
    /// The epoch of the latest grant.
    last_epoch: u64,
}

/// Writes the line with a claim at its end, which has to wait. [`None`] if nothing was written.
fn queue(out: &mut Vec<u8>, record: &Record<'_>, claim: &Claim, at: StoreTime) -> Option<Queued> {
    if claim.share != Share::Exclusive || claim.owner.is_some() || claim.label.len() > 255 {
        return None;
    }
    let line = Pieces::of(record, at.lease)?;
    let claims = &line.claims[..];
    let (first, last) = (claims.first()?, claims.last()?);
    if first.hold() != 1 || claims.iter().any(|piece| piece.id() == claim.id) {
        return None;
    }
    let start = begin_record(out, &claim.name, line.last_epoch, 1 + claims.len() as u32);
    out.extend_from_slice(line.bytes);
    write_part(out, claim, at.lease, at.lease + claim.ttl, None);
    end_record(out, start);
    let held = claims.iter().take_while(|piece| piece.hold() > 0).count();
    let is_next = held == claims.len();
    let lapses = claims[..held].iter().map(|piece| piece.lapses().since(at.lease)).min();
    let watched = if is_next { claims } else { std::slice::from_ref(last) };
    let watched = watched.iter().filter(|piece| piece.ends_with_its_client());
    let mut ahead: Vec<_> = watched.map(|piece| piece.id().client()).collect();
    ahead.sort_unstable();
    ahead.dedup();
    let place = Place {
        ahead: u32::try_from(claims.len()).unwrap_or(u32::MAX),
        lapse_in: lapses.filter(|_| is_next),
    };
    Some(Queued { place, ahead, last_epoch: line.last_epoch })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            codec::write_record,
            order::{ahead_of, ids, moved},
        },
        *,
    };
    use crate::{
        backend::{Ask, Entered, Leave},
        model::{
            line::{Effect, Line},
            owner::Owner,
        },
    };

    /// Numbers without a pattern, the same in each run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }

        fn claim(&mut self, name: &Name, serial: u64) -> Arc<Claim> {
            let share = match self.below(8) {
                0 => Share::Shared,
                1 => Share::Permits { n: 1, of: 2 },
                _ => Share::Exclusive,
            };
            let id = ClaimId::new(ClientId::from_u64(self.below(5)), serial);
            let mut claim =
                Claim::new(id, name.clone(), share, Duration::from_nanos(500 + self.below(3_000)));
            claim.owner = (self.below(8) == 0).then(|| Owner::new("ann").unwrap());
            claim.detached = self.below(4) == 0;
            claim.label = match self.below(12) {
                0 => format!("test\u{1f}{}", "é".repeat(200)).into(),
                _ => "x".repeat(self.below(30) as usize).into(),
            };
            Arc::new(claim)
        }
    }

    fn written(name: &Name, line: &Line) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_record(&mut bytes, name, line);
        bytes
    }

    /// Lines of all kinds: whatever is done in their bytes is what the model does, with the same answer and news.
    #[test]
    fn a_change_in_the_bytes_of_a_line_is_the_change_that_the_model_makes() {
        let (name, mut numbers) = (Name::new("a 🔒").unwrap(), Numbers(7));
        let (mut handed, mut queued, mut left_out) = (0, 0, 0);
        for _ in 0..3_000 {
            let mut line = Line::default();
            let mut at = StoreTime { lease: Moment::from_nanos(1_000), micros: 40 + numbers.below(9) };
            for serial in 0..numbers.below(8) {
                at.lease = at.lease + Duration::from_nanos(numbers.below(60));
                line.enter(&numbers.claim(&name, serial), Ask::Queue, at, &mut Vec::new());
            }
            at.lease = at.lease + Duration::from_nanos(numbers.below(600));
            let bytes = written(&name, &line);
            let record = records(&bytes).next().unwrap();
            // Who leaves: the first mostly, or somebody else.
            let leaves = line.parts().nth(numbers.below(3) as usize / 2).map(|part| part.claim.id);
            if let Some(id) = leaves {
                let (before, held, mut out) = (ids(&line), line.holders(), Vec::new());
                match hand_over(&mut out, &record, &name, id, at) {
                    Some((next, grant)) => {
                        let (mut line, mut effects) = (line.clone(), Vec::new());
                        assert!(line.leave(id, Leave::Done, at, &mut effects));
                        assert_eq!(effects, [Effect { id: next, what: What::Granted(grant) }]);
                        assert_eq!(moved(&before, held, &line), []);
                        assert_eq!(out, written(&name, &line));
                        handed += 1;
                    }
                    None => {
                        assert_eq!(out, [] as [u8; 0]);
                        left_out += 1;
                    }
                }
            }
            let serial = numbers.below(20);
            let claim = numbers.claim(&name, serial);
            let mut out = Vec::new();
            if let Some(found) = queue(&mut out, &record, &claim, at) {
                let (mut line, mut effects) = (line.clone(), Vec::new());
                let entered = line.enter(&claim, Ask::Queue, at, &mut effects);
                assert_eq!((entered, effects), (Entered::Waiting(found.place), Vec::new()));
                assert_eq!((found.ahead, found.last_epoch), (ahead_of(&line, claim.id), line.last_epoch()));
                assert_eq!(out, written(&name, &line));
                queued += 1;
            } else {
                assert_eq!(out, [] as [u8; 0]);
            }
        }
        assert!(handed > 200 && queued > 200 && left_out > 200, "{handed} {queued} {left_out}");
    }

    #[test]
    fn bytes_that_do_not_fit_together_are_left_alone() {
        let (name, mut line) = (Name::new("a").unwrap(), Line::default());
        let at = StoreTime { lease: Moment::from_nanos(1), micros: 1 };
        let claim = |serial| {
            let id = ClaimId::new(ClientId::from_u64(9), serial);
            Arc::new(Claim::new(id, name.clone(), Share::Exclusive, Duration::from_secs(9)).label("label"))
        };
        for serial in 0..3 {
            line.enter(&claim(serial), Ask::Queue, at, &mut Vec::new());
        }
        let bytes = written(&name, &line);
        let whole = records(&bytes).next().unwrap();
        for cut in 0..whole.line.len() {
            let record = Record { line: &whole.line[..cut], ..whole };
            let mut out = Vec::new();
            assert!(hand_over(&mut out, &record, &name, claim(0).id, at).is_none());
            assert!(queue(&mut out, &record, &claim(7), at).is_none() && out.is_empty());
        }
    }
}
