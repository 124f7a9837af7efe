//! What contestants are asked to do.

use std::time::Duration;

use super::{
    Effort, held, killed,
    progress::Progress,
    rates,
    results::{Kind, Row},
    stores::{Contestant, Stand},
};

const TASKS: u64 = 64;
const PROCESSES: usize = 8;
/// Peers in threads, and those whose waiters ask again and again, are not put through longer lines.
const LINE_OF_PEERS: u64 = 100;

/// In an election: our own lock by the same processes, and candidates as those of client-go.
pub(super) const MUTEX: &str = "tidelock, mutex";
const POLLED: &str = "polled every 2 s";

/// One of the things that locks are used for.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// As many as possible in turns.
    Rate { wait_for_each_other: bool, cores: Cores },
    /// Many locks are held.
    Held,
    /// A holder is killed.
    Killed,
    /// Longer and longer lines.
    Waiters,
    /// More and more locks.
    Locks,
}

/// Where server and client run: a lone ping-pong depends on that more than on anything else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cores {
    /// Wherever the kernel likes.
    Any,
    /// The server on one, clients on another, as on two machines.
    Two,
    /// Both on the same: what counts is how much they work.
    One,
}

const APART: What = What::Rate { wait_for_each_other: false, cores: Cores::Two };
const TOGETHER: What = What::Rate { wait_for_each_other: false, cores: Cores::One };
const BESIDE: What = What::Rate { wait_for_each_other: false, cores: Cores::Any };
const AGAINST: What = What::Rate { wait_for_each_other: true, cores: Cores::Any };

/// All of them.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "pair", title: "lock and release, nobody else", what: APART },
    Scenario { name: "work", title: "lock and release, client and server on one core", what: TOGETHER },
    Scenario { name: "tasks", title: "64 tasks of one process, one name", what: AGAINST },
    Scenario { name: "processes", title: "8 processes, one name: hand-overs", what: AGAINST },
    Scenario { name: "election", title: "8 candidates: changes of leader after a clean end", what: AGAINST },
    Scenario { name: "distinct", title: "64 tasks, 64 names", what: BESIDE },
    Scenario { name: "try", title: "try on a busy lock", what: APART },
    Scenario { name: "read", title: "64 tasks, nine of ten read", what: AGAINST },
    Scenario { name: "held", title: "10,000 held locks: work of client and server", what: What::Held },
    Scenario { name: "killed", title: "from kill -9 of the holder to the next", what: What::Killed },
    Scenario { name: "flash-sale", title: "takes from a stock", what: AGAINST },
    Scenario { name: "waiters", title: "lines of 1 to 10,000 tasks", what: What::Waiters },
    Scenario { name: "locks", title: "1 to 100,000 held locks: memory of each", what: What::Locks },
];

/// The title of a scenario, also of one that grows.
pub(super) fn title(name: &str) -> String {
    let exact = SCENARIOS.iter().find(|scenario| scenario.name == name).map(|scenario| scenario.title);
    exact.map_or_else(
        || match name.split_once(' ') {
            Some(("waiters", "1")) => "a line of one task".to_owned(),
            Some(("waiters", tasks)) => format!("a line of {tasks} tasks of one process"),
            Some(("locks", locks)) => format!("{locks} held locks: memory of each in the client"),
            _ => name.to_owned(),
        },
        str::to_owned,
    )
}

/// What a contestant is asked, and by how many processes.
pub(super) struct Question {
    pub(super) processes: usize,
    pub(super) words: Vec<String>,
    /// Whether processes say who held before.
    pub(super) counts_hands: bool,
    /// Whether a lock is held from the first round to the last, also by those who do not renew it.
    pub(super) holds_throughout: bool,
}

impl Scenario {
    /// The rows of all contestants.
    pub(super) fn run(
        &self,
        stand: &Stand,
        contestants: &[Contestant],
        effort: Effort,
        progress: &Progress,
    ) -> Result<Vec<Row>, String> {
        match self.what {
            What::Rate { wait_for_each_other, cores } => {
                let turn = if wait_for_each_other { effort.contended } else { effort.turn };
                let players = self.players(contestants);
                let question =
                    |kind, name: &str, contestant: &Contestant| self.question(kind, name, contestant, turn);
                Ok(rates::run(
                    self.name,
                    stand,
                    &players,
                    &question,
                    if stand.can_be_placed() { cores } else { Cores::Any },
                    effort,
                    progress,
                ))
            }
            What::Held => Ok(held::run(self.name, stand, contestants, effort.held, effort, progress)),
            What::Killed => Ok(killed::run(contestants, effort, progress)),
            What::Waiters => {
                let mut rows = Vec::new();
                for tasks in effort.waiters {
                    let players: Vec<_> = self
                        .players(contestants)
                        .into_iter()
                        .filter(|(kind, _, _)| *kind != Kind::Peer || *tasks == LINE_OF_PEERS)
                        .collect();
                    let question = |kind, _: &str, contestant: &Contestant| {
                        let verb = if kind == Kind::Bare { "crowd" } else { "pairs" };
                        let turn = effort.contended.as_millis();
                        let words =
                            [verb, &contestant.servers, "waiters", &tasks.to_string(), &turn.to_string()];
                        Question::by_one(&words)
                    };
                    let fewer = Effort { rounds: effort.rounds.div_ceil(3), ..effort };
                    let name = format!("waiters {}", grouped(*tasks));
                    rows.extend(rates::run(&name, stand, &players, &question, Cores::Any, fewer, progress));
                }
                Ok(rows)
            }
            What::Locks => Ok(held::grow(stand, contestants, effort, progress)),
        }
    }

