//! Directories and files that are not as they should be.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tidelock::{LockState, Locks};

use super::{
    LONG, NAME,
    namespaces::skipped,
    within,
    worker::{Folder, Worker},
};

fn shards(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "shard")).collect()
}

#[tokio::test]
async fn a_foreign_file_is_named_and_not_written_to() {
    let folder = Folder::new();
    drop(folder.connect().await);
    for index in 0..64 {
        fs::write(folder.locks().join(format!("{index:02x}.shard")), "somebody's diary\n".repeat(20))
            .unwrap();
    }
    let locks = folder.connect().await;
    let error = locks.mutex(NAME).lock().await.unwrap_err();
    assert!(error.is_denied(), "{error}");
    let text = error.to_string();
    assert!(text.contains(".shard was not made by tidelock") && text.contains("move it away"), "{text}");
    for path in shards(&folder.locks()) {
        assert_eq!(fs::read_to_string(path).unwrap(), "somebody's diary\n".repeat(20));
    }
}

#[tokio::test]
async fn a_file_of_another_version_is_refused() {
    let folder = Folder::new();
    folder.connect().await.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let path = shards(&folder.locks()).remove(0);
    File::options().write(true).open(&path).unwrap().write_all_at(&[9], 16).unwrap();
    let error = folder.connect().await.mutex(NAME).lock().await.unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("format 9"), "{error}");
}

#[tokio::test]
async fn a_damaged_file_is_named_and_not_written_to() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let guard = locks.mutex(NAME).lock().await.unwrap();
    let path = shards(&folder.locks()).remove(0);
    let len = fs::metadata(&path).unwrap().len();
    let noise: Vec<u8> = (4096..len).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 11) as u8 | 1).collect();
    File::options().write(true).open(&path).unwrap().write_all_at(&noise, 4096).unwrap();
    let damaged = fs::read(&path).unwrap();
    let other = folder.connect().await;
    for error in [
        other.mutex(NAME).lock().await.unwrap_err(),
        other.mutex(NAME).try_lock().await.unwrap_err(),
        guard.release().await.unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(error.is_denied() && text.contains("damaged") && text.contains(".shard"), "{text}");
    }
    assert_eq!(fs::read(&path).unwrap(), damaged);
}

#[tokio::test]
async fn a_change_cut_short_at_any_byte_did_not_happen() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let holder = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let path = shards(&folder.locks()).remove(0);
    let before = fs::read(&path).unwrap();
    let other = folder.connect().await;
    let mutex = other.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await });
    super::until(&locks, NAME, |view| view.waiters.len() == 1).await;
    let after = fs::read(&path).unwrap();
    let first = before.iter().zip(&after).position(|(a, b)| a != b).unwrap_or(before.len());
    // Extents come first, the slot last: cut in the slot, which lies before them.
    let slot = first - first % 256;
    let eyes = folder.connect().await;
    for cut in slot..slot + 256 {
        let mut torn = after.clone();
        let end = (slot + 256).min(before.len());
        if cut < end {
            torn[cut..end].copy_from_slice(&before[cut..end]);
        }
        fs::write(&path, &torn).unwrap();
        let seen = eyes.look(&[NAME]).await.unwrap();
        assert_eq!(seen[0].holders.len(), 1, "cut at {cut}");
    }
    fs::write(&path, &after).unwrap();
    holder.release().await.unwrap();
    within("the waiter holds", waiter).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_removed_directory_loses_locks_and_grants_none() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let (short, other) = (Duration::from_millis(600), locks.mutex("other"));
    let guard = locks.mutex(NAME).ttl(short).lock().await.unwrap();
    let second = other.lock().await.unwrap();
    fs::remove_dir_all(folder.locks()).unwrap();
    let loss = within("the loss is told", guard.lost()).await;
    assert!(loss.is_lost() && guard.state() == LockState::Lost, "{loss}");
    let error = locks.mutex(NAME).lock().await.unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("removed"), "{error}");
    drop(second);
    // A client that connects again begins anew.
    folder.connect().await.mutex(NAME).lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_was_moved_away_grants_nothing_any_more() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    fs::rename(folder.locks(), folder.0.join("elsewhere")).unwrap();
    let other = folder.connect().await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let refused = async {
        // It is looked at every 10 ms: until then a grant in the files that were moved is possible.
        loop {
            match locks.mutex(NAME).try_lock().await {
                Err(error) => break error,
                Ok(granted) => drop(granted),
            }
        }
    };
    let error = within("the client notices", refused).await;
    assert!(error.is_denied() && error.to_string().contains("replaced"), "{error}");
    assert!(locks.mutex(NAME).try_lock().await.unwrap_err().is_denied(), "and it stays so");
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn directories_that_cannot_be_used_get_one_clear_sentence() {
    let folder = Folder::new();
    fs::write(folder.0.join("file"), "x").unwrap();
    for (url, says) in [
        ("file:/proc/tidelock/x".to_owned(), "cannot make the directory"),
        (format!("file:{}/file", folder.0.display()), "cannot make the directory"),
        (format!("file:{}/{}", folder.0.display(), "x".repeat(100)), "use a shorter one"),
        ("file:/tmp".to_owned(), "use one of your own"),
        #[cfg(target_os = "linux")]
        ("file:/proc/self".to_owned(), "(proc) that is not known to be local"),
    ] {
        let error = Locks::connect(&url).await.unwrap_err();
        assert!(error.is_denied(), "{url}: {error}");
        let text = error.to_string();
        assert!(text.contains(says) && !text.contains('\n'), "{text}");
    }
}

#[tokio::test]
async fn a_writer_that_stands_still_is_named() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let writer = File::open(shards(&folder.locks()).remove(0)).unwrap();
    writer.lock().unwrap();
    let error = locks.mutex(NAME).fail_fast(true).lock().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    if cfg!(target_os = "linux") {
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    }
    writer.unlock().unwrap();
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn another_user_is_refused() {
    let folder = Folder::new();
    drop(folder.connect().await);
    for path in [folder.0.clone(), folder.locks()] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let Ok(mut worker) = Worker::start_as(&folder, "hold", LONG, Some(65_534)) else {
        return skipped("only root can become another user who can run this test");
    };
    assert!(worker.hear("refused").contains("belongs to user"));
}

/// A small file system of its own.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Folder) -> Option<Self> {
        let path = folder.locks();
        fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs"])
            .arg(&path)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(path))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_what_is_held_can_be_given_back() {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder) else {
        return skipped("mounting a small tmpfs needs root");
    };
    let (locks, other) = (folder.connect().await, folder.connect().await);
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mutex = other.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    super::until(&locks, NAME, |view| view.waiters.len() == 1).await;
    let filler = disk.0.join("filler");
    assert!(fs::write(&filler, vec![1; 1 << 20]).is_err(), "the disk is small");
    let mut failed = None;
    for index in 0..200 {
        match locks.mutex(format!("names/{index}")).try_lock().await {
            Ok(guard) => drop(guard),
            Err(error) => failed = Some(error),
        }
        if failed.is_some() {
            break;
        }
    }
    let error = failed.expect("some name needs a new page");
    assert!(error.is_unavailable() && error.to_string().contains("free some space"), "{error}");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let guard = within("the next holds", waiter).await.unwrap();
    fs::remove_file(filler).unwrap();
    locks.mutex("more").lock().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    drop((locks, other));
}
