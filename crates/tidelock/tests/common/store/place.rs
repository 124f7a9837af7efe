//! Where the locks of a trial are.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use test_servers::{Proxy, Server};
use tidelock::{Error, Locks};

use super::{
    NAME,
    conditions::{PATIENCE, within},
    shared::Shared,
};
use crate::STORE;

static SHARED: Shared<Server> = Shared::new();

/// The server of all trials that do not break it. Started by the first.
pub(crate) fn shared() -> Arc<Server> {
    SHARED.get(STORE.start)
}

pub(crate) fn stop_shared() {
    SHARED.stop();
}

/// A place for the locks of one trial: servers, and a prefix that no other trial uses.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    servers: String,
    pub(crate) prefix: String,
    pub(crate) options: String,
}

impl Place {
    /// On the server that most trials share.
    pub(crate) fn shared() -> Self {
        Self::at(&shared())
    }

    /// On a server, with what the store needs there.
    pub(crate) fn at(server: &Server) -> Self {
        let place = Self::on(server.url());
        (STORE.prepare)(server, &place.prefix);
        place
    }

    /// On the servers of a URL without options, as they are.
    pub(crate) fn on(url: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { servers: url.to_owned(), prefix: (STORE.prefix)(number), options: String::new() }
    }

    /// The same locks, reached with other options.
    pub(crate) fn with(&self, options: &str) -> Self {
        let joint = if self.options.is_empty() { "" } else { "&" };
        Self { options: format!("{}{joint}{options}", self.options), ..self.clone() }
    }

    /// The same locks, reached through another address or as somebody else.
    pub(crate) fn through(&self, url: &str) -> Self {
        Self { servers: url.to_owned(), ..self.clone() }
    }

    /// The same locks, reached by another user.
    pub(crate) fn logged_in(&self, user: &str, password: &str) -> Self {
        let (scheme, _, hosts, database) = self.parts();
        self.through(&format!("{scheme}://{user}:{password}@{hosts}{database}"))
    }

    /// The same locks behind a network that can be broken.
    pub(crate) fn behind(&self, proxy: &Proxy) -> Self {
        let (scheme, login, _, database) = self.parts();
        self.through(&format!("{scheme}://{login}{}{database}", proxy.addr()))
    }

    /// Where the servers are, as other programs want it.
    pub(crate) fn hosts(&self) -> &str {
        self.parts().2
    }

    /// Scheme, login with its `@`, hosts, and what follows them.
    fn parts(&self) -> (&str, &str, &str, &str) {
        let (scheme, rest) = self.servers.split_once("://").unwrap();
        let (login, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (hosts, database) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        (scheme, login, hosts, database)
    }

    pub(crate) fn url(&self) -> String {
        let url = (STORE.url)(&self.servers, &self.prefix);
        let joint = match &*self.options {
            "" => "",
            _ if url.contains('?') => "&",
            _ => "?",
        };
        format!("{url}{joint}{}", self.options)
    }

    /// Waits for a server that the machine keeps from answering.
    pub(crate) async fn connect(&self) -> Locks {
        within("a client connects", Locks::connect_within(&self.url(), PATIENCE / 2)).await.unwrap()
    }

    pub(crate) async fn try_connect(&self) -> Result<Locks, Error> {
        Locks::connect(&self.url()).await
    }

    /// A client gets a lock, and gives it back.
    pub(crate) async fn serves(&self) {
        self.connect().await.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    }
}
