//! Redis with Sentinel: a master, replicas, and watchers that replace the master.

use std::net::SocketAddr;

use crate::cluster::url;
use crate::deadline::START_LIMIT;
use crate::folder::Folder;
use crate::{Error, Redis, RedisConnection, Server, ports, wait_for};

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
    /// and the name of the master.
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
            match ask_master(sentinel.addr()) {
                Ok(addr) => return Ok(addr),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn ask_master(sentinel: SocketAddr) -> Result<SocketAddr, Error> {
    let answer = RedisConnection::open(sentinel)?
        .call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])?
        .unwrap_or_default();
    answer
        .replacen('\n', ":", 1)
        .parse()
        .map_err(Error::context(format!("the Sentinel says {answer:?}, which is no address")))
}

/// Starts all, on ports that may turn out to be taken.
pub(crate) fn start(options: &Redis) -> Result<Sentinel, Error> {
    let master = options.launch(vec![ports::free()?], &[])?;
    master.wait_ready()?;
    let follow = format!("replicaof 127.0.0.1 {}", master.addr().port());
    let mut servers = vec![master];
    for _ in 0..2 {
        servers.push(options.launch(vec![ports::free()?], std::slice::from_ref(&follow))?);
    }
    servers.iter().try_for_each(Server::wait_ready)?;
    let master = servers[0].addr();
    // A Sentinel asks for the replicas when it starts and then every ten seconds: they shall be
    // there when it asks first.
    wait_for("the replicas follow the master", START_LIMIT, || {
        info(options, master, "replication").is_ok_and(|text| {
            text.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count()
                == 2
        })
    })?;

    let sentinels = (0..3).map(|_| launch(options, master)).collect::<Result<Vec<_>, Error>>()?;
    sentinels.iter().try_for_each(Server::wait_ready)?;
    wait_for("the Sentinels know each other", START_LIMIT, || {
        sentinels.iter().all(|sentinel| {
            info(&Redis::new(), sentinel.addr(), "sentinel")
                .is_ok_and(|text| text.contains("status=ok") && text.contains("slaves=2,sentinels=3"))
        })
    })?;
    let login = options.given_password().map_or(String::new(), |password| format!(":{password}@"));
    let url =
        format!("{}/{MASTER}", url("redis+sentinel", &sentinels)).replacen("://", &format!("://{login}"), 1);
    Ok(Sentinel { servers, sentinels, url })
}

fn info(options: &Redis, addr: SocketAddr, section: &str) -> Result<String, Error> {
    let text = options.connect(addr)?.call(&["INFO", section])?;
    Ok(text.unwrap_or_default())
}

fn launch(options: &Redis, master: SocketAddr) -> Result<Server, Error> {
    let folder = Folder::new("sentinel")?;
    let port = ports::free()?;
    let mut lines = vec![
        "bind 127.0.0.1".to_owned(),
        format!("port {}", port.number()),
        format!("dir \"{}\"", folder.data().display()),
        format!("sentinel monitor {MASTER} 127.0.0.1 {} 2", master.port()),
        // Half a second of silence is death, so that a failover takes a second or two.
        format!("sentinel down-after-milliseconds {MASTER} 500"),
        format!("sentinel failover-timeout {MASTER} 3000"),
    ];
    if let Some(password) = options.given_password() {
        lines.push(format!("sentinel auth-pass {MASTER} {password}"));
    }
    // The Sentinels themselves are open: they hold no data.
    Redis::new().run(folder, vec![port], lines, &["--sentinel"], None)
}
