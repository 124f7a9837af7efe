//! One line of a history: what happened, and when.
//!
//! A line is text that begins with the time, so that a person can read and sort it: `NANOS WORD FIELDS...`. Fields have
//! no blanks. A line without its end was being written when its process was killed, and counts for nothing.

use std::{fmt, str::FromStr};

/// Nanoseconds on the clock that all processes of the machine share, and that leases are measured on.
pub(super) type Nanos = u64;

/// How much of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    Exclusive,
    Shared,
    Permits { n: u16, of: u16 },
}

impl Share {
    /// Whether a hold of this share and one of the other exclude each other. Permits are added up.
    pub(super) fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permits { n, of } => write!(f, "{n}/{of}"),
        }
    }
}

impl Share {
    /// As lines have it, which are many.
    fn code(self) -> String {
        match self {
            Self::Exclusive => "x".to_owned(),
            Self::Shared => "s".to_owned(),
            Self::Permits { .. } => self.to_string(),
        }
    }
}

impl FromStr for Share {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "x" => Ok(Self::Exclusive),
            "s" => Ok(Self::Shared),
            _ => {
                let (n, of) = text.split_once('/').ok_or(())?;
                Ok(Self::Permits { n: n.parse().map_err(drop)?, of: of.parse().map_err(drop)? })
            }
        }
    }
}

/// Some locks by their numbers, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Which {
    All,
    These(Vec<u16>),
}

impl Which {
    pub(super) fn has(&self, lock: u16) -> bool {
        match self {
            Self::All => true,
            Self::These(these) => these.contains(&lock),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::These(these) if these.is_empty() => f.write_str("-"),
            Self::These(these) => {
                let these: Vec<_> = these.iter().map(u16::to_string).collect();
                f.write_str(&these.join(","))
            }
        }
    }
}

impl FromStr for Which {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "*" => Ok(Self::All),
            "-" => Ok(Self::These(Vec::new())),
            _ => text
                .split(',')
                .map(|lock| lock.parse().map_err(drop))
                .collect::<Result<_, _>>()
                .map(Self::These),
        }
    }
}

/// A thing that happened. `op` counts the requests of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The first line of a client.
    Hello { client: u32, generation: u32 },
    /// About to ask. A `patience` of zero does not wait, and [`Nanos::MAX`] waits without limit. An `owner` of zero is
    /// none.
    Asked { op: u32, lock: u16, share: Share, owner: u32, patience: Nanos },
    /// The store showed the request in its queue.
    Queued { op: u32 },
    /// Granted, with the window that is promised.
    Granted { op: u32, token: u64, until: Nanos },
    /// Still held, with the window that is promised. The time is from before the question.
    Checked { op: u32, until: Nanos },
    /// Not held any more.
    Lost { op: u32, reason: String },
    /// Renewed by its ticket, with the token that the ticket has and the window that is promised. The time is from before
    /// the question.
    Resumed { op: u32, token: u64, until: Nanos },
    /// About to release, with what is left of the window: nothing if the lock is known to be lost.
    Releasing { op: u32, left: Nanos },
    /// The release was answered: `ok`, or what went wrong.
    Released { op: u32, answer: String },
    /// Somebody else has it, and the request did not wait.
    Refused { op: u32 },
    /// Waited for its time in vain.
    TimedOut { op: u32 },
    /// The future was dropped.
    GaveUp { op: u32 },
    /// An error.
    Failed { op: u32, why: String },
    /// About to take the holder of this token out, which says that it is this client. Votes may show a smaller token than
    /// the holder was granted.
    Breaking { lock: u16, token: u64, holder: String },
    /// The store confirmed that it took that holder out.
    Broke { lock: u16, token: u64 },
    /// Nothing of this process ran since `from`: a task blocked its only thread.
    Hung { from: Nanos },
    /// The store answered this process late, or the machine let it wait, since `from`.
    Slow { from: Nanos },
    /// The store shows a claim of this process on a lock that no task of it holds or asks for. This was its last request
    /// for that lock.
    Stray { op: u32 },
    /// A hold was let go before its shortest time had passed: nobody else gets the lock until then.
    Kept { op: u32, until: Nanos },
    /// A request is made by another client of this process than its first one, which has this number.
    By { op: u32, guest: u32 },
    /// A client of this process is about to be shut down, with this much time for those who hold.
    Closing { guest: u32, grace: Nanos },
    /// It was shut down, or its runtime has ended.
    Closed { guest: u32 },
    /// The runtime of a client of this process is about to end, with all tasks on it.
    Ending { guest: u32 },
    /// A hold was lost, and its guard did not tell those who wait for that.
    Unheard { op: u32 },
    /// From now on the first client of this process is told how its claims end.
    Listens,
    /// It was told how a claim ended.
    Told { lock: u16, how: String },
    /// Asked the store since `from` who holds these locks, and was shown these.
    Looked { from: Nanos, asked: Which, held: Which },
    /// A watch of an election showed the leader with this token; zero is nobody.
    Saw { lock: u16, watch: u32, token: u64 },
    /// Tried since `from` to connect with a wrong password, or to a server of something else. The answer is the kind of
    /// the error, `refused` by a wrong server, `open` where nobody looks at passwords, `ok` if it was let in, or `none`.
    Knocked { from: Nanos, answer: String },
    /// The last line of a client that was not killed.
    Bye { why: String },

    /// The first line of the run.
    Plan(Plan),
    /// A lock that clients use, which their lines call by this number.
    Lock { lock: u16, ttl: Nanos, name: String },
    /// A fault begins. The fault is a number; the target of a client is `client-3.1`: its number and generation.
    /// Several clients are separated by commas.
    FaultBegan { fault: u32, kind: String, target: String },
    /// The fault is healed.
    FaultEnded { fault: u32 },
    /// How many entries the store has.
    Counted { entries: u64 },
    /// The fence decided on a write: the order of these lines is its order.
    Wrote { client: u32, generation: u32, op: u32, accepted: bool },
}

