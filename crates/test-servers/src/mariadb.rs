//! MariaDB.

use std::fs;

use crate::folder::Folder;
use crate::process::{Call, succeeded};
use crate::server::Plan;
use crate::{Error, Server, packages, ports};

/// How a MariaDB server shall be; by default it does not wait for the disk.
#[derive(Debug, Clone, Default)]
pub struct MariaDb {
    durable: bool,
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
        Server::launch(Plan {
            store: "mariadb",
            addr,
            url: format!("mysql://root@{addr}/test"),
            unix_socket: None,
            run: Call::new(packages::require("mariadbd")?)
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
                    "--max-connections=200".to_owned(),
                ]),
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

fn ping(admin: &Call) -> Result<(), Error> {
    let output = admin.command().output().map_err(Error::context("mariadb-admin cannot run"))?;
    succeeded("mariadb-admin ping", output).map(|_| ())
}
