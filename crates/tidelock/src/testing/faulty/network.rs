//! The simulated network: calls and pushes on their journey, and what happens to them on it.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{Faults, FaultyStore, State};
use crate::{
    backend::{Call, ClientId, Failure, News, What},
    clock::Moment,
    model::line::Effect,
    model::name::Name,
};

impl FaultyStore {
    pub(super) fn push(&self, state: &mut State, name: &Name, effect: Effect, now: Moment) {
        let client = effect.id.client();
        let Faults { lost_push, doubled_push, .. } = state.faults;
        if let What::Granted(grant) = effect.what {
            state.epochs.insert(effect.id, grant.epoch);
        }
        let lost = state.rng.chance(lost_push) || state.cut.contains(&client) || state.down;
        let copies = if state.rng.chance(doubled_push) { 2 } else { 1 };
        let Some(inbox) = state.inboxes.get(&client).filter(|_| !lost).cloned() else { return };
        for _ in 0..copies {
            let (journey, inbox) = (state.journey(), inbox.clone());
            let news = News { name: name.clone(), id: effect.id, what: effect.what.clone() };
            if matches!(effect.what, What::Evicted(_)) {
                state.note_gone(name, effect.id, now + journey);
            }
            tokio::spawn(async move {
                tokio::time::sleep(journey).await;
                // A client that is gone hears nothing.
                let _ = inbox.send(Ok(news));
            });
        }
    }

    /// Sends a call over the simulated network.
    pub(super) fn send<T: Clone + Unpin + Send + 'static>(
        self: &Arc<Self>,
        client: ClientId,
        work: impl Fn(&Self, &mut State, Moment) -> T + Send + 'static,
        arrived: impl FnOnce(&mut State, &T, Moment) + Send + 'static,
    ) -> Call<T> {
        let mut state = self.state();
        if state.down {
            return Call::now(Err(Failure::unreachable("the store is down")));
        }
        if state.denies {
            return Call::now(Err(Failure::denied("the password is wrong")));
        }
        let Faults { instant, lost_question, lost_answer, doubled, .. } = state.faults;
        if state.rng.chance(instant) && !state.cut.contains(&client) {
            let answer = work(self, &mut state, self.clock.now());
            arrived(&mut state, &answer, self.clock.now());
            return Call::now(Ok(answer));
        }
        let lost = state.rng.chance(lost_question);
        let deaf = state.rng.chance(lost_answer);
        let again = state.rng.chance(doubled).then(|| state.journey() * 8);
        let (there, back) = (state.journey(), state.journey());
        drop(state);
        let store = Arc::clone(self);
        let (tell, hear) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(there).await;
            let answer = if lost { None } else { store.arrive(client, &work) };
            if let (Some(later), true) = (again, answer.is_some()) {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    tokio::time::sleep(later).await;
                    store.arrive(client, &work);
                });
            }
            tokio::time::sleep(back).await;
            let deaf = deaf || store.state().cut.contains(&client);
            match answer {
                // Nobody hears an answer that comes after its time.
                Some(answer) if !deaf && !tell.is_closed() => {
                    arrived(&mut store.state(), &answer, store.clock.now());
                    let _ = tell.send(answer);
                }
                // As with a dead connection: nobody says that there is no answer.
                _ => std::future::pending().await,
            }
        });
        Call::later(async { hear.await.map_err(|_| Failure::unknown("the connection broke")) })
    }

    fn arrive<T>(&self, client: ClientId, work: &impl Fn(&Self, &mut State, Moment) -> T) -> Option<T> {
        let mut state = self.state();
        (!state.down && !state.cut.contains(&client)).then(|| work(self, &mut state, self.clock.now()))
    }
}

impl State {
    fn journey(&mut self) -> Duration {
        let Faults { delay_ms, long, long_ms, .. } = self.faults;
        let most = if self.rng.chance(long) { long_ms } else { delay_ms };
        self.rng.millis(0, most)
    }
}