/// What the checker has to know of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) store: String,
    pub(super) ttl: Nanos,
    /// Whether the store promises the order of arrival.
    pub(super) fair: bool,
    /// Whether overlaps are counted and not violations, because the deployment does not exclude them.
    pub(super) overlaps_allowed: bool,
}

impl Event {
    /// The line, with its end.
    pub(super) fn line(&self, at: Nanos) -> String {
        let text = match self {
            Self::Hello { client, generation } => format!("hello {client} {generation}"),
            Self::Asked { op, lock, share, owner, patience } => {
                let patience = if *patience == Nanos::MAX { "-".to_owned() } else { patience.to_string() };
                format!("asked {op} {lock} {} {owner} {patience}", share.code())
            }
            Self::Queued { op } => format!("queued {op}"),
            Self::Granted { op, token, until } => {
                format!("granted {op} {token} {}", until.saturating_sub(at))
            }
            Self::Checked { op, until } => format!("checked {op} {}", until.saturating_sub(at)),
            Self::Lost { op, reason } => format!("lost {op} {}", word(reason)),
            Self::Resumed { op, token, until } => {
                format!("resumed {op} {token} {}", until.saturating_sub(at))
            }
            Self::Releasing { op, left } => format!("releasing {op} {left}"),
            Self::Released { op, answer } => format!("released {op} {}", word(answer)),
            Self::Refused { op } => format!("refused {op}"),
            Self::TimedOut { op } => format!("timed-out {op}"),
            Self::GaveUp { op } => format!("gave-up {op}"),
            Self::Failed { op, why } => format!("failed {op} {}", word(why)),
            Self::Breaking { lock, token, holder } => format!("breaking {lock} {token} {}", word(holder)),
            Self::Broke { lock, token } => format!("broke {lock} {token}"),
            Self::Hung { from } => format!("hung {from}"),
            Self::Slow { from } => format!("slow {from}"),
            Self::Stray { op } => format!("stray {op}"),
            Self::Kept { op, until } => format!("kept {op} {}", until.saturating_sub(at)),
            Self::By { op, guest } => format!("by {op} {guest}"),
            Self::Closing { guest, grace } => format!("closing {guest} {grace}"),
            Self::Closed { guest } => format!("closed {guest}"),
            Self::Ending { guest } => format!("ending {guest}"),
            Self::Unheard { op } => format!("unheard {op}"),
            Self::Listens => "listens".to_owned(),
            Self::Told { lock, how } => format!("told {lock} {}", word(how)),
            Self::Looked { from, asked, held } => format!("looked {from} {asked} {held}"),
            Self::Saw { lock, watch, token } => format!("saw {lock} {watch} {token}"),
            Self::Knocked { from, answer } => format!("knocked {from} {}", word(answer)),
            Self::Bye { why } => format!("bye {}", word(why)),
            Self::Plan(Plan { seed, store, ttl, fair, overlaps_allowed }) => {
                format!("plan {seed} {} {ttl} {fair} {overlaps_allowed}", word(store))
            }
            Self::Lock { lock, ttl, name } => format!("lock {lock} {ttl} {}", word(name)),
            Self::FaultBegan { fault, kind, target } => {
                format!("fault {fault} {} {}", word(kind), word(target))
            }
            Self::FaultEnded { fault } => format!("healed {fault}"),
            Self::Counted { entries } => format!("counted {entries}"),
            Self::Wrote { client, generation, op, accepted } => {
                format!("wrote {client} {generation} {op} {accepted}")
            }
        };
        format!("{at} {text}\n")
    }

