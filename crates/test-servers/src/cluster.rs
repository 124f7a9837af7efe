//! Several servers that are one store.

use std::net::SocketAddr;

use crate::{Error, Server};

/// The members of a Redis cluster, an etcd cluster or a ZooKeeper ensemble.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    url: String,
}

impl Cluster {
    pub(crate) fn new(scheme: &str, nodes: Vec<Server>) -> Self {
        let url = url(scheme, &nodes);
        Self { nodes, url }
    }

    /// The members; each can be killed, paused and restarted alone.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Where the members listen for clients.
    #[must_use]
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Server::addr).collect()
    }

    /// One URL with the addresses of all members, separated by commas.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills every member.
    ///
    /// # Errors
    ///
    /// As [`Server::kill`].
    pub fn kill(&self) -> Result<(), Error> {
        self.nodes.iter().try_for_each(Server::kill)
    }

    /// Starts every member again, and waits until all serve.
    ///
    /// # Errors
    ///
    /// As [`Server::restart`].
    pub fn restart(&self) -> Result<(), Error> {
        self.kill()?;
        self.nodes.iter().try_for_each(Server::relaunch)?;
        self.wait_ready()
    }

    /// Waits until every member serves.
    ///
    /// # Errors
    ///
    /// As [`Server::wait_ready`].
    pub fn wait_ready(&self) -> Result<(), Error> {
        self.nodes.iter().try_for_each(Server::wait_ready)
    }
}

/// `scheme://[user:password@]host:port,host:port`: what precedes the host comes from the first
/// server, because all have the same.
pub(crate) fn url(scheme: &str, servers: &[Server]) -> String {
    let login = servers
        .first()
        .and_then(|server| server.url().split_once("://")?.1.split_once('@'))
        .map_or(String::new(), |(login, _)| format!("{login}@"));
    let hosts: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    format!("{scheme}://{login}{}", hosts.join(","))
}
