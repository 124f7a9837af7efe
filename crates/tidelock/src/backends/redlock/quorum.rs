//! What follows from votes. Pure: no server, no clock.
//!
//! Whatever is missing never counts as a yes: a majority is one of all servers, not of those that answered.

use crate::backend::Ask;

/// What one server says about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    /// It holds here, with this epoch.
    Holds(u64),
    /// It is in line here.
    Waits,
    /// It was tried, and is not in line here.
    Busy,
    /// It can never hold here as it is.
    Refused,
    /// It is not in line here.
    Gone,
    /// No answer will come, or the server has no vote.
    Nothing,
    /// The answer is awaited.
    Awaited,
    /// The answer is awaited only if nothing is known without it: the server was late before.
    Late,
}

/// The token of a claim that a majority lets hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) epoch: u64,
    /// Whether a majority has it, so that every later grant is larger. Else it has to be written to one.
    pub(super) agreed: bool,
}

/// What became of entering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Holds(Token),
    Waits,
    Busy,
    /// It was tried and holds on some servers. Perhaps nobody has a majority.
    Split,
    Refused,
    /// Too few servers answered.
    Failed,
}

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Holds(Token),
    Waits,
    Gone,
    /// Too few servers answered.
    Unknown,
}

/// More than half of all.
pub(super) fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

fn count(votes: &[Vote], which: impl Fn(&Vote) -> bool) -> usize {
    votes.iter().filter(|vote| which(vote)).count()
}

/// The token of a majority that holds; nothing if there is none.
fn token(votes: &[Vote]) -> Option<Token> {
    let needed = majority(votes.len());
    let epoch = |vote: &Vote| if let Vote::Holds(epoch) = vote { Some(*epoch) } else { None };
    if votes.iter().filter_map(epoch).count() < needed {
        return None;
    }
    let shared = |one: &u64| votes.iter().filter_map(epoch).filter(|other| other == one).count() >= needed;
    if let Some(epoch) = votes.iter().filter_map(epoch).find(shared) {
        return Some(Token { epoch, agreed: true });
    }
    let epoch = votes.iter().filter_map(epoch).max()?;
    Some(Token { epoch, agreed: false })
}

/// What became of entering; nothing while answers that matter are awaited.
pub(super) fn entry(votes: &[Vote], ask: Ask) -> Option<Entry> {
    if let Some(token) = token(votes) {
        return Some(Entry::Holds(token));
    }
    let needed = majority(votes.len());
    let silent = count(votes, |vote| matches!(vote, Vote::Nothing | Vote::Gone));
    if silent > votes.len() - needed {
        return Some(Entry::Failed);
    }
    let late = count(votes, |vote| *vote == Vote::Late);
    if votes.contains(&Vote::Awaited) || silent + late > votes.len() - needed {
        return None;
    }
    let holds = count(votes, |vote| matches!(vote, Vote::Holds(_)));
    let waits = count(votes, |vote| *vote == Vote::Waits);
    Some(match ask {
        Ask::Queue if holds + waits >= needed => Entry::Waits,
        _ if votes.contains(&Vote::Refused) => Entry::Refused,
        Ask::Queue => Entry::Failed,
        Ask::Try if holds + waits > 0 => Entry::Split,
        Ask::Try => Entry::Busy,
    })
}

/// How a claim stands; nothing while answers that matter are awaited. `held` says that it held before: then it
/// does so no more as soon as a majority can do without it.
pub(super) fn outcome(votes: &[Vote], held: bool) -> Option<Outcome> {
    if let Some(token) = token(votes) {
        return Some(Outcome::Holds(token));
    }
    let needed = majority(votes.len());
    let without = count(votes, |vote| *vote == Vote::Gone || held && *vote == Vote::Waits);
    if without > votes.len() - needed {
        return Some(Outcome::Gone);
    }
    if votes.contains(&Vote::Awaited) {
        return None;
    }
    let in_line = count(votes, |vote| matches!(vote, Vote::Holds(_) | Vote::Waits));
    if in_line >= needed && !held {
        return Some(Outcome::Waits);
    }
    (!votes.contains(&Vote::Late)).then_some(Outcome::Unknown)
}

