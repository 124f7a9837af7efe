//! The search: every order of steps within the bounds.

use std::{
    collections::BTreeSet,
    hash::Hash,
    sync::atomic::{AtomicBool, Ordering},
    thread::available_parallelism,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::{
    rules::{Bounds, Promise, Rules},
    state::{Holder, Phase, State},
    steps::{Question, Step, World},
    story,
};

/// Things that must be possible, or the promises say nothing.
pub const POSSIBLE: [&str; 6] = [
    "a client holds the lock",
    "the lock passes from one client to another",
    "a token is written back before the guard is returned",
    "a renewal is confirmed by a majority",
    "a server is freshly restarted while a client holds",
    "a client holds though a majority of servers forgot it",
];

/// What a search has shown.
#[derive(Clone, Debug)]
pub struct Report {
    /// Servers.
    pub servers: usize,
    /// Clients, each with one claim.
    pub clients: usize,
    /// The bounds of the search.
    pub bounds: Bounds,
    /// Different states; those that differ in names only are one.
    pub unique: usize,
    /// Steps taken.
    pub total: usize,
    /// Steps to the state that is furthest from the start, or a few more if several threads searched.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// What was seen of that which must be possible.
    pub seen: Vec<&'static str>,
    /// What is broken, and how, in words.
    pub broken: Option<(Promise, Vec<String>)>,
}

/// Looks at all states, and ends at the first that breaks a promise.
pub fn all<const S: usize, const C: usize>(rules: Rules, bounds: Bounds) -> Report {
    let threads = available_parallelism().map_or(1, usize::from);
    run::<S, C>(rules, bounds, threads, HasDiscoveries::AnyFailures)
}

/// Looks for a shortest way to break a promise.
pub fn first<const S: usize, const C: usize>(rules: Rules, bounds: Bounds, promise: Promise) -> Report {
    // With one thread the first that is found is a shortest.
    run::<S, C>(rules, bounds, 1, HasDiscoveries::AnyOf(BTreeSet::from([promise.name()])))
}

fn run<const S: usize, const C: usize>(
    rules: Rules,
    bounds: Bounds,
    threads: usize,
    until: HasDiscoveries,
) -> Report {
    let world = World { rules, bounds };
    let wanted = match &until {
        HasDiscoveries::AnyOf(names) => names.clone(),
        _ => PROMISES.map(Promise::name).into(),
    };
    let model = Redlock::<S, C> { world, wanted, found: Default::default() };
    search(model, threads, until, (S, C, bounds), |promise, path| {
        let states: Vec<_> = path.into_iter().map(|(state, _)| state).collect();
        story::tell(&world, promise, &states)
    })
}

/// Runs a checker until it has found what it looks for, or seen all states.
#[expect(
    clippy::disallowed_methods,
    reason = "the time of a search is no lease, and nothing is decided by it"
)]
pub(crate) fn search<M>(
    model: M,
    threads: usize,
    until: HasDiscoveries,
    (servers, clients, bounds): (usize, usize, Bounds),
    tell: impl FnOnce(Promise, Vec<(M::State, Option<M::Action>)>) -> Vec<String>,
) -> Report
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + PartialEq,
{
    let start = Instant::now();
    let checker = model.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let took = start.elapsed();
    let mut found = checker.discoveries();
    let broken = PROMISES.into_iter().find_map(|promise| {
        let path = found.remove(promise.name())?;
        Some((promise, path.into_vec()))
    });
    let mut seen: Vec<_> =
        found.into_keys().filter(|name| PROMISES.iter().all(|it| it.name() != *name)).collect();
    seen.sort_unstable();
    Report {
        servers,
        clients,
        bounds,
        unique: checker.unique_state_count(),
        total: checker.state_count(),
        depth: checker.max_depth(),
        took,
        seen,
        broken: broken.map(|(promise, path)| (promise, tell(promise, path))),
    }
}

const PROMISES: [Promise; 3] = [Promise::OneHolder, Promise::OrderedTokens, Promise::NoDeadlock];

/// The model as the checker wants it.
struct Redlock<const S: usize, const C: usize> {
    world: World,
    /// The promises that are looked at.
    wanted: BTreeSet<&'static str>,
    /// What was found: the checker reports the last that it finds, and the first is the shortest.
    found: [AtomicBool; 9],
}

impl<const S: usize, const C: usize> Redlock<S, C> {
    /// Whether it is so for the first time.
    fn first(&self, number: usize, is_so: impl FnOnce() -> bool) -> bool {
        !self.found[number].load(Ordering::Relaxed)
            && is_so()
            && !self.found[number].swap(true, Ordering::Relaxed)
    }

