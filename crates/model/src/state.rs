//! A state of the world: clients, servers, and what is under way between them.
//!
//! There is no absolute time in it. Leases, windows and uptimes count down or up by ticks and stop at their ends, and
//! epochs are kept relative to the present, so that the search covers runs of any length.

use crate::rules::{Bounds, Epochs, Rejoin, Rules};

/// An epoch or token, relative to the present moment of the true wall clock.
pub type Epoch = i16;

/// Epochs that a wall clock passes in one tick. More than can be granted within a tick by counting on, as in
/// the real store, where a tick is a microsecond and a grant takes longer.
pub const TICK: Epoch = 32;

/// No epoch yet. Less than every epoch.
pub const NEVER: Epoch = Epoch::MIN;

/// Who has a server's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holder {
    /// Nobody.
    #[default]
    Nobody,
    /// A claim.
    Claim(u8),
    /// A claim that is over and of which nothing is under way to this server. It can only lapse.
    Ghost,
}

/// One of the independent servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Server {
    /// Who has the lock here.
    pub holder: Holder,
    /// Ticks until its lease ends, by a server's clock that runs no faster than the client's.
    pub lease: u8,
    /// The epoch of the last grant, or what was written back since.
    pub last: Epoch,
    /// Ticks since the start, or since its clock was last wrong, up to where it votes.
    pub uptime: u8,
    /// Its wall clock is far from those of the others.
    pub wrong: bool,
}

/// What is between one claim and one server. A question that is under way may arrive at any time, or never: that is
/// how it is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// A question for the lock is under way.
    pub enter: bool,
    /// The token to write back is under way.
    pub raise: bool,
    /// A renewal is under way whose answer still counts.
    pub renew: bool,
    /// A renewal is under way whose answer nobody waits for.
    pub late_renew: bool,
    /// A release is under way.
    pub leave: bool,
    /// The server's vote, with its epoch, if it answered a client that still asks.
    pub vote: Option<Epoch>,
    /// The server has confirmed that it knows the token.
    pub raised: bool,
    /// The server has confirmed the renewal.
    pub renewed: bool,
}

impl Link {
    /// Whether a question is under way that could make the claim a holder.
    pub fn may_enter(&self) -> bool {
        self.enter || self.renew || self.late_renew
    }

    /// Nobody waits for the answer to a renewal any more.
    pub fn end_renewal(&mut self) {
        self.late_renew |= self.renew;
        (self.renew, self.renewed) = (false, false);
    }

    /// Forgets what only a client that is at work wants to know. The token that is still under way is lost.
    fn close(&mut self) {
        self.end_renewal();
        (self.raise, self.raised, self.vote) = (false, false, None);
    }
}

/// A server and its links to all claims: all that is numbered by servers, so that sorting is renaming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site<const C: usize> {
    /// The server.
    pub server: Server,
    /// Its link to each claim.
    pub links: [Link; C],
}

/// How far a claim has come. A client is its claim: one that tries again is another client here, which only
/// allows more to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It wants the lock and has not asked yet.
    Idle,
    /// It asked all servers.
    Asking,
    /// It has a majority and writes its token back.
    Raising,
    /// The guard was returned.
    Held,
    /// It released, gave up, or its window ended, and it tells the servers. When it does is when that arrives: a
    /// client that pauses first is the same as a message that is late.
    Gone,
}

/// A claim, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// How far it has come.
    pub phase: Phase,
    /// Ticks left of the window, by the client's clock.
    pub left: u8,
    /// Its token, once there is a majority.
    pub token: Epoch,
    /// Ticks of the window that a confirmed renewal would give, if one is under way.
    pub renewal: Option<u8>,
}

impl Claim {
    const IDLE: Self = Self { phase: Phase::Idle, left: 0, token: NEVER, renewal: None };

    /// Whether its client may believe that it has the lock.
    pub fn holds(&self) -> bool {
        self.phase == Phase::Held && self.left > 0
    }
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State<const S: usize, const C: usize> {
    /// The servers.
    pub sites: [Site<C>; S],
    /// The claims.
    pub claims: [Claim; C],
    /// The largest token that was ever returned with a guard.
    pub top: Epoch,
    /// Guards returned, up to two.
    pub guards: u8,
    /// A guard was returned, or came to life again, though its token was not the largest.
    pub disordered: bool,
    /// Renewals so far.
    pub renewals: u8,
    /// Restarts without memory so far.
    pub forgets: u8,
    /// Restarts with memory so far.
    pub restarts: u8,
    /// Questions that arrived twice so far.
    pub doubles: u8,
    /// Clocks that stepped so far.
    pub jumps: u8,
    /// Holders that were put on a server that came back, so far.
    pub puts: u8,
}

impl<const S: usize, const C: usize> State<S, C> {
    /// All servers are up for long, and nobody has asked.
    pub fn start(rules: &Rules, bounds: &Bounds) -> Self {
        let last = if rules.epochs == Epochs::Timed { floor(bounds) } else { 0 };
        let server =
            Server { holder: Holder::Nobody, lease: 0, last, uptime: grown_up(bounds), wrong: false };
        Self {
            sites: [Site { server, links: [Link::default(); C] }; S],
            claims: [Claim::IDLE; C],
            top: NEVER,
            guards: 0,
            disordered: false,
            renewals: 0,
            forgets: 0,
            restarts: 0,
            doubles: 0,
            jumps: 0,
            puts: 0,
        }
    }

