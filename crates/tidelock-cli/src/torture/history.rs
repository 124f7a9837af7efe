//! Histories on disk: one file per process, and what a run made of all of them.
//!
//! [`Log`] writes each line with one call, so that a process that is killed leaves whole lines and at most one that is
//! not. [`History::read`] folds the lines into one [`Op`] per request, which is what the checker works on.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    sync::Mutex,
};

use super::{
    reader::Reader,
    record::{Event, Nanos, Plan, Share},
};
use crate::clock::Moment;

/// The file of the run itself: its plan, its faults and its fence.
pub(super) const RUN: &str = "run.log";

/// What a guard says of its lock when it has been released. Of one that nobody released, somebody took it away.
pub(super) const TAKEN_AWAY: &str = "Released";

/// The file of a client.
pub(super) fn client_file(client: u32, generation: u32) -> String {
    format!("client-{client}.{generation}.log")
}

/// A history that is being written.
#[derive(Debug)]
pub(super) struct Log(Mutex<File>);

impl Log {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(File::options().create(true).append(true).open(path)?)))
    }

    /// Writes an event of now.
    pub(super) fn note(&self, event: &Event) -> io::Result<()> {
        self.note_at(Moment::now().as_nanos(), event)
    }

    /// Writes an event of a moment ago.
    pub(super) fn note_at(&self, at: Nanos, event: &Event) -> io::Result<()> {
        let line = event.line(at);
        let mut file = self.0.lock().map_err(|_| io::Error::other("a thread that wrote panicked"))?;
        file.write_all(line.as_bytes())
    }
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Answer {
    #[default]
    None,
    Granted,
    Refused,
    TimedOut,
    GaveUp,
    Failed,
    /// The store did not answer.
    Unavailable,
}

/// How the release of a hold was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Released {
    #[default]
    Unknown,
    Freed,
    NotHeld,
}

/// One request and what became of it. A time of zero means that it did not happen.
#[derive(Clone, Debug)]
pub(super) struct Op {
    /// Index of the process in [`History::processes`].
    pub(super) process: u32,
    pub(super) number: u32,
    /// Index of the name in [`History::names`].
    pub(super) name: u16,
    pub(super) share: Share,
    pub(super) owner: u32,
    pub(super) patience: Nanos,
    pub(super) asked: Nanos,
    pub(super) queued: Nanos,
    pub(super) answered: Nanos,
    pub(super) answer: Answer,
    pub(super) token: u64,
    /// Until when exclusion was promised, by the last check that it was held.
    pub(super) until: Nanos,
    pub(super) lost: Nanos,
    pub(super) releasing: Nanos,
    pub(super) freed: Nanos,
    pub(super) released: Released,
    /// When it was last found to be held.
    pub(super) checked: Nanos,
    /// It was known to be lost when it was let go.
    pub(super) let_go_lost: bool,
    /// When its guard said that it had been released, though nobody had done that.
    pub(super) taken_away: Nanos,
}

impl Op {
    pub(super) fn new(process: u32, number: u32, name: u16, share: Share, asked: Nanos) -> Self {
        Self {
            process,
            number,
            name,
            share,
            owner: 0,
            patience: Nanos::MAX,
            asked,
            queued: 0,
            answered: 0,
            answer: Answer::None,
            token: 0,
            until: 0,
            lost: 0,
            releasing: 0,
            freed: 0,
            released: Released::Unknown,
            checked: 0,
            let_go_lost: false,
            taken_away: 0,
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        self.answer == Answer::Granted
    }

    /// Whether both are holds of one owner, which may re-enter.
    pub(super) fn is_of_owner_of(&self, other: &Self) -> bool {
        self.owner != 0 && self.owner == other.owner
    }
}

/// A process of the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) client: u32,
    pub(super) generation: u32,
    /// When it was about to be killed.
    pub(super) killed: Option<Nanos>,
    /// When it ended in order.
    pub(super) ended: Option<Nanos>,
    pub(super) last_line: Nanos,
}

