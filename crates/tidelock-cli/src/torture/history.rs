//! Histories on disk: one file per process, and what a run made of all of them.
//!
//! [`Log`] writes each line with one call, so that a process that is killed leaves whole lines and at most one that is
//! not. [`History::read`] folds the lines into one [`Op`] per request, which is what the checker works on.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    path::Path,
    sync::Mutex,
};

use super::record::{Event, Nanos, Plan, Share};
use crate::clock::Moment;

/// The file of the run itself: its plan, its faults and its fence.
pub(super) const RUN: &str = "run.log";

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
    pub(super) at: Nanos,
    pub(super) name: u16,
    pub(super) token: u64,
}

/// All that happened in a run.
#[derive(Debug)]
pub(super) struct History {
    pub(super) plan: Plan,
    pub(super) names: Vec<String>,
    pub(super) processes: Vec<Process>,
    pub(super) ops: Vec<Op>,
    pub(super) faults: Vec<Fault>,
    pub(super) writes: Vec<Decision>,
    pub(super) breaks: Vec<Break>,
    pub(super) first: Nanos,
    pub(super) last: Nanos,
}

impl History {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            names: Vec::new(),
            processes: Vec::new(),
            ops: Vec::new(),
            faults: Vec::new(),
            writes: Vec::new(),
            breaks: Vec::new(),
            first: Nanos::MAX,
            last: 0,
        }
    }

    /// Reads all files of a run.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut reader = Reader::default();
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
        // Last, because its lines name operations of clients.
        reader.run(&folder.join(RUN))?;
        reader.finish().ok_or_else(|| io::Error::other(format!("{} has no plan", folder.join(RUN).display())))
    }

    /// The process with a client's number and generation.
    pub(super) fn who(&self, op: &Op) -> String {
        let process = &self.processes[op.process as usize];
        format!("client-{}.{}", process.client, process.generation)
    }

    pub(super) fn name(&self, op: &Op) -> &str {
        &self.names[usize::from(op.name)]
    }

    /// The index of a name.
    pub(super) fn intern(&mut self, name: &str) -> u16 {
        if let Some(at) = self.names.iter().position(|known| known == name) {
            return u16::try_from(at).unwrap_or(u16::MAX);
        }
        self.names.push(name.to_owned());
        u16::try_from(self.names.len() - 1).unwrap_or(u16::MAX)
    }
}

#[derive(Debug)]
struct Reader {
    history: History,
    has_plan: bool,
    /// Where the operations of a process begin.
    starts: Vec<u32>,
    by_client: HashMap<(u32, u32), u32>,
    faults: HashMap<u32, usize>,
}

impl Default for Reader {
    fn default() -> Self {
        let plan = Plan { seed: 0, store: String::new(), ttl: 0, fair: false, overlaps_allowed: false };
        Self {
            history: History::new(plan),
            has_plan: false,
            starts: Vec::new(),
            by_client: HashMap::new(),
            faults: HashMap::new(),
        }
    }
}