    /// On how many servers something is so for a claim.
    pub fn count(&self, claim: usize, is_so: impl Fn(&Link) -> bool) -> usize {
        self.sites.iter().filter(|site| is_so(&site.links[claim])).count()
    }

    /// One tick of true time.
    pub fn tick(&mut self, rules: &Rules, bounds: &Bounds) {
        let aged = |epoch: Epoch| match (epoch, rules.epochs) {
            (NEVER, _) | (_, Epochs::Counted | Epochs::Ignored) => epoch,
            (_, Epochs::Timed) => (epoch - TICK).max(floor(bounds)),
        };
        for site in &mut self.sites {
            let server = &mut site.server;
            server.last = aged(server.last);
            if rules.rejoin != Rejoin::Never {
                server.uptime = (server.uptime + 1).min(grown_up(bounds));
            }
            server.lease = server.lease.saturating_sub(1);
            if server.lease == 0 {
                server.holder = Holder::Nobody;
            }
            for link in &mut site.links {
                link.vote = link.vote.map(aged);
            }
        }
        self.top = aged(self.top);
        for number in 0..C {
            let claim = &mut self.claims[number];
            claim.token = aged(claim.token);
            claim.renewal = claim.renewal.map(|left| left - 1).filter(|&left| left > 0);
            let may_revive = rules.late_yes_revives && claim.renewal.is_some();
            if claim.renewal.is_none() {
                self.sites.iter_mut().for_each(|site| site.links[number].end_renewal());
            }
            if claim.left == u8::MAX || claim.left == 0 {
                continue;
            }
            claim.left -= 1;
            if claim.left == 0 && !may_revive {
                self.leave(number);
            }
        }
    }

    /// A claim is over.
    pub fn leave(&mut self, claim: usize) {
        self.claims[claim] = Claim { phase: Phase::Gone, ..Claim::IDLE };
        for site in &mut self.sites {
            let link = &mut site.links[claim];
            link.close();
            link.leave = true;
        }
    }

    /// Makes states equal that nobody can tell apart from now on.
    pub fn settle(&mut self, rules: &Rules) {
        for (number, claim) in self.claims.iter().enumerate() {
            for site in &mut self.sites {
                let (server, link) = (&mut site.server, &mut site.links[number]);
                let holds_here = server.holder == Holder::Claim(number as u8);
                // To a server both are the same, and so they are to a client that does not wait for a vote.
                if rules.renewal_recreates && claim.phase != Phase::Asking && link.late_renew && !link.enter {
                    (link.enter, link.late_renew) = (true, false);
                }
                // A release that can find nothing any more is as good as lost.
                if link.leave && !holds_here && !link.may_enter() && !rules.leave_by_name {
                    link.leave = false;
                }
                if holds_here && claim.phase == Phase::Gone && !link.may_enter() && !link.leave {
                    server.holder = Holder::Ghost;
                }
            }
        }
    }

    /// The same state with other names for servers and claims: one of all that differ in names only.
    pub fn canonical(mut self) -> Self {
        self.sites.sort_unstable();
        let mut least = self;
        permutations(&mut std::array::from_fn::<u8, C, _>(|claim| claim as u8), 0, &mut |names| {
            let mut renamed = self;
            for (old, &new) in names.iter().enumerate() {
                let new = usize::from(new);
                renamed.claims[new] = self.claims[old];
                for (site, before) in renamed.sites.iter_mut().zip(&self.sites) {
                    site.links[new] = before.links[old];
                    if before.server.holder == Holder::Claim(old as u8) {
                        site.server.holder = Holder::Claim(new as u8);
                    }
                }
            }
            // Only the order of claims decides first, so that most renamings end here.
            if renamed.claims <= least.claims {
                renamed.sites.sort_unstable();
                if (renamed.claims, renamed.sites) < (least.claims, least.sites) {
                    least = renamed;
                }
            }
        });
        least
    }
}

/// Calls with every order of the items.
fn permutations<const C: usize>(items: &mut [u8; C], from: usize, see: &mut impl FnMut(&[u8; C])) {
    if from == C {
        return see(items);
    }
    for other in from..C {
        items.swap(from, other);
        permutations(items, from + 1, see);
        items.swap(from, other);
    }
}

/// True ticks after which a server that restarted votes, if its clock runs as fast as it may.
pub fn grown_up(bounds: &Bounds) -> u8 {
    bounds.ttl - bounds.drift
}

/// All epochs below are the same: every grant that can still be returned is newer.
pub fn floor(bounds: &Bounds) -> Epoch {
    -TICK * Epoch::from(bounds.ttl + 1)
}
