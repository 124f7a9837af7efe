//! The naive variants: ways to get it wrong that the search must find.

use crate::{
    line::StepBack,
    rules::{Bounds, Epochs, From, Majority, Promise, Rejoin, Rules, Steps},
    runs::{Party, Plan, Run, Size},
};

const CALM: Bounds = Bounds::CALM;

/// Every naive variant. Each differs from ours in one rule, or in one assumption about clocks.
pub const NAIVE: &[Run] = &[
    naive(
        Promise::OneHolder,
        "no-uptime-rule",
        "a server votes at once after a restart that made it forget who holds",
        Party::Three2,
        Rules { rejoin: Rejoin::AtOnce, ..Rules::UNNUMBERED },
        Bounds { forgets: 1, ..CALM },
    ),
    naive(
        Promise::OneHolder,
        "uptime-of-own-ttl",
        "a server votes when it is up for the ttl of the client that asks, though another has a longer lease",
        Party::Three2,
        Rules { rejoin: Rejoin::TooSoon, ..Rules::UNNUMBERED },
        Bounds { forgets: 1, ..CALM },
    ),
    naive(
        Promise::OneHolder,
        "majority-of-answered",
        "servers that did not answer are left out of the count",
        Party::Three2,
        Rules { majority: Majority::OfAnswered, ..Rules::UNNUMBERED },
        CALM,
    ),
    naive(
        Promise::OrderedTokens,
        "no-write-back",
        "the largest epoch of the voters is used as token though only one of them knows it",
        Party::Three2,
        Rules { write_back: false, ..Rules::OURS },
        Bounds { skew: 1, ..CALM },
    ),
    naive(
        Promise::OneHolder,
        "window-from-answer",
        "the window is counted from the answers, but leases began to run before",
        Party::Three2,
        Rules { window_from: From::Answer, ..Rules::UNNUMBERED },
        CALM,
    ),
    naive(
        Promise::OneHolder,
        "renewed-from-answer",
        "the window of a renewed hold is counted from the answers",
        Party::Three2,
        Rules { renewed_from: From::Answer, ..Rules::UNNUMBERED },
        Bounds { ttl: 4, renewals: 1, ..CALM },
    ),
    naive(
        Promise::OneHolder,
        "no-drift",
        "the window is as long as the lease, but the server's clock may run faster",
        Party::Three2,
        Rules { drift_margin: false, ..Rules::UNNUMBERED },
        CALM,
    ),
    naive(
        Promise::OneHolder,
        "renewal-trusts-young-server",
        "a renewal takes its place again on a server that just forgot everything, and counts it",
        Party::Three2,
        Rules { young_confirm_all: true, ..Rules::UNNUMBERED },
        Bounds { renewals: 1, forgets: 1, ..CALM },
    ),
    naive(
        Promise::OneHolder,
        "renewal-trusts-known-hold",
        "a server that just restarted confirms a hold because it knows it, but it came there after the restart",
        Party::Three2,
        Rules { young_confirm_known: true, ..Rules::UNNUMBERED },
        Bounds { renewals: 1, forgets: 1, ..CALM },
    ),
    naive(
        Promise::OrderedTokens,
        "counted-epochs",
        "epochs are counters without a clock, and a server that forgets starts at zero",
        Party::Three2,
        Rules { epochs: Epochs::Counted, ..Rules::OURS },
        Bounds { forgets: 1, ..CALM },
    ),
    naive(
        Promise::OrderedTokens,
        "wall-clocks-apart",
        "wall clocks differ by as much as the time for which a server that forgot does not vote",
        Party::Three2,
        Rules::OURS,
        Bounds { forgets: 1, skew: 2, ..CALM },
    ),
    naive(
        Promise::OrderedTokens,
        "late-yes-revives",
        "a renewal that is confirmed after the window's end opens it again, with an old token",
        Party::Three2,
        Rules { late_yes_revives: true, epochs: Epochs::Counted, ..Rules::OURS },
        Bounds { renewals: 1, ..CALM },
    ),
    naive(
        Promise::OneHolder,
        "leave-by-name",
        "a release that comes late frees what another holds by now",
        Party::Three3,
        Rules { leave_by_name: true, ..Rules::UNNUMBERED },
        CALM,
    ),
    naive(
        Promise::OneHolder,
        "clock-step-unseen",
        "a server whose clock stepped ahead, which ended a lease there, votes",
        Party::Three2,
        Rules { steps: Steps::Unseen, ..Rules::UNNUMBERED },
        Bounds { jumps: 1, ..CALM },
    ),
    naive(
        Promise::OneHolder,
        "put-back-alone",
        "clocks are not compared, but a holder is put on a server that comes back: not always soon enough",
        Party::Three2,
        Rules { steps: Steps::Unseen, ..Rules::UNNUMBERED },
        Bounds { jumps: 1, puts: 1, ..CALM },
    ),
    naive(
        Promise::OneHolder,
        "uptime-by-wall-clock",
        "a server that forgot seems to be up for long once its clock, which was behind, is set right",
        Party::Three2,
        Rules { steps: Steps::Age, ..Rules::UNNUMBERED },
        Bounds { forgets: 1, jumps: 1, ..CALM },
    ),
    naive(
        Promise::NoDeadlock,
        "never-rejoin",
        "a server that forgot never votes again, so that a second one that forgets stops everything",
        Party::Three2,
        Rules { rejoin: Rejoin::Never, ..Rules::OURS },
        Bounds { forgets: 2, ..CALM },
    ),
    Run {
        name: "wait-for-ever",
        what: "clients that are first on too few servers stay there, each waiting for the others",
        size: Size::Quick,
        breaks: Some(Promise::NoDeadlock),
        plan: Plan::Line { step_back: StepBack::Never },
    },
    Run {
        name: "step-back-unseen",
        what: "a client steps back while another task of it counts the votes of a majority",
        size: Size::Quick,
        breaks: Some(Promise::OneHolder),
        plan: Plan::Line { step_back: StepBack::Unseen },
    },
];

const fn naive(
    breaks: Promise,
    name: &'static str,
    what: &'static str,
    party: Party,
    rules: Rules,
    bounds: Bounds,
) -> Run {
    Run { name, what, size: Size::Quick, breaks: Some(breaks), plan: Plan::Redlock { party, rules, bounds } }
}