    /// Who plays, as what, and under which name.
    fn players<'a>(&self, contestants: &'a [Contestant]) -> Vec<(Kind, String, &'a Contestant)> {
        let mut players: Vec<_> = contestants.iter().map(|one| (one.kind, one.name.clone(), one)).collect();
        if self.name == "flash-sale" {
            for (kind, name, _) in &mut players {
                if *kind == Kind::Peer {
                    *name = format!("{name}, one lock");
                }
            }
            // The same sale as everybody else has it, with our own lock.
            let ours = contestants.iter().find(|one| one.kind == Kind::Ours);
            players.extend(ours.map(|ours| (Kind::Peer, format!("{}, one lock", ours.name), ours)));
        }
        if self.name == "election" {
            let ours = contestants.iter().find(|one| one.kind == Kind::Ours);
            for name in [MUTEX, POLLED] {
                players.extend(ours.map(|ours| (Kind::Peer, name.to_owned(), ours)));
            }
        }
        players
    }

    fn question(&self, kind: Kind, player: &str, contestant: &Contestant, turn: Duration) -> Question {
        let (servers, name) = (contestant.servers.as_str(), format!("{}-{}", self.name, slug(player)));
        let (tasks, millis) = (TASKS.to_string(), turn.as_millis().to_string());
        let (tasks, millis, name) = (tasks.as_str(), millis.as_str(), name.as_str());
        let on_one_name = Question {
            processes: PROCESSES,
            words: own(&["pairs", servers, name, "1", millis]),
            counts_hands: true,
            holds_throughout: false,
        };
        match (self.name, kind) {
            ("pair" | "work", _) => Question::by_one(&["pairs", servers, name, "1", millis]),
            // Nobody needs the store to hand over inside of a process.
            ("tasks", Kind::Bare) => Question::by_one(&["crowd", servers, name, tasks, millis]),
            ("tasks", _) => Question::by_one(&["pairs", servers, name, tasks, millis]),
            // A hand-over cannot be done with less than one change, unless the kernel hands over.
            ("processes", Kind::Bare) if has_changes(contestant) => {
                Question::by_one(&["trips", servers, name, "1", millis])
            }
            ("processes", _) => on_one_name,
            ("election", _) => {
                let verb = match player {
                    MUTEX => "pairs",
                    POLLED => "poll",
                    _ => "lead",
                };
                Question { words: own(&[verb, servers, name, "1", millis]), ..on_one_name }
            }
            ("try", _) => {
                Question { holds_throughout: true, ..Question::by_one(&["try", servers, name, millis]) }
            }
            // Readers do not wait for each other.
            ("distinct", _) => Question::by_one(&["pairs", servers, name, tasks, millis, "distinct"]),
            ("read", Kind::Bare) if !servers.starts_with("memory:") && has_changes(contestant) => {
                Question::by_one(&["pairs", servers, name, tasks, millis, "distinct"])
            }
            ("read", _) => Question::by_one(&["read", servers, name, tasks, millis]),
            ("flash-sale", Kind::Ours | Kind::Bare) => {
                Question::by_one(&["sell", servers, name, tasks, millis])
            }
            _ => on_one_name,
        }
    }
}

impl Question {
    fn by_one(words: &[&str]) -> Self {
        Self { processes: 1, words: own(words), counts_hands: false, holds_throughout: false }
    }
}

pub(super) fn own(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Whether a contestant's bare commands are changes on a server.
fn has_changes(contestant: &Contestant) -> bool {
    let of_lock =
        contestant.launch.as_ref().is_ok_and(|launch| launch.words.iter().any(|word| word == "ours"));
    !of_lock && !contestant.servers.starts_with("file:")
}

/// A name that every store and every language takes.
pub(super) fn slug(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_that_grow_have_titles() {
        assert_eq!(title("waiters 1,000"), "a line of 1,000 tasks of one process");
        assert_eq!(title("pair"), "lock and release, nobody else");
    }
}
