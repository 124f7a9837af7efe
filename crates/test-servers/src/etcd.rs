//! etcd: one member or a cluster of three.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::folder::Folder;
use crate::ports::{self, Port};
use crate::process::Call;
use crate::server::Plan;
use crate::{Cluster, Error, Server, packages};

/// How an etcd server shall be; by default it does not wait for the disk.
#[derive(Debug, Clone, Default)]
pub struct Etcd {
    durable: bool,
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

    /// Starts one server.
    ///
    /// # Errors
    ///
    /// When etcd is not installed or does not start.
    pub fn start(&self) -> Result<Server, Error> {
        let mut nodes = self.start_members(1)?;
        nodes.pop().ok_or_else(|| Error::new("no etcd started"))
    }

    /// Starts a cluster of three.
    ///
    /// # Errors
    ///
    /// When etcd is not installed or does not start.
    pub fn start_cluster(&self) -> Result<Cluster, Error> {
        Ok(Cluster::new("etcd", self.start_members(3)?))
    }

    fn start_members(&self, count: usize) -> Result<Vec<Server>, Error> {
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
            let all: Vec<_> = members
                .iter()
                .map(|member| format!("{}=http://{}", member.name, member.peer.addr()))
                .collect();
            let all = all.join(",");
            let nodes = members
                .into_iter()
                .map(|member| self.launch(member, &all))
                .collect::<Result<Vec<_>, Error>>()?;
            nodes.iter().try_for_each(Server::wait_ready)?;
            Ok(nodes)
        })
    }

    fn launch(&self, member: Member, all: &str) -> Result<Server, Error> {
        let folder = Folder::new("etcd")?;
        let program = packages::require("etcd")?;
        let addr = member.client.addr();
        let client = format!("http://{addr}");
        let peer = format!("http://{}", member.peer.addr());
        let mut run = Call::new(program.clone()).args([
            format!("--name={}", member.name),
            format!("--data-dir={}", folder.data().join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={all}"),
            // A new leader after half a second instead of one, and yet not at every hiccup of a
            // machine with two cores.
            "--heartbeat-interval=50".to_owned(),
            "--election-timeout=500".to_owned(),
        ]);
        if !self.durable && can_skip_fsync(&program) {
            run = run.arg("--unsafe-no-fsync");
        }
        if std::env::consts::ARCH == "aarch64" {
            // Old versions refuse to run there unless told to.
            run = run.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        }
        Server::launch(Plan {
            store: "etcd",
            addr,
            url: format!("etcd://{addr}"),
            unix_socket: None,
            run,
            client: Call::new(packages::require("etcdctl")?)
                .arg(format!("--endpoints={client}"))
                .env("ETCDCTL_API", "3"),
            probe: Box::new(move || health(addr)),
            redis: None,
            folder,
            ports: vec![member.client, member.peer],
        })
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
