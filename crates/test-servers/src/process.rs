//! Child processes: spawning them so that they cannot outlive the test process, and finding and
//! signalling all that belong to a server.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, packages, wait_for};

/// A program with its arguments, kept so that it can be run again.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(&'static str, String)>,
    user: Option<&'static str>,
}

impl Call {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, args: Vec::new(), env: Vec::new(), user: None }
    }

    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Runs as another user, which only root may.
    pub(crate) fn user(mut self, user: Option<&'static str>) -> Self {
        self.user = user;
        self
    }

    /// A command that may outlive nobody's interest in it: for programs that are waited for.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().cloned());
        command
    }

    /// A command that the kernel kills when the thread that spawned it ends.
    ///
    /// The parent-death signal is set by `setpriv`, because doing it between fork and exec here
    /// would need unsafe code; it survives the exec of the server. `setpriv` sets it after it
    /// has changed the user, which would clear it.
    pub(crate) fn bound_command(&self) -> Result<Command, Error> {
        let Some(setpriv) = packages::find("setpriv") else {
            return match self.user {
                None => Ok(self.command()),
                Some(_) => Err(packages::not_installed("setpriv")),
            };
        };
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL"]);
        if let Some(user) = self.user {
            command.args(["--reuid", user, "--regid", user, "--init-groups"]);
        }
        command.arg("--").arg(&self.program).args(&self.args).envs(self.env.iter().cloned());
        Ok(command)
    }

    /// Runs to the end, inside `folder`; a failure carries what the program wrote.
    pub(crate) fn run(&self, folder: &Path) -> Result<(), Error> {
        let mut command = self.bound_command()?;
        command
            .current_dir(folder)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let output = spawn(command)
            .and_then(Child::wait_with_output)
            .map_err(Error::context(self.program.display()))?;
        succeeded(&self.program.display().to_string(), output).map(|_| ())
    }
}

/// The standard output of a program that succeeded, or an error with all it wrote.
pub(crate) fn succeeded(what: &str, output: Output) -> Result<String, Error> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(format!("{what} failed ({}):\n{stdout}{stderr}", output.status)))
}

/// Spawns from one thread that lives as long as the process: the parent-death signal comes when
/// the spawning *thread* ends, and test threads end all the time.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    type Job = (Command, Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, answer) in queue {
                // Nobody waits for the answer only when the asking thread is gone.
                let _ = answer.send(command.spawn());
            }
        });
        jobs
    });
    let (answer, result) = mpsc::channel();
    spawner.send((command, answer)).map_err(|_| io::Error::other("the spawning thread is gone"))?;
    result.recv().map_err(io::Error::other)?
}

/// One line of the process table.
#[derive(Debug, Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    state: char,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: i32, stat: &str) -> Option<Self> {
        // The name stands in brackets and may hold anything, even a bracket.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        Some(Self {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }

    /// A zombie runs no more; its parent has not looked yet.
    fn is_alive(self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// Whether every thread has stopped, not only the first.
    fn is_stopped(self) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return true;
        };
        tasks.flatten().all(|task| {
            fs::read_to_string(task.path().join("stat"))
                .ok()
                .and_then(|stat| Self::parse(0, &stat))
                .is_none_or(|thread| matches!(thread.state, 'T' | 't' | 'Z' | 'X'))
        })
    }

    fn runs_in(self, folder: &Path) -> bool {
        match fs::read_link(format!("/proc/{}/cwd", self.pid)) {
            Ok(cwd) => cwd.starts_with(folder),
            // Root in a container may not look at processes of other users. The first process of
            // PostgreSQL has its folder among its arguments, and the others descend from it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                fs::read(format!("/proc/{}/cmdline", self.pid)).is_ok_and(|line| {
                    line.split(|byte| *byte == 0)
                        .any(|arg| Path::new(OsStr::from_bytes(arg)).starts_with(folder))
                })
            }
            Err(_) => false,
        }
    }

    fn signal(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            // It may have ended by itself since the table was read.
            let _ = kill_process(pid, signal);
        }
    }
}

fn table() -> Vec<Process> {
    let own = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| u32::try_from(*pid) != Ok(own))
        .filter_map(Process::read)
        .filter(|process| process.is_alive())
        .collect()
}

/// The processes of a server: its first process, the group and the descendants of that one, and
/// all that run inside its folder.
///
/// The group alone would miss the workers of PostgreSQL, which each make a session of their own;
/// descent alone would miss workers whose parent was killed from outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family<'a> {
    pub(crate) first: Option<u32>,
    pub(crate) folder: &'a Path,
}

impl Family<'_> {
    fn members(self) -> Vec<Process> {
        let table = table();
        let first = self.first.and_then(|pid| i32::try_from(pid).ok());
        let mut pids: BTreeSet<i32> = table
            .iter()
            .filter(|process| {
                Some(process.pid) == first || Some(process.group) == first || process.runs_in(self.folder)
            })
            .map(|process| process.pid)
            .collect();
        loop {
            let known = pids.len();
            for process in &table {
                if pids.contains(&process.parent) {
                    pids.insert(process.pid);
                }
            }
            if pids.len() == known {
                break;
            }
        }
        table.into_iter().filter(|process| pids.contains(&process.pid)).collect()
    }

    pub(crate) fn is_running(self) -> bool {
        !self.members().is_empty()
    }

    /// Stops every process, and returns when all have stopped. Looks again until it finds no
    /// running one, because a process may fork before its signal arrives.
    pub(crate) fn stop(self) -> Result<(), Error> {
        wait_for("every process stopped", Duration::from_secs(10), || {
            let mut all = true;
            for process in self.members() {
                if !process.is_stopped() {
                    process.signal(Signal::STOP);
                    all = false;
                }
            }
            all
        })
    }

    /// Lets stopped processes run again.
    pub(crate) fn resume(self) {
        for process in self.members() {
            process.signal(Signal::CONT);
        }
    }

    /// Sends `SIGKILL` to every process, with no time for the others to notice the first death.
    pub(crate) fn kill(self) {
        // A stopped family cannot grow while its members are killed one after the other. If one
        // hangs in the kernel and does not stop, killing must do without.
        let _ = self.stop();
        for process in self.members() {
            process.signal(Signal::KILL);
        }
    }
}

/// The numbers of all living processes whose working directory is `folder` or inside it, and of
/// their descendants: what is left of a server whose
/// [`Server::folder`](crate::Server::folder) is given.
#[must_use]
pub fn running_in(folder: &Path) -> Vec<u32> {
    let family = Family { first: None, folder };
    family.members().into_iter().filter_map(|process| u32::try_from(process.pid).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_spaces_and_brackets() {
        let process = Process::parse(7, "7 (a ) b) S 3 5 5 0").unwrap();
        assert_eq!((process.state, process.parent, process.group), ('S', 3, 5));
    }

    #[test]
    fn a_family_counts_descendants_that_left_the_group() {
        let folder = Path::new("/nonexistent");
        let script = "setsid sleep 1000 & wait";
        let mut child = spawn({
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        })
        .unwrap();
        let family = Family { first: Some(child.id()), folder };
        let sleeps = || family.members().len() == 2;
        wait_for("the sleep runs", Duration::from_secs(10), sleeps).unwrap();
        family.stop().unwrap();
        assert!(family.members().iter().all(|process| process.state == 'T'));
        let members = family.members();
        family.kill();
        child.wait().unwrap();
        wait_for("all are gone", Duration::from_secs(10), || {
            !members.iter().any(|member| Process::read(member.pid).is_some_and(Process::is_alive))
        })
        .unwrap();
    }
}
