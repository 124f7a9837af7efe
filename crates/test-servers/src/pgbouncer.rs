//! PgBouncer: a pooler that gives each transaction to whichever session of the server is free.

use std::fs;

use crate::folder::Folder;
use crate::postgres::{SERVER_USER, ready, server_account};
use crate::process::Call;
use crate::server::Plan;
use crate::{Error, Server, packages, ports};

/// A pooler before a PostgreSQL server, in transaction mode.
#[derive(Debug, Clone)]
pub struct PgBouncer {
    sessions: u32,
}

impl PgBouncer {
    /// A pooler that keeps at most so many sessions of the server.
    #[must_use]
    pub fn new(sessions: u32) -> Self {
        Self { sessions }
    }

    /// Starts it before a server that lets everybody in.
    ///
    /// # Errors
    ///
    /// When PgBouncer is not installed or does not start.
    pub fn start(&self, before: &Server) -> Result<Server, Error> {
        ports::retry(|| {
            let server = self.launch(before)?;
            server.wait_ready()?;
            Ok(server)
        })
    }

    fn launch(&self, before: &Server) -> Result<Server, Error> {
        let folder = Folder::new("pgbouncer")?;
        let port = ports::free()?;
        let addr = port.addr();
        let users = folder.path().join("users");
        let settings = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = {}\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = {}\nmax_client_conn = 200\n",
            before.addr().ip(),
            before.addr().port(),
            addr.ip(),
            addr.port(),
            users.display(),
            self.sessions,
        );
        let written = fs::write(&users, "\"postgres\" \"\"\n").and_then(|()| fs::write(&settings, text));
        written.map_err(Error::context("no settings for PgBouncer"))?;
        let user = server_account()?.map(|_| SERVER_USER);
        let (host, number) = (addr.ip().to_string(), addr.port().to_string());
        let isready = Call::new(packages::require("pg_isready")?)
            .args(["-h", &host, "-p", &number, "-d", "postgres", "-U", "postgres", "-t", "2"]);
        Server::launch(Plan {
            store: "pgbouncer",
            addr,
            url: format!("postgres://postgres@{addr}/postgres"),
            unix_socket: None,
            run: Call::new(packages::require("pgbouncer")?).arg(&settings).user(user),
            client: Call::new(packages::require("psql")?)
                .args(["-h", &host, "-p", &number, "-U", "postgres", "-X", "-A", "-t", "-q", "postgres"]),
            probe: Box::new(move || ready(&isready)),
            redis: None,
            folder,
            ports: vec![port],
        })
    }
}
