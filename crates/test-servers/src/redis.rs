//! Redis: one server, a master with replicas, with Sentinels or without, or a cluster.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::administrator::{Administrator, Door, Login};
use crate::folder::Folder;
use crate::ports::{self, Port};
use crate::process::Call;
use crate::server::Plan;
use crate::{
    Certificates, Cluster, Error, Replicated, Sentinel, Server, packages, preload, redis_cluster,
    replication, sentinel,
};

/// How a Redis server shall be; by default it keeps nothing over a restart.
#[derive(Debug, Clone, Default)]
pub struct Redis {
    append_only: bool,
    durable: bool,
    pub(crate) patient: bool,
    password: Option<String>,
    unix_socket: bool,
    preloaded: bool,
    tls: Option<Tls>,
    users: Vec<User>,
    without_default_user: bool,
    config: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tls {
    expired: bool,
    client_auth: bool,
}

#[derive(Debug, Clone)]
struct User {
    login: Login,
    rules: String,
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

    /// Replaces a master after many seconds only, not at every hiccup of a busy machine: for trials in which
    /// no server fails.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.patient = true;
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

    /// Has a wall clock of its own; see [`Server::set_clock_ahead`].
    #[must_use]
    pub fn own_clock(mut self) -> Self {
        self.preloaded = true;
        self
    }

    /// Has a disk of its own; see [`Server::set_disk`].
    #[must_use]
    pub fn own_disk(mut self) -> Self {
        self.preloaded = true;
        self
    }

    /// Listens with TLS only, with a certificate for `127.0.0.1` and `localhost`; see
    /// [`Server::certificates`]. Replicas, Sentinels and members of a cluster speak TLS with each
    /// other, too.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// As [`tls`](Self::tls), with a certificate that expired long ago. For one server alone:
    /// several would refuse each other.
    #[must_use]
    pub fn tls_expired(mut self) -> Self {
        self.tls.get_or_insert_default().expired = true;
        self
    }

    /// As [`tls`](Self::tls), and refuses clients that do not show a certificate of the authority.
    #[must_use]
    pub fn tls_client_auth(mut self) -> Self {
        self.tls.get_or_insert_default().client_auth = true;
        self
    }

    /// Adds a user, who may do what the rules of the access control list say: `~* &* +@all` is
    /// everything. Use letters and digits for name and password; [`Server::url_as`] makes a URL
    /// of them.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str, rules: &str) -> Self {
        let login = Login { user: name.to_owned(), password: password.to_owned() };
        self.users.push(User { login, rules: rules.to_owned() });
        self
    }

    /// Turns the default user off: clients must say a name and a password. The URL of the server
    /// is then that of the user that was added first.
    #[must_use]
    pub fn without_default_user(mut self) -> Self {
        self.without_default_user = true;
        self
    }

