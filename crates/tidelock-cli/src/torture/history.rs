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
    record::{Event, Nanos, Plan, Share, Which},
};
use crate::clock::Moment;

/// The file of the run itself: its plan, its faults and its fence.
pub(super) const RUN: &str = "run.log";

/// What a guard says of its lock when it has been released. Of one that nobody released, somebody took it away.
pub(super) const TAKEN_AWAY: &str = "Released";

/// How a hold was lost that its holder had left behind.
pub(super) const BY_TICKET: &str = "ticket";

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
    /// Its client was shut down, or the runtime of its client has ended.
    Closed,
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
    /// It went on by its ticket, or was to.
    pub(super) left_behind: bool,
    /// The client of the process that asked, if that is not its first one.
    pub(super) guest: u32,
    /// Until when others do not get the lock though it was let go before.
    pub(super) kept: Nanos,
    /// When its client may have given it back by force, being shut down.
    pub(super) closed: Nanos,
    /// Its end is only that of its client's runtime, where it may have been in the hands of a task.
    pub(super) may_have_ended: bool,
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
            left_behind: false,
            guest: 0,
            kept: 0,
            closed: 0,
            may_have_ended: false,
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
    /// Since when its first client is told how claims end.
    pub(super) listens: Option<Nanos>,
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
    /// The client and generation of the holder, by its own account, and which client of its process it is.
    pub(super) holder: Option<(u32, u32)>,
    pub(super) guest: u32,
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

/// The end of a client that is not the first one of its process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    /// Index in [`History::processes`].
    pub(super) process: u32,
    pub(super) guest: u32,
    /// When it was about to end.
    pub(super) at: Nanos,
    /// When it had ended. Zero if that was not seen.
    pub(super) done: Nanos,
    /// Whether its runtime ended, with the tasks on it.
    pub(super) ends_tasks: bool,
}

/// What the first client of a process was told of a claim.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) process: u32,
    pub(super) at: Nanos,
    pub(super) name: u16,
    pub(super) how: String,
}

/// A question who holds locks, and its answer.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) process: u32,
    pub(super) from: Nanos,
    pub(super) at: Nanos,
    pub(super) asked: Which,
    pub(super) held: Which,
}

/// A leader that a watch showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) process: u32,
    pub(super) at: Nanos,
    pub(super) name: u16,
    pub(super) watch: u32,
    pub(super) token: u64,
}

/// An attempt to connect with a wrong password.
#[derive(Clone, Debug)]
pub(super) struct Knock {
    pub(super) process: u32,
    pub(super) from: Nanos,
    pub(super) at: Nanos,
    pub(super) answer: String,
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
    /// When guards of lost locks had told nobody.
    pub(super) unheard: Vec<(Nanos, u32)>,
    pub(super) closings: Vec<Closing>,
    pub(super) told: Vec<Told>,
    pub(super) looks: Vec<Look>,
    /// In the order in which each watch showed them.
    pub(super) sights: Vec<Sight>,
    pub(super) knocks: Vec<Knock>,
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
            unheard: Vec::new(),
            closings: Vec::new(),
            told: Vec::new(),
            looks: Vec::new(),
            sights: Vec::new(),
            knocks: Vec::new(),
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

    /// When a lock is free that was kept for its shortest time: then its process gives it back, if it still runs.
    pub(super) fn kept_end(&self, op: &Op) -> Nanos {
        let process = &self.processes[op.process as usize];
        let ends = process.killed.into_iter().chain(process.ended).min();
        let is_given_back = ends.is_none_or(|end| end > op.kept);
        op.kept + if is_given_back { 0 } else { 2 * self.ttls[usize::from(op.name)] }
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

/// How another client of a process is called in the store.
pub(super) fn guest_label(label: &str, guest: u32) -> String {
    format!("{label}+{guest}")
}

/// Which client of its process a label is of; zero is the first one.
pub(super) fn guest_of(label: &str) -> u32 {
    label.split_once('+').and_then(|(_, guest)| guest.parse().ok()).unwrap_or(0)
}

/// The client and generation of a [label](label_of).
pub(super) fn client_of(target: &str) -> Option<(u32, u32)> {
    let (client, generation) = target.strip_prefix("client-")?.split_once('.')?;
    // Other clients of the process are called by their numbers after it.
    let generation = generation.split('+').next()?;
    Some((client.parse().ok()?, generation.parse().ok()?))
}
