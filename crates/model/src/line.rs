//! Waiting in line on several servers at once: can everybody wait for everybody?
//!
//! A model of its own, without clocks: on each server claims stand in line, and the one that is first on a majority holds. If three
//! clients are first on one server each, nobody ever moves unless somebody steps back. Links keep their order here, as
//! connections do; how late something arrives is open. What a client hears is open, too: it holds by votes, and steps
//! back by what it saw, of an earlier moment.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use stateright::{HasDiscoveries, Model, Property};

use crate::{
    check::{Report, search},
    rules::{Bounds, Promise},
};

/// What is between a client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    /// Nothing.
    Out,
    /// The question for a place is under way.
    Entering,
    /// The question is under way, and the release right behind it.
    Passing,
    /// The client is in line.
    In,
    /// The client is in line, and its release is under way.
    Leaving,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    /// It is about to ask.
    Idle,
    /// It stands in line, or is on its way there.
    Standing,
    /// It holds the lock.
    Holding,
    /// It gives its places back, and asks again when that is done.
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Site<const C: usize> {
    /// Nothing arrives there.
    down: bool,
    /// Who stands in line, from the first on.
    line: [Option<u8>; C],
    places: [Place; C],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State<const S: usize, const C: usize> {
    sites: [Site<C>; S],
    phases: [Phase; C],
    /// Whose majority of votes is under way to it.
    voted: [bool; C],
    /// Who saw that it is first on too few servers, and is about to step back.
    split: [bool; C],
}

/// When a client that is first on too few servers steps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepBack {
    /// Never: it waits for the others.
    Never,
    /// After a while, unless it holds by then; then no vote from before counts.
    Decided,
    /// After a while. Votes are counted by another task, and neither knows of the other.
    Unseen,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Enter(usize),
    Arrive(usize, usize),
    Vote(usize),
    Take(usize),
    Look(usize),
    MakeWay(usize),
    Release(usize),
}

struct Line<const S: usize, const C: usize> {
    step_back: StepBack,
    /// What was found: the first is the shortest.
    found: [AtomicBool; 5],
}

/// Looks at all states of S servers, of which less than half are down, and C clients that want the lock again and again.
pub fn all<const S: usize, const C: usize>(step_back: StepBack) -> Report {
    let until =
        HasDiscoveries::AnyOf(BTreeSet::from([Promise::OneHolder, Promise::NoDeadlock].map(Promise::name)));
    let model = Line::<S, C> { step_back, found: Default::default() };
    search(model, 1, until, (S, C, Bounds::NONE), |_, path| tell(path))
}

/// Things that must be possible, or the promises say nothing.
pub const POSSIBLE: [&str; 3] = [
    "a client holds in front of a line",
    "each server has another client first",
    "a client holds with a server down",
];

impl<const S: usize, const C: usize> State<S, C> {
    /// On how many servers a client is first.
    fn first(&self, client: usize) -> usize {
        self.sites.iter().filter(|site| site.line[0] == Some(client as u8)).count()
    }

    fn after(&self, step: Step) -> Self {
        let mut next = *self;
        match step {
            Step::Enter(client) => {
                next.phases[client] = Phase::Standing;
                next.sites.iter_mut().for_each(|site| site.places[client] = Place::Entering);
            }
            Step::Arrive(client, server) => next.sites[server].arrive(client),
            Step::Vote(client) => next.voted[client] = true,
            Step::Look(client) => next.split[client] = true,
            Step::Take(client) => {
                next.phases[client] = Phase::Holding;
                next.voted[client] = false;
            }
            Step::MakeWay(client) | Step::Release(client) => {
                next.split[client] = false;
                // Who holds relies on it, whatever another task does.
                if next.phases[client] == Phase::Standing || matches!(step, Step::Release(_)) {
                    next.phases[client] = Phase::Leaving;
                }
                for site in &mut next.sites {
                    let place = &mut site.places[client];
                    *place = match *place {
                        // The connection is gone, and the question with it.
                        Place::Entering if site.down => Place::Out,
                        Place::Entering => Place::Passing,
                        Place::In => Place::Leaving,
                        other => other,
                    };
                }
            }
        }
        for client in 0..C {
            let is_out = next.sites.iter().all(|site| site.places[client] == Place::Out);
            if next.phases[client] == Phase::Leaving && is_out {
                next.phases[client] = Phase::Idle;
                (next.voted[client], next.split[client]) = (false, false);
            }
        }
        next
    }

