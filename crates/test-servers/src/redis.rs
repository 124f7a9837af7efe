//! Redis: one server, a master with replicas and Sentinels, or a cluster.

use std::fs;
use std::net::SocketAddr;

use crate::deadline::START_LIMIT;
use crate::folder::Folder;
use crate::ports::{self, Port};
use crate::process::Call;
use crate::server::{Plan, Probe};
use crate::{Cluster, Error, RedisConnection, Sentinel, Server, packages, sentinel, wait_for};

/// How far the bus port of a cluster member lies above its port for clients.
const BUS: u16 = 10_000;

/// Masters of a cluster, each with one replica: the fewest that can vote.
const MASTERS: usize = 3;

/// How a Redis server shall be; by default it keeps nothing over a restart.
#[derive(Debug, Clone, Default)]
pub struct Redis {
    append_only: bool,
    durable: bool,
    password: Option<String>,
    unix_socket: bool,
}

impl Redis {
    /// A server without password that keeps its data in memory only.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes every change to a file before it answers: the data survive the death of the
    /// process, though not that of the machine.
    #[must_use]
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Writes every change to the disk before it answers (`appendfsync always`).
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.append_only = true;
        self.durable = true;
        self
    }

    /// Lets only clients in that know the password. Use letters and digits.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Listens on a Unix socket as well; see [`Server::unix_socket`].
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Starts one server.
    ///
    /// # Errors
    ///
    /// When Redis is not installed or does not start.
    pub fn start(&self) -> Result<Server, Error> {
        ports::retry(|| {
            let server = self.launch(vec![ports::free()?], &[])?;
            server.wait_ready()?;
            Ok(server)
        })
    }

    /// Starts a master, two replicas of it, and three Sentinels that watch over them; returns
    /// when they all know each other.
    ///
    /// # Errors
    ///
    /// When Redis is not installed or does not start.
    pub fn start_sentinel(&self) -> Result<Sentinel, Error> {
        ports::retry(|| sentinel::start(self))
    }

    /// Starts a cluster of three masters with a replica each; returns when every member serves
    /// and every replica has the data of its master.
    ///
    /// # Errors
    ///
    /// When Redis is not installed or does not start.
    pub fn start_cluster(&self) -> Result<Cluster, Error> {
        ports::retry(|| self.cluster())
    }

    fn cluster(&self) -> Result<Cluster, Error> {
        let options = [
            "cluster-enabled yes".to_owned(),
            "cluster-config-file nodes.conf".to_owned(),
            // A dead master is replaced after about two seconds instead of thirty.
            "cluster-node-timeout 1000".to_owned(),
        ];
        let nodes = (0..2 * MASTERS)
            .map(|_| {
                let (port, bus) = ports::free_pair(BUS)?;
                self.launch(vec![port, bus], &options)
            })
            .collect::<Result<Vec<_>, Error>>()?;
        nodes.iter().try_for_each(Server::wait_ready)?;

        let addrs: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(addrs.iter().map(String::as_str));
        create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        nodes[0].ask(&create)?;

        wait_for("the cluster is complete", START_LIMIT, || {
            nodes.iter().all(|node| self.is_joined(node.addr()))
        })?;
        Ok(Cluster::new("redis+cluster", nodes))
    }

    /// Whether a member serves, sees a replica behind every master, and, being a replica itself,
    /// is in step with its master.
    fn is_joined(&self, addr: SocketAddr) -> bool {
        let asked = self.connect(addr).and_then(|mut redis| {
            let info = redis.call(&["CLUSTER", "INFO"])?.unwrap_or_default();
            let nodes = redis.call(&["CLUSTER", "NODES"])?.unwrap_or_default();
            let role = redis.call(&["ROLE"])?.unwrap_or_default();
            Ok((info, nodes, role))
        });
        asked.is_ok_and(|(info, nodes, role)| {
            let replicas = nodes.lines().filter(|line| line.contains("slave"));
            info.contains("cluster_state:ok")
                && replicas.count() == MASTERS
                && (role.starts_with("master") || role.contains("\nconnected\n"))
        })
    }

    /// Starts one process without waiting; `options` are lines of the configuration.
    pub(crate) fn launch(&self, ports: Vec<Port>, options: &[String]) -> Result<Server, Error> {
        let folder = Folder::new("redis")?;
        let port = first(&ports)?;
        let socket = self.unix_socket.then(|| folder.path().join("redis.sock"));
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {}", port.port()),
            format!("dir \"{}\"", folder.data().display()),
            // Snapshots would bring back data that the options say are lost.
            "save \"\"".to_owned(),
            // A replica gets its data at once instead of after five seconds.
            "repl-diskless-sync-delay 0".to_owned(),
        ];
        if self.append_only {
            let flush = if self.durable { "always" } else { "no" };
            lines.push("appendonly yes".to_owned());
            lines.push(format!("appendfsync {flush}"));
        }
        if let Some(password) = &self.password {
            lines.push(format!("requirepass {password}"));
            lines.push(format!("masterauth {password}"));
        }
        if let Some(socket) = &socket {
            lines.push(format!("unixsocket \"{}\"", socket.display()));
        }
        lines.extend_from_slice(options);
        self.run(folder, ports, lines, &[], socket)
    }

    /// Runs `redis-server` with a configuration file, which the server may rewrite.
    pub(crate) fn run(
        &self,
        folder: Folder,
        ports: Vec<Port>,
        lines: Vec<String>,
        args: &[&str],
        unix_socket: Option<std::path::PathBuf>,
    ) -> Result<Server, Error> {
        let addr = first(&ports)?;
        let file = folder.path().join("redis.conf");
        fs::write(&file, lines.join("\n") + "\n").map_err(Error::context("no configuration file"))?;
        let login = self.password.as_ref().map_or(String::new(), |password| format!(":{password}@"));
        let mut client = Call::new(packages::require("redis-cli")?).args([
            "-h".to_owned(),
            addr.ip().to_string(),
            "-p".to_owned(),
            addr.port().to_string(),
        ]);
        if let Some(password) = &self.password {
            client = client.env("REDISCLI_AUTH", password.clone());
        }
        Server::launch(Plan {
            store: "redis",
            addr,
            url: format!("redis://{login}{addr}"),
            unix_socket,
            run: Call::new(packages::require("redis-server")?).arg(file).args(args),
            client,
            probe: self.probe(addr),
            folder,
            ports,
        })
    }

    fn probe(&self, addr: SocketAddr) -> Probe {
        let options = self.clone();
        Box::new(move || match options.connect(addr)?.call(&["PING"])? {
            Some(pong) if pong == "PONG" => Ok(()),
            other => Err(Error::new(format!("PING was answered with {other:?}"))),
        })
    }

    /// Connects and logs in.
    pub(crate) fn connect(&self, addr: SocketAddr) -> Result<RedisConnection, Error> {
        let mut redis = RedisConnection::open(addr)?;
        if let Some(password) = &self.password {
            redis.call(&["AUTH", password])?;
        }
        Ok(redis)
    }

    pub(crate) fn given_password(&self) -> Option<&str> {
        self.password.as_deref()
    }
}

fn first(ports: &[Port]) -> Result<SocketAddr, Error> {
    ports.first().map(Port::addr).ok_or_else(|| Error::new("a server needs a port"))
}