impl Reader {
    /// Calls `take` with each whole line.
    fn lines(path: &Path, mut take: impl FnMut(Nanos, Event)) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(1 << 18, File::open(path)?);
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let Some(whole) = line.strip_suffix('\n') else { return Ok(()) };
            let (at, event) = Event::parse(whole).ok_or_else(|| {
                io::Error::other(format!("{} has the line {whole:?}, which is no event", path.display()))
            })?;
            take(at, event);
        }
    }

    fn process(&mut self, path: &Path) -> io::Result<()> {
        let index = u32::try_from(self.history.processes.len()).unwrap_or(u32::MAX);
        let start = self.history.ops.len();
        self.starts.push(u32::try_from(start).unwrap_or(u32::MAX));
        let mut process = Process::default();
        let history = &mut self.history;
        Self::lines(path, |at, event| {
            history.first = history.first.min(at);
            history.last = history.last.max(at);
            process.last_line = process.last_line.max(at);
            match event {
                Event::Hello { client, generation } => {
                    (process.client, process.generation) = (client, generation);
                }
                Event::Asked { op, name, share, owner, patience } => {
                    let name = history.intern(&name);
                    history.ops.push(Op { owner, patience, ..Op::new(index, op, name, share, at) });
                }
                Event::Breaking { name, token } => {
                    let name = history.intern(&name);
                    history.breaks.push(Break { at, name, token });
                }
                Event::Bye { .. } => process.ended = Some(at),
                other => {
                    // Requests are numbered from zero in the order in which they were written.
                    if let Some(op) = number(&other).and_then(|op| history.ops.get_mut(start + op as usize)) {
                        fold(op, at, &other);
                    }
                }
            }
        })?;
        self.by_client.insert((process.client, process.generation), index);
        self.history.processes.push(process);
        Ok(())
    }

    fn run(&mut self, path: &Path) -> io::Result<()> {
        let Self { history, has_plan, starts, by_client, faults } = self;
        Self::lines(path, |at, event| {
            history.last = history.last.max(at);
            match event {
                Event::Plan(plan) => {
                    history.plan = plan;
                    history.first = history.first.min(at);
                    *has_plan = true;
                }
                Event::FaultBegan { fault, kind, target } => {
                    if kind == "kill" {
                        let process = client_of(&target).and_then(|client| by_client.get(&client));
                        if let Some(process) = process {
                            history.processes[*process as usize].killed = Some(at);
                        }
                    }
                    faults.insert(fault, history.faults.len());
                    history.faults.push(Fault { kind, target, began: at, healed: None });
                }
                Event::FaultEnded { fault } => {
                    if let Some(fault) = faults.get(&fault) {
                        history.faults[*fault].healed = Some(at);
                    }
                }
                Event::Wrote { client, generation, op, accepted } => {
                    if let Some(process) = by_client.get(&(client, generation)) {
                        let op = starts[*process as usize] + op;
                        history.writes.push(Decision { at, op, accepted });
                    }
                }
                _ => {}
            }
        })
    }

    fn finish(mut self) -> Option<History> {
        let ops = self.history.ops.len();
        self.history.writes.retain(|write| (write.op as usize) < ops);
        self.has_plan.then_some(self.history)
    }
}

/// A target's client and generation: `client-3.1`.
pub(super) fn client_of(target: &str) -> Option<(u32, u32)> {
    let (client, generation) = target.strip_prefix("client-")?.split_once('.')?;
    Some((client.parse().ok()?, generation.parse().ok()?))
}

/// The request that an event is of.
fn number(event: &Event) -> Option<u32> {
    match event {
        Event::Queued { op }
        | Event::Granted { op, .. }
        | Event::Checked { op, .. }
        | Event::Lost { op, .. }
        | Event::Releasing { op }
        | Event::Released { op, .. }
        | Event::Refused { op }
        | Event::TimedOut { op }
        | Event::GaveUp { op }
        | Event::Failed { op, .. } => Some(*op),
        _ => None,
    }
}

/// Adds an event to its request.
fn fold(op: &mut Op, at: Nanos, event: &Event) {
    let answer = match event {
        Event::Granted { token, until, .. } => {
            (op.token, op.until) = (*token, *until);
            Answer::Granted
        }
        Event::Refused { .. } => Answer::Refused,
        Event::TimedOut { .. } => Answer::TimedOut,
        Event::GaveUp { .. } => Answer::GaveUp,
        Event::Failed { why, .. } if why == "Unavailable" => Answer::Unavailable,
        Event::Failed { .. } => Answer::Failed,
        Event::Queued { .. } => {
            op.queued = at;
            return;
        }
        Event::Checked { until, .. } => {
            op.until = op.until.max(*until);
            return;
        }
        Event::Lost { .. } => {
            op.lost = at;
            return;
        }
        Event::Releasing { .. } => {
            op.releasing = at;
            return;
        }
        Event::Released { answer, .. } => {
            op.freed = at;
            op.released = if answer == "ok" { Released::Freed } else { Released::NotHeld };
            return;
        }
        _ => return,
    };
    (op.answered, op.answer) = (at, answer);
}