    /// Reads a line without its end.
    pub(super) fn parse(line: &str) -> Option<(Nanos, Self)> {
        let mut fields = line.split(' ');
        let at = fields.next()?.parse().ok()?;
        let event = match fields.next()? {
            "hello" => Self::Hello { client: number(&mut fields)?, generation: number(&mut fields)? },
            "asked" => Self::Asked {
                op: number(&mut fields)?,
                lock: number(&mut fields)?,
                share: number(&mut fields)?,
                owner: number(&mut fields)?,
                patience: match fields.next()? {
                    "-" => Nanos::MAX,
                    limit => limit.parse().ok()?,
                },
            },
            "queued" => Self::Queued { op: number(&mut fields)? },
            "granted" => Self::Granted {
                op: number(&mut fields)?,
                token: number(&mut fields)?,
                until: after(at, &mut fields)?,
            },
            "checked" => Self::Checked { op: number(&mut fields)?, until: after(at, &mut fields)? },
            "lost" => Self::Lost { op: number(&mut fields)?, reason: number(&mut fields)? },
            "resumed" => Self::Resumed {
                op: number(&mut fields)?,
                token: number(&mut fields)?,
                until: after(at, &mut fields)?,
            },
            "releasing" => Self::Releasing { op: number(&mut fields)?, left: number(&mut fields)? },
            "released" => Self::Released { op: number(&mut fields)?, answer: number(&mut fields)? },
            "refused" => Self::Refused { op: number(&mut fields)? },
            "timed-out" => Self::TimedOut { op: number(&mut fields)? },
            "gave-up" => Self::GaveUp { op: number(&mut fields)? },
            "failed" => Self::Failed { op: number(&mut fields)?, why: number(&mut fields)? },
            "breaking" => Self::Breaking {
                lock: number(&mut fields)?,
                token: number(&mut fields)?,
                holder: number(&mut fields)?,
            },
            "broke" => Self::Broke { lock: number(&mut fields)?, token: number(&mut fields)? },
            "hung" => Self::Hung { from: number(&mut fields)? },
            "slow" => Self::Slow { from: number(&mut fields)? },
            "stray" => Self::Stray { op: number(&mut fields)? },
            "kept" => Self::Kept { op: number(&mut fields)?, until: after(at, &mut fields)? },
            "by" => Self::By { op: number(&mut fields)?, guest: number(&mut fields)? },
            "closing" => Self::Closing { guest: number(&mut fields)?, grace: number(&mut fields)? },
            "closed" => Self::Closed { guest: number(&mut fields)? },
            "ending" => Self::Ending { guest: number(&mut fields)? },
            "unheard" => Self::Unheard { op: number(&mut fields)? },
            "listens" => Self::Listens,
            "told" => Self::Told { lock: number(&mut fields)?, how: number(&mut fields)? },
            "looked" => Self::Looked {
                from: number(&mut fields)?,
                asked: number(&mut fields)?,
                held: number(&mut fields)?,
            },
            "saw" => Self::Saw {
                lock: number(&mut fields)?,
                watch: number(&mut fields)?,
                token: number(&mut fields)?,
            },
            "knocked" => Self::Knocked { from: number(&mut fields)?, answer: number(&mut fields)? },
            "bye" => Self::Bye { why: number(&mut fields)? },
            "plan" => Self::Plan(Plan {
                seed: number(&mut fields)?,
                store: number(&mut fields)?,
                ttl: number(&mut fields)?,
                fair: number(&mut fields)?,
                overlaps_allowed: number(&mut fields)?,
            }),
            "lock" => Self::Lock {
                lock: number(&mut fields)?,
                ttl: number(&mut fields)?,
                name: number(&mut fields)?,
            },
            "fault" => Self::FaultBegan {
                fault: number(&mut fields)?,
                kind: number(&mut fields)?,
                target: number(&mut fields)?,
            },
            "healed" => Self::FaultEnded { fault: number(&mut fields)? },
            "counted" => Self::Counted { entries: number(&mut fields)? },
            "wrote" => Self::Wrote {
                client: number(&mut fields)?,
                generation: number(&mut fields)?,
                op: number(&mut fields)?,
                accepted: number(&mut fields)?,
            },
            _ => return None,
        };
        Some((at, event))
    }
}

