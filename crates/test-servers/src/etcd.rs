//! etcd: one member or a cluster of three.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::folder::Folder;
use crate::ports::{self, Port};
use crate::process::Call;
use crate::server::Plan;
use crate::{Certificates, Cluster, Error, Proxy, Server, packages};

/// How an etcd server shall be; by default it does not wait for the disk.
#[derive(Debug, Clone, Default)]
pub struct Etcd {
    durable: bool,
    patient: bool,
    tls: Option<Tls>,
    password: Option<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tls {
    client_auth: bool,
}

/// A member that is yet to start: its name, its port for clients and its port for the others.
struct Member {
    name: String,
    client: Port,
    peer: Port,
}

impl Etcd {
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

    /// Elects a new leader after two seconds only, not at every hiccup of a busy machine: for trials in which no
    /// member fails.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.patient = true;
        self
    }

    /// Speaks TLS with clients, with a certificate of [`Server::certificates`].
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// As [`tls`](Self::tls), and refuses clients that do not show a certificate of the authority.
    #[must_use]
    pub fn tls_client_auth(mut self) -> Self {
        self.tls.get_or_insert_default().client_auth = true;
        self
    }

    /// Lets nobody in but the user `root` with this password, and forgets logins after some seconds.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Starts one server.
    ///
    /// # Errors
    ///
    /// When etcd is not installed or does not start.
    pub fn start(&self) -> Result<Server, Error> {
        let mut nodes = self.start_members(1)?;
        let node = nodes.pop().ok_or_else(|| Error::new("no etcd started"))?;
        if let Some(password) = &self.password {
            for words in [&["user", "add", &format!("root:{password}")][..], &["auth", "enable"]] {
                node.ask(words)?;
            }
        }
        Ok(node)
    }

    /// Starts a cluster of three.
    ///
    /// # Errors
    ///
    /// When etcd is not installed or does not start.
    pub fn start_cluster(&self) -> Result<Cluster, Error> {
        Ok(Cluster::new("etcd", self.start_members(3)?))
    }

    /// Starts a cluster of three with a network between them that can be broken.
    ///
    /// # Errors
    ///
    /// When etcd is not installed or does not start.
    pub fn start_divisible(&self) -> Result<Divisible, Error> {
        let (nodes, proxies) = self.start_behind(3, |peer| Proxy::start(peer).map(Some))?;
        Ok(Divisible {
            cluster: Cluster::new("etcd", nodes),
            proxies: proxies.into_iter().flatten().collect(),
        })
    }

    fn start_members(&self, count: usize) -> Result<Vec<Server>, Error> {
        Ok(self.start_behind(count, |_| Ok(None))?.0)
    }

    fn start_behind(
        &self,
        count: usize,
        door: impl Fn(SocketAddr) -> Result<Option<Proxy>, Error>,
    ) -> Result<(Vec<Server>, Vec<Option<Proxy>>), Error> {
        ports::retry(|| {
            let members = (0..count)
                .map(|number| {
                    Ok(Member {
                        name: format!("member{number}"),
                        client: ports::free()?,
                        peer: ports::free()?,
                    })
                })
                .collect::<Result<Vec<_>, Error>>()?;
            let doors =
                members.iter().map(|member| door(member.peer.addr())).collect::<Result<Vec<_>, Error>>()?;
            let reached: Vec<_> = members
                .iter()
                .zip(&doors)
                .map(|(member, door)| {
                    let addr = door.as_ref().map_or(member.peer.addr(), Proxy::addr);
                    format!("http://{addr}")
                })
                .collect();
            let all: Vec<_> =
                members.iter().zip(&reached).map(|(member, url)| format!("{}={url}", member.name)).collect();
            let all = all.join(",");
            let nodes = members
                .into_iter()
                .zip(&reached)
                .map(|(member, url)| self.launch(member, url, &all))
                .collect::<Result<Vec<_>, Error>>()?;
            nodes.iter().try_for_each(Server::wait_ready)?;
            Ok((nodes, doors))
        })
    }

