//! The connections to the servers.
//!
//! | file | what |
//! |---|---|
//! | `wire` | the protocol: requests and answers as bytes |
//! | `connection` | one connection to one server: opened, greeted, logged in |
//! | `sasl` | the login by SASL |
//! | `session` | a session over one connection after another |
//! | `task` | the task that has the connection of a session |

pub(super) mod connection;
mod sasl;
pub(super) mod session;
mod task;
#[cfg(test)]
mod tests;
pub(super) mod wire;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use self::session::{Session, Watcher};
use super::settings::ZookeeperSettings;
use crate::{backends::shared::mutex::lock, model::claim::random_u64};

/// The sessions of a client: one for each length of leases. The first one is also for everything else.
pub(crate) struct Link {
    config: Arc<ZookeeperSettings>,
    watcher: Arc<dyn Watcher>,
    sessions: Mutex<Vec<Arc<Session>>>,
    next: AtomicU64,
}

impl Link {
    pub(crate) fn new(config: Arc<ZookeeperSettings>, watcher: Arc<dyn Watcher>) -> Self {
        Self { config, watcher, sessions: Mutex::default(), next: AtomicU64::new(1) }
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        lock(&self.sessions)
    }

    /// All sessions of this client.
    pub(crate) fn all_sessions(&self) -> Vec<Arc<Session>> {
        self.sessions().clone()
    }

    /// The session for leases of this length: one that ends as soon, or a little sooner.
    pub(crate) fn session(&self, ttl: Duration) -> Arc<Session> {
        let mut sessions = self.sessions();
        sessions.retain(|session| !session.is_expired());
        let fits = |session: &&Arc<Session>| session.asked <= ttl && session.asked >= ttl / 5 * 4;
        if let Some(session) = sessions.iter().filter(fits).max_by_key(|session| session.asked) {
            return Arc::clone(session);
        }
        let session = self.another_session(ttl, Arc::clone(&self.watcher));
        sessions.push(Arc::clone(&session));
        session
    }

    /// A session that only its caller has.
    pub(crate) fn another_session(&self, ttl: Duration, watcher: Arc<dyn Watcher>) -> Arc<Session> {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        // Clients spread over the servers.
        let first = random_u64() as usize % self.config.hosts.len();
        Session::new(key, Arc::clone(&self.config), ttl, first, watcher)
    }

    /// A session for questions that belong to no claim.
    pub(crate) fn any_session(&self) -> Arc<Session> {
        let first = self.sessions().iter().find(|session| !session.is_expired()).cloned();
        first.unwrap_or_else(|| self.session(crate::DEFAULT_TTL))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({:?}, {:?})", self.config, self.sessions())
    }
}
