//! A contestant's processes: started, given turns, ended.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use super::machine;
use crate::protocol::{NO_SUCH_THING, Turn};

/// How long a program may take to be ready, and how long to answer after its turn.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why a contestant takes no part.
#[derive(Clone, Debug)]
pub(super) enum Absent {
    /// Its library has no such thing.
    NoSuchThing,
    Because(String),
}

impl From<String> for Absent {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

/// Why somebody took no part, or else another note.
pub(super) fn absent_or(absent: Option<&Absent>, note: String) -> String {
    match absent {
        Some(Absent::NoSuchThing) => "it has no such thing".to_owned(),
        Some(Absent::Because(why)) => why.clone(),
        None => note,
    }
}

/// How a contestant is started.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) folder: PathBuf,
    pub(super) words: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
}

impl Launch {
    /// Where a program is given by a path it is in the folder, wherever we are.
    pub(super) fn command(&self) -> Result<Command, String> {
        let (program, args) = self.words.split_first().ok_or("no program")?;
        let program = if program.contains('/') { self.folder.join(program) } else { PathBuf::from(program) };
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.folder);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// A process that was asked something.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    lines: Receiver<String>,
    errors: Option<thread::JoinHandle<String>>,
}

impl Program {
    /// Starts it. It is ready when it says so.
    pub(super) fn start(launch: &Launch, asked: &[String], lease: Duration) -> Result<Self, String> {
        let mut command = launch.command()?;
        command
            .args(asked)
            .env(crate::protocol::LEASE, lease.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{command:?} cannot run: {error}"))?;
        let said = child.stdout.take().ok_or("a process without output")?;
        let complained = child.stderr.take().ok_or("a process without errors")?;
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            // What could not be read is not shown.
            let _ = BufReader::new(complained).read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self { child, lines, errors: Some(errors) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it is connected and warm.
    pub(super) fn ready(mut self) -> Result<Self, Absent> {
        loop {
            match self.line(PATIENCE) {
                Ok(line) if line.trim() == "ready" => return Ok(self),
                // Libraries talk.
                Ok(_) => {}
                Err(why) => return Err(self.why(why)),
            }
        }
    }

    fn line(&mut self, patience: Duration) -> Result<String, String> {
        self.lines.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("no answer in {} s", patience.as_secs()),
            RecvTimeoutError::Disconnected => "it ended".to_owned(),
        })
    }

    /// Why it ended.
    fn why(mut self, why: String) -> Absent {
        let _ = self.child.kill();
        let code = self.child.wait().ok().and_then(|status| status.code());
        if code == Some(i32::from(NO_SUCH_THING)) {
            return Absent::NoSuchThing;
        }
        Absent::Because(self.complaint(why))
    }

    /// What went wrong, with the last thing that it complained about, if it is over.
    fn complaint(&mut self, why: String) -> String {
        if matches!(self.child.try_wait(), Ok(None)) {
            return why;
        }
        let said = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if last.is_empty() { why } else { format!("{why}: {}", last.trim()) }
    }

    /// Its turn begins.
    pub(super) fn go(&mut self) -> Result<(), String> {
        let input = self.child.stdin.as_mut().ok_or("no way to tell the start")?;
        input.write_all(b"go\n").and_then(|()| input.flush()).map_err(|error| error.to_string())
    }

    /// What it did in its turn.
    pub(super) fn done(&mut self) -> Result<Turn, String> {
        loop {
            let line = self.line(PATIENCE).map_err(|why| self.complaint(why))?;
            if line.trim_start().starts_with('{') {
                return serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"));
            }
        }
    }

    /// As a crash would.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.child.kill().map_err(|error| error.to_string())
    }
}

impl Drop for Program {
    /// The end of its input tells it to give back what it holds. If it does not end by itself it is ended.
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        for _ in 0..200 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(25));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes of one contestant that work at the same time.
#[derive(Debug)]
pub(super) struct Team(Vec<Program>);

impl Team {
    /// Starts all of them.
    pub(super) fn start(
        launch: &Launch,
        processes: usize,
        asked: &[String],
        lease: Duration,
    ) -> Result<Self, Absent> {
        let started = (0..processes).map(|_| Program::start(launch, asked, lease));
        let started = started.collect::<Result<Vec<_>, _>>()?;
        Ok(Self(started.into_iter().map(Program::ready).collect::<Result<_, _>>()?))
    }

    /// On one core: then nobody is faster because another one was awake.
    pub(super) fn pin(&self, core: usize) {
        for program in &self.0 {
            machine::pin(program.pid(), core);
        }
    }

    /// One turn of all, from the same moment on.
    pub(super) fn turn(&mut self) -> Result<Vec<Turn>, String> {
        self.0.iter_mut().try_for_each(Program::go)?;
        self.0.iter_mut().map(Program::done).collect()
    }
}
