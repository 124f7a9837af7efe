//! The directory of a user: one, whatever the environment says.
//!
//! The same user has another `HOME` or none under systemd, cron, sudo and in a shell. If the directory followed
//! it, two jobs would each hold the same lock. So the home comes from the user database, and `TIDELOCK_DIR`
//! alone, which nobody sets by accident, names another directory.

use std::{env, ffi::OsString, path::PathBuf};

use crate::backend::Failure;

/// Where the locks of a user are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UserDirectory {
    pub(super) directory: PathBuf,
    /// Where version 0.1 would have looked for them in this environment, if that is elsewhere.
    pub(super) earlier: Option<PathBuf>,
}

/// The directory of the user of this process.
pub(super) fn of_user() -> Result<UserDirectory, Failure> {
    place(rustix::process::geteuid().as_raw(), home_of, |name| env::var_os(name))
}

fn place(
    user: u32,
    home_of: impl FnOnce(u32) -> Result<PathBuf, Failure>,
    set: impl Fn(&str) -> Option<OsString>,
) -> Result<UserDirectory, Failure> {
    let set = |name| set(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("TIDELOCK_DIR") {
        // It would be another directory for each directory that a program is started in.
        if !directory.is_absolute() {
            return Err(Failure::denied(format!(
                "TIDELOCK_DIR is {directory:?}, which depends on where a program is started: use an absolute path"
            )));
        }
        return Ok(UserDirectory { directory, earlier: None });
    }
    let directory = home_of(user)?.join(".local/state/tidelock");
    let absolute = |name| set(name).filter(|path| path.is_absolute());
    let earlier = absolute("XDG_STATE_HOME")
        .map(|path| path.join("tidelock"))
        .or_else(|| absolute("HOME").map(|path| path.join(".local/state/tidelock")))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/tidelock-{user}")));
    Ok(UserDirectory { earlier: (earlier != directory).then_some(earlier), directory })
}

/// The home of a user, from the user database (`/etc/passwd`, LDAP …).
fn home_of(user: u32) -> Result<PathBuf, Failure> {
    let refused = |why: &str| {
        Failure::denied(format!(
            "{why}, so it has no directory for locks: set TIDELOCK_DIR to one, or use file:/path"
        ))
    };
    let found = nix::unistd::User::from_uid(user.into())
        .map_err(|error| refused(&format!("user {user} cannot be looked up in the user database ({error})")))?
        .ok_or_else(|| refused(&format!("user {user} is not in the user database")))?;
    if !found.dir.is_absolute() {
        return Err(refused(&format!("user {user} has no home in the user database")));
    }
    // Not made: it may be mounted later, and then there would be two.
    if !found.dir.is_dir() {
        return Err(refused(&format!("the home {} of user {user} does not exist", found.dir.display())));
    }
    Ok(found.dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place of user 7, whose home is `/home/ann`.
    fn with(environment: &[(&str, &str)]) -> Result<UserDirectory, Failure> {
        let set = |name: &str| {
            environment.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value))
        };
        place(7, |_| Ok("/home/ann".into()), set)
    }

    #[test]
    fn the_directory_of_a_user_is_the_same_whatever_home_and_xdg_say() {
        let ours = PathBuf::from("/home/ann/.local/state/tidelock");
        for (environment, earlier) in [
            (&[][..], Some("/tmp/tidelock-7")),
            (&[("HOME", "/home/ann")], None),
            (&[("HOME", "/home/ann/")], None),
            (&[("HOME", "/home/bob")], Some("/home/bob/.local/state/tidelock")),
            (&[("HOME", "relative")], Some("/tmp/tidelock-7")),
            (&[("HOME", "/home/ann"), ("XDG_STATE_HOME", "/home/ann/.local/state")], None),
            (&[("HOME", "/home/ann"), ("XDG_STATE_HOME", "/x")], Some("/x/tidelock")),
            (&[("HOME", "/home/ann"), ("XDG_STATE_HOME", "x")], None),
            (&[("HOME", ""), ("XDG_STATE_HOME", ""), ("TIDELOCK_DIR", "")], Some("/tmp/tidelock-7")),
        ] {
            let place = with(environment).unwrap();
            assert_eq!(place.directory, ours, "{environment:?}");
            assert_eq!(place.earlier, earlier.map(PathBuf::from), "{environment:?}");
        }
    }

    #[test]
    fn a_directory_that_is_named_is_used_alone_and_a_relative_one_is_refused() {
        let place = with(&[("TIDELOCK_DIR", "/srv/locks"), ("XDG_STATE_HOME", "/x")]).unwrap();
        assert_eq!(place, UserDirectory { directory: "/srv/locks".into(), earlier: None });
        for relative in ["locks", "./locks", "../x"] {
            let text = with(&[("TIDELOCK_DIR", relative)]).unwrap_err().to_string();
            assert!(text.contains("TIDELOCK_DIR") && text.contains("absolute path"), "{text}");
        }
    }

    #[test]
    fn a_user_without_a_home_is_an_error_that_names_the_way_out() {
        // No such number is ever given to anybody: it means "none" in system calls.
        let text = home_of(u32::MAX - 1).unwrap_err().to_string();
        assert!(text.contains("TIDELOCK_DIR") && text.contains("file:/path"), "{text}");
    }
}
