//! What the test files share.

#![allow(dead_code, reason = "not every test file needs all of it")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use test_servers::{Server, running_in, wait_for};

/// Long enough for a busy machine; conditions end the waiting much earlier.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Waits for a condition and fails the test when it does not come true.
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    if let Err(error) = wait_for(what, LIMIT, condition) {
        panic!("{error}");
    }
}

/// Drops the servers and checks that no process and no folder of them is left.
#[track_caller]
pub(crate) fn leaves_nothing<T>(owner: T, servers: impl Fn(&T) -> Vec<&Server>) {
    let folders: Vec<_> = servers(&owner).into_iter().map(|server| server.folder().to_owned()).collect();
    assert!(!folders.is_empty());
    for folder in &folders {
        assert!(folder.is_dir(), "{} must be there", folder.display());
        assert_ne!(running_in(folder), [], "it must run before it is dropped");
    }
    drop(owner);
    for folder in &folders {
        assert_eq!(running_in(folder), [], "left running");
        assert!(!folder.exists(), "{} is left", folder.display());
    }
}

/// The states of all processes of a server, as in the process table.
pub(crate) fn states(folder: &Path) -> Vec<char> {
    running_in(folder)
        .into_iter()
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.chars().next()
        })
        .collect()
}
