//! Reads histories back: folds the lines of all processes into one [`Op`] per request.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use super::{
    history::{
        Answer, BY_TICKET, Break, Closing, Decision, Fault, History, Knock, Look, Op, Process, Released,
        Resume, Sight, TAKEN_AWAY, Told, client_of, epoch, guest_of, label_of,
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
                    let (holder, guest) = (client_of(&holder), guest_of(&holder));
                    let (process, name, done) = (index, lock, None);
                    history.breaks.push(Break { process, at, done, name, token, holder, guest });
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
                Event::Unheard { op } => history.unheard.push((at, start_index + op)),
                Event::Listens => process.listens = Some(at),
                Event::Told { lock, how } => history.told.push(Told { process: index, at, name: lock, how }),
                Event::Looked { from, asked, held } => {
                    history.looks.push(Look { process: index, from, at, asked, held });
                }
                Event::Saw { lock, watch, token } => {
                    history.sights.push(Sight { process: index, at, name: lock, watch, token });
                }
                Event::Knocked { from, answer } => {
                    history.knocks.push(Knock { process: index, from, at, answer });
                }
                Event::Closing { guest, grace } => {
                    let closing = Closing { process: index, guest, at, done: 0, ends_tasks: false };
                    history.closings.push(closing);
                    // Also what it may be granted at this very moment, which is noted later.
                    let is_cut = |op: &&mut Op| op.guest == guest && (is_held(op) || op.answered == 0);
                    for op in history.ops[start..].iter_mut().filter(is_cut) {
                        op.closed = at.saturating_add(grace);
                    }
                }
                Event::Ending { guest } => {
                    let closing = Closing { process: index, guest, at, done: 0, ends_tasks: true };
                    history.closings.push(closing);
                    end_tasks(&mut history.ops[start..], guest, at);
                }
                Event::Closed { guest } => {
                    let is_it = |it: &&mut Closing| it.process == index && it.guest == guest;
                    if let Some(it) = history.closings.iter_mut().find(is_it) {
                        it.done = at;
                        if it.ends_tasks {
                            end_tasks(&mut history.ops[start..], guest, it.at);
                        }
                    }
                }
                Event::Bye { .. } => process.ended = Some(at),
                Event::Resumed { op: number, token, until } => {
                    if let Some(op) = history.ops.get_mut(start + number as usize) {
                        let op_index = start_index + number;
                        history.resumes.push(Resume { at, op: op_index, token, promised: op.until });
                        op.until = op.until.max(until);
                        op.left_behind = true;
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
        self.history.unheard.retain(|(_, op)| (*op as usize) < ops);
        self.history.told.retain(|it| known(it.name));
        self.history.sights.retain(|it| known(it.name));
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
                let is_of_client = op.process == *process && op.guest == it.guest;
                let is_its = is_of_client && op.name == it.name && op.is_granted();
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
        | Event::Kept { op, .. }
        | Event::By { op, .. }
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
        Event::Failed { why, .. } if why == "Closed" => Answer::Closed,
        Event::Failed { .. } => Answer::Failed,
        Event::Queued { .. } => {
            op.queued = at;
            return;
        }
        Event::Checked { until, .. } => {
            (op.until, op.checked) = (op.until.max(*until), at);
            if op.may_have_ended {
                (op.releasing, op.may_have_ended) = (0, false);
            }
            return;
        }
        Event::Lost { reason, .. } => {
            op.lost = at;
            op.left_behind |= reason == BY_TICKET;
            if op.may_have_ended {
                (op.releasing, op.may_have_ended) = (0, false);
            }
            if reason == TAKEN_AWAY {
                op.taken_away = at;
            }
            return;
        }
        Event::Releasing { left, .. } => {
            (op.releasing, op.let_go_lost) = (at, *left == 0);
            return;
        }
        Event::Kept { until, .. } => {
            // What was promised for a lease that is renewed no more is another time.
            (op.until, op.kept) = (*until, *until);
            return;
        }
        Event::By { guest, .. } => {
            op.guest = *guest;
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

fn is_held(op: &Op) -> bool {
    op.is_granted() && op.releasing == 0 && op.lost == 0
}

/// The tasks of a runtime end with it. What is in other hands is looked at or answered later, and goes on.
fn end_tasks(ops: &mut [Op], guest: u32, at: Nanos) {
    for op in ops.iter_mut().filter(|op| op.guest == guest) {
        if is_held(op) {
            (op.releasing, op.may_have_ended) = (at.max(op.answered), true);
        } else if op.answer == Answer::None {
            (op.answer, op.answered) = (Answer::GaveUp, at.max(op.asked));
        }
    }
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
    fn a_break_of_another_client_of_the_process_hit_no_hold_of_the_first_one() {
        let files = [
            ("run.log", "1 plan 7 postgres 1000 true false\n1 lock 0 1000 torture/a\n"),
            ("client-0.0.log", "1 hello 0 0\n10 asked 0 0 x 0 -\n20 granted 0 9216 900\n"),
            ("client-1.0.log", "2 hello 1 0\n30 breaking 0 8192 client-0.0+3\n40 broke 0 8192\n"),
        ];
        assert_eq!(history(&files).breaks[0].token, 8192);
    }

    #[test]
    fn the_tasks_of_a_runtime_that_ended_hold_nothing_and_what_others_hold_goes_on() {
        let client = "1 hello 0 0\n\
             10 asked 0 0 x 0 -\n11 by 0 1\n20 granted 0 5120 900\n\
             21 asked 1 0 s 0 -\n22 by 1 1\n23 asked 2 0 s 0 -\n24 by 2 1\n25 granted 2 6144 900\n\
             26 asked 3 0 x 0 -\n30 ending 1\n35 granted 1 7168 900\n40 closed 1\n50 checked 2 875\n";
        let files = [
            ("run.log", "1 plan 7 etcd 1000 true false\n1 lock 0 1000 torture/a\n"),
            ("client-0.0.log", client),
        ];
        let history = history(&files);
        let releasing: Vec<_> = history.ops.iter().map(|op| op.releasing).collect();
        assert_eq!(
            releasing,
            [30, 35, 0, 0],
            "held by a task, granted meanwhile, held elsewhere, another client"
        );
        assert_eq!(history.ops[3].answer, Answer::None);
        let Closing { guest, at, done, ends_tasks, .. } = history.closings[0];
        assert_eq!((guest, at, done, ends_tasks), (1, 30, 40, true));
    }

    #[test]
    fn a_shutdown_cuts_off_what_its_client_holds_and_what_it_is_granted_at_that_moment() {
        let client = "1 hello 0 0\n\
             10 asked 0 0 x 0 -\n11 by 0 1\n20 granted 0 5120 900\n21 asked 1 0 x 0 -\n22 by 1 1\n\
             23 asked 2 0 x 0 -\n30 closing 1 600\n31 granted 1 6144 900\n32 granted 2 7168 900\n40 closed 1\n";
        let files = [
            ("run.log", "1 plan 7 file 1000 true false\n1 lock 0 1000 torture/a\n"),
            ("client-0.0.log", client),
        ];
        let closed: Vec<_> = history(&files).ops.iter().map(|op| op.closed).collect();
        assert_eq!(closed, [630, 630, 0], "held, granted meanwhile, another client");
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
