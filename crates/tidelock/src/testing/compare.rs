//! Random operations against a store and against [`line`](crate::model::line): both must say the same.
//!
//! A seed stands for one sequence of operations. [`run`] plays it with several clients of the store
//! and, at the same time, with one [`Line`] for each name, and compares after every operation:
//!
//! - the answer: holds, waits (behind how many), busy, refused, gone;
//! - what [`look`](crate::backend::Backend::look) shows: who holds, who waits in which order, and the capacity;
//! - epochs: not their values, but that they are in the same order and equal where the model's are;
//! - what clients are told unasked: every grant that the model pushes arrives, and nothing else does.
//!
//! Leases are long, so that nothing lapses by accident on a slow server. Only one operation lets a
//! lease run out, and it sleeps with a margin until the store must agree.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use super::{
    rng::Rng,
    suite::{LONG_TTL, PATIENCE, Raw, World},
};
use crate::{
    Name,
    backend::{
        Ask, Capacity, Claim, ClaimId, ClaimView, Entered, Leave, Left, LockView, News, Refusal, Share,
        Standing, What,
    },
    model::line::{Effect, Line, StoreTime},
};

const CLIENTS: usize = 3;
/// Used for readers, for permits, and for anything; alike, so that a store that mixes them up is found.
const NAMES: [&str; 3] = ["a", "A", "a/"];
const OWNERS: [&str; 2] = ["ann", "bob"];

/// Where a store and the model disagree.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed that repeats it.
    pub seed: u64,
    /// At which operation.
    pub step: u32,
    /// What the store says, and what the model says.
    pub what: String,
    /// The last operations, oldest first.
    pub before: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, step {}: {}", self.seed, self.step, self.what)?;
        self.before.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

impl std::error::Error for Difference {}

/// Plays the operations of a seed, and stops at the first difference.
///
/// The store has to be [fair](crate::backend::Abilities::fair): of one that is not the model does
/// not know who is next. Permits, owners and pushes are left out where the store has none.
///
/// # Errors
/// The first difference. A store that does not answer is a panic.
pub async fn run(world: &World, seed: u64, steps: u32) -> Result<(), Difference> {
    let mut play = Play::new(world, seed).await;
    for step in 0..=steps {
        let outcome = if step < steps { play.step().await } else { play.end().await };
        if let Err(what) = outcome {
            let from = play.log.len().saturating_sub(25);
            return Err(Difference { seed, step, what, before: play.log.split_off(from) });
        }
    }
    Ok(())
}

/// A claim that was made, and what the model says of it.
struct Known {
    claim: Arc<Claim>,
    client: usize,
    line: usize,
    ask: Ask,
    is: Is,
    /// The model's epoch, if it was ever granted.
    epoch: Option<u64>,
    /// The model pushed a grant, and the store has not yet.
    awaits_news: bool,
}

/// Where a claim is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    /// Not in line: it was not entered yet, or the answer was no.
    Out,
    In,
    /// It left or lapsed. It may be asked about, and is never entered again.
    Over,
}

struct Modelled {
    name: Name,
    line: Line,
    /// The store's epochs by the model's.
    epochs: BTreeMap<u64, u64>,
}

struct Play<'a> {
    world: &'a World,
    rng: Rng,
    clients: [Raw; CLIENTS],
    lines: Vec<Modelled>,
    known: Vec<Known>,
    log: Vec<String>,
}

type Step = Result<(), String>;

impl<'a> Play<'a> {
    async fn new(world: &'a World, seed: u64) -> Self {
        let line = |name: &&str| {
            let name = Name::new(&world.name(name)).expect("a proper name");
            Modelled { name, line: Line::default(), epochs: BTreeMap::new() }
        };
        let (lines, clients) = (NAMES.iter().map(line).collect(), world.backends().await);
        Self { world, rng: Rng::new(seed), clients, lines, known: Vec::new(), log: Vec::new() }
    }

