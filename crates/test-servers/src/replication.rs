//! Redis with replicas that nobody watches over: they change their roles when a test says so.

use std::slice;

use crate::deadline::START_LIMIT;
use crate::{Error, Redis, Server, ports, wait_for};

/// A Redis master and its replicas.
#[derive(Debug)]
pub struct Replicated {
    pub(crate) master: Server,
    pub(crate) replicas: Vec<Server>,
}

impl Replicated {
    /// The server that was the master in the beginning.
    #[must_use]
    pub fn master(&self) -> &Server {
        &self.master
    }

    /// The servers that were its replicas in the beginning.
    #[must_use]
    pub fn replicas(&self) -> &[Server] {
        &self.replicas
    }

    /// Makes a replica a master, with the data that it has got so far. The old master goes on as
    /// if nothing had happened, and so do its other replicas.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub fn promote(&self, replica: &Server) -> Result<(), Error> {
        replica.command(&["REPLICAOF", "NO", "ONE"])?;
        Ok(())
    }

    /// Makes a server the replica of another; returns when it has given up its own data and holds
    /// those of `master`.
    ///
    /// # Errors
    ///
    /// When a server does not answer, or the replica is not in step after a minute.
    pub fn follow(&self, replica: &Server, master: &Server) -> Result<(), Error> {
        let port = master.addr().port().to_string();
        replica.command(&["REPLICAOF", "127.0.0.1", &port])?;
        wait_in_step(slice::from_ref(replica), master)
    }
}

/// Starts all, on ports that may turn out to be taken.
pub(crate) fn start(options: &Redis, replicas: usize) -> Result<Replicated, Error> {
    let master = options.launch(vec![ports::free()?], &[])?;
    master.wait_ready()?;
    let follow = format!("replicaof 127.0.0.1 {}", master.addr().port());
    let replicas = (0..replicas)
        .map(|_| options.launch(vec![ports::free()?], slice::from_ref(&follow)))
        .collect::<Result<Vec<_>, Error>>()?;
    replicas.iter().try_for_each(Server::wait_ready)?;
    wait_in_step(&replicas, &master)?;
    Ok(Replicated { master, replicas })
}

/// Waits until the master sends every change to these replicas, and they hold what was before.
fn wait_in_step(replicas: &[Server], master: &Server) -> Result<(), Error> {
    wait_for("the replicas are in step with the master", START_LIMIT, || {
        let info = master.command(&["INFO", "replication"]).ok().flatten().unwrap_or_default();
        replicas.iter().all(|replica| {
            let online = format!("port={},state=online", replica.addr().port());
            info.lines().any(|line| line.starts_with("slave") && line.contains(&online))
                && role(replica).contains("\nconnected\n")
        })
    })
}

/// What a server says about itself; nothing when it does not answer.
pub(crate) fn role(server: &Server) -> String {
    server.command(&["ROLE"]).ok().flatten().unwrap_or_default()
}

pub(crate) fn is_master(server: &Server) -> bool {
    role(server).starts_with("master")
}
