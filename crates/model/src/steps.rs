//! What can happen next, and what it does.
//!
//! Answers have no messages of their own. A client acts on answers only when a majority of them is in, so an answer
//! that is late is the same as a client that acts late, and an answer that is lost is one that the client leaves out
//! ([`Step::Decide`] names those that it counts). A client that pauses is one that takes no step while time passes.

use crate::{
    rules::{Bounds, Epochs, From, Majority, Rejoin, Rules, Steps},
    state::{Claim, Holder, NEVER, Phase, Server, State, TICK, grown_up},
};

/// What a client sends to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// For the lock.
    Enter,
    /// To remember the token.
    Raise,
    /// For a longer lease.
    Renew,
    /// For a longer lease, but its client does not wait for the answer any more.
    LateRenew,
    /// To give the lock back.
    Leave,
}

impl Question {
    const ALL: [Self; 5] = [Self::Enter, Self::Raise, Self::Renew, Self::LateRenew, Self::Leave];
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client asks all servers for the lock.
    Ask(usize),
    /// A question reaches a server, which answers at once.
    Arrive {
        /// What was asked.
        question: Question,
        /// By whom.
        claim: usize,
        /// Whom.
        server: usize,
        /// The server's wall clock is ahead of the others' as far as it may be, for this grant.
        ahead: bool,
        /// The question will arrive once more.
        again: bool,
    },
    /// A client counts votes. The bits of `votes` say which servers' answers it has got.
    Decide {
        /// Who.
        claim: usize,
        /// Whose votes.
        votes: u8,
    },
    /// A client whose token was written back to a majority returns the guard.
    Return(usize),
    /// A holder asks all servers for a longer lease.
    Renew(usize),
    /// A holder whose renewal a majority confirmed moves its deadline.
    Confirm(usize),
    /// A client gives up or releases: it tells all servers.
    Leave(usize),
    /// Time passes.
    Tick,
    /// A lease ends early by true time, because the server's clock is fast.
    Lapse(usize),
    /// A server restarts.
    Restart {
        /// Which.
        server: usize,
        /// Whether it still knows who holds, and its last epoch.
        remembers: bool,
    },
    /// A server's wall clock steps: what was leased there is over.
    Jump(usize),
    /// The clock is set right.
    SetRight(usize),
    /// A server was away and is back: a holder that it does not have asks it for its place.
    PutBack {
        /// Who.
        claim: usize,
        /// Where.
        server: usize,
    },
}

/// Rules and bounds: what the steps depend on.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The rules of clients and servers.
    pub rules: Rules,
    /// How far the search goes.
    pub bounds: Bounds,
}

impl World {
    /// Ticks that a client may rely on its lease.
    pub fn window(&self) -> u8 {
        if self.rules.drift_margin { self.bounds.ttl - self.bounds.drift } else { self.bounds.ttl }
    }

    /// Whether so many votes suffice.
    fn suffices<const S: usize>(&self, votes: usize) -> bool {
        match self.rules.majority {
            Majority::OfAll => votes > S / 2,
            // Servers that did not answer are not counted, and those that refuse may be among them.
            Majority::OfAnswered => votes > 0,
        }
    }

    /// All that can happen in a state.
    pub fn steps<const S: usize, const C: usize>(&self, state: &State<S, C>, steps: &mut Vec<Step>) {
        for (claim, it) in state.claims.iter().enumerate() {
            match it.phase {
                Phase::Idle => steps.push(Step::Ask(claim)),
                Phase::Asking => {
                    self.decisions(state, claim, steps);
                    steps.push(Step::Leave(claim));
                }
                Phase::Raising => {
                    if self.suffices::<S>(state.count(claim, |link| link.raised)) {
                        steps.push(Step::Return(claim));
                    }
                    steps.push(Step::Leave(claim));
                }
                Phase::Held => {
                    if state.renewals < self.bounds.renewals && it.left > 0 {
                        steps.push(Step::Renew(claim));
                    }
                    if it.renewal.is_some() && self.suffices::<S>(state.count(claim, |link| link.renewed)) {
                        steps.push(Step::Confirm(claim));
                    }
                    steps.push(Step::Leave(claim));
                }
                Phase::Gone => {}
            }
        }
        for (server, site) in state.sites.iter().enumerate() {
            // Steps at servers that are in the same situation lead to states that differ in names only.
            if server > 0 && state.sites[server - 1] == *site {
                continue;
            }
            let it = &site.server;
            if it.lease > 0 && it.lease <= self.bounds.drift {
                steps.push(Step::Lapse(server));
            }
            if state.forgets < self.bounds.forgets {
                steps.push(Step::Restart { server, remembers: false });
            }
            if state.restarts < self.bounds.restarts {
                steps.push(Step::Restart { server, remembers: true });
            }
            if state.jumps < self.bounds.jumps && !it.wrong {
                steps.push(Step::Jump(server));
            }
            if it.wrong {
                steps.push(Step::SetRight(server));
            }
            for claim in 0..C {
                let is_there = it.holder == Holder::Claim(claim as u8) || site.links[claim].may_enter();
                if state.puts < self.bounds.puts && state.claims[claim].holds() && !is_there {
                    steps.push(Step::PutBack { claim, server });
                }
                self.arrivals(state, claim, server, steps);
            }
        }
        steps.push(Step::Tick);
    }

