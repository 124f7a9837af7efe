//! Processes of one machine that see other boot ids or other clocks.

use std::{fs, process::Command};

use super::{
    LONG, NAME,
    namespaces::{contained, skipped},
    worker::{Folder, Worker},
};

const RIGHTS: &str = "this user may not make namespaces with unshare";

/// A worker that sees another boot id, as in systemd-nspawn and LXC.
fn with_other_boot_id(folder: &Folder) -> Option<Command> {
    let id = folder.0.join("boot_id");
    fs::write(&id, "11111111-2222-4333-8444-555555555555\n").unwrap();
    let mounts = format!("mount --bind {} /proc/sys/kernel/random/boot_id", id.display());
    contained(&["--mount"], &mounts)
}

#[tokio::test]
async fn a_container_with_another_boot_id_shares_the_locks() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let Some(command) = with_other_boot_id(&folder) else { return skipped(RIGHTS) };
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    assert_eq!(Worker::run(command, &folder, "try", LONG).unwrap().hear(""), "busy");
    guard.release().await.unwrap();
    let command = with_other_boot_id(&folder).unwrap();
    let mut contained = Worker::run(command, &folder, "pass", LONG).unwrap();
    let before: u64 = contained.hear("held").parse().unwrap();
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
    let mutex = locks.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    super::until(&locks, NAME, |view| view.waiters.len() == 1).await;
    contained.tell();
    contained.hear("done");
    let guard = super::within("the one outside holds", waiter).await.unwrap();
    assert!(guard.token().get() > before);
    guard.release().await.unwrap();
}

#[test]
fn processes_with_different_boot_ids_count_without_losing_any() {
    let folder = Folder::new();
    let Some(command) = with_other_boot_id(&folder) else { return skipped(RIGHTS) };
    let inside = Worker::run(command, &folder, "rounds 200", LONG).unwrap();
    let outside = [(); 2].map(|()| Worker::start(&folder, "rounds 200", LONG));
    for mut worker in outside.into_iter().chain([inside]) {
        worker.hear("done");
    }
    assert_eq!(super::read(&folder.0).0, 600);
    assert_eq!(super::check(&folder.0), (600, Vec::new()));
}

#[test]
fn a_process_that_cannot_read_the_boot_id_is_refused_and_told_what_to_do() {
    let masked = "mount --bind /dev/null /proc/sys/kernel/random/boot_id";
    for (flags, setup, says) in [
        (&["--mount", "--pid"][..], "mount -t proc -o subset=pid proc /proc", "ProcSubset=all"),
        (&["--mount"], masked, "do not mask"),
        (&["--mount"], "mount -t tmpfs tmpfs /proc", "mount /proc"),
    ] {
        let folder = Folder::new();
        let Some(command) = contained(flags, setup) else { return skipped(RIGHTS) };
        let refused = Worker::run(command, &folder, "try", LONG).unwrap().hear("");
        assert!(refused.contains("boot_id") && refused.contains(says), "{refused}");
    }
}

#[tokio::test]
async fn a_process_whose_clock_is_shifted_is_refused_and_takes_nothing() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    for shift in ["86400", "-100"] {
        let Some(command) = contained(&["--time", "--boottime", shift], "") else {
            return skipped(RIGHTS);
        };
        let refused = Worker::run(command, &folder, "try", LONG).unwrap().hear("");
        assert!(refused.contains("time namespace") && refused.contains(shift), "{refused}");
    }
    // A namespace that shifts nothing, or another clock only, does no harm.
    let command = contained(&["--time", "--monotonic", "86400"], "").unwrap();
    assert_eq!(Worker::run(command, &folder, "try", LONG).unwrap().hear(""), "busy");
    guard.release().await.unwrap();
}

/// A client that is told another boot id.
#[cfg(feature = "testing")]
fn connect_with_boot(folder: &Folder, boot: u64) -> tidelock::Locks {
    use tidelock::{
        backend::ClientId,
        backends::file::{FileBackend, FileConfig},
    };

    let (id, config) = (ClientId::random(), FileConfig::new(folder.locks()).with_boot(boot));
    tidelock::Locks::with_backend(std::sync::Arc::new(FileBackend::connect(&config, id).unwrap()))
}

/// The same rule as with real mounts, without any rights.
#[cfg(feature = "testing")]
#[tokio::test]
async fn clients_that_see_different_boot_ids_share_the_locks() {
    let folder = Folder::new();
    let (one, two) = (connect_with_boot(&folder, 1), connect_with_boot(&folder, 2));
    let guard = one.mutex(NAME).ttl(LONG).lock().await.unwrap();
    assert!(two.mutex(NAME).try_lock().await.unwrap().is_none(), "its holder answers");
    let mutex = two.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    super::until(&one, NAME, |view| view.waiters.len() == 1).await;
    assert_eq!(two.look(&[NAME]).await.unwrap()[0].holders.len(), 1);
    let before = guard.token();
    guard.release().await.unwrap();
    let guard = super::within("the other holds", waiter).await.unwrap();
    assert!(guard.token() > before);
    // A hold that was left behind has nobody who answers, and is not void either.
    guard.release().await.unwrap();
    let left = one.mutex(NAME).ttl(LONG).detached(true).lock().await.unwrap().leave_behind().unwrap();
    drop(one);
    assert!(two.mutex(NAME).try_lock().await.unwrap().is_none(), "{left:?} lasts until its lease ends");
}

/// What a restart of the machine leaves behind: claims whose sessions are dead.
#[cfg(feature = "testing")]
#[tokio::test]
async fn claims_of_dead_sessions_do_not_outlive_a_restart() {
    let folder = Folder::new();
    let mut holder = Worker::start(&folder, "hold", LONG);
    let before: u64 = holder.hear("held").parse().unwrap();
    let mut waits = Worker::start(&folder, "hold", LONG);
    waits.hear("waits");
    holder.kill();
    waits.kill();
    let locks = connect_with_boot(&folder, 7);
    assert_eq!(locks.look_all().await.unwrap(), []);
    let guard = locks.mutex(NAME).try_lock().await.unwrap().expect("nobody is left");
    assert!(guard.token().get() > before);
    guard.release().await.unwrap();
}