/// Whether enough servers did what had to be done, which here is [`Gone`](Vote::Gone); nothing while answers that
/// matter are awaited.
pub(super) fn done(votes: &[Vote]) -> Option<bool> {
    let (done, needed) = (count(votes, |vote| *vote == Vote::Gone), majority(votes.len()));
    let failed = count(votes, |vote| *vote == Vote::Nothing);
    if failed > votes.len() - needed {
        return Some(false);
    }
    (!votes.contains(&Vote::Awaited) && done >= needed).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::{
        Vote::{Awaited as A, Busy as B, Gone as G, Late as L, Nothing as N, Refused as R, Waits as W},
        *,
    };

    const fn h(epoch: u64) -> Vote {
        Vote::Holds(epoch)
    }

    fn holds(epoch: u64, agreed: bool) -> Option<Entry> {
        Some(Entry::Holds(Token { epoch, agreed }))
    }

    #[test]
    fn entering_needs_a_majority_of_all_servers() {
        use Ask::{Queue, Try};
        let table: &[(&[Vote], Ask, Option<Entry>)] = &[
            (&[h(7), h(7), h(7), A, A], Queue, holds(7, true)),
            (&[h(7), h(7), A, A, A], Queue, None),
            // A majority of those that answered is none.
            (&[h(7), h(7), N, N, A], Queue, None),
            (&[h(7), h(7), N, N, W], Queue, Some(Entry::Waits)),
            (&[h(7), h(7), N, N, N], Queue, Some(Entry::Failed)),
            (&[h(7), N, N, N, A], Try, Some(Entry::Failed)),
            (&[h(7), h(7)], Queue, holds(7, true)),
            (&[h(7), N], Queue, Some(Entry::Failed)),
            (&[h(1), h(1), N, N], Try, Some(Entry::Failed)),
            // Epochs that differ have to be written back, unless a majority has one.
            (&[h(7), h(9), h(7), W, W], Queue, holds(9, false)),
            (&[h(7), h(9), h(7), h(7), W], Queue, holds(7, true)),
            (&[W, W, W, A, A], Queue, None),
            (&[W, W, W, h(1), h(1)], Queue, Some(Entry::Waits)),
            (&[B, B, B, B, B], Try, Some(Entry::Busy)),
            (&[B, B, B, N, N], Try, Some(Entry::Busy)),
            (&[B, B, B, h(3), N], Try, Some(Entry::Split)),
            (&[h(1), h(2), B, B, A], Try, None),
            (&[R, R, R, R, R], Queue, Some(Entry::Refused)),
            (&[R, R, h(1), h(1), h(1)], Queue, holds(1, true)),
            (&[R, R, W, W, W], Queue, Some(Entry::Waits)),
            (&[R, W, W, N, N], Queue, Some(Entry::Refused)),
            // A late server is waited for only where nothing is known without it.
            (&[h(7), h(7), h(7), L, L], Queue, holds(7, true)),
            (&[W, W, W, L, L], Queue, Some(Entry::Waits)),
            (&[h(7), h(7), L, L, L], Queue, None),
            (&[B, B, L, L, N], Try, None),
            (&[B, B, B, L, N], Try, Some(Entry::Busy)),
        ];
        for (votes, ask, expected) in table {
            assert_eq!(entry(votes, *ask), *expected, "{votes:?}");
        }
    }

    #[test]
    fn standing_needs_a_majority_of_all_servers() {
        let token = |epoch, agreed| Some(Outcome::Holds(Token { epoch, agreed }));
        let table: &[(&[Vote], bool, Option<Outcome>)] = &[
            (&[h(7), h(7), h(7), A, A], true, token(7, true)),
            (&[h(7), h(7), h(7), G, G], true, token(7, true)),
            (&[h(7), h(8), h(9), A, A], false, token(9, false)),
            (&[h(7), h(7), A, A, A], true, None),
            (&[h(7), h(7), G, N, N], true, Some(Outcome::Unknown)),
            (&[h(7), h(7), G, G, G], true, Some(Outcome::Gone)),
            (&[h(7), h(7), W, G, G], true, Some(Outcome::Gone)),
            (&[h(7), h(7), W, N, N], true, Some(Outcome::Unknown)),
            (&[h(7), h(7), W, N, N], false, Some(Outcome::Waits)),
            (&[G, G, G, A, A], true, Some(Outcome::Gone)),
            (&[G, G, W, W, W], false, Some(Outcome::Waits)),
            (&[W, W, N, N, N], false, Some(Outcome::Unknown)),
            (&[N, N, N, N, N], false, Some(Outcome::Unknown)),
            (&[h(7), h(7), h(7), L, L], true, token(7, true)),
            (&[h(7), h(7), L, N, N], true, None),
            (&[W, W, W, L, L], false, Some(Outcome::Waits)),
        ];
        for (votes, held, expected) in table {
            assert_eq!(outcome(votes, *held), *expected, "{votes:?}");
        }
    }

    #[test]
    fn what_has_to_be_done_is_done_by_a_majority_of_all_servers() {
        let table: &[(&[Vote], Option<bool>)] = &[
            (&[G, G, G, N, N], Some(true)),
            (&[G, G, N, N, N], Some(false)),
            (&[N, N, N, A, A], Some(false)),
            // The others hear of it too, if they are well: else they would let nobody in for a while.
            (&[G, G, G, A, A], None),
            (&[G, G, G, L, L], Some(true)),
            (&[G, G, L, L, L], None),
            (&[G, N, A], None),
        ];
        for (votes, expected) in table {
            assert_eq!(done(votes), *expected, "{votes:?}");
        }
        assert_eq!([1, 2, 3, 4, 5].map(majority), [1, 2, 2, 3, 3]);
    }
}
