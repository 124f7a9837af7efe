//! What places on servers of Redis have besides.

use std::fmt;

use test_servers::Server;

use crate::support::Place;

impl Place {
    /// A place of its own within this one.
    pub(crate) fn narrowed(&self, number: usize) -> Self {
        let mut narrowed = self.clone();
        narrowed.prefix.push_str(&format!("{number}:"));
        narrowed
    }

    /// The key of a lock.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{{{name}}}", self.prefix)
    }

    /// How many clients of this place a server would reach.
    pub(crate) fn listeners(&self, server: &Server) -> usize {
        self.inboxes(server, "CHANNELS")
    }

    /// As [`listeners`](Self::listeners), for a member of a cluster: inboxes that are subscribed there.
    pub(crate) fn shard_listeners(&self, server: &Server) -> usize {
        self.inboxes(server, "SHARDCHANNELS")
    }

    fn inboxes(&self, server: &Server, kind: &str) -> usize {
        let inboxes = format!("{}in:*", self.prefix);
        let answer = server.command(&["PUBSUB", kind, &inboxes]).ok().flatten().unwrap_or_default();
        answer.lines().count()
    }
}

/// What is special about it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.options.is_empty() { Ok(()) } else { write!(f, " with {}", self.options) }
    }
}
