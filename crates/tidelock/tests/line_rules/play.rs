//! Random operations, and one who plays them.

use std::{sync::Arc, time::Duration};

use proptest::prelude::{Strategy, any, prop};
use tidelock::{
    Owner,
    backend::{Ask, Claim, ClaimId, ClientId, Entered, Leave, LockView, Share, Standing},
    line::{Effect, Moment, StoreTime},
};

use crate::naive::{Rules, name};

/// Something that happens to a line. Claims are picked by number, modulo those that were made.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Enter { share: Share, owner: Option<u8>, ttl: u64, ask: Ask },
    Again(usize),
    Renew(usize),
    Leave(usize, Leave),
    LeaveUnknown,
    Pass(u64),
}

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Entered(Entered),
    Stands(Standing),
    Left(bool),
    Nothing,
}

/// One of the shares of a kind: reads and writes, permits, writes, anything, or reads.
pub(crate) fn share(kind: u8) -> impl Strategy<Value = Share> {
    any::<u64>().prop_map(move |number| Dice(number).share(kind))
}

/// Lines of `stay` 20 grow, those of 3 are empty every now and then.
fn op(kind: u8, stay: u64) -> impl Strategy<Value = Op> {
    // Out of one number: a tree of strategies for each of some hundred operations is slow.
    any::<u64>().prop_map(move |number| Dice(number).op(kind, stay))
}

/// Numbers out of a number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        let rolled = self.0 % sides;
        self.0 /= sides;
        rolled
    }

    fn share(&mut self, kind: u8) -> Share {
        let permits = |n: u64, of| Share::Permits { n: n as u32 + 1, of };
        match (kind, self.roll(8)) {
            (4, _) => Share::Shared,
            (2, _) | (_, 0) | (0 | 3, 1) => Share::Exclusive,
            (1, _) | (3, 4 | 5) => permits(self.roll(5), 5),
            (3, 6 | 7) => permits(self.roll(3), 3),
            _ => Share::Shared,
        }
    }

    fn op(&mut self, kind: u8, stay: u64) -> Op {
        match self.roll(26 + 3 * stay) {
            0..4 => Op::Again(self.0 as usize),
            4..8 => Op::Renew(self.0 as usize),
            8..19 => Op::Leave(self.0 as usize, Leave::Done),
            19..22 => Op::Leave(self.0 as usize, Leave::evicted("play")),
            22 => Op::LeaveUnknown,
            23..26 => Op::Pass(self.roll(120)),
            _ => Op::Enter {
                share: self.share(kind),
                owner: Some(self.roll(12) as u8).filter(|owner| *owner < 3),
                ttl: [50, 400].get(self.roll(8) as usize).copied().unwrap_or(1_000_000),
                ask: if self.roll(4) == 0 { Ask::Try } else { Ask::Queue },
            },
        }
    }
}

/// Lines that grow long and shrink again, of one kind of claims or of all.
pub(crate) fn long_lines(most: usize) -> impl Strategy<Value = Vec<Op>> {
    (0..5_u8).prop_flat_map(move |kind| {
        let grow = prop::collection::vec(op(kind, 20), 0..most);
        let shrink = prop::collection::vec(op(kind, 2), 0..most / 2);
        (grow, shrink).prop_map(|(grow, shrink)| grow.into_iter().chain(shrink).collect())
    })
}

/// Lines that are empty every now and then.
pub(crate) fn short_lines(most: usize) -> impl Strategy<Value = Vec<Op>> {
    (0..5_u8).prop_flat_map(move |kind| prop::collection::vec(op(kind, 3), 0..most))
}

/// All shares of a kind.
pub(crate) fn sharing(kind: u8) -> Vec<Share> {
    let permits = (1..=5).map(|n| Share::Permits { n, of: 5 });
    let exclusive = std::iter::once(Share::Exclusive);
    match kind {
        0 => exclusive.chain([Share::Shared]).collect(),
        1 => exclusive.chain(permits).collect(),
        _ => exclusive.collect(),
    }
}