    /// The sets of votes that a client may have when it counts them.
    fn decisions<const S: usize, const C: usize>(
        &self,
        state: &State<S, C>,
        claim: usize,
        steps: &mut Vec<Step>,
    ) {
        let there = state
            .sites
            .iter()
            .enumerate()
            .filter(|(_, site)| site.links[claim].vote.is_some())
            .fold(0u8, |bits, (server, _)| bits | 1 << server);
        let mut votes = there;
        while votes > 0 {
            if self.suffices::<S>(votes.count_ones() as usize) {
                steps.push(Step::Decide { claim, votes });
            }
            votes = (votes - 1) & there;
        }
    }

    fn arrivals<const S: usize, const C: usize>(
        &self,
        state: &State<S, C>,
        claim: usize,
        server: usize,
        steps: &mut Vec<Step>,
    ) {
        let link = &state.sites[server].links[claim];
        let may_double = state.doubles < self.bounds.doubles;
        for question in Question::ALL {
            let under_way = match question {
                Question::Enter => link.enter,
                Question::Raise => link.raise,
                Question::Renew => link.renew,
                Question::LateRenew => link.late_renew,
                Question::Leave => link.leave,
            };
            if !under_way {
                continue;
            }
            // The wall clock matters only to a grant.
            let grants = !matches!(question, Question::Raise | Question::Leave)
                && state.sites[server].server.holder == Holder::Nobody
                && self.rules.epochs == Epochs::Timed
                && self.bounds.skew > 0;
            for ahead in [false, true] {
                for again in [false, true] {
                    if (!ahead || grants) && (!again || may_double) {
                        steps.push(Step::Arrive { question, claim, server, ahead, again });
                    }
                }
            }
        }
    }

    /// The state after a step.
    pub fn after<const S: usize, const C: usize>(&self, state: &State<S, C>, step: Step) -> State<S, C> {
        let mut next = *state;
        match step {
            Step::Ask(claim) => {
                let left = if self.rules.window_from == From::Question { self.window() } else { u8::MAX };
                next.claims[claim] = Claim { phase: Phase::Asking, left, ..next.claims[claim] };
                next.sites.iter_mut().for_each(|site| site.links[claim].enter = true);
            }
            Step::Arrive { question, claim, server, ahead, again } => {
                self.arrive(&mut next, question, claim, server, ahead);
                if again {
                    next.doubles += 1;
                    let (link, before) =
                        (&mut next.sites[server].links[claim], &state.sites[server].links[claim]);
                    (link.enter, link.raise, link.leave) = (before.enter, before.raise, before.leave);
                    (link.renew, link.late_renew) = (before.renew, before.late_renew);
                }
            }
            Step::Decide { claim, votes } => self.decide(&mut next, claim, votes),
            Step::Return(claim) => give(&self.rules, &mut next, claim),
            Step::Renew(claim) => {
                next.renewals += 1;
                next.claims[claim].renewal = Some(self.window());
                for site in &mut next.sites {
                    let link = &mut site.links[claim];
                    link.end_renewal();
                    link.renew = true;
                }
            }
            Step::Confirm(claim) => {
                let (it, window) = (&mut next.claims[claim], self.window());
                let left = it.renewal.take().unwrap_or_default();
                it.left = if self.rules.renewed_from == From::Question { left } else { window };
                if it.token < next.top {
                    next.disordered = true;
                }
                next.sites.iter_mut().for_each(|site| site.links[claim].end_renewal());
            }
            Step::Leave(claim) => next.leave(claim),
            Step::Tick => next.tick(&self.rules, &self.bounds),
            Step::Lapse(server) => {
                let server = &mut next.sites[server].server;
                (server.holder, server.lease) = (Holder::Nobody, 0);
            }
            Step::Jump(server) => {
                next.jumps += 1;
                let server = &mut next.sites[server].server;
                if self.rules.steps == Steps::Age {
                    // It was behind when the server was started, and is right now.
                    server.uptime = grown_up(&self.bounds);
                } else {
                    (server.holder, server.lease, server.wrong) = (Holder::Nobody, 0, true);
                }
            }
            Step::SetRight(server) => {
                let server = &mut next.sites[server].server;
                server.wrong = false;
                if self.rules.steps == Steps::Seen {
                    server.uptime = 0;
                }
            }
            Step::PutBack { claim, server } => {
                next.puts += 1;
                next.sites[server].links[claim].enter = true;
            }
            Step::Restart { server, remembers } => {
                let server = &mut next.sites[server].server;
                server.uptime = 0;
                if remembers {
                    next.restarts += 1;
                } else {
                    next.forgets += 1;
                    let blank = State::<S, C>::start(&self.rules, &self.bounds).sites[0].server;
                    (server.holder, server.lease, server.last) = (Holder::Nobody, 0, blank.last);
                }
            }
        }
        next.settle(&self.rules);
        next
    }

