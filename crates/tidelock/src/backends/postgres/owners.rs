//! What is in the database already and who owns it, as the catalogue says before anything of it is called.
//!
//! A function that somebody else made would run with the rights of those who take locks.

use tokio_postgres::SimpleQueryRow;

use super::schema::{REVISION, VERSION};
use crate::backend::Failure;

/// What is in the database. Nothing of it was called to find that out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// As whom this client is logged in.
    role: String,
    version: Option<i32>,
    revision: Option<i32>,
    /// Roles that own something there and that this one has no reason to trust, and what they own.
    strangers: Vec<(String, String)>,
}

impl Found {
    pub(super) fn new(role: &str, version: Option<&str>, revision: Option<&str>) -> Self {
        let number = |body: Option<&str>| body?.trim().strip_prefix("SELECT ")?.parse().ok();
        Self {
            role: role.to_owned(),
            version: number(version),
            // The first had no number.
            revision: number(revision).or_else(|| number(version)),
            strangers: Vec::new(),
        }
    }

    /// Reads a row of `schema/strangers.sql`.
    pub(super) fn add_stranger(&mut self, row: &SimpleQueryRow) -> Result<(), tokio_postgres::Error> {
        let text = |index| Ok(row.try_get(index)?.unwrap_or_default().to_owned());
        self.strangers.push((text(0)?, text(1)?));
        Ok(())
    }

    /// Whether all is there that this client needs. If a role that is neither trusted nor named in the URL owns any of it, or
    /// if it is for newer clients, that is an error.
    pub(super) fn is_installed(&self, named: Option<&str>) -> Result<bool, Failure> {
        if let Some((owner, what)) = self.strangers.iter().find(|(owner, _)| Some(&**owner) != named) {
            return Err(Failure::denied(format!(
                "{what} belongs to the role {owner:?}, which could run code with the rights of {:?} by it: drop the schema tidelock if that role should not have made it; else name the role in the URL with owner=",
                self.role
            )));
        }
        if let Some(version) = self.version.filter(|version| *version > VERSION) {
            return Err(Failure::denied(format!(
                "the schema tidelock of the database is of version {version}, and this client knows {VERSION}: update the client"
            )));
        }
        Ok(self.version == Some(VERSION) && self.revision >= Some(REVISION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_without_calling_it() {
        let found = |version, revision| Found::new("app", version, revision);
        let revision = |more: i32| format!("SELECT {}", REVISION + more);
        let (before, now, later) = (revision(-1), revision(0), revision(1));
        assert!(!found(None, None).is_installed(None).unwrap());
        assert!(!found(Some("SELECT 1"), None).is_installed(None).unwrap(), "revision 1 is old");
        assert!(!found(Some("SELECT 1"), Some(&before)).is_installed(None).unwrap(), "and so is this one");
        assert!(found(Some("SELECT 1"), Some(&now)).is_installed(None).unwrap());
        assert!(found(Some("SELECT 1"), Some(&later)).is_installed(None).unwrap());
        let newer = found(Some("SELECT 2"), Some("SELECT 3")).is_installed(None).unwrap_err();
        assert!(newer.reason.contains("update the client"), "{newer}");
        let mut owned = found(Some("SELECT 1"), Some(&now));
        owned.strangers.push(("mallory".into(), "the function tidelock.enter".into()));
        assert!(owned.is_installed(Some("mallory")).unwrap());
        for named in [None, Some("app")] {
            let refused = owned.is_installed(named).unwrap_err();
            assert!(
                refused.reason.contains("\"mallory\"") && refused.reason.contains("\"app\""),
                "{refused}"
            );
        }
    }
}