    /// Sets any directive, with the value as it stands in a configuration file.
    #[must_use]
    pub fn config(mut self, directive: &str, value: &str) -> Self {
        self.config.push(format!("{directive} {value}"));
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

    /// Starts a master and as many replicas of it; returns when the replicas are in step.
    ///
    /// # Errors
    ///
    /// When Redis is not installed or does not start.
    pub fn start_with_replicas(&self, replicas: usize) -> Result<Replicated, Error> {
        ports::retry(|| replication::start(self, replicas))
    }

    /// Starts a cluster of three masters with a replica each; returns when every member serves
    /// and every replica has the data of its master.
    ///
    /// # Errors
    ///
    /// When Redis is not installed or does not start.
    pub fn start_cluster(&self) -> Result<Cluster, Error> {
        ports::retry(|| redis_cluster::start(self))
    }

    /// Starts one process without waiting; `options` are lines of the configuration.
    pub(crate) fn launch(&self, ports: Vec<Port>, options: &[String]) -> Result<Server, Error> {
        let mut lines = vec![
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
        }
        if let Some(login) = self.administrator_login() {
            lines.push(format!("masterauth {}", login.password));
            if let Some(user) = login.named_user() {
                lines.push(format!("masteruser {user}"));
                lines.push(format!("user {user} on >{} ~* &* +@all", login.password));
            }
        }
        if self.without_default_user {
            lines.push(format!("user {} off", Login::DEFAULT_USER));
        }
        for User { login, rules } in &self.users {
            lines.push(format!("user {} on >{} {rules}", login.user, login.password));
        }
        lines.extend_from_slice(options);
        // The last one counts: what the test wants overrules what it gets.
        lines.extend_from_slice(&self.config);
        self.run(Folder::new("redis")?, ports, &lines, &[])
    }

    /// Runs `redis-server` with a configuration file, which the server may rewrite; `lines` say
    /// what else it shall do than listen.
    pub(crate) fn run(
        &self,
        folder: Folder,
        ports: Vec<Port>,
        lines: &[String],
        args: &[&str],
    ) -> Result<Server, Error> {
        let addr = ports.first().map(Port::addr).ok_or_else(|| Error::new("a server needs a port"))?;
        let certificates = self.tls.map(|_| Certificates::write(folder.path())).transpose()?;
        let socket = folder.path().join("redis.sock");
        let mut all = vec!["bind 127.0.0.1".to_owned(), format!("dir {}", quoted(&folder.data()))];
        match self.tls.zip(certificates.as_ref()) {
            Some((tls, certificates)) => {
                certificates.show(tls.expired)?;
                all.extend(tls.configuration(addr, certificates));
            }
            None => all.push(format!("port {}", addr.port())),
        }
        if self.unix_socket || self.tls.is_some() {
            all.push(format!("unixsocket {}", quoted(&socket)));
        }
        all.extend_from_slice(lines);
        let file = folder.path().join("redis.conf");
        fs::write(&file, all.join("\n") + "\n").map_err(Error::context("no configuration file"))?;

        let door = if self.tls.is_some() { Door::Socket(socket.clone()) } else { Door::Port(addr) };
        let administrator = Administrator { door, login: self.administrator_login() };
        let probe = administrator.clone();
        let login = self.client_login().as_ref().map(Login::in_url).unwrap_or_default();
        let mut run = Call::new(packages::require("redis-server")?).arg(file).args(args);
        if self.preloaded {
            run = preload::give(run, folder.path())?;
        }
        Server::launch(Plan {
            store: "redis",
            addr,
            url: format!("{}://{login}{addr}", self.scheme()),
            unix_socket: self.unix_socket.then_some(socket),
            run,
            client: self.client(addr, certificates.as_ref())?,
            probe: Box::new(move || probe.ping()),
            redis: Some(administrator),
            folder,
            ports,
        })
    }

    /// `redis-cli` as the administrator.
    fn client(&self, addr: SocketAddr, certificates: Option<&Certificates>) -> Result<Call, Error> {
        let mut client = Call::new(packages::require("redis-cli")?).args([
            "-h".to_owned(),
            addr.ip().to_string(),
            "-p".to_owned(),
            addr.port().to_string(),
        ]);
        if let Some(login) = self.administrator_login() {
            client = client.env("REDISCLI_AUTH", login.password.clone());
            if let Some(user) = login.named_user() {
                client = client.arg("--user").arg(user);
            }
        }
        if let Some((tls, certificates)) = self.tls.zip(certificates) {
            client = client.arg("--tls").arg("--cacert").arg(certificates.ca());
            client = client.arg("--cert").arg(certificates.client_cert());
            client = client.arg("--key").arg(certificates.client_key());
            if tls.expired {
                client = client.arg("--insecure");
            }
        }
        Ok(client)
    }

    /// How URLs begin.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "rediss" } else { "redis" }
    }

    /// How Sentinels listen: as their servers do, and open to everybody, for they hold no data.
    pub(crate) fn for_sentinel(&self) -> Self {
        Self { tls: self.tls, ..Self::new() }
    }

    /// Of a user who may do everything; nothing when nobody needs to log in.
    pub(crate) fn administrator_login(&self) -> Option<Login> {
        if self.without_default_user {
            return Some(Login { user: "administrator".to_owned(), password: "administrator".to_owned() });
        }
        let password = self.password.clone()?;
        Some(Login { user: Login::DEFAULT_USER.to_owned(), password })
    }

    /// Of the user in the URL.
    pub(crate) fn client_login(&self) -> Option<Login> {
        match self.users.first() {
            Some(user) if self.without_default_user => Some(user.login.clone()),
            _ => self.administrator_login(),
        }
    }
}

impl Tls {
    fn configuration(self, addr: SocketAddr, certificates: &Certificates) -> Vec<String> {
        let client_auth = if self.client_auth { "yes" } else { "no" };
        vec![
            "port 0".to_owned(),
            format!("tls-port {}", addr.port()),
            format!("tls-ca-cert-file {}", quoted(&certificates.ca())),
            format!("tls-cert-file {}", quoted(&certificates.shown())),
            format!("tls-key-file {}", quoted(&certificates.server_key())),
            // Towards a master or another member the server is a client.
            format!("tls-client-cert-file {}", quoted(&certificates.client_cert())),
            format!("tls-client-key-file {}", quoted(&certificates.client_key())),
            format!("tls-auth-clients {client_auth}"),
            "tls-replication yes".to_owned(),
            "tls-cluster yes".to_owned(),
        ]
    }
}

fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}
