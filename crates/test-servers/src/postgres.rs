//! PostgreSQL.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::folder::Folder;
use crate::process::{Call, succeeded};
use crate::server::Plan;
use crate::{Certificates, Error, Server, packages, ports, preload};

/// How a PostgreSQL server shall be; by default it does not wait for the disk.
#[derive(Debug, Clone, Default)]
pub struct Postgres {
    durable: bool,
    preloaded: bool,
    tls: bool,
    password: Option<String>,
    settings: Vec<String>,
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

    /// Has a wall clock and a disk of its own; see [`Server::set_clock_ahead`] and [`Server::set_disk`].
    #[must_use]
    pub fn own_clock_and_disk(mut self) -> Self {
        self.preloaded = true;
        self
    }

    /// Lets clients speak TLS, with a certificate of [`Server::certificates`].
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Lets nobody in without a password; this is the one of the user `postgres`.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets something as in `postgresql.conf`: `name=value`.
    #[must_use]
    pub fn setting(mut self, setting: &str) -> Self {
        self.settings.push(setting.to_owned());
        self
    }

    /// Starts a server with a new, empty database.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is not installed or does not start.
    pub fn start(&self) -> Result<Server, Error> {
        ports::retry(|| {
            let server = self.launch(None)?;
            server.wait_ready()?;
            Ok(server)
        })
    }

    /// Starts a standby of a server: it follows all that is written there, until somebody asks it
    /// `SELECT pg_promote()`.
    ///
    /// # Errors
    ///
    /// When the server does not let itself be copied, or its standby does not start.
    pub fn start_standby(&self, of: &Server) -> Result<Server, Error> {
        ports::retry(|| {
            let server = self.launch(Some(of))?;
            server.wait_ready()?;
            Ok(server)
        })
    }

    /// Dumps a database of a server that lets everybody in, as `pg_dump` does with these arguments.
    ///
    /// # Errors
    ///
    /// When `pg_dump` fails; the error carries what it wrote.
    pub fn dump(server: &Server, database: &str, args: &[&str]) -> Result<String, Error> {
        let (host, port) = (server.addr().ip().to_string(), server.addr().port().to_string());
        let dump = Call::new(packages::require("pg_dump")?)
            .args(["-h", &host, "-p", &port, "-U", "postgres", "-d", database])
            .args(args.iter().copied());
        let output = dump.command().output().map_err(Error::context("pg_dump cannot run"))?;
        succeeded("pg_dump", output)
    }

    /// Makes a server that was stopped the standby of another one, when it is started again.
    ///
    /// # Errors
    ///
    /// When its folder cannot be written to.
    pub fn demote(server: &Server, primary: &Server) -> Result<(), Error> {
        let data = server.folder().join("data");
        let (host, port) = (primary.addr().ip(), primary.addr().port());
        let settings = format!(
            "primary_conninfo = 'host={host} port={port} user=postgres'\nrecovery_target_timeline = 'latest'\n"
        );
        let automatic = data.join("postgresql.auto.conf");
        let before = fs::read_to_string(&automatic).unwrap_or_default();
        fs::write(&automatic, before + &settings)
            .and_then(|()| fs::write(data.join("standby.signal"), ""))
            .map_err(Error::context("the server cannot be made a standby"))
    }

