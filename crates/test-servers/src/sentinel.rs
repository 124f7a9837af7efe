//! Redis with Sentinel: a master, replicas, and watchers that replace the master.

use std::collections::HashSet;
use std::net::SocketAddr;

use crate::administrator::Login;
use crate::cluster::url;
use crate::deadline::{START_LIMIT, wait_for_value};
use crate::folder::Folder;
use crate::replication::{self, is_master};
use crate::{Error, Redis, Replicated, Server, ports, wait_for};

/// Under this name the Sentinels know the master.
const MASTER: &str = "tidelock";

/// A Redis master, two replicas, and three Sentinels.
///
/// A killed master is replaced within a few seconds. When it is restarted then, it believes that
/// it is master, and takes writes, until the Sentinels make it a replica: that takes them ten
/// seconds at least, and on a busy machine half a minute.
#[derive(Debug)]
pub struct Sentinel {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
    url: String,
}

impl Sentinel {
    /// The servers with the data; the first one was the master in the beginning.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The Sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The name under which the Sentinels know the master.
    #[must_use]
    pub fn master_name(&self) -> &'static str {
        MASTER
    }

    /// `redis+sentinel://host:port,host:port,host:port/name` with the addresses of the Sentinels
    /// and the name of the master; `rediss+sentinel://` with TLS.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Asks the Sentinels, one after the other until one answers, who is master now.
    ///
    /// # Errors
    ///
    /// When none answers.
    pub fn master(&self) -> Result<SocketAddr, Error> {
        let mut last = Error::new("there is no Sentinel");
        for sentinel in &self.sentinels {
            match ask_master(sentinel) {
                Ok(addr) => return Ok(addr),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// As [`master`](Self::master), with the server at that address.
    ///
    /// # Errors
    ///
    /// When no Sentinel answers, or the address is none of the servers'.
    pub fn master_server(&self) -> Result<&Server, Error> {
        let addr = self.master()?;
        let server = self.servers.iter().find(|server| server.addr() == addr);
        server.ok_or_else(|| Error::new(format!("the Sentinels name {addr}, which is none of the servers")))
    }

    /// Waits until `old`, which was killed or paused, has a successor: all Sentinels that answer
    /// name the same other server, and it says that it is master.
    ///
    /// # Errors
    ///
    /// When there is none after a minute.
    pub fn wait_for_successor(&self, old: &Server) -> Result<&Server, Error> {
        wait_for_value(&format!("the master {} is replaced", old.addr()), START_LIMIT, || {
            self.agreed_master().filter(|new| new.addr() != old.addr() && is_master(new))
        })
    }

    /// Whom all Sentinels name that answer; nobody while they differ.
    fn agreed_master(&self) -> Option<&Server> {
        let named: HashSet<_> =
            self.sentinels.iter().filter_map(|sentinel| ask_master(sentinel).ok()).collect();
        let mut servers = self.servers.iter().filter(|server| named.contains(&server.addr()));
        servers.next().filter(|_| named.len() == 1)
    }
}

fn ask_master(sentinel: &Server) -> Result<SocketAddr, Error> {
    let answer = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])?.unwrap_or_default();
    answer
        .replacen('\n', ":", 1)
        .parse()
        .map_err(Error::context(format!("the Sentinel says {answer:?}, which is no address")))
}

/// Starts all, on ports that may turn out to be taken.
pub(crate) fn start(options: &Redis) -> Result<Sentinel, Error> {
    // A Sentinel asks for the replicas when it starts and then every ten seconds: they are there
    // when it asks first.
    let Replicated { master, replicas } = replication::start(options, 2)?;
    let sentinels = (0..3).map(|_| launch(options, master.addr())).collect::<Result<Vec<_>, Error>>()?;
    sentinels.iter().try_for_each(Server::wait_ready)?;
    wait_for("the Sentinels know each other", START_LIMIT, || {
        sentinels.iter().all(|sentinel| {
            let info = sentinel.command(&["INFO", "sentinel"]).ok().flatten().unwrap_or_default();
            info.contains("status=ok") && info.contains("slaves=2,sentinels=3")
        })
    })?;
    // The Sentinels let everybody in; the login is for the servers that they name.
    let login = options.client_login().as_ref().map(Login::in_url).unwrap_or_default();
    let scheme = format!("{}+sentinel", options.scheme());
    let url = format!("{}/{MASTER}", url(&scheme, &sentinels)).replacen("://", &format!("://{login}"), 1);
    let servers = std::iter::once(master).chain(replicas).collect();
    Ok(Sentinel { servers, sentinels, url })
}

fn launch(options: &Redis, master: SocketAddr) -> Result<Server, Error> {
    // Half a second of silence is death, so that a failover takes a second or two.
    let silence = if options.patient { 20_000 } else { 500 };
    let mut lines = vec![
        format!("sentinel monitor {MASTER} 127.0.0.1 {} 2", master.port()),
        format!("sentinel down-after-milliseconds {MASTER} {silence}"),
        format!("sentinel failover-timeout {MASTER} 3000"),
    ];
    if let Some(login) = options.administrator_login() {
        lines.push(format!("sentinel auth-pass {MASTER} {}", login.password));
        if let Some(user) = login.named_user() {
            lines.push(format!("sentinel auth-user {MASTER} {user}"));
        }
    }
    options.for_sentinel().run(Folder::new("sentinel")?, vec![ports::free()?], &lines, &["--sentinel"])
}
