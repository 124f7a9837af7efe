//! What the trials of all stores with servers share. It is the module `support` of a store's test file, which says in
//! a constant [`STORE`](crate::STORE) what is special about the store and lists its trials:
//!
//! | module | what is in it |
//! |---|---|
//! | `harness` | how trials are listed and run |
//! | `place` | where the locks of a trial are: a server, and a prefix that no other trial uses |
//! | `conditions` | waiting for something to be so |
//! | `witness` | sees every grant of a lock, and counts those that overlap |
//! | `worker`, `jobs` | processes that hold locks |
//! | `turns` | processes that take one lock in turns, and whether any two overlapped |
//! | `names` | names that nobody used before |
//! | `figures` | how large tables get |
//! | `network`, `processes`, `endings`, `following` | trials that are the same for all stores that have the abilities for them |
//! | `ends`, `outlived` | programs and runtimes that end, for stores without servers too |
//! | `batches` | trials of stores whose claims go together in one call |
//! | `login` | the parts of trials that differ |
#![allow(dead_code, unused_imports, reason = "each store uses its own part")]

#[macro_use]
pub(crate) mod harness;
pub(crate) mod batches;
pub(crate) mod conditions;
pub(crate) mod endings;
#[path = "../ends.rs"]
pub(crate) mod ends;
pub(crate) mod figures;
pub(crate) mod following;
pub(crate) mod jobs;
pub(crate) mod login;
pub(crate) mod names;
pub(crate) mod network;
#[path = "../outlived.rs"]
pub(crate) mod outlived;
pub(crate) mod place;
pub(crate) mod processes;
#[path = "../shared.rs"]
pub(crate) mod shared;
pub(crate) mod turns;
pub(crate) mod witness;
#[path = "../worker.rs"]
pub(crate) mod worker;

use std::time::Duration;

use test_servers::Server;

pub(crate) use self::{
    conditions::{
        Waiter, eventually, got, hand_over, held_and_waited_for, is_one_sentence, nobody, pass_on, report,
        until, until_idle, until_waiting, waiter, within,
    },
    place::{Place, shared},
};

/// What is special about a store.
pub(crate) struct Store {
    /// Starts the server of all trials that do not break it.
    pub(crate) start: fn() -> Server,
    /// The prefix of a trial, by its number.
    pub(crate) prefix: fn(usize) -> String,
    /// Makes on a server what a prefix needs there before a client connects.
    pub(crate) prepare: fn(&Server, &str),
    /// The URL of a prefix on servers.
    pub(crate) url: fn(&str, &str) -> String,
    /// A lease that does not end during a trial.
    pub(crate) long: Duration,
    /// A lease that ends during a trial, and is long enough to be renewed on a busy machine.
    pub(crate) short: Duration,
    /// A trial that takes longer hangs. Generous: the machine may be busy with other tests.
    pub(crate) watchdog: Duration,
    /// It keeps the place of a client that it cannot tell anything, and makes it a holder.
    pub(crate) keeps_unheard: bool,
    /// A client asks again over another connection while its question may still arrive over the first.
    pub(crate) asks_over_others: bool,
    /// A client renews with messages of its own: it does not hold by a session that lives.
    pub(crate) renews: bool,
    /// How many wait in its longest line here, and of how many clients.
    pub(crate) crowd: (usize, usize),
}

/// The trials that are the same for all stores, as far as each can pass them.
pub(crate) fn common_trials() -> harness::Trials {
    [processes::trials(), endings::trials(), network::trials(), following::trials()]
        .into_iter()
        .flatten()
        .collect()
}

/// A lease that does not end during a trial.
pub(crate) const LONG: Duration = crate::STORE.long;
/// A lease that ends during a trial, and is long enough to be renewed on a busy machine.
pub(crate) const SHORT: Duration = crate::STORE.short;
/// A lease that is renewed several times during a trial, and outlives a renewal that fails.
pub(crate) const RENEWED: Duration = Duration::from_secs(9);
/// The lock of a trial that needs only one.
pub(crate) const NAME: &str = "the lock";
