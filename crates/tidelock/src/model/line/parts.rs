//! A line taken apart and put together again, for stores that keep it outside of memory.

use std::sync::Arc;

use super::{
    Line, StoreTime,
    places::{Hold, Standee},
};
use crate::{backend::Claim, clock::Moment};

/// One claim in line, with all that the line knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The claim.
    pub claim: Arc<Claim>,
    /// When it came.
    pub since: Moment,
    /// When its lease ends unless it is renewed.
    pub lapses: Moment,
    /// How it holds, if it does.
    pub hold: Option<PartHold>,
}

/// How a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHold {
    /// The epoch of its grant.
    pub epoch: u64,
    /// Since when.
    pub since: Moment,
    /// On the hold of another claim of the same owner, taking nothing of the capacity.
    pub rides: bool,
}

impl PartHold {
    /// How an exclusive claim holds that enters a line which nobody is in. The same as from
    /// [`Line::enter`], without a line being made for it: nearly every claim enters an empty one.
    pub fn of_first(last_epoch: u64, at: StoreTime) -> Self {
        Self { epoch: at.micros.max(last_epoch + 1), since: at.lease, rides: false }
    }
}

impl Line {
    /// The claims in order, holders first.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        self.places.iter().map(|standee| Part {
            claim: Arc::clone(&standee.claim),
            since: standee.since,
            lapses: standee.lapses,
            hold: standee.hold.map(|hold| PartHold {
                epoch: hold.epoch,
                since: hold.since,
                rides: hold.rides,
            }),
        })
    }

    /// The epoch of the latest grant.
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch
    }

    /// How many claims hold: the first so many parts.
    pub fn holders(&self) -> usize {
        self.held
    }

    /// The line with these parts, in this order, holders first.
    ///
    /// `last_epoch` may be larger than that of any part: then the next grant's is larger still. Holders that stand behind
    /// claims that wait, as nobody writes them, come first all the same.
    pub fn from_parts(last_epoch: u64, parts: impl IntoIterator<Item = Part>) -> Self {
        let mut line = Self { last_epoch, ..Self::default() };
        for Part { claim, since, lapses, hold } in parts {
            line.earliest = if line.places.is_empty() { lapses } else { line.earliest.min(lapses) };
            if let Some(capacity) = claim.share.capacity() {
                line.capacity = Some(capacity);
                line.sharing += 1;
            }
            let Some(PartHold { epoch, since: held_since, rides }) = hold else {
                line.places.push(Standee { claim, since, lapses, hold: None });
                continue;
            };
            line.last_epoch = line.last_epoch.max(epoch);
            if !rides {
                line.count_base(claim.share);
            }
            let hold = Some(Hold { epoch, since: held_since, rides });
            let standee = Standee { claim, since, lapses, hold };
            if line.held == line.places.len() {
                line.places.push(standee);
            } else {
                line.places.insert(line.held, standee);
            }
            line.held += 1;
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};

    use super::*;
    use crate::{
        Name, Owner,
        backend::{Ask, ClaimId, ClientId, Entered, Grant, Leave, Share},
    };

    /// Found by `cargo xtask fuzz`: a holder behind a claim that waits was granted again, and counted twice.
    #[test]
    fn holders_come_first_whatever_was_read() {
        let at = StoreTime { lease: Moment::from_nanos(5), micros: 7 };
        let mut line = Line::default();
        for serial in 0..3 {
            line.enter(&claim(serial, 0, 1), Ask::Queue, at, &mut Vec::new());
        }
        let mut parts: Vec<_> = line.parts().collect();
        parts.reverse();
        let mut read = Line::from_parts(line.last_epoch(), parts);
        let holds: Vec<_> = read.parts().map(|part| part.hold.is_some()).collect();
        assert_eq!(holds, [true, false, false]);
        for serial in 0..3 {
            read.leave(claim(serial, 0, 1).id, Leave::Done, at, &mut Vec::new());
        }
        assert_eq!((read.len(), read.holders()), (0, 0));
    }

    /// What one step does: kind, which claim, share, owner.
    type Step = (u8, u64, u8, u8);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        proptest::collection::vec((any::<u8>(), 0..12_u64, any::<u8>(), any::<u8>()), 1..60)
    }

    fn claim(serial: u64, share: u8, owner: u8) -> Arc<Claim> {
        let share = match share % 4 {
            0 => Share::Exclusive,
            _ => Share::Permits { n: u32::from(share % 3) + 1, of: 3 },
        };
        let owner = owner.is_multiple_of(3).then(|| Owner::new("ann").unwrap());
        Arc::new(Claim {
            id: ClaimId::new(ClientId::from_u64(1), serial),
            name: Name::new("x").unwrap(),
            share,
            owner,
            ttl: Duration::from_millis(40 + serial),
            label: "test".into(),
            detached: false,
            writes: false,
            auto_renew: true,
        })
    }

    fn play(line: &mut Line, step: Step, time: u64) -> String {
        let (kind, serial, share, owner) = step;
        let at = StoreTime { lease: Moment::from_nanos(time * 5_000_000), micros: time };
        let claim = claim(serial, share, owner);
        let mut effects = Vec::new();
        let answer = match kind % 5 {
            0 | 1 => format!("{:?}", line.enter(&claim, Ask::Queue, at, &mut effects)),
            2 => format!("{:?}", line.enter(&claim, Ask::Try, at, &mut effects)),
            3 => format!("{:?}", line.renew(claim.id, at, &mut effects)),
            _ => format!("{:?}", line.leave(claim.id, Leave::evicted("by hand"), at, &mut effects)),
        };
        format!("{answer} {effects:?} {:?}", line.look(&claim.name, at))
    }

    #[test]
    fn the_first_in_an_empty_line_holds_as_if_there_were_a_line() {
        for (last_epoch, micros) in [(0, 77), (76, 77), (77, 77), (500, 77)] {
            let at = StoreTime { lease: Moment::from_nanos(5), micros };
            let claim = claim(1, 0, 1);
            let mut line = Line::from_parts(last_epoch, []);
            let answer = line.enter(&claim, Ask::Queue, at, &mut Vec::new());
            let hold = PartHold::of_first(last_epoch, at);
            let grant = Grant::new(hold.epoch, claim.ttl, 0);
            assert_eq!(answer, Entered::Held(grant));
            let part = Part { lapses: at.lease + claim.ttl, since: at.lease, hold: Some(hold), claim };
            assert_eq!(line.parts().collect::<Vec<_>>(), [part]);
            assert_eq!(line.last_epoch(), hold.epoch);
        }
    }

    proptest! {
        #[test]
        fn a_line_put_together_again_goes_on_as_the_one_that_was_taken_apart(steps in steps()) {
            let mut whole = Line::default();
            for (time, step) in (1..).zip(steps) {
                let mut again = Line::from_parts(whole.last_epoch(), whole.parts());
                prop_assert_eq!(again.holders(), whole.parts().filter(|part| part.hold.is_some()).count());
                prop_assert_eq!(play(&mut again, step, time), play(&mut whole, step, time));
            }
        }
    }
}
