//! The handle of one running server.

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::administrator::Administrator;
use crate::deadline::{START_LIMIT, now};
use crate::folder::Folder;
use crate::ports::Port;
use crate::process::{Call, Family, spawn, succeeded};
use crate::{Certificates, Error, wait_for};

/// How much of a log an error carries.
const TAIL_LINES: usize = 30;

/// Between two questions whether a server is ready.
const POLL: Duration = Duration::from_millis(10);

/// Asks the server, in its own protocol, whether it serves.
pub(crate) type Probe = Box<dyn Fn() -> Result<(), Error> + Send + Sync>;

/// All that is needed to start a server, now and again later.
pub(crate) struct Plan {
    pub(crate) store: &'static str,
    pub(crate) folder: Folder,
    /// The first one is for clients.
    pub(crate) ports: Vec<Port>,
    pub(crate) addr: SocketAddr,
    pub(crate) url: String,
    pub(crate) unix_socket: Option<PathBuf>,
    pub(crate) run: Call,
    pub(crate) client: Call,
    pub(crate) probe: Probe,
    /// Of a server of Redis.
    pub(crate) redis: Option<Administrator>,
}

/// A server in child processes of its own, with its data and log in a temporary folder.
///
/// Dropping it kills it and removes the folder. All methods take `&self`: one thread may kill
/// the server while another one uses it.
pub struct Server {
    plan: Plan,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    /// The first process, from its start until somebody has waited for its end.
    child: Option<Child>,
    exit: Option<ExitStatus>,
    /// Where the log of this start begins.
    log_start: u64,
}

impl Running {
    fn exited(&mut self) -> Option<ExitStatus> {
        if let Some(child) = &mut self.child
            && let Ok(Some(status)) = child.try_wait()
        {
            // Nobody may signal a number that the kernel can give to another process now.
            self.child = None;
            self.exit = Some(status);
        }
        self.exit
    }
}

impl Server {
    /// Starts the processes without waiting until they serve.
    pub(crate) fn launch(plan: Plan) -> Result<Self, Error> {
        let server = Self { plan, running: Mutex::default() };
        server.relaunch()?;
        Ok(server)
    }

