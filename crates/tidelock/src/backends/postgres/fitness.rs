//! Whether a server is fit for locks: asked of each one when it is connected.

use std::time::Duration;

use tokio_postgres::Row;

use crate::backend::Failure;

/// What a server is asked: what [`Fitness::read`] reads.
pub(super) const QUESTION: &str = "SELECT pg_is_in_recovery(), pg_backend_pid(), current_setting('server_encoding'), \
     current_setting('server_version_num')::int, current_setting('fsync') = 'on'";

/// What a server says about itself, as far as locks depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fitness {
    pub(super) is_standby: bool,
    /// Something between it and this client moves statements from one session to another.
    pub(super) is_pooled: bool,
    encoding: String,
    pub(super) version: i32,
    syncs: bool,
    /// It lost its memory: until then it grants nothing.
    pub(super) quiet_left: Duration,
}

impl Fitness {
    /// Reads the answer to [`QUESTION`], which came over a connection to this process.
    pub(super) fn read(row: &Row, process: i32) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            is_standby: row.try_get(0)?,
            is_pooled: row.try_get::<_, i32>(1)? != process,
            encoding: row.try_get(2)?,
            version: row.try_get(3)?,
            syncs: row.try_get(4)?,
            quiet_left: Duration::ZERO,
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
        if self.encoding != "UTF8" && self.encoding != "SQL_ASCII" {
            return Err(Failure::denied(format!(
                "the encoding of the database is {:?}, which does not have all characters that names may have: use a database with UTF8",
                self.encoding
            )));
        }
        Ok(())
    }

    /// What does not forbid its use and should be mended.
    pub(super) fn concerns(&self) -> Vec<String> {
        let mut concerns = Vec::new();
        if self.is_pooled {
            concerns.push(
                "a pooler stands before the server, so nobody can be told of a grant: whoever waits asks again and again; connect to the server itself to be told at once".to_owned(),
            );
        }
        if !self.quiet_left.is_zero() {
            concerns.push(format!(
                "the server recovered from a crash or was promoted, and may have lost who holds what: it grants nothing for another {:.1?}",
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
    fn a_server_that_cannot_keep_locks_is_refused_with_the_mend() {
        let fit = Fitness { encoding: "UTF8".into(), syncs: true, ..Fitness::default() };
        assert!(fit.check(true).is_ok() && fit.concerns().is_empty());
        let standby = Fitness { is_standby: true, ..fit.clone() };
        assert!(standby.check(false).unwrap_err().reason.contains("name its primary"));
        let latin = Fitness { encoding: "LATIN1".into(), ..fit.clone() };
        assert!(latin.check(false).unwrap_err().reason.contains("UTF8"));
        let pooled = Fitness { is_pooled: true, syncs: false, quiet_left: Duration::from_secs(3), ..fit };
        assert!(
            pooled.check(false).is_ok() && pooled.check(true).unwrap_err().reason.contains("moves sessions")
        );
        assert_eq!(pooled.concerns().len(), 3, "{:?}", pooled.concerns());
    }
}