    fn launch(&self, member: Member, reached: &str, all: &str) -> Result<Server, Error> {
        let folder = Folder::new("etcd")?;
        let program = packages::require("etcd")?;
        let addr = member.client.addr();
        let certificates = self.tls.map(|_| Certificates::write(folder.path())).transpose()?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let client = format!("{scheme}://{addr}");
        let metrics = ports::free()?;
        let door = metrics.addr();
        let peer = format!("http://{}", member.peer.addr());
        let mut run = Call::new(program.clone()).args([
            format!("--name={}", member.name),
            format!("--data-dir={}", folder.data().join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={reached}"),
            format!("--initial-cluster={all}"),
            // Whether it is healthy is said without TLS, too.
            format!("--listen-metrics-urls=http://{door}"),
            // A new leader after half a second instead of one. No lease is shorter than one and a half times
            // that.
            format!("--heartbeat-interval={}", if self.patient { 200 } else { 50 }),
            format!("--election-timeout={}", if self.patient { 2_000 } else { 500 }),
        ]);
        if !self.durable && can_skip_fsync(&program) {
            run = run.arg("--unsafe-no-fsync");
        }
        let mut etcdctl = Call::new(packages::require("etcdctl")?)
            .arg(format!("--endpoints={client}"))
            .env("ETCDCTL_API", "3");
        if let Some((tls, certificates)) = self.tls.zip(certificates.as_ref()) {
            run = run
                .arg(format!("--cert-file={}", certificates.shown().display()))
                .arg(format!("--key-file={}", certificates.server_key().display()));
            if tls.client_auth {
                run = run.arg("--client-cert-auth");
                run = run.arg(format!("--trusted-ca-file={}", certificates.ca().display()));
            }
            etcdctl = etcdctl
                .arg(format!("--cacert={}", certificates.ca().display()))
                .arg(format!("--cert={}", certificates.client_cert().display()))
                .arg(format!("--key={}", certificates.client_key().display()));
        }
        if self.password.is_some() {
            run = run.arg("--auth-token-ttl=2");
        }
        let login = self.password.as_ref().map_or(String::new(), |password| format!("root:{password}@"));
        if std::env::consts::ARCH == "aarch64" {
            // Old versions refuse to run there unless told to.
            run = run.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        }
        Server::launch(Plan {
            store: "etcd",
            addr,
            url: format!("{}://{login}{addr}", if self.tls.is_some() { "etcds" } else { "etcd" }),
            unix_socket: None,
            run,
            client: etcdctl,
            probe: Box::new(move || health(door)),
            redis: None,
            folder,
            ports: vec![member.client, member.peer, metrics],
        })
    }
}

/// What an administrator does with the data of a single member.
impl Server {
    /// Writes a snapshot of its data to a file.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn save_snapshot(&self, file: &Path) -> Result<(), Error> {
        self.ask(&["snapshot", "save", &file.display().to_string()]).map(drop)
    }

    /// Kills it, replaces its data by those of a snapshot, and starts it again. Name, addresses and token are the same,
    /// so the id of the cluster is the same too: nothing but its history says that it was restored.
    ///
    /// # Errors
    ///
    /// When the snapshot cannot be read, or etcd does not start.
    pub fn restore_snapshot(&self, file: &Path) -> Result<(), Error> {
        let members = self.ask(&["member", "list", "-w", "simple"])?;
        let fields: Vec<_> = members.trim().split(", ").collect();
        let [_, _, name, peer, ..] = fields[..] else {
            return Err(Error::new(format!("no member in {members:?}")));
        };
        self.kill()?;
        let data = self.folder().join("data").join("etcd");
        fs::remove_dir_all(&data).map_err(Error::context("the old data cannot be removed"))?;
        self.ask(&[
            "snapshot",
            "restore",
            &file.display().to_string(),
            &format!("--data-dir={}", data.display()),
            &format!("--name={name}"),
            &format!("--initial-cluster={name}={peer}"),
            &format!("--initial-advertise-peer-urls={peer}"),
        ])?;
        self.restart()
    }
}

/// A cluster whose members can be cut off from each other, and not from their clients.
#[derive(Debug)]
pub struct Divisible {
    cluster: Cluster,
    /// In front of the members, for each other.
    proxies: Vec<Proxy>,
}

impl Divisible {
    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Cuts one member off from the others.
    pub fn cut_off(&self, member: usize) {
        let process = self.cluster.nodes()[member].pid().unwrap_or_default();
        for (number, proxy) in self.proxies.iter().enumerate() {
            if number == member {
                proxy.cut();
            } else {
                proxy.refuse(process);
            }
        }
    }

    /// Joins a member again that was cut off.
    ///
    /// # Errors
    ///
    /// When a stranger took its port meanwhile.
    pub fn join(&self, member: usize) -> Result<(), Error> {
        let process = self.cluster.nodes()[member].pid().unwrap_or_default();
        self.proxies.iter().for_each(|proxy| proxy.welcome(process));
        self.proxies[member].heal()
    }
}

/// The option is missing in the help of the versions that have it, and in older versions.
fn can_skip_fsync(etcd: &Path) -> bool {
    Command::new(etcd)
        .args(["--unsafe-no-fsync", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Healthy means that there is a leader.
fn health(addr: SocketAddr) -> Result<(), Error> {
    let mut answer = String::new();
    ask(addr, &mut answer).map_err(Error::context(format!("no answer of {addr}")))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    if head.contains(" 200 ") && body.contains("\"true\"") {
        Ok(())
    } else {
        Err(Error::new(format!("etcd is not healthy: {answer:?}")))
    }
}

fn ask(addr: SocketAddr, answer: &mut String) -> std::io::Result<usize> {
    // etcd itself tries for some seconds to reach its leader before it says no.
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&addr, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(format!("GET /health HTTP/1.0\r\nHost: {addr}\r\n\r\n").as_bytes())?;
    stream.read_to_string(answer)
}