    async fn step(&mut self) -> Step {
        let holds = |known: &Known| known.is == Is::In && known.epoch.is_some();
        let (picked, why) = match self.rng.below(100) {
            0..46 => {
                let claim = self.make(LONG_TTL);
                return self.enter(claim).await;
            }
            46..56 => {
                let again = self.some(|known| known.is != Is::Over).unwrap_or_else(|| self.make(LONG_TTL));
                return self.enter(again).await;
            }
            56..66 => return self.renew_some().await,
            66..84 => (self.some(holds), Leave::Done),
            84..90 => (self.some(|known| known.is == Is::In), Leave::Done),
            90..94 => (self.some(|known| known.is == Is::In), Leave::evicted("compare")),
            94..98 => (self.some(|known| known.is != Is::In), Leave::Done),
            _ => return self.lapse().await,
        };
        match picked {
            Some(claim) => self.leave(claim, why).await,
            None => Ok(()),
        }
    }

    /// All leave; nothing is left, and nobody hears anything more.
    async fn end(&mut self) -> Step {
        while let Some(claim) = self.some(|known| known.is == Is::In) {
            self.leave(claim, Leave::Done).await?;
        }
        self.world.settle().await;
        self.hear().await?;
        let left = self.world.in_use().await;
        if left.is_empty() { Ok(()) } else { Err(format!("all have left, and the store has {left:?}")) }
    }

    fn now(&self) -> StoreTime {
        // Only the order of epochs is compared: let the model count.
        StoreTime { lease: self.world.clock().now(), micros: 0 }
    }

    fn some(&mut self, wanted: impl Fn(&Known) -> bool) -> Option<usize> {
        let of: Vec<_> = (0..self.known.len()).filter(|index| wanted(&self.known[*index])).collect();
        (!of.is_empty()).then(|| self.rng.pick(&of))
    }

    fn index_of(&self, id: ClaimId) -> Option<usize> {
        self.known.iter().position(|known| known.claim.id == id)
    }

    fn make(&mut self, ttl: Duration) -> usize {
        let (client, line) = (self.rng.below(3) as usize % CLIENTS, self.rng.below(3) as usize % NAMES.len());
        let share = self.share(line);
        let owned = self.world.abilities().reentry && self.rng.chance(350);
        let owner = owned.then(|| self.rng.pick(&OWNERS));
        let ask = if self.rng.chance(300) { Ask::Try } else { Ask::Queue };
        let claim = self.clients[client].claim_for(self.lines[line].name.as_str(), share, owner, ttl);
        self.known.push(Known { claim, client, line, ask, is: Is::Out, epoch: None, awaits_news: false });
        self.known.len() - 1
    }

    fn share(&mut self, line: usize) -> Share {
        let permits = self.world.abilities().permits.is_ok();
        match (line, self.rng.below(8)) {
            (_, 0 | 1) => Share::Exclusive,
            (1, _) if permits => Share::Permits { n: self.rng.between(1, 5) as u32, of: 5 },
            (2, 2..5) if permits => Share::Permits { n: self.rng.between(1, 3) as u32, of: 3 },
            (2, 5) if permits => Share::Permits { n: 1, of: 4 },
            _ => Share::Shared,
        }
    }

    fn note(&mut self, what: &str, claim: usize, answer: impl fmt::Debug) {
        let Known { claim: made, client, line, ask, .. } = &self.known[claim];
        let owner = made.owner.as_ref().map_or("nobody", |owner| owner.as_str());
        self.log.push(format!(
            "{what} #{claim} of client {client} ({} of {:?} for {owner}, {ask:?}, ttl {:?}): {answer:?}",
            made.share, NAMES[*line], made.ttl
        ));
    }

    async fn enter(&mut self, index: usize) -> Step {
        let Known { claim, client, line, ask, .. } = &self.known[index];
        let (claim, line, ask) = (Arc::clone(claim), *line, *ask);
        let answer = self.clients[*client].enter(&claim, ask).await;
        let (at, mut effects) = (self.now(), Vec::new());
        let model = self.lines[line].line.enter(&claim, ask, at, &mut effects);
        self.note("enter", index, answer);
        match (answer, model) {
            (Entered::Held(store), Entered::Held(model)) => self.granted(index, model.epoch, store.epoch)?,
            (Entered::Waiting(store), Entered::Waiting(model)) if store.ahead == model.ahead => {}
            // Of several holds that are too small, a store may name any.
            (Entered::Refused(Refusal::Upgrade(_)), Entered::Refused(Refusal::Upgrade(_))) => {}
            (Entered::Busy | Entered::Refused(_), _) if answer == model => {}
            _ => return differ(&format!("enter #{index}"), &answer, &model),
        }
        if matches!(answer, Entered::Held(_) | Entered::Waiting(_)) {
            self.known[index].is = Is::In;
        }
        self.follow(line, effects).await
    }