/// The next field.
fn number<'a, T: FromStr>(fields: &mut impl Iterator<Item = &'a str>) -> Option<T> {
    fields.next()?.parse().ok()
}

/// A moment that is written as the time after the line's own, which is shorter.
fn after<'a>(at: Nanos, fields: &mut impl Iterator<Item = &'a str>) -> Option<Nanos> {
    number::<Nanos>(fields).map(|later| at.saturating_add(later))
}

/// Text as one field.
fn word(text: &str) -> String {
    let text: String =
        text.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_read_as_it_was_written() {
        let name = || "torture/1/mutex-0".to_owned();
        let text = || "a_word".to_owned();
        let plan = Plan {
            seed: 7,
            store: "redis".to_owned(),
            ttl: 3_000_000_000,
            fair: true,
            overlaps_allowed: false,
        };
        let events = [
            Event::Hello { client: 3, generation: 1 },
            Event::Asked { op: 1, lock: 2, share: Share::Exclusive, owner: 0, patience: Nanos::MAX },
            Event::Asked { op: 2, lock: 0, share: Share::Shared, owner: 9, patience: 0 },
            Event::Asked { op: 3, lock: 0, share: Share::Permits { n: 2, of: 5 }, owner: 0, patience: 5 },
            Event::Queued { op: 1 },
            Event::Granted { op: 1, token: u64::MAX, until: 20 },
            Event::Checked { op: 1, until: 12 },
            Event::Lost { op: 1, reason: text() },
            Event::Resumed { op: 1, token: 4, until: 30 },
            Event::Releasing { op: 1, left: 7 },
            Event::Released { op: 1, answer: text() },
            Event::Refused { op: 2 },
            Event::TimedOut { op: 3 },
            Event::GaveUp { op: 3 },
            Event::Failed { op: 3, why: text() },
            Event::Breaking { lock: 1, token: 4, holder: text() },
            Event::Broke { lock: 1, token: 4 },
            Event::Hung { from: 3 },
            Event::Slow { from: 3 },
            Event::Stray { op: 2 },
            Event::Kept { op: 1, until: 40 },
            Event::By { op: 1, guest: 3 },
            Event::Closing { guest: 3, grace: 5 },
            Event::Closed { guest: 3 },
            Event::Ending { guest: 4 },
            Event::Unheard { op: 1 },
            Event::Listens,
            Event::Told { lock: 1, how: text() },
            Event::Looked { from: 3, asked: Which::All, held: Which::These(vec![1, 12]) },
            Event::Looked { from: 3, asked: Which::These(vec![7]), held: Which::These(Vec::new()) },
            Event::Saw { lock: 1, watch: 2, token: u64::MAX },
            Event::Knocked { from: 3, answer: text() },
            Event::Lock { lock: 1, ttl: 9, name: name() },
            Event::Bye { why: text() },
            Event::Plan(plan),
            Event::FaultBegan { fault: 1, kind: text(), target: text() },
            Event::FaultEnded { fault: 1 },
            Event::Counted { entries: 9 },
            Event::Wrote { client: 3, generation: 1, op: 1, accepted: true },
        ];
        for event in events {
            let line = event.line(12);
            assert_eq!(Event::parse(line.trim_end()), Some((12, event)), "{line}");
        }
    }

    #[test]
    fn text_with_blanks_stays_one_field() {
        let line = Event::Failed { op: 1, why: "no server\nanswers".to_owned() }.line(5);
        assert_eq!(line, "5 failed 1 no_server_answers\n");
        assert_eq!(Event::parse("5 sang 1"), None);
        assert_eq!(Event::parse("5 granted 1 2"), None);
    }
}
