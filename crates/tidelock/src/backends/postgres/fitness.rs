//! Whether a server is fit for locks: asked of each one when it is connected.

use std::time::Duration;

use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use super::owners::Found;
use crate::{backend::Failure, backends::shared::kept::Kept};

/// What a server is asked, in a transaction: what [`Fitness::read`] reads. Names mean what the server itself calls by them,
/// whatever the role or the database has as its search path, and nothing of the schema `tidelock` is called.
pub(super) const QUESTION: &str = concat!(
    "SET LOCAL statement_timeout = 0; SET LOCAL search_path = pg_catalog, pg_temp; \
     SELECT pg_is_in_recovery(), pg_backend_pid(), current_setting('server_encoding'), \
     current_setting('server_version_num'), current_setting('fsync'), \
     (SELECT CASE setting WHEN 'on' THEN source END FROM pg_settings WHERE name = 'default_transaction_read_only'), current_user, \
     (SELECT min(p.prosrc) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'tidelock' AND p.proname = 'version' AND p.pronargs = 0), \
     (SELECT min(p.prosrc) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'tidelock' AND p.proname = 'revision' AND p.pronargs = 0); ",
    include_str!("schema/strangers.sql")
);

/// Who said that transactions only read unless they ask for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReadOnly {
    #[default]
    Nobody,
    /// The role or the database: a default for people, which a session may change.
    Role,
    /// The configuration of the server: its administrator keeps everybody from writing.
    Server,
}

/// What a server says about itself, as far as locks depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fitness {
    pub(super) is_standby: bool,
    /// Something between it and this client moves statements from one session to another.
    pub(super) is_pooled: bool,
    encoding: String,
    pub(super) version: i32,
    syncs: bool,
    pub(super) read_only: ReadOnly,
    /// It lost its memory: until then it grants nothing.
    pub(super) quiet_left: Duration,
    /// What it keeps of names, if this role may know.
    pub(super) kept: Option<Kept>,
}

impl Fitness {
    /// Reads the answer to [`QUESTION`], which came over a connection to this process, and what is in the database.
    pub(super) fn read(
        answer: &[SimpleQueryMessage],
        process: i32,
    ) -> Result<Option<(Self, Found)>, tokio_postgres::Error> {
        let mut rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let Some(row) = rows.next() else { return Ok(None) };
        let mut found = Found::new(row.try_get(6)?.unwrap_or_default(), row.try_get(7)?, row.try_get(8)?);
        for stranger in rows {
            found.add_stranger(stranger)?;
        }
        Ok(Some((Self::of(row, process)?, found)))
    }

    fn of(row: &SimpleQueryRow, process: i32) -> Result<Self, tokio_postgres::Error> {
        let text = |index| Ok(row.try_get(index)?.unwrap_or_default());
        Ok(Self {
            is_standby: text(0)? == "t",
            is_pooled: text(1)?.parse() != Ok(process),
            encoding: text(2)?.to_owned(),
            version: text(3)?.parse().unwrap_or(0),
            syncs: text(4)? == "on",
            read_only: match text(5)? {
                "" => ReadOnly::Nobody,
                "global" | "database" | "user" | "database user" | "client" | "session" => ReadOnly::Role,
                _ => ReadOnly::Server,
            },
            quiet_left: Duration::ZERO,
            kept: None,
        })
    }

    /// Refuses a server that cannot keep locks, or not those of a session if they are wanted.
    pub(super) fn check(&self, advisory: bool) -> Result<(), Failure> {
        if self.is_pooled && advisory {
            return Err(Failure::denied(
                "a pooler stands before the server and moves sessions, so an advisory lock would be nobody's: connect to the server itself, or leave mode=advisory out of the URL",
            ));
        }
        if self.is_standby {
            return Err(Failure::unreachable(
                "it is a standby, which cannot grant locks: name its primary in the URL, or all servers with commas between",
            ));
        }
        if self.read_only == ReadOnly::Server {
            return Err(Failure::unreachable(
                "its configuration keeps everybody from writing (default_transaction_read_only = on): name the server that took its place in the URL, or turn that off there",
            ));
        }
        if self.read_only == ReadOnly::Role && self.is_pooled {
            return Err(Failure::denied(
                "the role or the database has default_transaction_read_only = on, and behind a pooler no session can change that: ALTER ROLE or ALTER DATABASE ... RESET default_transaction_read_only, or connect to the server itself",
            ));
        }
        if self.encoding != "UTF8" && self.encoding != "SQL_ASCII" {
            return Err(Failure::denied(format!(
                "the encoding of the database is {:?}, which does not have all characters that names may have: use a database with UTF8",
                self.encoding
            )));
        }
        Ok(())
    }

    /// What is good to know.
    pub(super) fn notes(&self) -> Vec<String> {
        let kept = self.kept.map(|kept| kept.note("UPDATE tidelock.state SET remembered"));
        kept.into_iter().collect()
    }

    /// Problems that do not forbid its use.
    pub(super) fn concerns(&self) -> Vec<String> {
        let mut concerns = Vec::new();
        if self.is_pooled {
            concerns.push(
                "a pooler stands before the server, so a client cannot be told of a grant: waiters poll; connect to the server itself to be told at once".to_owned(),
            );
        }
        if !self.quiet_left.is_zero() {
            concerns.push(format!(
                "the server recovered from a crash, was promoted, is a copy or was just upgraded, and may not know who holds what: it grants nothing for another {:.1?}",
                self.quiet_left
            ));
        }
        if !self.syncs {
            concerns.push(
                "fsync is off: if the machine stops, the database may be damaged, and locks with it; set fsync = on".to_owned(),
            );
        }
        concerns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_keep_locks_is_refused_with_the_fix() {
        let fit = Fitness { encoding: "UTF8".into(), syncs: true, ..Fitness::default() };
        assert!(fit.check(true).is_ok() && fit.concerns().is_empty());
        let standby = Fitness { is_standby: true, ..fit.clone() };
        assert!(standby.check(false).unwrap_err().reason.contains("name its primary"));
        let fenced = Fitness { read_only: ReadOnly::Server, ..fit.clone() };
        assert!(fenced.check(false).unwrap_err().reason.contains("turn that off"));
        let reader = Fitness { read_only: ReadOnly::Role, ..fit.clone() };
        assert!(reader.check(true).is_ok());
        let reader = Fitness { is_pooled: true, ..reader };
        assert!(reader.check(false).unwrap_err().reason.contains("RESET"));
        let latin = Fitness { encoding: "LATIN1".into(), ..fit.clone() };
        assert!(latin.check(false).unwrap_err().reason.contains("UTF8"));
        let pooled = Fitness { is_pooled: true, syncs: false, quiet_left: Duration::from_secs(3), ..fit };
        assert!(
            pooled.check(false).is_ok() && pooled.check(true).unwrap_err().reason.contains("moves sessions")
        );
        assert_eq!(pooled.concerns().len(), 3, "{:?}", pooled.concerns());
    }
}
