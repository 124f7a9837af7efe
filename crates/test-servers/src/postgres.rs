//! PostgreSQL.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use crate::folder::Folder;
use crate::process::{Call, succeeded};
use crate::server::Plan;
use crate::{Error, Server, packages, ports};

/// How a PostgreSQL server shall be; by default it does not wait for the disk.
#[derive(Debug, Clone, Default)]
pub struct Postgres {
    durable: bool,
}

impl Postgres {
    /// A server whose data survive the death of the process, though not that of the machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes every commit to the disk before it answers.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Starts a server with a new, empty database.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is not installed or does not start.
    pub fn start(&self) -> Result<Server, Error> {
        ports::retry(|| {
            let server = self.launch()?;
            server.wait_ready()?;
            Ok(server)
        })
    }

    fn launch(&self) -> Result<Server, Error> {
        let folder = Folder::new("postgres")?;
        let data = folder.data();
        // The server refuses to run as root; its package made a user for it.
        let root = rustix::process::geteuid().is_root();
        let user = root.then_some("postgres");
        if let Some(name) = user {
            let (uid, gid) = account(name)?;
            chown(&data, Some(uid), Some(gid)).map_err(Error::context("cannot chown"))?;
        }
        Call::new(packages::require("initdb")?)
            .args(["--username=postgres", "--auth=trust", "--encoding=UTF8"])
            // Nothing here survives the machine, so nothing is worth a wait for the disk.
            .args(["--no-locale", "--no-sync", "--pgdata"])
            .arg(&data)
            .user(user)
            .run(&data)?;

        let port = ports::free()?;
        let addr = port.addr();
        let (host, number) = (addr.ip().to_string(), addr.port().to_string());
        let isready = Call::new(packages::require("pg_isready")?)
            .args(["-h", &host, "-p", &number, "-d", "postgres", "-t", "2"]);
        Server::launch(Plan {
            store: "postgres",
            addr,
            url: format!("postgres://postgres@{addr}/postgres"),
            unix_socket: None,
            run: self.call(&data, &host, &number)?.user(user),
            client: Call::new(packages::require("psql")?)
                .args(["-h", &host, "-p", &number, "-U", "postgres"])
                // Print values only, read no settings of the person, and fail on the first error.
                .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "postgres"]),
            probe: Box::new(move || ready(&isready)),
            redis: None,
            folder,
            ports: vec![port],
        })
    }

    fn call(&self, data: &Path, host: &str, port: &str) -> Result<Call, Error> {
        let mut run = Call::new(packages::require("postgres")?)
            .arg("-D")
            .arg(data)
            .args(["-h", host, "-p", port])
            .args(["-c", "unix_socket_directories=", "-c", "max_connections=200"])
            // In the data folder, which is removed, rather than in /dev/shm, which is not.
            .args(["-c", "dynamic_shared_memory_type=mmap"]);
        if !self.durable {
            // A commit still reaches the kernel before it is answered.
            run = run.args(["-c", "fsync=off", "-c", "full_page_writes=off"]);
        }
        Ok(run)
    }
}

fn ready(isready: &Call) -> Result<(), Error> {
    let output = isready.command().output().map_err(Error::context("pg_isready cannot run"))?;
    succeeded("pg_isready", output).map(|_| ())
}

/// The numbers of a user and its group.
fn account(name: &str) -> Result<(u32, u32), Error> {
    fs::read_to_string("/etc/passwd")
        .unwrap_or_default()
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            if fields.next()? != name {
                return None;
            }
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            Some((uid, gid))
        })
        .ok_or_else(|| {
            Error::new(format!(
                "there is no user {name}, as whom PostgreSQL runs when root starts it: install \
                 the Debian package postgresql (`cargo xtask test` installs what is missing)"
            ))
        })
}
