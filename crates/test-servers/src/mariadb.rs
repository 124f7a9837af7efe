//! MariaDB.

use std::fs;

use crate::deadline::START_LIMIT;
use crate::folder::Folder;
use crate::process::{Call, succeeded};
use crate::server::Plan;
use crate::{Certificates, Error, Server, packages, ports, preload, wait_for};

/// How a MariaDB server shall be; by default it does not wait for the disk.
#[derive(Debug, Clone, Default)]
pub struct MariaDb {
    durable: bool,
    preloaded: bool,
    tls: bool,
    options: Vec<String>,
}

/// A MariaDB server and another that has its data a moment later.
#[derive(Debug)]
pub struct MariaDbPair {
    primary: Server,
    replica: Server,
}

impl MariaDb {
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

    /// Speaks TLS with those who want it, with a certificate of [`Server::certificates`].
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Starts the server with one more option of its own, such as `--max-connections=10`.
    #[must_use]
    pub fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// Starts a server with an empty database `test`.
    ///
    /// # Errors
    ///
    /// When MariaDB is not installed or does not start.
    pub fn start(&self) -> Result<Server, Error> {
        ports::retry(|| {
            let server = self.launch()?;
            server.wait_ready()?;
            Ok(server)
        })
    }

    /// Starts a server and a replica of it. Where it is `synchronous`, a commit is answered after the replica has it.
    ///
    /// # Errors
    ///
    /// When MariaDB is not installed or does not start.
    pub fn start_replicated(&self, synchronous: bool) -> Result<MariaDbPair, Error> {
        let logged = self.clone().option("--log-bin=log").option("--sync-binlog=1");
        let (mut first, mut second) =
            (logged.clone().option("--server-id=1"), logged.option("--server-id=2"));
        if synchronous {
            first = first
                .option("--rpl-semi-sync-master-enabled=1")
                .option("--rpl-semi-sync-master-wait-point=AFTER_SYNC")
                .option("--rpl-semi-sync-master-timeout=60000");
            second = second.option("--rpl-semi-sync-slave-enabled=1");
        }
        let (primary, replica) = (first.start()?, second.start()?);
        let follow = format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='root', \
             MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos; START SLAVE; SET GLOBAL read_only=1",
            primary.addr().port()
        );
        replica.ask(&["-e", &follow])?;
        let pair = MariaDbPair { primary, replica };
        wait_for("the replica follows", START_LIMIT, || {
            let has_clients = || {
                let said =
                    pair.primary.ask(&["-e", "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_clients'"]);
                said.is_ok_and(|said| said.trim().ends_with('1'))
            };
            let is_on = |server: &Server, what: &str| {
                let said = server.ask(&["-e", &format!("SHOW GLOBAL STATUS LIKE '{what}'")]);
                said.is_ok_and(|said| said.contains("ON"))
            };
            is_on(&pair.replica, "Slave_running")
                && (!synchronous || is_on(&pair.primary, "Rpl_semi_sync_master_status") && has_clients())
        })?;
        Ok(pair)
    }

    fn launch(&self) -> Result<Server, Error> {
        let folder = Folder::new("mariadb")?;
        let data = format!("--datadir={}", folder.data().display());
        // A server that starts removes all temporary tables it finds, those of others as well.
        let temporary = folder.path().join("tmp");
        fs::create_dir(&temporary).map_err(Error::context("no folder"))?;
        let temporary = format!("--tmpdir={}", temporary.display());
        // It runs as root only when it is told so.
        let user = rustix::process::geteuid().is_root().then_some("--user=root");
        Call::new(packages::require("mariadb-install-db")?)
            .args(["--no-defaults", &data, &temporary])
            // By default root may come in through the Unix socket only.
            .arg("--auth-root-authentication-method=normal")
            .args(user)
            .run(&folder.data())?;

        let port = ports::free()?;
        let addr = port.addr();
        let login = [
            "--no-defaults".to_owned(),
            "--protocol=tcp".to_owned(),
            format!("--host={}", addr.ip()),
            format!("--port={}", addr.port()),
            "--user=root".to_owned(),
        ];
        let admin = Call::new(packages::require("mariadb-admin")?)
            .args(login.clone())
            .args(["--connect-timeout=2", "ping"]);
        // A commit reaches the kernel before it is answered (2), or the disk (1).
        let flush = if self.durable { 1 } else { 2 };
        let mut options = self.options.clone();
        if self.tls {
            let files = Certificates::write(folder.path())?;
            options.push(format!("--ssl-ca={}", files.ca().display()));
            options.push(format!("--ssl-cert={}", files.shown().display()));
            options.push(format!("--ssl-key={}", files.server_key().display()));
        }
        let mut run = Call::new(packages::require("mariadbd")?)
            .args(["--no-defaults", &data, &temporary])
            .args(user)
            .args([
                format!("--bind-address={}", addr.ip()),
                format!("--port={}", addr.port()),
                format!("--socket={}", folder.path().join("mariadb.sock").display()),
                format!("--pid-file={}", folder.path().join("mariadb.pid").display()),
                format!("--innodb-flush-log-at-trx-commit={flush}"),
                // Names would be looked up for every connection.
                "--skip-name-resolve".to_owned(),
                "--max-connections=500".to_owned(),
            ])
            .args(options);
        if self.preloaded {
            run = preload::give(run, folder.path())?;
        }
        Server::launch(Plan {
            store: "mariadb",
            addr,
            url: format!("mysql://root@{addr}/test"),
            unix_socket: None,
            run,
            client: Call::new(packages::require("mariadb")?).args(login).args([
                "--batch",
                "--skip-column-names",
                "test",
            ]),
            probe: Box::new(move || ping(&admin)),
            redis: None,
            folder,
            ports: vec![port],
        })
    }
}

impl MariaDbPair {
    /// The server that takes writes in the beginning.
    #[must_use]
    pub fn primary(&self) -> &Server {
        &self.primary
    }

    /// The server that follows it.
    #[must_use]
    pub fn replica(&self) -> &Server {
        &self.replica
    }

    /// Lets the replica take writes, with all that it has heard of so far.
    ///
    /// # Errors
    ///
    /// When it does not answer, or has not done within a minute what it heard of.
    pub fn promote(&self) -> Result<(), Error> {
        self.replica.ask(&["-e", "STOP SLAVE IO_THREAD"])?;
        wait_for("the replica has done what it heard of", START_LIMIT, || {
            let state = self.replica.ask(&["-e", "SHOW SLAVE STATUS\\G"]).unwrap_or_default();
            state.contains("Slave has read all relay log")
        })?;
        self.replica.ask(&["-e", "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only=0"]).map(drop)
    }
}

fn ping(admin: &Call) -> Result<(), Error> {
    let output = admin.command().output().map_err(Error::context("mariadb-admin cannot run"))?;
    succeeded("mariadb-admin ping", output).map(|_| ())
}
