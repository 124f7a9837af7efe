//! Following names where the store tells of the next change only: each name is armed, and armed again after a change.
//!
//! Followers are told once the name is armed again: what changed before is seen by their look, and what changes after it
//! is told once more. All state is kept between two calls of `wait`, which drives this. Questions to the store are jobs:
//! they do not stand still between two such calls.

use std::{collections::HashMap, convert::Infallible, fmt, sync::Arc, time::Duration};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::attend::Jobs;
use crate::{
    backend::{Failure, Follows},
    model::name::Name,
};

/// How long a name rests after it was armed: a lock that changes hands all the time is not armed as often.
const REST: Duration = Duration::from_millis(20);
/// How long it rests after that failed, at first and at most.
const FAILED: Duration = Duration::from_millis(200);
const FAILED_AT_MOST: Duration = Duration::from_secs(5);

/// What a store said.
#[derive(Debug)]
pub(crate) enum Heard {
    /// What this is the key of has changed, and is not armed any more.
    Changed(String),
    /// Nothing is armed any more, and changes may have been missed.
    Cut,
}

/// Where connections put what their servers say about names that are followed.
pub(crate) type Tell = UnboundedSender<Heard>;

/// A store that tells of the next change of what it was asked about.
pub(crate) trait Arms: Send + Sync + 'static {
    /// What the store calls a name when it tells of a change.
    fn key_of(&self, name: &Name) -> String;

    /// From now on the next change of this key is told.
    fn arm(self: Arc<Self>, key: String) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Nobody follows this key any more.
    fn disarm(&self, key: &str);
}

enum Done {
    Armed(bool),
    Rested,
}

/// Where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Arming,
    /// Armed a moment ago, or not armed because that failed.
    Resting,
    Armed,
}

#[derive(Debug)]
struct Watched {
    name: Name,
    phase: Phase,
    /// Whether it has to be armed again after this phase.
    again: bool,
    failures: u32,
}

impl Watched {
    /// Whether the next change is told.
    fn is_armed(&self) -> bool {
        match self.phase {
            Phase::Armed => true,
            Phase::Resting => !self.again,
            Phase::Arming => false,
        }
    }
}

/// What is kept between two calls of `wait`.
pub(crate) struct Following {
    follows: Follows,
    heard: UnboundedReceiver<Heard>,
    /// By key.
    watched: HashMap<String, Watched>,
    jobs: Jobs<(String, Done)>,
}

impl Following {
    pub(crate) fn new(follows: Follows) -> (Tell, Self) {
        let (tell, heard) = unbounded_channel();
        (tell, Self { follows, heard, watched: HashMap::new(), jobs: Jobs::default() })
    }

    /// Does what has to be done, for as long as it is polled. Nothing is lost if it is dropped.
    pub(crate) async fn run<S: Arms>(&mut self, store: &Arc<S>) -> Infallible {
        loop {
            tokio::select! {
                () = self.follows.altered() => self.catch_up(store),
                Some(heard) = self.heard.recv() => self.hear(store, heard),
                Some((key, done)) = self.jobs.next() => self.done(store, key, done),
            }
        }
    }

    /// Arms names that are new, and forgets those that nobody follows any more.
    fn catch_up<S: Arms>(&mut self, store: &Arc<S>) {
        let names = self.follows.names();
        let wanted: HashMap<_, _> =
            names.into_iter().map(|(name, is_live)| (store.key_of(&name), (name, is_live))).collect();
        self.watched.retain(|key, _| {
            let is_wanted = wanted.contains_key(key);
            if !is_wanted {
                store.disarm(key);
            }
            is_wanted
        });
        for (key, (name, is_live)) in wanted {
            match self.watched.get(&key) {
                // It was dropped, and followed again before we saw that.
                Some(watched) if watched.is_armed() && !is_live => self.follows.live(&name),
                Some(_) => {}
                None => {
                    let watched = Watched { name, phase: Phase::Arming, again: false, failures: 0 };
                    self.watched.insert(key.clone(), watched);
                    self.arm(store, key);
                }
            }
        }
    }

    fn hear<S: Arms>(&mut self, store: &Arc<S>, heard: Heard) {
        match heard {
            Heard::Changed(key) => self.arm_again(store, key),
            Heard::Cut => {
                self.follows.cut_all();
                for key in self.watched.keys().cloned().collect::<Vec<_>>() {
                    self.arm_again(store, key);
                }
            }
        }
    }

    fn arm_again<S: Arms>(&mut self, store: &Arc<S>, key: String) {
        let Some(watched) = self.watched.get_mut(&key) else { return };
        if watched.phase == Phase::Armed {
            watched.phase = Phase::Arming;
            self.arm(store, key);
        } else {
            watched.again = true;
        }
    }

    fn arm<S: Arms>(&mut self, store: &Arc<S>, key: String) {
        let store = Arc::clone(store);
        self.jobs.begin(async move {
            let armed = store.arm(key.clone()).await;
            (key, Done::Armed(armed.is_ok()))
        });
    }

    fn rest(&mut self, key: String, pause: Duration) {
        self.jobs.begin(async move {
            tokio::time::sleep(pause).await;
            (key, Done::Rested)
        });
    }

    fn done<S: Arms>(&mut self, store: &Arc<S>, key: String, done: Done) {
        let Some(watched) = self.watched.get_mut(&key) else {
            // Nobody followed it any more while it was being armed.
            return store.disarm(&key);
        };
        match done {
            Done::Armed(true) => {
                (watched.phase, watched.failures) = (Phase::Resting, 0);
                self.follows.live(&watched.name);
                self.rest(key, REST);
            }
            Done::Armed(false) => {
                let pause = FAILED_AT_MOST.min(FAILED * (1 << watched.failures.min(8)));
                watched.failures += 1;
                (watched.phase, watched.again) = (Phase::Resting, true);
                self.follows.cut(&watched.name);
                self.rest(key, pause);
            }
            Done::Rested if watched.phase == Phase::Resting => {
                if std::mem::take(&mut watched.again) {
                    watched.phase = Phase::Arming;
                    self.arm(store, key);
                } else {
                    watched.phase = Phase::Armed;
                }
            }
            // Of an earlier time at which it was followed.
            Done::Rested => {}
        }
    }
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("watched", &self.watched).finish_non_exhaustive()
    }
}