    /// From here on all goes well: what is under way arrives, holders do nothing, leases end, and a client
    /// that has not asked asks. Does it get the lock?
    fn recovers(&self, state: &State<S, C>) -> bool {
        let Some(wish) = state.claims.iter().position(|claim| claim.phase == Phase::Idle) else {
            return true;
        };
        let mut state = *state;
        self.deliver(&mut state, Question::Leave);
        self.deliver(&mut state, Question::LateRenew);
        self.deliver(&mut state, Question::Renew);
        self.deliver(&mut state, Question::Enter);
        for _ in 0..=self.world.bounds.ttl {
            state = self.world.after(&state, Step::Tick);
        }
        state = self.world.after(&state, Step::Ask(wish));
        self.deliver(&mut state, Question::Enter);
        let votes = state.sites.iter().enumerate();
        let votes = votes.filter(|(_, site)| site.links[wish].vote.is_some());
        let votes = votes.fold(0, |bits, (server, _)| bits | 1 << server);
        if u8::count_ones(votes) as usize <= S / 2 {
            return false;
        }
        state = self.world.after(&state, Step::Decide { claim: wish, votes });
        self.deliver(&mut state, Question::Raise);
        if state.claims[wish].phase == Phase::Raising && state.count(wish, |link| link.raised) > S / 2 {
            state = self.world.after(&state, Step::Return(wish));
        }
        state.claims[wish].holds()
    }

    /// All questions of a kind arrive.
    fn deliver(&self, state: &mut State<S, C>, question: Question) {
        for (server, claim) in (0..S).flat_map(|server| (0..C).map(move |claim| (server, claim))) {
            let link = &state.sites[server].links[claim];
            let under_way = match question {
                Question::Enter => link.enter,
                Question::Raise => link.raise,
                Question::Renew => link.renew,
                Question::LateRenew => link.late_renew,
                Question::Leave => link.leave,
            };
            if under_way {
                let arrives = Step::Arrive { question, claim, server, ahead: false, again: false };
                *state = self.world.after(state, arrives);
            }
        }
    }
}

impl<const S: usize, const C: usize> Model for Redlock<S, C> {
    type State = State<S, C>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State::start(&self.world.rules, &self.world.bounds)]
    }

    fn actions(&self, state: &Self::State, steps: &mut Vec<Step>) {
        self.world.steps(state, steps);
    }

    fn next_state(&self, state: &Self::State, step: Step) -> Option<Self::State> {
        Some(self.world.after(state, step).canonical())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn holders<const S: usize, const C: usize>(state: &State<S, C>) -> usize {
            state.claims.iter().filter(|claim| claim.holds()).count()
        }
        let mut properties = vec![
            Property::always(Promise::OneHolder.name(), |model: &Self, state: &State<S, C>| {
                !model.first(0, || holders(state) > 1)
            }),
            Property::always(Promise::OrderedTokens.name(), |model: &Self, state: &State<S, C>| {
                !model.first(1, || state.disordered)
            }),
            Property::always(Promise::NoDeadlock.name(), |model: &Self, state: &State<S, C>| {
                !model.first(2, || !model.recovers(state))
            }),
            Property::sometimes(POSSIBLE[0], |model: &Self, state: &State<S, C>| {
                model.first(3, || holders(state) > 0)
            }),
            Property::sometimes(POSSIBLE[1], |model: &Self, state: &State<S, C>| {
                model.first(4, || state.guards > 1 && holders(state) > 0)
            }),
            Property::sometimes(POSSIBLE[2], |model: &Self, state: &State<S, C>| {
                model.first(5, || {
                    (0..C).any(|claim| {
                        state.claims[claim].phase == Phase::Raising
                            && state.count(claim, |link| link.raised) > S / 2
                    })
                })
            }),
            Property::sometimes(POSSIBLE[3], |model: &Self, state: &State<S, C>| {
                model.first(6, || {
                    (0..C).any(|claim| {
                        state.claims[claim].holds() && state.count(claim, |link| link.renewed) > S / 2
                    })
                })
            }),
            Property::sometimes(POSSIBLE[4], |model: &Self, state: &State<S, C>| {
                model
                    .first(7, || holders(state) > 0 && state.sites.iter().any(|site| site.server.uptime == 0))
            }),
            Property::sometimes(POSSIBLE[5], |model: &Self, state: &State<S, C>| {
                model.first(8, || {
                    (0..C).any(|claim| {
                        let knows = |holder| holder == Holder::Claim(claim as u8);
                        let knowing = state.sites.iter().filter(|site| knows(site.server.holder)).count();
                        state.claims[claim].holds() && knowing <= S / 2
                    })
                })
            }),
        ];
        let is_possible = |name| POSSIBLE.contains(&name);
        properties.retain(|property| is_possible(property.name) || self.wanted.contains(property.name));
        properties
    }
}
