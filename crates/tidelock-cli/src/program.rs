//! Whether a command can be run, known before anybody waits for a lock.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use crate::{exit::Exit, output::Trouble};

/// Looks for a command as a shell does. A yes is no promise: files come and go while one waits.
pub(crate) fn check(program: &OsStr) -> Result<(), Trouble> {
    let path = Path::new(program);
    if path.components().count() != 1 || program.as_encoded_bytes().contains(&b'/') {
        return judge(program, [path.to_owned()].into_iter());
    }
    match std::env::var_os("PATH") {
        Some(places) => judge(program, std::env::split_paths(&places).map(|place| place.join(path))),
        // Where the system looks without a PATH is its own secret.
        None => Ok(()),
    }
}

fn judge(program: &OsStr, paths: impl Iterator<Item = PathBuf>) -> Result<(), Trouble> {
    let mut exit = Exit::NotFound;
    for path in paths {
        let Ok(found) = path.metadata() else { continue };
        if found.is_file() && access(&path, Access::EXEC_OK).is_ok() {
            return Ok(());
        }
        exit = Exit::NotRunnable;
    }
    Err(trouble(program, exit))
}

/// The same words before and after the lock was taken.
pub(crate) fn trouble(program: &OsStr, exit: Exit) -> Trouble {
    let text = match exit {
        Exit::NotFound if program.is_empty() => "the command is empty: write one after --".to_owned(),
        Exit::NotFound => format!("command {program:?} not found"),
        _ => format!("command {program:?} cannot be run: it is a directory or not executable"),
    };
    Trouble::Command(exit, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(program: &str) -> Option<Exit> {
        check(OsStr::new(program)).err().map(|trouble| trouble.exit())
    }

    #[test]
    fn commands_are_judged_as_shells_do() {
        assert_eq!(exit("sh"), None);
        assert_eq!(exit("/bin/sh"), None);
        assert_eq!(exit("/"), Some(Exit::NotRunnable));
        assert_eq!(exit("/dev/null"), Some(Exit::NotRunnable));
        for missing in ["", "no-such-command", "/no/such/command", "./no-such-command", ".."] {
            assert!(exit(missing).is_some(), "{missing:?}");
        }
    }
}
