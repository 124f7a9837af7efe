//! Reads histories back: folds the lines of all processes into one [`Op`] per request.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use super::{
    history::{
        Answer, Break, Decision, Fault, History, Op, Process, Released, Resume, TAKEN_AWAY, client_of, epoch,
        label_of,
    },
    record::{Event, Nanos, Plan},
};

#[derive(Debug)]
pub(super) struct Reader {
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

    pub(super) fn process(&mut self, path: &Path) -> io::Result<()> {
        let index = u32::try_from(self.history.processes.len()).unwrap_or(u32::MAX);
        let start = self.history.ops.len();
        let start_index = u32::try_from(start).unwrap_or(u32::MAX);
        self.starts.push(start_index);
        let mut process = Process::default();
        // Also of one that ended before it said who it is: it must not pass for another one.
        let named = path.file_stem().and_then(|name| client_of(name.to_str()?));
        (process.client, process.generation) = named.unwrap_or_default();
        let history = &mut self.history;
        Self::lines(path, |at, event| {
            history.first = history.first.min(at);
            history.last = history.last.max(at);
            process.last_line = process.last_line.max(at);
            match event {
                Event::Hello { client, generation } => {
                    (process.client, process.generation) = (client, generation);
                }
                Event::Asked { op, lock, share, owner, patience } => {
                    history.ops.push(Op { owner, patience, ..Op::new(index, op, lock, share, at) });
                }
                Event::Breaking { lock, token, holder } => {
                    let holder = client_of(&holder);
                    history.breaks.push(Break { process: index, at, done: None, name: lock, token, holder });
                }
                Event::Broke { lock, token } => {
                    let begun = |it: &&mut Break| it.name == lock && it.token == token && it.done.is_none();
                    if let Some(it) = history.breaks.iter_mut().rev().find(begun) {
                        it.done = Some(at);
                    }
                }
                Event::Hung { from } | Event::Slow { from } => {
                    let target = label_of(process.client, process.generation);
                    let kind = if matches!(event, Event::Hung { .. }) { "hang" } else { "slow" }.to_owned();
                    history.faults.push(Fault { kind, target, began: from, healed: Some(at) });
                }
                Event::Stray { op } => history.strays.push((at, start_index + op)),
                Event::Bye { .. } => process.ended = Some(at),
                Event::Resumed { op: number, token, until } => {
                    if let Some(op) = history.ops.get_mut(start + number as usize) {
                        let op_index = start_index + number;
                        history.resumes.push(Resume { at, op: op_index, token, promised: op.until });
                        op.until = op.until.max(until);
                    }
                }
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

    /// The plan and the locks.
    pub(super) fn plan(&mut self, path: &Path) -> io::Result<()> {
        let Self { history, has_plan, .. } = self;
        Self::lines(path, |at, event| match event {
            Event::Plan(plan) => {
                history.plan = plan;
                history.first = history.first.min(at);
                *has_plan = true;
            }
            Event::Lock { lock, ttl, name } if usize::from(lock) == history.names.len() => {
                history.names.push(name);
                history.ttls.push(ttl);
            }
            _ => {}
        })
    }

    pub(super) fn run(&mut self, path: &Path) -> io::Result<()> {
        let Self { history, starts, by_client, faults, .. } = self;
        Self::lines(path, |at, event| {
            history.last = history.last.max(at);
            match event {
                Event::FaultBegan { fault, kind, target } => {
                    // One, or several at once.
                    let killed = target.split(',').filter(|_| kind.starts_with("kill")).filter_map(client_of);
                    for process in killed.filter_map(|client| by_client.get(&client)) {
                        history.processes[*process as usize].killed = Some(at);
                    }
                    faults.insert(fault, history.faults.len());
                    history.faults.push(Fault { kind, target, began: at, healed: None });
                }
                Event::Counted { entries } => history.counted.push((at, entries)),
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

    pub(super) fn finish(mut self) -> Option<History> {
        let (ops, names) = (self.history.ops.len(), self.history.names.len());
        let known = |lock: u16| usize::from(lock) < names;
        if self.history.ops.iter().any(|op| !known(op.name)) {
            return None;
        }
        self.history.breaks.retain(|it| known(it.name));
        self.find_broken();
        self.history.strays.retain(|(_, op)| (*op as usize) < ops);
        self.history.writes.retain(|write| (write.op as usize) < ops);
        self.has_plan.then_some(self.history)
    }

    /// Where a break saw a token that nobody was granted, finds the hold that it hit. Servers that vote number a grant on
    /// their own and the largest number counts, so a look that reaches others of them shows a smaller one.
    fn find_broken(&mut self) {
        let History { ops, breaks, .. } = &mut self.history;
        let known: HashSet<_> =
            ops.iter().filter(|op| op.is_granted()).map(|op| (op.name, epoch(op.token))).collect();
        for it in breaks.iter_mut().filter(|it| !known.contains(&(it.name, epoch(it.token)))) {
            let Some(process) = it.holder.and_then(|holder| self.by_client.get(&holder)) else { continue };
            let is_hit = |op: &&Op| {
                let is_its = op.process == *process && op.name == it.name && op.is_granted();
                // What it was granted after the break is another claim of the same request.
                let held = op.answered < it.done.unwrap_or(it.at) && it.at < op.until;
                is_its && held && (op.freed == 0 || it.at < op.freed) && op.token > it.token
            };
            if let Some(hit) = ops.iter().filter(is_hit).map(|op| op.token).min() {
                it.token = hit;
            }
        }
    }
}

/// The request that an event is of.
fn number(event: &Event) -> Option<u32> {
    match event {
        Event::Queued { op }
        | Event::Granted { op, .. }
        | Event::Checked { op, .. }
        | Event::Lost { op, .. }
        | Event::Releasing { op, .. }
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
            (op.until, op.checked) = (op.until.max(*until), at);
            return;
        }
        Event::Lost { reason, .. } => {
            op.lost = at;
            if reason == TAKEN_AWAY {
                op.taken_away = at;
            }
            return;
        }
        Event::Releasing { left, .. } => {
            (op.releasing, op.let_go_lost) = (at, *left == 0);
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The history of processes that wrote these lines: their names, and what each wrote.
    fn history(files: &[(&str, &str)]) -> History {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        History::read(folder.path()).unwrap()
    }

    /// The token that a break is taken for, which saw `seen` and the holder `client-0.0`.
    fn broken(seen: u64) -> u64 {
        let breaker = format!(
            "2 hello 1 0\n3 asked 0 0 x 0 -\n4 granted 0 4096 9000\n60 breaking 0 {seen} client-0.0\n"
        );
        let files = [
            ("run.log", "1 plan 7 redlock 1000 true false\n1 lock 0 1000 torture/a\n"),
            // Two holds of the holder, of which the second is the one at the time of the break.
            (
                "client-0.0.log",
                "1 hello 0 0\n10 asked 0 0 x 0 -\n20 granted 0 5120 900\n30 releasing 0 890\n31 released 0 ok\n\
                 40 asked 1 0 x 0 -\n50 granted 1 9216 900\n",
            ),
            ("client-1.0.log", &breaker),
        ];
        history(&files).breaks[0].token
    }

    #[test]
    fn a_break_that_saw_a_smaller_token_than_was_granted_hit_what_its_holder_had() {
        assert_eq!(broken(8192), 9216);
        // A token that was granted is that hold, whatever its holder says.
        assert_eq!(broken(4096), 4096);
        // The holder had nothing with a larger token.
        assert_eq!(broken(10_240), 10_240);
    }

    #[test]
    fn a_break_of_a_claim_that_nobody_heard_of_hit_no_later_grant_of_the_same_request() {
        let files = [
            ("run.log", "1 plan 7 etcd 1000 true false\n1 lock 0 1000 torture/a\n"),
            // Its first claim was taken out before it knew that it holds; its second one was granted later.
            ("client-0.0.log", "1 hello 0 0\n10 asked 0 0 x 0 -\n50 granted 0 9216 900\n"),
            ("client-1.0.log", "2 hello 1 0\n20 breaking 0 8192 client-0.0\n30 broke 0 8192\n"),
        ];
        assert_eq!(history(&files).breaks[0].token, 8192);
    }

    #[test]
    fn a_process_that_wrote_nothing_passes_for_no_other() {
        let files = [
            (
                "run.log",
                "1 plan 7 redis 1000 true false\n1 lock 0 1000 torture/a\n25 wrote 0 0 0 true\n\
                 40 fault 0 kill client-7.81\n",
            ),
            ("client-0.0.log", "1 hello 0 0\n10 asked 0 0 x 0 -\n20 granted 0 5120 900\n"),
            ("client-7.81.log", ""),
            ("client-7.82.log", "1 hello 7 82\n50 asked 0 0 x 0 -\n60 granted 0 6144 900\n"),
        ];
        let history = history(&files);
        let of_write = &history.ops[history.writes[0].op as usize];
        assert_eq!(history.who(of_write), "client-0.0");
        let killed: Vec<_> = history.processes.iter().filter(|it| it.killed.is_some()).collect();
        assert_eq!(killed.iter().map(|it| (it.client, it.generation)).collect::<Vec<_>>(), [(7, 81)]);
    }
}
