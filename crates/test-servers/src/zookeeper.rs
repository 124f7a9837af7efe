//! ZooKeeper: one server or an ensemble of three.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::folder::Folder;
use crate::packages::{self, ZOOKEEPER_ENVIRONMENT};
use crate::ports::{self, Port};
use crate::process::Call;
use crate::server::Plan;
use crate::{Certificates, Cluster, Error, Server, preload};

/// How a ZooKeeper server shall be; by default it does not wait for the disk.
#[derive(Debug, Clone, Default)]
pub struct Zookeeper {
    durable: bool,
    preloaded: bool,
    tls: Option<ClientCertificates>,
    login: Option<(String, String)>,
}

/// Whether a server with TLS asks its clients for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientCertificates {
    None,
    Required,
}

/// The ports of a member of an ensemble: for clients, for the leader, for elections.
struct Member {
    client: Port,
    leader: Port,
    election: Port,
}

impl Zookeeper {
    /// A server whose data survive the death of the process, though not that of the machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes every change to the disk before it answers.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Has a disk of its own; see [`Server::set_disk`].
    #[must_use]
    pub fn own_disk(mut self) -> Self {
        self.preloaded = true;
        self
    }

    /// Listens for clients with TLS too: that is where the URL of the server leads. Its certificates are
    /// those of [`Server::certificates`].
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = Some(ClientCertificates::None);
        self
    }

    /// As [`tls`](Self::tls), for clients that have certificates themselves.
    #[must_use]
    pub fn tls_client_auth(mut self) -> Self {
        self.tls = Some(ClientCertificates::Required);
        self
    }

    /// Lets in only clients that log in as this user, by SASL.
    #[must_use]
    pub fn sasl(mut self, user: &str, password: &str) -> Self {
        self.login = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// Starts one server.
    ///
    /// # Errors
    ///
    /// When ZooKeeper is not installed or does not start.
    pub fn start(&self) -> Result<Server, Error> {
        ports::retry(|| {
            let mut ports = vec![ports::free()?];
            if self.tls.is_some() {
                ports.push(ports::free()?);
            }
            let server = self.launch(ports, 1, "")?;
            server.wait_ready()?;
            Ok(server)
        })
    }

    /// Starts an ensemble of three; returns when each is leader or follower.
    ///
    /// # Errors
    ///
    /// When ZooKeeper is not installed or does not start.
    pub fn start_ensemble(&self) -> Result<Cluster, Error> {
        ports::retry(|| {
            let members = (0..3)
                .map(|_| {
                    Ok(Member { client: ports::free()?, leader: ports::free()?, election: ports::free()? })
                })
                .collect::<Result<Vec<_>, Error>>()?;
            let all: String = (1..)
                .zip(&members)
                .map(|(id, member)| {
                    let (leader, election) = (member.leader.addr(), member.election.number());
                    format!("server.{id}={leader}:{election}\n")
                })
                .collect();
            let nodes = (1..)
                .zip(members)
                .map(|(id, member)| {
                    self.launch(vec![member.client, member.leader, member.election], id, &all)
                })
                .collect::<Result<Vec<_>, Error>>()?;
            nodes.iter().try_for_each(Server::wait_ready)?;
            Ok(Cluster::new("zookeeper", nodes))
        })
    }

    fn launch(&self, ports: Vec<Port>, id: u32, members: &str) -> Result<Server, Error> {
        let folder = Folder::new("zookeeper")?;
        let addr = ports.first().map(Port::addr).ok_or_else(|| Error::new("a server needs a port"))?;
        let file = folder.path().join("zoo.cfg");
        let (mut configuration, mut url) =
            (configuration(&folder.data(), addr, members), format!("zookeeper://{addr}"));
        let secure = if self.tls.is_some() { ports.last().map_or(addr, Port::addr) } else { addr };
        if let Some(client) = self.tls {
            configuration.push_str(&tls_configuration(folder.path(), secure, client)?);
            url = format!("zookeepers://{secure}");
        }
        let jaas = folder.path().join("jaas.conf");
        if let Some((user, password)) = &self.login {
            configuration
                .push_str("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n");
            let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
            let text = format!("Server {{ {module} required user_{user}=\"{password}\"; }};\n");
            fs::write(&jaas, text).map_err(Error::context("no logins"))?;
        }
        let logins = self.login.is_some().then(|| {
            let file = format!("-Djava.security.auth.login.config={}", jaas.display());
            [file, "-Dzookeeper.sessionRequireClientSASLAuth=true".to_owned()]
        });
        fs::write(&file, configuration)
            .and_then(|()| fs::write(folder.data().join("myid"), id.to_string()))
            .map_err(Error::context("no configuration file"))?;
        let sync = if self.durable { "yes" } else { "no" };
        // The small heap and the simplest collector let three of them share a small machine.
        let mut run = java()?
            .args(["-Xmx256m", "-XX:+UseSerialGC"])
            .arg(format!("-Dzookeeper.forceSync={sync}"))
            .args(logins.into_iter().flatten())
            .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(file);
        if self.preloaded {
            run = preload::give(run, folder.path())?;
        }
        Server::launch(Plan {
            store: "zookeeper",
            addr,
            url,
            unix_socket: None,
            run,
            client: java()?
                .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
                .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
                .args(["org.apache.zookeeper.ZooKeeperMain", "-server"])
                .arg(addr.to_string()),
            probe: Box::new(move || {
                serves(addr)?;
                // The one for TLS opens last.
                TcpStream::connect(secure).map(drop).map_err(Error::context(format!("no answer of {secure}")))
            }),
            redis: None,
            folder,
            ports,
        })
    }
}