/// A fault, from its begin until it was healed.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) kind: String,
    pub(super) target: String,
    pub(super) began: Nanos,
    pub(super) healed: Option<Nanos>,
}

/// A decision of the fence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    pub(super) at: Nanos,
    /// Index in [`History::ops`].
    pub(super) op: u32,
    pub(super) accepted: bool,
}

/// A holder that was taken out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Break {
    /// The process that did it: an index in [`History::processes`].
    pub(super) process: u32,
    /// When it was about to be.
    pub(super) at: Nanos,
    /// When the store confirmed it, if it did.
    pub(super) done: Option<Nanos>,
    pub(super) name: u16,
    /// The token of the holder. Until all is read, the one that was seen.
    pub(super) token: u64,
    /// The client and generation of the holder, by its own account.
    pub(super) holder: Option<(u32, u32)>,
}

/// A hold that was renewed by its ticket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resume {
    /// When it was asked for.
    pub(super) at: Nanos,
    /// Index in [`History::ops`].
    pub(super) op: u32,
    /// The token of the ticket.
    pub(super) token: u64,
    /// Until when the hold was promised before.
    pub(super) promised: Nanos,
}

/// All that happened in a run.
#[derive(Debug)]
pub(super) struct History {
    pub(super) plan: Plan,
    pub(super) names: Vec<String>,
    /// The ttl of each.
    pub(super) ttls: Vec<Nanos>,
    pub(super) processes: Vec<Process>,
    pub(super) ops: Vec<Op>,
    pub(super) faults: Vec<Fault>,
    pub(super) writes: Vec<Decision>,
    pub(super) breaks: Vec<Break>,
    pub(super) resumes: Vec<Resume>,
    /// When claims were seen that nobody wants any more, with the last request for their lock.
    pub(super) strays: Vec<(Nanos, u32)>,
    /// How many entries the store had: before the run, and after it.
    pub(super) counted: Vec<(Nanos, u64)>,
    pub(super) first: Nanos,
    pub(super) last: Nanos,
}

impl History {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            names: Vec::new(),
            ttls: Vec::new(),
            processes: Vec::new(),
            ops: Vec::new(),
            faults: Vec::new(),
            writes: Vec::new(),
            breaks: Vec::new(),
            resumes: Vec::new(),
            strays: Vec::new(),
            counted: Vec::new(),
            first: Nanos::MAX,
            last: 0,
        }
    }

    /// Reads all files of a run.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut reader = Reader::default();
        // First, because clients call locks by numbers. Its other lines come last: they name requests of clients.
        reader.plan(&folder.join(RUN))?;
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("client-") && name.ends_with(".log") {
                files.push(path);
            }
        }
        files.sort();
        for file in &files {
            reader.process(file)?;
        }
        reader.run(&folder.join(RUN))?;
        reader.finish().ok_or_else(|| {
            io::Error::other(format!("{} does not say the plan and all locks", folder.join(RUN).display()))
        })
    }

    /// The process with a client's number and generation.
    pub(super) fn who(&self, op: &Op) -> String {
        let process = &self.processes[op.process as usize];
        label_of(process.client, process.generation)
    }

    pub(super) fn name(&self, op: &Op) -> &str {
        &self.names[usize::from(op.name)]
    }
}

/// The store's part of a token, which all hand-offs inside a process share.
pub(super) fn epoch(token: u64) -> u64 {
    tidelock::Token::from_u64(token).epoch()
}

/// How a process is called, as the target of a fault and in the store.
pub(super) fn label_of(client: u32, generation: u32) -> String {
    format!("client-{client}.{generation}")
}

/// The client and generation of a [label](label_of).
pub(super) fn client_of(target: &str) -> Option<(u32, u32)> {
    let (client, generation) = target.strip_prefix("client-")?.split_once('.')?;
    Some((client.parse().ok()?, generation.parse().ok()?))
}
