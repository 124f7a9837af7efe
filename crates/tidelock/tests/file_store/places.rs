//! The directory of a user, with real processes in different environments.
//!
//! Workers see this user with a home of its own in the user database, and a `/tmp` of their own: the real ones are
//! not touched.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use super::{
    LONG,
    namespaces::{contained, skipped},
    worker::{Folder, URL, Worker},
};

const RIGHTS: &str = "this user may not make mounts with unshare";
/// Where workers see the folder of the test.
const SEEN: &str = "/mnt";
/// Where they have their home.
const HOME: &str = "/mnt/home";

/// A command with this environment, in which the user's home is [`HOME`].
fn user(folder: &Folder, environment: &[(&str, &str)]) -> Option<Command> {
    // Written once: workers that run already read these files.
    if !folder.0.join("home").exists() {
        for directory in ["home", "tmp", "x"] {
            fs::create_dir(folder.0.join(directory)).unwrap();
        }
        fs::set_permissions(folder.0.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(folder.0.join("passwd"), format!("root:x:0:0:root:{HOME}:/bin/sh\n")).unwrap();
        // Some systems know root without the file.
        fs::write(folder.0.join("nsswitch"), "passwd: files\n").unwrap();
    }
    let mounts = format!(
        "mount --bind {} {SEEN}\nmount --bind {SEEN}/tmp /tmp\nmount --bind {SEEN}/passwd /etc/passwd\nmount --bind {SEEN}/nsswitch /etc/nsswitch.conf",
        folder.0.display()
    );
    let mut command = contained(&["--mount"], &mounts)?;
    command.env(URL, "file:");
    for name in ["HOME", "XDG_STATE_HOME", "TIDELOCK_DIR"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    Some(command)
}

fn start(command: Command, job: &str) -> Worker {
    Worker::run(command, SEEN, job, LONG).unwrap()
}

#[test]
fn the_processes_of_a_user_share_the_locks_whatever_home_and_xdg_say() {
    let folder = Folder::new();
    let environments: [&[(&str, &str)]; 5] = [
        &[],
        &[("HOME", HOME)],
        &[("HOME", "/mnt/x")],
        &[("HOME", HOME), ("XDG_STATE_HOME", "/mnt/x/state")],
        &[("HOME", "/nonexistent"), ("XDG_STATE_HOME", "relative")],
    ];
    for holds in environments {
        let Some(command) = user(&folder, holds) else { return skipped(RIGHTS) };
        let mut holder = start(command, "hold");
        holder.hear("held");
        for tries in environments {
            let command = user(&folder, tries).unwrap();
            assert_eq!(start(command, "try").hear(""), "busy", "{holds:?} holds and {tries:?} tries");
        }
        holder.kill();
    }
    assert!(folder.0.join("home/.local/state/tidelock/s").is_dir());
}

#[test]
fn a_relative_directory_and_a_user_without_a_home_are_refused() {
    let folder = Folder::new();
    let Some(command) = user(&folder, &[("TIDELOCK_DIR", "locks")]) else { return skipped(RIGHTS) };
    let refused = start(command, "try").hear("");
    assert!(refused.contains("TIDELOCK_DIR") && refused.contains("absolute"), "{refused}");
    for (passwd, says) in [
        ("root:x:0:0:root:/nonexistent:/bin/sh\n", "the home /nonexistent of user 0 does not exist"),
        ("ann:x:7:7:ann:/mnt/home:/bin/sh\n", "user 0 is not in the user database"),
    ] {
        let command = user(&folder, &[("HOME", HOME)]).unwrap();
        fs::write(folder.0.join("passwd"), passwd).unwrap();
        let refused = start(command, "try").hear("");
        assert!(refused.contains(says) && refused.contains("TIDELOCK_DIR"), "{refused}");
    }
}

/// A program of the previous version in this environment: there it was this directory.
const EARLIER: &str = "/mnt/x/tidelock";
const ENVIRONMENT: [(&str, &str); 2] = [("HOME", HOME), ("XDG_STATE_HOME", "/mnt/x")];

fn of_earlier_version(folder: &Folder) -> Option<Command> {
    user(folder, &[("TIDELOCK_DIR", EARLIER)])
}

#[test]
fn while_a_program_uses_the_earlier_directory_nobody_takes_locks_in_another() {
    let folder = Folder::new();
    let Some(command) = of_earlier_version(&folder) else { return skipped(RIGHTS) };
    let mut holder = start(command, "hold");
    holder.hear("held");
    let refused = start(user(&folder, &ENVIRONMENT).unwrap(), "try").hear("");
    assert!(
        refused.contains("in use by pid") && refused.contains("TIDELOCK_DIR=/mnt/x/tidelock"),
        "{refused}"
    );
    // As the error says: with the earlier directory they meet.
    assert_eq!(start(of_earlier_version(&folder).unwrap(), "try").hear(""), "busy");
    holder.kill();
    // A hold that nobody answers for counts as well.
    start(of_earlier_version(&folder).unwrap(), "ticket").hear("ticket");
    let refused = start(user(&folder, &ENVIRONMENT).unwrap(), "try").hear("");
    assert!(refused.contains("held there by a ticket"), "{refused}");
    assert!(folder.0.join("x/tidelock").is_dir());
}

#[test]
fn programs_of_an_earlier_version_are_led_to_the_directory_that_is_used_now() {
    for used_before in [true, false] {
        let folder = Folder::new();
        let Some(command) = of_earlier_version(&folder) else { return skipped(RIGHTS) };
        if used_before {
            let mut before = start(command, "pass");
            before.hear("held");
            before.tell();
            before.hear("done");
            before.end();
        }
        let mut holder = start(user(&folder, &ENVIRONMENT).unwrap(), "hold");
        holder.hear("held");
        // Started later, in its own directory: there is a link now.
        assert_eq!(start(of_earlier_version(&folder).unwrap(), "try").hear(""), "busy");
        let link = fs::read_link(folder.0.join("x/tidelock")).unwrap();
        assert_eq!(link, Path::new(HOME).join(".local/state/tidelock"));
    }
}

#[test]
fn many_programs_that_leave_the_earlier_directory_at_once_count_without_losing_any() {
    let folder = Folder::new();
    let Some(command) = of_earlier_version(&folder) else { return skipped(RIGHTS) };
    let mut before = start(command, "rounds 5");
    before.hear("done");
    before.end();
    let mut workers = Vec::new();
    for _ in 0..8 {
        workers.push(start(user(&folder, &ENVIRONMENT).unwrap(), "rounds 5"));
        workers.push(start(user(&folder, &[("HOME", HOME)]).unwrap(), "rounds 5"));
    }
    for worker in &mut workers {
        worker.hear("done");
    }
    assert_eq!(super::read(&folder.0).0, 85);
    assert_eq!(super::check(&folder.0), (85, Vec::new()));
}