    /// All that is under way arrives.
    fn arrive_all(mut self) -> Self {
        for (server, client) in (0..S).flat_map(|server| (0..C).map(move |client| (server, client))) {
            while self.sites[server].is_under_way(client) {
                self = self.after(Step::Arrive(client, server));
            }
        }
        self
    }
}

impl<const C: usize> Site<C> {
    fn is_under_way(&self, client: usize) -> bool {
        !self.down && matches!(self.places[client], Place::Entering | Place::Passing | Place::Leaving)
    }

    fn arrive(&mut self, client: usize) {
        let me = Some(client as u8);
        match self.places[client] {
            Place::Entering | Place::Passing => {
                if let Some(end) = self.line.iter_mut().find(|place| place.is_none()) {
                    *end = me;
                }
                let passing = self.places[client] == Place::Passing;
                self.places[client] = if passing { Place::Leaving } else { Place::In };
            }
            Place::Leaving => {
                if let Some(at) = self.line.iter().position(|place| *place == me) {
                    self.line[at..].rotate_left(1);
                    self.line[C - 1] = None;
                }
                self.places[client] = Place::Out;
            }
            Place::Out | Place::In => {}
        }
    }
}

impl<const S: usize, const C: usize> Line<S, C> {
    fn may_step_back(&self, state: &State<S, C>, client: usize) -> bool {
        let first = state.first(client);
        let steps_back = self.step_back != StepBack::Never;
        steps_back && state.phases[client] == Phase::Standing && first > 0 && first <= S / 2
    }

    /// Whether a client still does what it was about to do, though something else came first.
    fn is_late(&self, state: &State<S, C>, client: usize, step: Step) -> bool {
        let before = match step {
            Step::Take(_) => Phase::Leaving,
            _ => Phase::Holding,
        };
        self.step_back == StepBack::Unseen && state.phases[client] == before
    }

    /// Everybody stands in line and nothing is under way: there every state comes to in which nobody gets the lock.
    /// From here on, one after the other, those that are first on too few servers step back, all but one. Does
    /// somebody get the lock?
    fn recovers(&self, state: &State<S, C>) -> bool {
        let is_under_way = |site: &Site<C>| (0..C).any(|client| site.is_under_way(client));
        if state.phases != [Phase::Standing; C] || state.sites.iter().any(is_under_way) {
            return true;
        }
        let mut state = *state;
        // A client that steps back lets others come first, which may have to step back too.
        for _ in 0..=C {
            let standing = (0..C).filter(|&client| state.phases[client] == Phase::Standing);
            if standing.clone().any(|client| state.first(client) > S / 2) {
                return true;
            }
            let stays = standing.clone().find(|&client| state.first(client) > 0);
            let Some(back) = standing
                .filter(|&client| Some(client) != stays)
                .find(|&client| self.may_step_back(&state, client))
            else {
                return false;
            };
            state = state.after(Step::MakeWay(back)).arrive_all();
        }
        false
    }

    fn is_new(&self, number: usize, is_so: impl FnOnce() -> bool) -> bool {
        !self.found[number].load(Ordering::Relaxed)
            && is_so()
            && !self.found[number].swap(true, Ordering::Relaxed)
    }
}