    async fn renew_some(&mut self) -> Step {
        let client = self.rng.below(CLIENTS as u64) as usize;
        let mut batch = Vec::new();
        for index in (0..self.known.len()).filter(|index| self.known[*index].client == client) {
            // Of those that are not in line there are more and more.
            let chance = if self.known[index].is == Is::In { 500 } else { 50 };
            if self.rng.chance(chance) && batch.len() < self.world.abilities().renew_batch {
                batch.push(index);
            }
        }
        if self.rng.chance(500) {
            batch.reverse();
        }
        self.renew(client, &batch).await
    }

    async fn renew(&mut self, client: usize, batch: &[usize]) -> Step {
        let claims: Vec<_> = batch.iter().map(|index| Arc::clone(&self.known[*index].claim)).collect();
        let answers = self.clients[client].renew(&claims).await;
        if answers.len() != claims.len() {
            return differ("renew", &answers.len(), &claims.len());
        }
        let at = self.now();
        for (&index, answer) in batch.iter().zip(answers) {
            let (line, mut effects) = (self.known[index].line, Vec::new());
            let model = self.lines[line].line.renew(self.known[index].claim.id, at, &mut effects);
            self.note("renew", index, answer);
            match (answer, model) {
                (Standing::Held(store), Standing::Held(model)) => {
                    self.granted(index, model.epoch, store.epoch)?
                }
                (Standing::Waiting(store), Standing::Waiting(model)) if store.ahead == model.ahead => {}
                (Standing::Gone, Standing::Gone) => {}
                _ => return differ(&format!("renew #{index}"), &answer, &model),
            }
            self.follow(line, effects).await?;
        }
        Ok(())
    }

    async fn leave(&mut self, index: usize, why: Leave) -> Step {
        let Known { claim, client, line, .. } = &self.known[index];
        let (claim, line) = (Arc::clone(claim), *line);
        // Anybody may put a claim out; only its client gives it back.
        let by =
            if matches!(why, Leave::Evicted(_)) { self.rng.below(CLIENTS as u64) as usize } else { *client };
        let left = self.clients[by].leave_as(&claim, why.clone()).await;
        let (at, mut effects) = (self.now(), Vec::new());
        let was_there = self.lines[line].line.leave(claim.id, why.clone(), at, &mut effects);
        self.known[index].is = Is::Over;
        if left != Left::from_was_there(was_there) {
            return differ(&format!("leave #{index}"), &left, &was_there);
        }
        self.note("leave", index, (why, was_there));
        self.follow(line, effects).await
    }

    /// A claim lapses, alone or with others behind it, at once or after it was renewed.
    async fn lapse(&mut self) -> Step {
        let mortal = self.make(self.world.short_ttl());
        self.known[mortal].ask = Ask::Queue;
        self.enter(mortal).await?;
        for _ in 0..self.rng.below(3) {
            let behind = self.make(LONG_TTL);
            self.enter(behind).await?;
        }
        let client = self.known[mortal].client;
        if self.rng.chance(400) {
            self.world.sleep(0.6).await;
            self.renew(client, &[mortal]).await?;
            self.world.sleep(0.6).await;
            self.renew(client, &[mortal]).await?;
        }
        self.world.let_short_leases_lapse().await;
        self.known[mortal].is = Is::Over;
        // Asking moves the line on.
        self.renew(client, &[mortal]).await
    }

    /// What follows from an operation: news, and what people see.
    async fn follow(&mut self, line: usize, effects: Vec<Effect>) -> Step {
        for Effect { id, what } in effects {
            let index = self.index_of(id).expect("the model knows no other claims");
            self.known[index].awaits_news = self.world.abilities().push;
            if let What::Granted(grant) = what {
                self.known[index].epoch = Some(grant.epoch);
            }
        }
        self.hear().await?;
        self.look(line).await
    }

