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

impl FromStr for Share {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "exclusive" => Ok(Self::Exclusive),
            "shared" => Ok(Self::Shared),
            _ => {
                let (n, of) = text.split_once('/').ok_or(())?;
                Ok(Self::Permits { n: n.parse().map_err(drop)?, of: of.parse().map_err(drop)? })
            }
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
    Asked { op: u32, name: String, share: Share, owner: u32, patience: Nanos },
    /// The store showed the request in its queue.
    Queued { op: u32 },
    /// Granted, with the window that is promised.
    Granted { op: u32, token: u64, until: Nanos },
    /// Still held, with the window that is promised. The time is from before the question.
    Checked { op: u32, until: Nanos },
    /// Not held any more.
    Lost { op: u32, reason: String },
    /// About to release.
    Releasing { op: u32 },
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
    /// About to take the holder of this token out.
    Breaking { name: String, token: u64 },
    /// The last line of a client that was not killed.
    Bye { why: String },

    /// The first line of the run.
    Plan(Plan),
    /// A fault begins. The fault is a number; the target of a client is `client-3.1`: its number and generation.
    FaultBegan { fault: u32, kind: String, target: String },
    /// The fault is healed.
    FaultEnded { fault: u32 },
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
            Self::Asked { op, name, share, owner, patience } => {
                format!("asked {op} {name} {share} {owner} {patience}")
            }
            Self::Queued { op } => format!("queued {op}"),
            Self::Granted { op, token, until } => format!("granted {op} {token} {until}"),
            Self::Checked { op, until } => format!("checked {op} {until}"),
            Self::Lost { op, reason } => format!("lost {op} {}", word(reason)),
            Self::Releasing { op } => format!("releasing {op}"),
            Self::Released { op, answer } => format!("released {op} {}", word(answer)),
            Self::Refused { op } => format!("refused {op}"),
            Self::TimedOut { op } => format!("timed-out {op}"),
            Self::GaveUp { op } => format!("gave-up {op}"),
            Self::Failed { op, why } => format!("failed {op} {}", word(why)),
            Self::Breaking { name, token } => format!("breaking {name} {token}"),
            Self::Bye { why } => format!("bye {}", word(why)),
            Self::Plan(Plan { seed, store, ttl, fair, overlaps_allowed }) => {
                format!("plan {seed} {} {ttl} {fair} {overlaps_allowed}", word(store))
            }
            Self::FaultBegan { fault, kind, target } => {
                format!("fault {fault} {} {}", word(kind), word(target))
            }
            Self::FaultEnded { fault } => format!("healed {fault}"),
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
                name: fields.next()?.to_owned(),
                share: number(&mut fields)?,
                owner: number(&mut fields)?,
                patience: number(&mut fields)?,
            },
            "queued" => Self::Queued { op: number(&mut fields)? },
            "granted" => Self::Granted {
                op: number(&mut fields)?,
                token: number(&mut fields)?,
                until: number(&mut fields)?,
            },
            "checked" => Self::Checked { op: number(&mut fields)?, until: number(&mut fields)? },
            "lost" => Self::Lost { op: number(&mut fields)?, reason: number(&mut fields)? },
            "releasing" => Self::Releasing { op: number(&mut fields)? },
            "released" => Self::Released { op: number(&mut fields)?, answer: number(&mut fields)? },
            "refused" => Self::Refused { op: number(&mut fields)? },
            "timed-out" => Self::TimedOut { op: number(&mut fields)? },
            "gave-up" => Self::GaveUp { op: number(&mut fields)? },
            "failed" => Self::Failed { op: number(&mut fields)?, why: number(&mut fields)? },
            "breaking" => Self::Breaking { name: number(&mut fields)?, token: number(&mut fields)? },
            "bye" => Self::Bye { why: number(&mut fields)? },
            "plan" => Self::Plan(Plan {
                seed: number(&mut fields)?,
                store: number(&mut fields)?,
                ttl: number(&mut fields)?,
                fair: number(&mut fields)?,
                overlaps_allowed: number(&mut fields)?,
            }),
            "fault" => Self::FaultBegan {
                fault: number(&mut fields)?,
                kind: number(&mut fields)?,
                target: number(&mut fields)?,
            },
            "healed" => Self::FaultEnded { fault: number(&mut fields)? },
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
            Event::Asked { op: 1, name: name(), share: Share::Exclusive, owner: 0, patience: Nanos::MAX },
            Event::Asked { op: 2, name: name(), share: Share::Shared, owner: 9, patience: 0 },
            Event::Asked {
                op: 3,
                name: name(),
                share: Share::Permits { n: 2, of: 5 },
                owner: 0,
                patience: 5,
            },
            Event::Queued { op: 1 },
            Event::Granted { op: 1, token: u64::MAX, until: 10 },
            Event::Checked { op: 1, until: 11 },
            Event::Lost { op: 1, reason: text() },
            Event::Releasing { op: 1 },
            Event::Released { op: 1, answer: text() },
            Event::Refused { op: 2 },
            Event::TimedOut { op: 3 },
            Event::GaveUp { op: 3 },
            Event::Failed { op: 3, why: text() },
            Event::Breaking { name: name(), token: 4 },
            Event::Bye { why: text() },
            Event::Plan(plan),
            Event::FaultBegan { fault: 1, kind: text(), target: text() },
            Event::FaultEnded { fault: 1 },
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