impl<const S: usize, const C: usize> Model for Line<S, C> {
    type State = State<S, C>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        let site = Site { down: false, line: [None; C], places: [Place::Out; C] };
        let start = |down: usize| State {
            sites: std::array::from_fn(|server| Site { down: server < down, ..site }),
            phases: [Phase::Idle; C],
            voted: [false; C],
            split: [false; C],
        };
        (0..S.div_ceil(2)).map(start).collect()
    }

    fn actions(&self, state: &Self::State, steps: &mut Vec<Step>) {
        for client in 0..C {
            match state.phases[client] {
                Phase::Idle => steps.push(Step::Enter(client)),
                Phase::Standing if state.first(client) > S / 2 && !state.voted[client] => {
                    steps.push(Step::Vote(client));
                }
                Phase::Standing if self.may_step_back(state, client) && !state.split[client] => {
                    steps.push(Step::Look(client));
                }
                Phase::Holding => steps.push(Step::Release(client)),
                Phase::Standing | Phase::Leaving => {}
            }
            let stands = state.phases[client] == Phase::Standing;
            for (is_due, step) in
                [(state.voted[client], Step::Take(client)), (state.split[client], Step::MakeWay(client))]
            {
                if is_due && (stands || self.is_late(state, client, step)) {
                    steps.push(step);
                }
            }
            let under_way = (0..S).filter(|&server| state.sites[server].is_under_way(client));
            steps.extend(under_way.map(|server| Step::Arrive(client, server)));
        }
    }

    fn next_state(&self, state: &Self::State, step: Step) -> Option<Self::State> {
        Some(state.after(step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn holders<const S: usize, const C: usize>(state: &State<S, C>) -> usize {
            state.phases.iter().filter(|phase| **phase == Phase::Holding).count()
        }
        vec![
            Property::always(Promise::OneHolder.name(), |model: &Self, state: &State<S, C>| {
                !model.is_new(0, || holders(state) > 1)
            }),
            Property::always(Promise::NoDeadlock.name(), |model: &Self, state: &State<S, C>| {
                !model.is_new(1, || !model.recovers(state))
            }),
            Property::sometimes(POSSIBLE[0], |model: &Self, state: &State<S, C>| {
                model
                    .is_new(2, || holders(state) > 0 && state.sites.iter().any(|site| site.line[1].is_some()))
            }),
            Property::sometimes(POSSIBLE[1], |model: &Self, state: &State<S, C>| {
                model.is_new(3, || {
                    let heads: BTreeSet<_> = state.sites.iter().filter_map(|site| site.line[0]).collect();
                    heads.len() == S
                })
            }),
            Property::sometimes(POSSIBLE[2], |model: &Self, state: &State<S, C>| {
                model.is_new(4, || holders(state) > 0 && state.sites[0].down)
            }),
        ]
    }
}

/// The way to a state where nobody can go on, or two do.
fn tell<const S: usize, const C: usize>(path: Vec<(State<S, C>, Option<Step>)>) -> Vec<String> {
    let name = |client: usize| char::from(b'A' + client as u8);
    let mut lines = Vec::new();
    let mut end = None;
    for (state, step) in path {
        end = Some(state);
        lines.push(match step {
            None => break,
            Some(Step::Enter(client)) => {
                format!("client {} asks all servers for a place in line", name(client))
            }
            Some(Step::Arrive(client, server)) => match state.sites[server].places[client] {
                Place::Leaving => format!("server {} takes client {} out of line", server + 1, name(client)),
                _ => format!("server {} puts client {} into line", server + 1, name(client)),
            },
            Some(Step::Vote(client)) => format!("a majority lets client {} hold", name(client)),
            Some(Step::Take(client)) => format!("client {} hears that, and holds", name(client)),
            Some(Step::Look(client)) => {
                format!("client {} sees that it is first on too few servers", name(client))
            }
            Some(Step::MakeWay(client)) => format!("client {} steps back: tells all servers", name(client)),
            Some(Step::Release(client)) => format!("client {} releases: tells all servers", name(client)),
        });
    }
    let holders = end.iter().flat_map(|state| state.phases).filter(|phase| *phase == Phase::Holding).count();
    if holders > 1 {
        lines.push(format!("TWO HOLDERS of the line: {holders} clients rely on the lock"));
        return lines;
    }
    let firsts = end.iter().flat_map(|state| state.sites.iter().enumerate()).map(|(server, site)| {
        let who =
            site.line[0].map_or("nobody".to_owned(), |client| format!("client {}", name(client.into())));
        let down = if site.down { " (down)" } else { "" };
        format!("{who} on server {}{down}", server + 1)
    });
    lines.push(format!(
        "DEADLOCK of the line, everybody waits for ever; first is {}",
        firsts.collect::<Vec<_>>().join(", ")
    ));
    lines
}