    /// Hears all that has to come, and whatever else has come by now.
    async fn hear(&mut self) -> Step {
        for client in 0..CLIENTS {
            loop {
                let awaits = self.known.iter().position(|known| known.awaits_news && known.client == client);
                let patience = if awaits.is_some() { PATIENCE } else { Duration::ZERO };
                match (self.clients[client].news(patience).await, awaits) {
                    (Some(news), _) => self.heard(&news)?,
                    (None, Some(index)) => return Err(format!("client {client} is not told of #{index}")),
                    (None, None) => break,
                }
            }
        }
        Ok(())
    }

    fn heard(&mut self, news: &News) -> Step {
        let Some(index) = self.index_of(news.id) else {
            return Err(format!("news of a claim that nobody made: {news:?}"));
        };
        self.note("news of", index, &news.what);
        let known = &mut self.known[index];
        if known.claim.name != news.name {
            return differ(&format!("the name in news of #{index}"), &news.name, &known.claim.name);
        }
        match (&news.what, known.epoch) {
            (What::Ask, _) => Ok(()),
            (What::Granted(grant), Some(model)) => {
                known.awaits_news = false;
                self.granted(index, model, grant.epoch)
            }
            (What::Granted(_), None) => Err(format!("the store says that #{index} holds, and it does not")),
            (What::Evicted(reason), _) if known.is == Is::Over && &**reason == "compare" => {
                known.awaits_news = false;
                Ok(())
            }
            (What::Evicted(reason), _) => {
                Err(format!("the store says that #{index} was evicted ({reason}), and it was not"))
            }
        }
    }

    /// Store and model both say that a claim holds: the same epoch for the same, in the same order.
    fn granted(&mut self, index: usize, model: u64, store: u64) -> Step {
        self.known[index].epoch = Some(model);
        let epochs = &mut self.lines[self.known[index].line].epochs;
        let before = epochs.range(..model).next_back().is_none_or(|(_, earlier)| *earlier < store);
        let after = epochs.range(model + 1..).next().is_none_or(|(_, later)| *later > store);
        let same = *epochs.entry(model).or_insert(store) == store;
        if before && after && same {
            return Ok(());
        }
        Err(format!("the epoch {store} of #{index} is out of order: it is the model's {model} of {epochs:?}"))
    }

    async fn look(&mut self, line: usize) -> Step {
        let name = &self.lines[line].name;
        let seen = self.world.seen(name.as_str()).await;
        let model = self.lines[line].line.look(name, self.now());
        let view = seen.unwrap_or_else(|| LockView::new(name.clone(), None, model.epoch));
        let (store, model) = (picture(&view), picture(&model));
        if store != model {
            return differ(&format!("what is in line of {:?}", NAMES[line]), &store, &model);
        }
        for holder in &view.holders {
            let index = self.index_of(holder.id).expect("the model holds it too");
            match (holder.epoch, self.known[index].epoch) {
                (Some(store), Some(model)) if store <= view.epoch => self.granted(index, model, store)?,
                (store, _) => return differ(&format!("epoch of #{index}"), &store, &view.epoch),
            }
        }
        Ok(())
    }
}

type Standee = (ClaimId, Share, Option<String>);

/// What people see, without times: who holds, whatever the order; who waits, in order.
fn picture(view: &LockView) -> (Option<Capacity>, Vec<Standee>, Vec<Standee>) {
    let seen = |claim: &ClaimView| (claim.id, claim.share, claim.owner.as_ref().map(ToString::to_string));
    let mut holders: Vec<_> = view.holders.iter().map(seen).collect();
    holders.sort_by_key(|(id, ..)| *id);
    (view.capacity, holders, view.waiters.iter().map(seen).collect())
}

fn differ(what: &str, store: &dyn fmt::Debug, model: &dyn fmt::Debug) -> Step {
    Err(format!("{what}: the store says {store:?}, the model {model:?}"))
}