/// What happens to the data of a single server.
impl Server {
    /// Kills it, removes all that it has written, and starts it again.
    ///
    /// # Errors
    ///
    /// When ZooKeeper does not start.
    pub fn restart_empty(&self) -> Result<(), Error> {
        self.kill()?;
        fs::remove_dir_all(self.folder().join("data").join("version-2"))
            .map_err(Error::context("the old data cannot be removed"))?;
        self.restart()
    }
}

fn configuration(data: &Path, addr: SocketAddr, members: &str) -> String {
    // Half a tick is how late a dead session may be noticed, and a tick is how often a leader
    // asks its followers: both shall be quick. The limits of sessions follow the tick unless
    // they are given.
    format!(
        "tickTime=100
minSessionTimeout=200
maxSessionTimeout=120000
initLimit=100
syncLimit=50
dataDir={}
clientPort={}
clientPortAddress={}
maxClientCnxns=0
4lw.commands.whitelist=*
admin.enableServer=false
{members}",
        data.display(),
        addr.port(),
        addr.ip(),
    )
}

/// A second port, for clients with TLS.
fn tls_configuration(folder: &Path, addr: SocketAddr, client: ClientCertificates) -> Result<String, Error> {
    let certificates = Certificates::write(folder)?;
    let asks = if client == ClientCertificates::Required { "need" } else { "none" };
    Ok(format!(
        "secureClientPort={}
secureClientPortAddress={}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={}
ssl.keyStore.type=PEM
ssl.trustStore.location={}
ssl.trustStore.type=PEM
ssl.clientAuth={asks}
",
        addr.port(),
        addr.ip(),
        certificates.shown().display(),
        certificates.ca().display(),
    ))
}

/// `java` with the class path of the package, and a logger that writes to standard error.
fn java() -> Result<Call, Error> {
    let java = packages::require("java")?;
    packages::require(ZOOKEEPER_ENVIRONMENT)?;
    let environment =
        fs::read_to_string(ZOOKEEPER_ENVIRONMENT).map_err(Error::context(ZOOKEEPER_ENVIRONMENT))?;
    let path = class_path(&environment)
        .ok_or_else(|| Error::new(format!("{ZOOKEEPER_ENVIRONMENT} does not say the CLASSPATH")))?;
    // A killed Java would leave its statistics in the folder for temporary files.
    Ok(Call::new(java).arg("-XX:-UsePerfData").arg("-cp").arg(path))
}

fn class_path(environment: &str) -> Option<String> {
    let value = |name: &str| {
        environment
            .lines()
            .filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))
            .map(|value| value.trim_matches('"').to_owned())
            .next_back()
    };
    let folder = value("ZOOCFGDIR").unwrap_or_default();
    let path = value("CLASSPATH")?.replace("${ZOOCFGDIR}", &folder).replace("$ZOOCFGDIR", &folder);
    // Of what TLS needs the package names only a part.
    let more =
        "/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";
    Some(format!("{more}:{path}"))
}

/// Whether the server is up (`ruok`) and, in an ensemble, has a leader: `srvr` says the mode only
/// then.
fn serves(addr: SocketAddr) -> Result<(), Error> {
    for (word, wanted) in [("ruok", "imok"), ("srvr", "Mode: ")] {
        let mut answer = String::new();
        ask(addr, word, &mut answer).map_err(Error::context(format!("no answer of {addr}")))?;
        if !answer.contains(wanted) {
            return Err(Error::new(format!("{word} was answered with {answer:?}")));
        }
    }
    Ok(())
}

fn ask(addr: SocketAddr, word: &str, answer: &mut String) -> std::io::Result<usize> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&addr, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(word.as_bytes())?;
    stream.read_to_string(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_path_is_read_from_the_package_of_old_and_new_releases() {
        let new = "ZOOCFGDIR=/etc/zookeeper/conf\n\nCLASSPATH=\"/etc/zookeeper/conf:/j/z.jar\"\n";
        let old = "ZOOCFGDIR=/etc/zookeeper/conf\nCLASSPATH=\"$ZOOCFGDIR:/j/z.jar\"\n";
        let more = "/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";
        let path = &*format!("/usr/share/java/slf4j-simple.jar:{more}:/etc/zookeeper/conf:/j/z.jar");
        assert_eq!(class_path(new).as_deref(), Some(path));
        assert_eq!(class_path(old).as_deref(), Some(path));
        assert_eq!(class_path("JAVA=java"), None);
    }
}