    fn launch(&self, primary: Option<&Server>) -> Result<Server, Error> {
        let folder = Folder::new("postgres")?;
        let data = folder.data();
        let account = server_account()?;
        let user = account.map(|_| SERVER_USER);
        if let Some((uid, gid)) = account {
            chown(&data, Some(uid), Some(gid)).map_err(Error::context("cannot chown"))?;
        }
        match primary {
            None => self.make(&folder, user)?,
            Some(primary) => copy(primary, &data, user)?,
        }
        if self.tls {
            let certificates = Certificates::write(folder.path())?;
            // The server insists that nobody else can read its key.
            let key = certificates.server_key();
            if let Some((uid, gid)) = account {
                chown(&key, Some(uid), Some(gid)).map_err(Error::context("cannot chown"))?;
            }
            fs::set_permissions(&key, Permissions::from_mode(0o600))
                .map_err(Error::context("cannot chmod"))?;
        }

        let port = ports::free()?;
        let addr = port.addr();
        let (host, number) = (addr.ip().to_string(), addr.port().to_string());
        let isready = Call::new(packages::require("pg_isready")?)
            .args(["-h", &host, "-p", &number, "-d", "postgres", "-t", "2"]);
        let login = self.password.as_ref().map_or(String::new(), |password| format!(":{password}"));
        let mut client = Call::new(packages::require("psql")?)
            .args(["-h", &host, "-p", &number, "-U", "postgres"])
            // Print values only, read no settings of the person, and fail on the first error.
            .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "postgres"]);
        if let Some(password) = &self.password {
            client = client.env("PGPASSWORD", password);
        }
        Server::launch(Plan {
            store: "postgres",
            addr,
            url: format!("postgres://postgres{login}@{addr}/postgres"),
            unix_socket: None,
            run: self.call(&folder, &host, &number)?.user(user),
            client,
            probe: Box::new(move || ready(&isready)),
            redis: None,
            folder,
            ports: vec![port],
        })
    }

    /// A new, empty database.
    fn make(&self, folder: &Folder, user: Option<&'static str>) -> Result<(), Error> {
        let data = folder.data();
        let auth = if self.password.is_some() { "--auth=scram-sha-256" } else { "--auth=trust" };
        let mut initdb = Call::new(packages::require("initdb")?)
            .args(["--username=postgres", auth, "--encoding=UTF8"])
            // Nothing here survives the machine, so nothing is worth a wait for the disk.
            .args(["--no-locale", "--no-sync", "--pgdata"])
            .arg(&data);
        if let Some(password) = &self.password {
            let file = folder.path().join("password");
            fs::write(&file, password).map_err(Error::context("no password file"))?;
            initdb = initdb.arg(format!("--pwfile={}", file.display()));
        }
        initdb.user(user).run(&data)
    }

    fn call(&self, folder: &Folder, host: &str, port: &str) -> Result<Call, Error> {
        let mut run = Call::new(packages::require("postgres")?)
            .arg("-D")
            .arg(folder.data())
            .args(["-h", host, "-p", port])
            .args(["-c", "unix_socket_directories=", "-c", "max_connections=200"])
            // In the data folder, which is removed, rather than in /dev/shm, which is not.
            .args(["-c", "dynamic_shared_memory_type=mmap"]);
        if !self.durable {
            // A commit still reaches the kernel before it is answered.
            run = run.args(["-c", "fsync=off", "-c", "full_page_writes=off"]);
        }
        if let Some(files) = Certificates::at(folder.path()) {
            run = run
                .args(["-c", "ssl=on", "-c"])
                .arg(format!("ssl_cert_file={}", files.shown().display()))
                .arg("-c")
                .arg(format!("ssl_key_file={}", files.server_key().display()));
        }
        for setting in &self.settings {
            run = run.arg("-c").arg(setting);
        }
        if self.preloaded { preload::give(run, folder.path()) } else { Ok(run) }
    }
}

/// As whom the server runs when root starts it, which it refuses; its package made this user.
pub(crate) const SERVER_USER: &str = "postgres";

/// The numbers of that user and its group, where they are needed.
pub(crate) fn server_account() -> Result<Option<(u32, u32)>, Error> {
    if rustix::process::geteuid().is_root() { account(SERVER_USER).map(Some) } else { Ok(None) }
}

/// Copies a server that runs, and writes down that the copy is its standby.
fn copy(primary: &Server, data: &Path, user: Option<&'static str>) -> Result<(), Error> {
    fs::set_permissions(data, Permissions::from_mode(0o700)).map_err(Error::context("cannot chmod"))?;
    let (host, port) = (primary.addr().ip().to_string(), primary.addr().port().to_string());
    Call::new(packages::require("pg_basebackup")?)
        .args(["-h", &host, "-p", &port, "-U", "postgres", "--no-sync", "--checkpoint=fast"])
        .args(["--wal-method=stream", "--write-recovery-conf", "--pgdata"])
        .arg(data)
        .user(user)
        .run(data)
}

pub(crate) fn ready(isready: &Call) -> Result<(), Error> {
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