    /// Whether the answer of a server counts.
    fn votes(&self, server: &Server) -> bool {
        if server.wrong && self.rules.steps == Steps::Seen {
            return false;
        }
        match self.rules.rejoin {
            Rejoin::AtOnce => true,
            Rejoin::TooSoon => server.uptime + 1 >= grown_up(&self.bounds),
            Rejoin::AfterTtl | Rejoin::Never => server.uptime >= grown_up(&self.bounds),
        }
    }

    /// A server answers.
    fn arrive<const S: usize, const C: usize>(
        &self,
        state: &mut State<S, C>,
        question: Question,
        claim: usize,
        at: usize,
        ahead: bool,
    ) {
        let Claim { phase, token, .. } = state.claims[claim];
        let site = &mut state.sites[at];
        let (server, link) = (&mut site.server, &mut site.links[claim]);
        let me = Holder::Claim(claim as u8);
        let knew = server.holder == me;
        let may_take = match question {
            Question::Enter => true,
            Question::Renew | Question::LateRenew => self.rules.renewal_recreates,
            Question::Raise | Question::Leave => false,
        };
        if server.holder == Holder::Nobody && may_take {
            let wall = if ahead { TICK * i16::from(self.bounds.skew) } else { 0 };
            server.holder = me;
            server.last = match self.rules.epochs {
                Epochs::Timed => wall.max(server.last + 1),
                Epochs::Counted => server.last + 1,
                Epochs::Ignored => server.last,
            };
        }
        let has = server.holder == me;
        if has && !matches!(question, Question::Raise | Question::Leave) {
            server.lease = self.bounds.ttl;
        }
        let votes = self.votes(server);
        match question {
            Question::Enter => {
                link.enter = false;
                if has && votes && phase == Phase::Asking {
                    link.vote = Some(server.last);
                }
            }
            Question::Raise => {
                link.raise = false;
                if has {
                    server.last = server.last.max(token);
                    link.raised |= votes && phase == Phase::Raising;
                }
            }
            Question::Renew => {
                link.renew = false;
                let young_may = self.rules.young_confirm_all || (self.rules.young_confirm_known && knew);
                link.renewed = has && (votes || young_may);
            }
            Question::LateRenew => link.late_renew = false,
            Question::Leave => {
                link.leave = false;
                if has || self.rules.leave_by_name {
                    (server.holder, server.lease) = (Holder::Nobody, 0);
                }
            }
        }
    }

    /// A client counts votes: the largest epoch is its token, which a majority must know.
    fn decide<const S: usize, const C: usize>(&self, state: &mut State<S, C>, claim: usize, votes: u8) {
        let counted = |server: usize, vote: Option<_>| vote.filter(|_| votes & (1 << server) != 0);
        let epochs = state.sites.iter().enumerate();
        let epochs = epochs.filter_map(|(server, site)| counted(server, site.links[claim].vote));
        let token = epochs.max().unwrap_or(NEVER);
        for (server, site) in state.sites.iter_mut().enumerate() {
            let link = &mut site.links[claim];
            link.raised = counted(server, link.vote.take()) == Some(token);
        }
        state.claims[claim].token = token;
        let known = self.suffices::<S>(state.count(claim, |link| link.raised));
        if self.rules.window_from == From::Answer {
            state.claims[claim].left = self.window();
        }
        if known || !self.rules.write_back {
            return give(&self.rules, state, claim);
        }
        state.claims[claim].phase = Phase::Raising;
        for site in &mut state.sites {
            let link = &mut site.links[claim];
            link.raise = !link.raised;
        }
    }
}

/// The guard is returned.
fn give<const S: usize, const C: usize>(rules: &Rules, state: &mut State<S, C>, claim: usize) {
    let it = &mut state.claims[claim];
    it.phase = Phase::Held;
    state.guards = (state.guards + 1).min(2);
    if rules.epochs != Epochs::Ignored {
        state.disordered |= it.token <= state.top;
        state.top = state.top.max(it.token);
    }
    state.sites.iter_mut().for_each(|site| site.links[claim].raised = false);
}
