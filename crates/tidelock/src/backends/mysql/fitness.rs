//! Whether a server is fit for locks: asked on each connection that is opened.

use std::{collections::HashMap, time::Duration};

use crate::backend::Failure;

/// What is asked: these variables, and [`WSREP`], which not all servers know.
pub(super) const VARIABLES: [&str; 7] = [
    "version",
    "read_only",
    "innodb_read_only",
    "innodb_flush_log_at_trx_commit",
    "log_bin",
    "sync_binlog",
    "binlog_format",
];
pub(super) const WSREP: &str = "wsrep_on";

/// Since when it runs. A server gathers much to answer that, so it is asked only where it matters.
pub(super) const UPTIME: &str = "SHOW GLOBAL STATUS LIKE 'Uptime'";

/// What a server says about itself, as far as locks depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fitness {
    variables: HashMap<&'static str, String>,
    uptime: Duration,
    /// Whether the connection that listens is woken.
    pub(super) is_deaf: bool,
}

impl Fitness {
    /// Names of variables and their values.
    pub(super) fn read(variables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self { variables: variables.into_iter().collect(), ..Self::default() }
    }

    /// It has run for so many seconds.
    pub(super) fn runs_for(&mut self, seconds: u64) {
        // Told in whole seconds: it may be less by nearly one.
        self.uptime = Duration::from_secs(seconds.saturating_sub(1));
    }

    fn get(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), "ON" | "1")
    }

    /// Refuses a server that cannot keep locks, or that may not be trusted with them yet.
    pub(super) fn check(&self, longest_ttl: Duration) -> Result<(), Failure> {
        let version = self.get("version");
        if let Some(least) = too_old(version) {
            return Err(Failure::denied(format!("the server is version {version}: use {least} or newer")));
        }
        if self.is_on("wsrep_on") {
            return Err(Failure::denied(
                "the server is a node of a Galera cluster: its nodes end leases by clocks of their own, so that two could hold one lock; use a server with replicas, or etcd",
            ));
        }
        if self.is_on("log_bin") && self.get("binlog_format") == "STATEMENT" {
            return Err(Failure::denied(
                "binlog_format is STATEMENT, which InnoDB refuses for READ COMMITTED: set it to MIXED or ROW",
            ));
        }
        // Newer servers have other words for it than ON.
        let takes_writes = |name| matches!(self.get(name), "" | "OFF" | "0");
        if !takes_writes("read_only") || !takes_writes("innodb_read_only") {
            return Err(Failure::unreachable(
                "the server is read-only: name the one that takes writes in the URL",
            ));
        }
        if let Some(why) = self.forgets()
            && self.uptime < longest_ttl
        {
            return Err(Failure::unreachable(format!(
                "the server was started {:?} ago and may have forgotten who holds what, because {why}: it is left alone until {longest_ttl:?} are over; set innodb_flush_log_at_trx_commit = 1 and sync_binlog = 1",
                self.uptime
            )));
        }
        Ok(())
    }

    /// Why it may forget what it confirmed when it or its machine breaks down.
    pub(super) fn forgets(&self) -> Option<String> {
        match self.get("innodb_flush_log_at_trx_commit") {
            "1" if self.is_on("log_bin") && self.get("sync_binlog") != "1" => {
                Some(format!("sync_binlog is {}", self.get("sync_binlog")))
            }
            "1" => None,
            other => Some(format!("innodb_flush_log_at_trx_commit is {other}")),
        }
    }

    /// Problems that do not forbid its use.
    pub(super) fn concerns(&self, longest_ttl: Duration) -> Vec<String> {
        let mut concerns = Vec::new();
        if let Some(why) = self.forgets() {
            concerns.push(format!(
                "{why}: what the server confirmed may be forgotten when its machine breaks down, so it grants nothing for {longest_ttl:?} after each start; set innodb_flush_log_at_trx_commit = 1 and sync_binlog = 1"
            ));
        }
        if self.is_deaf {
            concerns.push(
                "the connection that listens cannot be woken by KILL QUERY, so it asks ten times in a second: let the same user make the procedures, and connect without a proxy that shares connections".to_owned(),
            );
        }
        concerns
    }
}

/// The least version of its kind, if this one is older.
fn too_old(version: &str) -> Option<&'static str> {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0_u32));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (least, name) = if version.to_lowercase().contains("mariadb") {
        ((10, 6), "MariaDB 10.6")
    } else {
        ((8, 0), "MySQL 8.0")
    };
    (found < least).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(changed: &[(&'static str, &str)], uptime: u64) -> Fitness {
        let usual = [
            ("version", "10.11.6-MariaDB"),
            ("read_only", "OFF"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "OFF"),
            ("sync_binlog", "0"),
            ("binlog_format", "MIXED"),
            ("wsrep_on", "OFF"),
        ];
        let owned = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
        let mut fitness = Fitness::read(usual.iter().chain(changed).map(owned));
        fitness.runs_for(uptime);
        fitness
    }

    #[test]
    fn servers_that_cannot_keep_locks_are_refused_with_the_fix() {
        let minute = Duration::from_secs(60);
        assert!(with(&[], 5).check(minute).is_ok() && with(&[], 5).concerns(minute).is_empty());
        assert!(with(&[("version", "8.0.36")], 5).check(minute).is_ok());
        for (changed, fix) in [
            (("version", "10.5.23-MariaDB"), "MariaDB 10.6"),
            (("version", "5.7.44-log"), "MySQL 8.0"),
            (("wsrep_on", "ON"), "etcd"),
            (("read_only", "ON"), "takes writes"),
            (("read_only", "NO_LOCK"), "takes writes"),
        ] {
            let failure = with(&[changed], 500).check(minute).unwrap_err();
            assert!(failure.reason.contains(fix), "{failure}");
        }
        let by_statement = [("log_bin", "ON"), ("sync_binlog", "1"), ("binlog_format", "STATEMENT")];
        assert!(with(&by_statement, 500).check(minute).unwrap_err().reason.contains("MIXED"));
    }

    #[test]
    fn a_server_that_may_forget_is_left_alone_after_its_start() {
        let minute = Duration::from_secs(60);
        for weak in [vec![("innodb_flush_log_at_trx_commit", "2")], vec![("log_bin", "ON")]] {
            let young = with(&weak, 60).check(minute).unwrap_err();
            assert!(young.reason.contains("started 59s ago"), "{young}");
            assert!(with(&weak, 61).check(minute).is_ok());
            assert_eq!(with(&weak, 61).concerns(minute).len(), 1);
        }
        assert!(with(&[("log_bin", "ON"), ("sync_binlog", "1")], 1).check(minute).is_ok());
    }
}