    /// What the server is, in one word: `redis`, `etcd`, `zookeeper`, `postgres` or `mariadb`.
    #[must_use]
    pub fn store(&self) -> &'static str {
        self.plan.store
    }

    /// Where the server listens for clients; stays the same over restarts.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.plan.addr
    }

    /// The address as a URL, with the user, password and database that a client needs.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.plan.url
    }

    /// The URL of the server for another user than that of [`url`](Self::url).
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let (scheme, rest) = self.url().split_once("://").unwrap_or_default();
        let place = rest.split_once('@').map_or(rest, |(_, place)| place);
        format!("{scheme}://{user}:{password}@{place}")
    }

    /// The Unix socket, when the server was asked to have one.
    #[must_use]
    pub fn unix_socket(&self) -> Option<&Path> {
        self.plan.unix_socket.as_deref()
    }

    /// The temporary folder with the data and the log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.plan.folder.path()
    }

    /// The certificates of a server that speaks TLS.
    #[must_use]
    pub fn certificates(&self) -> Option<Certificates> {
        Certificates::at(self.folder())
    }

    /// The number of the server's first process while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let mut running = self.running();
        running.exited();
        running.child.as_ref().map(Child::id)
    }

    /// The command line client of the store, told where this server is: `redis-cli`, `etcdctl`,
    /// `zkCli`, `psql` or `mariadb`. The caller adds what it shall do.
    #[must_use]
    pub fn client(&self) -> Command {
        self.plan.client.command()
    }

    /// Runs the command line client to its end and returns what it printed.
    ///
    /// # Errors
    ///
    /// When the client fails; the error carries what it wrote.
    pub fn ask(&self, args: &[&str]) -> Result<String, Error> {
        let output = self
            .client()
            .args(args)
            .stdin(Stdio::null())
            .output()
            .map_err(Error::context("the client cannot run"))?;
        succeeded(&format!("the client of {} {args:?}", self.store()), output)
    }

    /// Asks the server once, in its own protocol, whether it serves.
    ///
    /// # Errors
    ///
    /// When it does not answer within a second or two, or answers that it is not ready.
    pub fn ping(&self) -> Result<(), Error> {
        (self.plan.probe)()
    }

    /// Kills all processes of the server at once with `SIGKILL`, and returns when they are gone.
    /// Killing a dead server is no error.
    ///
    /// # Errors
    ///
    /// When a process is still there a minute later.
    pub fn kill(&self) -> Result<(), Error> {
        let mut running = self.running();
        self.family(&running).kill();
        if let Some(mut child) = running.child.take() {
            let status = child.wait().map_err(Error::context("cannot wait"))?;
            running.exit = Some(status);
        }
        let family = self.family(&running);
        wait_for("the killed server is gone", START_LIMIT, || !family.is_running())
    }

    /// Stops all processes of the server with `SIGSTOP`, and returns when none runs any more:
    /// connections stay open, and nobody answers.
    ///
    /// # Errors
    ///
    /// When the server is dead, or does not stop.
    pub fn pause(&self) -> Result<(), Error> {
        let mut running = self.running();
        self.expect_alive(&mut running)?;
        self.family(&running).stop()
    }

    /// Lets a paused server go on with `SIGCONT`.
    ///
    /// # Errors
    ///
    /// When the server is dead.
    pub fn resume(&self) -> Result<(), Error> {
        let mut running = self.running();
        self.expect_alive(&mut running)?;
        self.family(&running).resume();
        Ok(())
    }

    /// Starts the server again on the same port with the data it has, and waits until it serves.
    /// A server that still runs is killed first.
    ///
    /// # Errors
    ///
    /// When it does not serve within a minute; the error carries the end of its log.
    pub fn restart(&self) -> Result<(), Error> {
        let start = now();
        loop {
            self.relaunch()?;
            match self.wait_ready() {
                // Somebody holds the port for a moment; there is no other one to take.
                Err(error) if error.is_address_in_use() && start.elapsed() < START_LIMIT => {
                    thread::sleep(POLL);
                }
                done => return done,
            }
        }
    }

    /// Kills the server, takes away all that it has written during `time` before that, and starts it again: what a machine
    /// without power does to a server that flushes nothing. A server that waits for its disk would not have confirmed any of
    /// it.
    ///
    /// # Errors
    ///
    /// When its data cannot be copied, or it does not serve within a minute.
    pub fn lose_last_writes(&self, time: Duration) -> Result<(), Error> {
        let (home, data) = (self.plan.folder.path(), self.plan.folder.data());
        let before = home.join("before");
        // While it stands still: its files are all of the same moment.
        self.pause()?;
        let copied = Call::new("cp".into())
            .args(["--archive", "--sparse=always"])
            .args([data.as_os_str(), before.as_os_str()])
            .run(home);
        self.resume()?;
        copied?;
        thread::sleep(time);
        self.kill()?;
        fs::remove_dir_all(&data)
            .and_then(|()| fs::rename(&before, &data))
            .map_err(Error::context("the data cannot be replaced"))?;
        self.restart()
    }

    /// As [`restart`](Self::restart), without waiting: for a member of a cluster that cannot
    /// serve before others are back.
    ///
    /// # Errors
    ///
    /// When the program cannot be run.
    pub fn relaunch(&self) -> Result<(), Error> {
        self.kill()?;
        let mut running = self.running();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.plan.folder.log())
            .map_err(Error::context("no log file"))?;
        let length = log.metadata().map_or(0, |meta| meta.len());
        let errors = log.try_clone().map_err(Error::context("no log file"))?;
        let mut command = self.plan.run.bound_command()?;
        command
            .current_dir(self.plan.folder.data())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0);
        let child = spawn(command).map_err(Error::context(self.store()))?;
        *running = Running { child: Some(child), exit: None, log_start: length };
        Ok(())
    }

    /// Waits until the server serves.
    ///
    /// # Errors
    ///
    /// When it exits, or does not serve within a minute; the error carries the end of its log.
    pub fn wait_ready(&self) -> Result<(), Error> {
        let start = now();
        loop {
            let answer = self.ping();
            let exit = self.running().exited();
            // The log decides even when somebody answers: it may be a stranger on the same port.
            if self.log_since_start().contains("address already in use") {
                return Err(Error::address_in_use(self.failure("found its address in use")));
            }
            if let Some(status) = exit {
                return Err(Error::new(self.failure(&format!("ended ({status}) before it served"))));
            }
            match answer {
                Ok(()) => return Ok(()),
                Err(error) if start.elapsed() > START_LIMIT => {
                    return Err(Error::new(
                        self.failure(&format!("did not serve within {START_LIMIT:?} ({error})")),
                    ));
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    /// The last lines of what the server wrote to its standard output and error.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let bytes = fs::read(self.plan.folder.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    pub(crate) fn redis_access(&self) -> Option<&Administrator> {
        self.plan.redis.as_ref()
    }

    fn log_since_start(&self) -> String {
        let mut bytes = Vec::new();
        let from = SeekFrom::Start(self.running().log_start);
        // No log yet is an empty log.
        let _ = File::open(self.plan.folder.log())
            .and_then(|mut file| file.seek(from).and_then(|_| file.read_to_end(&mut bytes)));
        String::from_utf8_lossy(&bytes).to_lowercase()
    }

    fn failure(&self, what: &str) -> String {
        format!("{} on {} {what}; the end of its log:\n{}", self.store(), self.addr(), self.log_tail())
    }

    fn expect_alive(&self, running: &mut Running) -> Result<(), Error> {
        running.exited();
        match running.child {
            Some(_) => Ok(()),
            None => Err(Error::new(self.failure("is not running"))),
        }
    }

    fn family(&self, running: &Running) -> Family<'_> {
        Family { first: running.child.as_ref().map(Child::id), folder: self.plan.folder.path() }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("store", &self.plan.store)
            .field("url", &self.plan.url)
            .field("folder", &self.plan.folder.path())
            .field("ports", &self.plan.ports)
            .finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("{} on {} is left running: {error}", self.store(), self.addr());
        }
    }
}
