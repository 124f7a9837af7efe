//! All holds by their ids: confirm, release.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Deserialize;
use serde_json::json;
use tidelock::Holding;
use tokio::sync::oneshot;

use super::{
    Server,
    answer::{self, Answer},
    asked::Asked,
    problem::Problem,
};
use crate::clock::Moment;

/// For how many holds that have ended it is remembered how.
const REMEMBERED: usize = 4_096;

/// The name of a hold, which cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id(u128);

/// How a client ends a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ending {
    Release,
    /// The slot was run.
    Done,
    /// The slot failed.
    Failed,
}

/// What a request asks of a hold, with the place for the answer.
pub(super) type Command = (Ending, oneshot::Sender<Result<(), Problem>>);

/// A hold, as requests see it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) holdings: Vec<Holding>,
    /// Until when the client may rely on it, by what it was told. It is not given to others before, unless the client
    /// lets go of it.
    pub(super) told: Moment,
    /// When the client last proved that it lives.
    pub(super) confirmed: Moment,
    /// Ends the hold, once. Nothing if it is being ended.
    command: Option<oneshot::Sender<Command>>,
    /// Whether it is a slot.
    is_slot: bool,
}

/// How a hold ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Released,
    Lost(Problem),
}

/// The holds of a server.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Ids for holds to come: one call of the kernel is enough for several.
    fresh: Vec<Id>,
    open: HashMap<Id, Entry>,
    ended: HashMap<Id, Outcome>,
    /// The ids in `ended`, oldest first.
    order: VecDeque<Id>,
}

impl Entry {
    pub(super) fn new(holdings: Vec<Holding>, command: oneshot::Sender<Command>, is_slot: bool) -> Self {
        Self { holdings, told: Moment::default(), confirmed: Moment::now(), command: Some(command), is_slot }
    }

    /// Until when the hold can be relied on now. From here on, the client may know.
    pub(super) fn tell(&mut self) -> Moment {
        // The clock is read first: the end can only come out too early.
        let now = Moment::now();
        let left = self.holdings.iter().map(Holding::valid_for).min().unwrap_or_default();
        // A lease that has ended did so before now, and another may hold since.
        let until = if left.is_zero() { now.min(self.told) } else { now.plus(left) };
        self.told = self.told.max(until);
        until
    }

    pub(super) fn tokens(&self) -> Vec<String> {
        self.holdings.iter().map(|holding| holding.token().to_string()).collect()
    }

    /// The right to end the hold, which only the first gets.
    pub(super) fn begin_to_end(&mut self, ending: Ending) -> Result<oneshot::Sender<Command>, Problem> {
        if ending != Ending::Release && !self.is_slot {
            return Err(Problem::bad_request("this hold is a lock and no slot: release it instead"));
        }
        // Another request ends it, and this one learns no more than that.
        self.command.take().ok_or_else(|| Problem::bad_request("another request ends this hold already"))
    }
}

impl Holds {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An id for a new hold.
    pub(super) fn new_id(&self) -> Result<Id, Problem> {
        let mut inner = self.inner();
        if inner.fresh.is_empty() {
            inner.fresh = Id::random()?;
        }
        inner.fresh.pop().ok_or_else(Problem::internal)
    }

    pub(super) fn insert(&self, id: Id, entry: Entry) {
        self.inner().open.insert(id, entry);
    }

    /// Looks at a hold or changes it, while it is open.
    pub(super) fn with<T>(&self, id: Id, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.inner().open.get_mut(&id).map(work)
    }

    /// A hold ended. Says until when its client relies on it.
    pub(super) fn end(&self, id: Id, outcome: Outcome) -> Option<Moment> {
        let mut inner = self.inner();
        let told = inner.open.remove(&id).map(|entry| entry.told);
        if inner.ended.insert(id, outcome).is_none() {
            inner.order.push_back(id);
        }
        if inner.order.len() > REMEMBERED
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.ended.remove(&oldest);
        }
        told
    }

    /// What became of a hold that is not open.
    fn ended(&self, id: Id) -> Result<(), Problem> {
        match self.inner().ended.get(&id) {
            Some(Outcome::Released) => Ok(()),
            Some(Outcome::Lost(problem)) => Err(problem.clone()),
            None => {
                Err(Problem::not_found("this server knows no such hold: it ended long ago, or never was"))
            }
        }
    }
}

/// `POST /v1/holds/{hold}`: the client lives, and asks anew until when it may rely on its hold.
pub(super) fn confirm(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let id = asked.parts[0].parse()?;
    let confirmed = server.holds.with(id, |entry| {
        if !entry.holdings.iter().all(Holding::is_held) {
            return None;
        }
        entry.confirmed = entry.confirmed.max(asked.received);
        Some((entry.tell(), entry.tokens()))
    });
    let Some((until, tokens)) = confirmed.flatten() else {
        server.holds.ended(id)?;
        return Err(Problem::lost("the hold was released, or its lease has ended"));
    };
    Ok(answer::ok(&json!({
        "until_us": micros(until.since(asked.received)),
        "token": tokens[0],
        "tokens": tokens,
    })))
}

/// `DELETE /v1/holds/{hold}`: answered when the store has confirmed it.
pub(super) async fn release(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    end(asked, server, Ending::Release).await?;
    Ok(answer::ok(&json!({"released": true})))
}

/// `POST /v1/holds/{hold}/done`: the slot was run.
pub(super) async fn done(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    end(asked, server, Ending::Done).await?;
    Ok(answer::ok(&json!({"done": true})))
}

/// `POST /v1/holds/{hold}/failed`: the slot was not run to its end.
pub(super) async fn failed(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    end(asked, server, Ending::Failed).await?;
    Ok(answer::ok(&json!({"failed": true})))
}

async fn end(asked: &Asked, server: &Server, ending: Ending) -> Result<(), Problem> {
    let id = asked.parts[0].parse()?;
    let (answer, answered) = oneshot::channel();
    match server.holds.with(id, |entry| entry.begin_to_end(ending)) {
        Some(hold) => {
            // If the hold has ended meanwhile, nobody answers.
            let _ = hold?.send((ending, answer));
        }
        None => return server.holds.ended(id),
    }
    match answered.await {
        Ok(answer) => answer,
        Err(_) => server.holds.ended(id),
    }
}

/// Whole microseconds, rounded down: never later than it is.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Id {
    fn random() -> Result<Vec<Self>, Problem> {
        let mut bytes = [[0; 16]; 16];
        getrandom::fill(bytes.as_flattened_mut()).map_err(|_| Problem::internal())?;
        Ok(bytes.map(|bytes| Self(u128::from_le_bytes(bytes))).into())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Id {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let id = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten();
        id.map(Self).ok_or_else(|| Problem::not_found("this is not the id of a hold"))
    }
}

#[cfg(test)]
mod tests {
    use tidelock::Locks;

    use super::*;

    #[tokio::test]
    async fn what_has_ended_is_not_said_to_last_until_now() {
        let locks = Locks::connect("memory:holds").await.unwrap();
        let lock = locks.mutex("job").ttl(Duration::from_millis(100)).auto_renew(false);
        let guard = lock.lock().await.unwrap();
        let mut entry = Entry::new(vec![guard.holding()], oneshot::channel().0, false);
        let told = entry.tell();
        assert!(told > Moment::default());
        guard.lost().await;
        assert!(told < Moment::now());
        assert_eq!(entry.tell(), told);
    }
}
