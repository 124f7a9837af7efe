//! The verbs of a client of the faulty store.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{FaultyStore, State};
use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Grant, Leave, Left,
        LockView, News, Scope, Standing, TokenGrade,
    },
    clock::Moment,
    model::name::Name,
};

/// A client of a [`FaultyStore`].
#[derive(Debug)]
pub(super) struct FaultyBackend {
    store: Arc<FaultyStore>,
    client: ClientId,
    inbox: Arc<Inbox>,
    abilities: Abilities,
}

/// What the store says unasked.
pub(super) type Inbox = tokio::sync::Mutex<mpsc::UnboundedReceiver<Result<News, Failure>>>;

impl FaultyBackend {
    pub(super) fn new(store: &Arc<FaultyStore>, client: ClientId, inbox: Inbox) -> Self {
        let abilities = Abilities::new("faulty")
            .token(TokenGrade::TimeAssisted)
            .min_ttl(Duration::from_millis(20))
            .renew_batch(8);
        Self { store: Arc::clone(store), client, inbox: Arc::new(inbox), abilities }
    }
}

impl Backend for FaultyBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn client_id(&self) -> ClientId {
        self.client
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        let mut claim = Arc::clone(claim);
        let twice = self.store.flaws.enter_twice();
        let mut asked_before = false;
        {
            let mut state = self.store.state();
            state.longest_ttl = state.longest_ttl.max(claim.ttl);
            state.claims.insert(claim.id, Arc::clone(&claim));
            if twice && let Some(line) = state.lines.get(&claim.name) {
                let at = self.store.time(&state, self.store.clock.now());
                let view = line.look(&claim.name, at);
                asked_before = view.holders.iter().chain(&view.waiters).any(|seen| seen.id == claim.id);
            }
        }
        if asked_before {
            let id = ClaimId::from_u128(claim.id.get() ^ 1 << 63);
            claim = Arc::new(Claim { id, ..(*claim).clone() });
        }
        let work = move |store: &FaultyStore, state: &mut State, now| {
            let answer = store
                .change(state, &claim.name, now, |line, at, effects| line.enter(&claim, ask, at, effects));
            if let Entered::Held(grant) = answer {
                state.epochs.insert(claim.id, grant.epoch);
            }
            answer
        };
        self.store.send(self.client, work, |_, _, _| ())
    }

    fn wait(&self) -> Call<News> {
        let inbox = Arc::clone(&self.inbox);
        Call::later(async move {
            let news = inbox.lock().await.recv().await;
            news.unwrap_or_else(|| Err(Failure::unreachable("the store was dropped")))
        })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        let claims = claims.to_vec();
        let about = claims.clone();
        let work = move |store: &FaultyStore, state: &mut State, now| {
            let renew = |claim: &Arc<Claim>| {
                let stands = store
                    .change(state, &claim.name, now, |line, at, effects| line.renew(claim.id, at, effects));
                match state.epochs.get(&claim.id) {
                    Some(epoch) if stands == Standing::Gone && store.flaws.keep_records() => {
                        Standing::Held(Grant::new(*epoch, claim.ttl, 0))
                    }
                    _ => stands,
                }
            };
            claims.iter().map(renew).collect::<Vec<_>>()
        };
        let arrived = move |state: &mut State, standings: &Vec<Standing>, now| {
            for (claim, standing) in about.iter().zip(standings) {
                if *standing == Standing::Gone {
                    state.note_gone(&claim.name, claim.id, now);
                }
            }
        };
        self.store.send(self.client, work, arrived)
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        *self.store.state().leaves.entry(id).or_default() += 1;
        let (name, about) = (name.clone(), name.clone());
        let arrived = move |state: &mut State, left: &Left, _| state.note_left(&about, id, *left);
        let work = move |store: &FaultyStore, state: &mut State, now: Moment| {
            let has_record = state.epochs.contains_key(&id) && store.flaws.keep_records();
            store.change(state, &name, now, |line, at, effects| {
                let view = line.look(&name, at);
                let is_in_line = view.holders.iter().chain(&view.waiters).any(|claim| claim.id == id);
                let holder = || view.holders.first().map(|holder| holder.id);
                // A claim that is found by its record alone takes out the claim that holds in its place.
                let is_mistaken = has_record && !is_in_line || store.flaws.leave_without_id();
                let id = if is_mistaken { holder().unwrap_or(id) } else { id };
                Left::from_was_there(line.leave(id, why.clone(), at, effects))
            })
        };
        self.store.send(self.client, work, arrived)
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        let scope = scope.clone();
        let views = self.store.look(&scope);
        self.store.send(self.client, move |_, _, _| views.clone(), |_, _, _| ())
    }
}