fn unknown() -> ClaimId {
    ClaimId::new(ClientId::from_u64(9), 9)
}

/// One who plays operations on something that obeys the rules.
pub(crate) struct Player<R> {
    pub(crate) line: R,
    pub(crate) at: StoreTime,
    pub(crate) claims: Vec<Arc<Claim>>,
    pub(crate) effects: Vec<Effect>,
    /// The claim that the last operation was about.
    pub(crate) about: Option<Arc<Claim>>,
}

impl<R: Rules + Default> Player<R> {
    pub(crate) fn new() -> Self {
        let at = StoreTime { lease: Moment::from_nanos(1_000_000_000), micros: 5 };
        Self { line: R::default(), at, claims: Vec::new(), effects: Vec::new(), about: None }
    }
}

impl<R: Rules> Player<R> {
    fn make(&mut self, share: Share, owner: Option<u8>, ttl: u64) -> Arc<Claim> {
        let claim = Arc::new(
            Claim::new(
                ClaimId::new(ClientId::from_u64(1), self.claims.len() as u64),
                name(),
                share,
                Duration::from_millis(ttl),
            )
            .owner(owner.map(|owner| Owner::new(&format!("owner-{owner}")).expect("an owner")))
            .label("test"),
        );
        self.claims.push(Arc::clone(&claim));
        claim
    }

    pub(crate) fn enter(&mut self, share: Share, owner: Option<u8>) -> (Arc<Claim>, Entered) {
        let claim = self.make(share, owner, 1_000_000);
        let entered = self.line.enter(&claim, Ask::Queue, self.at, &mut self.effects);
        (claim, entered)
    }

    pub(crate) fn stands(&mut self, id: ClaimId) -> Standing {
        self.line.renew(id, self.at, &mut self.effects)
    }

    pub(crate) fn leave(&mut self, claim: &Claim) {
        assert!(self.line.leave(claim.id, Leave::Done, self.at, &mut self.effects));
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.at.lease = self.at.lease + Duration::from_millis(ms);
        self.at.micros += ms * 3;
    }

    /// Lets lapsed claims go, and says what is left.
    pub(crate) fn view(&mut self) -> LockView {
        self.line.renew(unknown(), self.at, &mut self.effects);
        self.line.look(self.at)
    }

    fn picked(&self, pick: usize) -> Option<Arc<Claim>> {
        // Mostly those that came last: the others have left long ago.
        let of = self.claims.len();
        (of > 0).then(|| Arc::clone(&self.claims[of - 1 - pick % of.min(200)]))
    }

    pub(crate) fn play_all(&mut self, ops: &[Op]) {
        for op in ops {
            self.play(op);
        }
    }

    /// Plays one operation.
    pub(crate) fn play(&mut self, op: &Op) -> Answer {
        self.effects.clear();
        let (at, effects) = (self.at, &mut Vec::new());
        let picked = match *op {
            Op::Again(pick) | Op::Renew(pick) | Op::Leave(pick, _) => self.picked(pick),
            Op::Enter { share, owner, ttl, .. } => Some(self.make(share, owner, ttl)),
            Op::LeaveUnknown | Op::Pass(_) => None,
        };
        let answer = match (op, &picked) {
            (Op::Enter { ask, .. }, Some(claim)) => {
                Answer::Entered(self.line.enter(claim, *ask, at, effects))
            }
            (Op::Again(_), Some(claim)) => Answer::Entered(self.line.enter(claim, Ask::Queue, at, effects)),
            (Op::Renew(_), Some(claim)) => Answer::Stands(self.line.renew(claim.id, at, effects)),
            (Op::Leave(_, why), Some(claim)) => {
                Answer::Left(self.line.leave(claim.id, why.clone(), at, effects))
            }
            (Op::LeaveUnknown, _) => Answer::Left(self.line.leave(unknown(), Leave::Done, at, effects)),
            (Op::Pass(ms), _) => {
                self.pass(*ms);
                Answer::Nothing
            }
            _ => Answer::Nothing,
        };
        self.effects.append(effects);
        self.about = picked;
        answer
    }
}
