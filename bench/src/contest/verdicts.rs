//! Whether a bar that was missed can be won, and why not.

use super::results::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// What is left to gain.
    Can(&'static str),
    /// What stands in the way.
    Cannot(&'static str),
    Unexamined,
}

use Verdict::{Can, Cannot, Unexamined};

const NO_LEASE: Verdict =
    Cannot("the other lock has no lease: it ends with its process or connection, and costs nothing to hold");
const ONE_SESSION: Verdict =
    Cannot("the other library keeps one session alive and does not check whether each lock is still there");
const NO_ROW: Verdict =
    Cannot("the other lock is in the server's memory: it writes no row, has no token and survives nothing");
const NO_QUEUE: Verdict = Cannot(
    "the other library sends commands of a microsecond; a queue, leases and tokens are a script of ten",
);
const ONE_CALL: Verdict =
    Cannot("the other lock is one system call; a queue with leases in a file is several of them");
const CHANCE: Verdict = Cannot("the ratio depends on when the holder last renewed, not on the library");
const VOTES: Verdict = Can("the work for each of five votes, in the client and in the script of a claim");
const MEMORY: Verdict = Can("bytes that the client keeps for each lock");
const GUARDED: Verdict = Cannot(
    "the server looks up five ranges for a pair instead of two: for late questions, epochs and a release that compares",
);
const PROCEDURES: Verdict = Can("processor time of the procedures in the server");

/// The store, the first word of the scenario, whom it is against (the beginning of its name), and the verdict. The first
/// that fits counts; an empty text fits everything.
const VERDICTS: &[(&str, &str, &str, Verdict)] = &[
    ("", "locks", "", MEMORY),
    ("file", "held", "", NO_LEASE),
    ("file", "", "", ONE_CALL),
    ("redis", "held", "", ONE_SESSION),
    ("redis", "", "", NO_QUEUE),
    ("redlock", "distinct", "", VOTES),
    ("redlock", "", "", NO_QUEUE),
    ("etcd", "held", "", ONE_SESSION),
    ("etcd", "killed", "", CHANCE),
    ("etcd", "", "", GUARDED),
    ("zookeeper", "held", "", ONE_SESSION),
    ("zookeeper", "killed", "", CHANCE),
    ("postgres", "killed", "", NO_LEASE),
    ("postgres", "", "sqlx", NO_ROW),
    ("postgres", "", "distributed-lock", NO_ROW),
    ("mysql", "killed", "", NO_LEASE),
    ("mysql", "", "GET_LOCK", NO_ROW),
    ("mysql", "", "distributed-lock", NO_ROW),
    ("mysql", "", "", PROCEDURES),
];

/// What is known about a bar that a store missed.
pub(super) fn of(store: &str, row: &Row) -> Verdict {
    let scenario = row.scenario.split(' ').next().unwrap_or_default();
    let fits = |(of, what, against, _): &&(&str, &str, &str, Verdict)| {
        (of.is_empty() || *of == store)
            && (what.is_empty() || *what == scenario)
            && row.contestant.starts_with(against)
    };
    VERDICTS.iter().find(fits).map_or(Unexamined, |(_, _, _, verdict)| *verdict)
}

impl Verdict {
    /// As a headline.
    pub(super) fn text(self) -> String {
        match self {
            Can(what) => format!("Can be won: {what}"),
            Cannot(why) => format!("Cannot be won, because {why}"),
            Unexamined => "Not examined yet".to_owned(),
        }
    }
}
