//! Since when a server can be relied on, kept on the server.
//!
//! What a server says about its age is worth nothing: `uptime_in_seconds` is the difference of two readings of its wall
//! clock, so a server that starts with its clock behind, forgets all, and is set right says that it is old. So clients
//! write down on each server when they first met this run of it, by the clocks of a majority of the servers, which one
//! wrong clock does not move. The run's id is part of it: a server that was restarted, or that got the data of another one,
//! finds a record of another run, or none.

use std::time::Duration;

use super::layout::server::FORM;

/// By how much the times of two clients may differ, in microseconds: each goes by the servers that it hears.
const DIFFERENCE: u64 = 1_000_000;

/// What is written down on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The server's run, which changes with every start.
    pub(super) run: String,
    /// When it was first met, or last found with a wrong clock, in microseconds; 0 if it never had anything to forget.
    pub(super) since: u64,
}

impl Record {
    /// What a record says. One of another version may say that the server cannot be relied on, so it counts as one from the
    /// future: the server has no vote until it was watched for long enough.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let is_form = |form: &str| !form.is_empty() && form.bytes().all(|digit| digit.is_ascii_digit());
        if words.clone().next().is_some_and(|form| is_form(form) && form != FORM) {
            return Some(Self { run: String::new(), since: u64::MAX });
        }
        let (form, run, since) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        (form == FORM && words.next().is_none()).then(|| Self { run: run.to_owned(), since })
    }

    pub(super) fn text(&self) -> String {
        format!("{FORM} {} {}", self.run, self.since)
    }

    /// What is to be written for a run of a server, by what was found there. A server that keeps all that it confirms is
    /// not younger for a restart.
    pub(super) fn of(run: &str, keeps_all: bool, now: u64, found: Option<&Self>) -> Self {
        // One from the future was written by clocks that were wrong.
        let is_past = |found: &Self| found.since <= now + DIFFERENCE;
        let since = match found {
            Some(found) if is_past(found) && (found.run == run || keeps_all) => found.since,
            None if keeps_all => 0,
            _ => now,
        };
        Self { run: run.to_owned(), since }
    }

    /// For how long the server still has no vote.
    pub(super) fn left(&self, now: u64, longest: Duration) -> Duration {
        longest.saturating_sub(Duration::from_micros(now.saturating_sub(self.since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_as_old_as_its_record_and_another_run_is_new() {
        let found = Record { run: "a".to_owned(), since: 5_000_000 };
        assert_eq!(Record::read(&found.text()), Some(found.clone()));
        let future = Record { run: "a".to_owned(), since: 99_000_000 };
        // The run, whether it keeps all, what is found, since when it counts.
        let table = [
            ("a", false, Some(&found), 5_000_000),
            ("b", false, Some(&found), 9_000_000),
            ("b", true, Some(&found), 5_000_000),
            ("a", false, None, 9_000_000),
            ("a", true, None, 0),
            ("a", false, Some(&future), 9_000_000),
            ("a", true, Some(&future), 9_000_000),
        ];
        for (run, keeps_all, found, since) in table {
            assert_eq!(Record::of(run, keeps_all, 9_000_000, found).since, since, "{run} {keeps_all}");
        }
        let longest = Duration::from_secs(10);
        assert_eq!(found.left(9_000_000, longest), Duration::from_secs(6));
        assert_eq!(found.left(90_000_000, longest), Duration::ZERO);
    }

    #[test]
    fn what_is_no_record_is_none() {
        for text in ["", "1", "1 a", "1 a x", "1 a 5 6", "hello"] {
            assert_eq!(Record::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_server_with_a_record_of_another_version_is_not_trusted_by_it() {
        for text in ["2 a 5", "2", "0 a 5", "17 something else"] {
            let found = Record::read(text);
            for keeps_all in [false, true] {
                assert_eq!(Record::of("a", keeps_all, 9_000_000, found.as_ref()).since, 9_000_000, "{text}");
            }
        }
    }

    #[test]
    fn a_record_is_that_of_earlier_releases() {
        let record = Record { run: "4b1f".to_owned(), since: 7_000_000_000_000_005 };
        assert_eq!(record.text(), "1 4b1f 7000000000000005");
        assert_eq!(Record::read("1 4b1f 7000000000000005"), Some(record));
    }
}
