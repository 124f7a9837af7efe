//! The searches that the project relies on.

use crate::{
    check::{self, Report},
    line::{self, StepBack},
    rules::{Bounds, Promise, Rules},
};

/// How long one is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Seconds: part of the tests.
    Quick,
    /// A few minutes.
    Normal,
    /// As long as it takes.
    Large,
}

/// How many take part: servers, then clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// Three servers, two clients.
    Three2,
    /// Three servers, three clients.
    Three3,
    /// Five servers, two clients.
    Five2,
}

/// What is searched.
#[derive(Clone, Copy, Debug)]
pub enum Plan {
    /// Clients that ask for votes.
    Redlock {
        /// How many take part.
        party: Party,
        /// What they do.
        rules: Rules,
        /// How far the search goes.
        bounds: Bounds,
    },
    /// Clients that stand in line.
    Line {
        /// When those that are first on too few servers step back.
        step_back: StepBack,
    },
}

/// A search.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the world is like, or what is wrong with the rules.
    pub what: &'static str,
    /// The smallest size that includes it.
    pub size: Size,
    /// What must be found. Nothing, if the rules are right.
    pub breaks: Option<Promise>,
    /// What is searched.
    pub plan: Plan,
}

impl Run {
    /// Searches until all is seen, or what must be found is found.
    pub fn search(&self) -> Report {
        match self.plan {
            Plan::Line { step_back } => line::all::<3, 3>(step_back),
            Plan::Redlock { party: Party::Three2, rules, bounds } => self.votes::<3, 2>(rules, bounds),
            Plan::Redlock { party: Party::Three3, rules, bounds } => self.votes::<3, 3>(rules, bounds),
            Plan::Redlock { party: Party::Five2, rules, bounds } => self.votes::<5, 2>(rules, bounds),
        }
    }

    fn votes<const S: usize, const C: usize>(&self, rules: Rules, bounds: Bounds) -> Report {
        match self.breaks {
            Some(promise) => check::first::<S, C>(rules, bounds, promise),
            None => check::all::<S, C>(rules, bounds),
        }
    }

    /// Whether a search has shown what it should.
    pub fn is_as_it_should(&self, report: &Report) -> bool {
        self.breaks == report.broken.as_ref().map(|(promise, _)| *promise)
    }
}

const CALM: Bounds = Bounds::CALM;
const SKEWED: Bounds = Bounds { skew: 1, ..CALM };
/// Ours, and a renewal does not take the place again where it is gone.
const NOT_AGAIN: Rules = Rules { renewal_recreates: false, ..Rules::UNNUMBERED };

/// The searches in which nothing may be found.
pub const OURS: &[Run] = &[
    ours(
        Size::Quick,
        "holders",
        "a renewal, a restart without memory",
        Party::Three2,
        Rules::UNNUMBERED,
        Bounds { renewals: 1, forgets: 1, ..CALM },
    ),
    ours(
        Size::Quick,
        "holders-stepped",
        "a clock that steps and is set right, a holder put on a server that was away",
        Party::Three2,
        Rules::UNNUMBERED,
        Bounds { jumps: 1, puts: 1, ..CALM },
    ),
    ours(
        Size::Large,
        "holders-stepped-forgotten",
        "the same, with a renewal and a restart without memory",
        Party::Three2,
        Rules::UNNUMBERED,
        Bounds { jumps: 1, puts: 1, renewals: 1, forgets: 1, ..CALM },
    ),
    ours(Size::Quick, "tokens", "wall clocks apart", Party::Three2, Rules::OURS, SKEWED),
    Run {
        name: "line",
        what: "waiting in line, with and without a server down",
        size: Size::Quick,
        breaks: None,
        plan: Plan::Line { step_back: StepBack::Decided },
    },
    ours(
        Size::Normal,
        "holders-forgotten",
        "a renewal, two restarts without memory",
        Party::Three2,
        Rules::UNNUMBERED,
        Bounds { renewals: 1, forgets: 2, ..CALM },
    ),
    ours(
        Size::Normal,
        "holders-doubled",
        "a renewal, a restart without memory, a message twice",
        Party::Three2,
        Rules::UNNUMBERED,
        Bounds { renewals: 1, forgets: 1, doubles: 1, ..CALM },
    ),
    ours(
        Size::Normal,
        "holders-longer",
        "a longer lease, a renewal, a restart without memory",
        Party::Three2,
        Rules::UNNUMBERED,
        Bounds { ttl: 4, renewals: 1, forgets: 1, ..CALM },
    ),
    ours(
        Size::Normal,
        "holders-crowd",
        "three clients, a restart without memory",
        Party::Three3,
        Rules::UNNUMBERED,
        Bounds { forgets: 1, ..CALM },
    ),
    ours(Size::Normal, "holders-five", "five servers", Party::Five2, Rules::UNNUMBERED, CALM),
    ours(
        Size::Normal,
        "tokens-forgotten",
        "wall clocks apart, a restart without memory",
        Party::Three2,
        Rules::OURS,
        Bounds { forgets: 1, ..SKEWED },
    ),
    ours(
        Size::Normal,
        "tokens-far",
        "wall clocks further apart than a lease, but no server forgets",
        Party::Three2,
        Rules::OURS,
        Bounds { skew: 4, ..CALM },
    ),
    ours(
        Size::Normal,
        "tokens-doubled",
        "wall clocks apart, a message twice",
        Party::Three2,
        Rules::OURS,
        Bounds { doubles: 1, ..SKEWED },
    ),
    ours(
        Size::Normal,
        "renewal-not-again",
        "as holders, but a renewal does not take back a place that is gone",
        Party::Three2,
        NOT_AGAIN,
        Bounds { renewals: 1, forgets: 1, ..CALM },
    ),
    ours(
        Size::Normal,
        "holders-restarted",
        "a renewal, a restart without memory and one with it",
        Party::Three2,
        Rules::UNNUMBERED,
        Bounds { renewals: 1, forgets: 1, restarts: 1, ..CALM },
    ),
    ours(
        Size::Large,
        "holders-restarted-thrice",
        "a renewal, two restarts without memory and one with it",
        Party::Three2,
        Rules::UNNUMBERED,
        Bounds { renewals: 1, forgets: 2, restarts: 1, ..CALM },
    ),
    ours(
        Size::Large,
        "holders-five-forgotten",
        "five servers, a restart without memory",
        Party::Five2,
        Rules::UNNUMBERED,
        Bounds { forgets: 1, ..CALM },
    ),
    ours(
        Size::Large,
        "tokens-renewed",
        "wall clocks apart, a renewal",
        Party::Three2,
        Rules::OURS,
        Bounds { renewals: 1, ..SKEWED },
    ),
];

const fn ours(
    size: Size,
    name: &'static str,
    what: &'static str,
    party: Party,
    rules: Rules,
    bounds: Bounds,
) -> Run {
    Run { name, what, size, breaks: None, plan: Plan::Redlock { party, rules, bounds } }
}
