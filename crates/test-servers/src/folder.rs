//! Temporary folders that go away with their server, or with the next run after a crash.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::process::Family;
use crate::{Error, wait_for};

/// How the names of all folders of this crate begin.
const PREFIX: &str = "tidelock-test-";

/// How long processes may take to go after they were killed or lost their server.
const LAST_BREATH: Duration = Duration::from_secs(10);

/// A folder of one server, removed on drop.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Locked as long as the process lives: a folder whose lock is free has lost its owner.
    _owner: File,
}

impl Folder {
    /// Makes a folder with a `data` folder inside.
    pub(crate) fn new(label: &str) -> Result<Self, Error> {
        static SWEEP: Once = Once::new();
        let parent = std::env::temp_dir();
        SWEEP.call_once(|| sweep(&parent));
        let path =
            create(&parent, label).map_err(Error::context(format!("no folder in {}", parent.display())))?;
        let owner = own(&path).map_err(Error::context("the new folder cannot be locked"))?;
        Ok(Self { path, _owner: owner })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the server runs and keeps what must survive a restart.
    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn create(parent: &Path, label: &str) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{label}-{}-{number}", process::id()));
        match DirBuilder::new().mode(0o755).create(&path) {
            // Left by a process of the same number that is gone.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => {
                // PostgreSQL runs as another user below a root's folder, whatever the umask says.
                fs::set_permissions(&path, Permissions::from_mode(0o755))?;
                fs::create_dir(path.join("data"))?;
                return Ok(path);
            }
        }
    }
}

/// Locks the file `owner`, which appears under its name only when it is locked already: a sweep
/// in another process never sees it unlocked while its owner lives.
fn own(path: &Path) -> io::Result<File> {
    let unlocked = path.join("owner.new");
    let file = File::create(&unlocked)?;
    file.lock()?;
    fs::rename(unlocked, path.join("owner"))?;
    Ok(file)
}

/// Removes the folders of processes that could not do it themselves, because they were killed,
/// and kills servers that outlived them, which happens only where there is no `setpriv`.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Those of another user are theirs to remove.
        let user = rustix::process::geteuid().as_raw();
        if !ours || !entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == user) {
            continue;
        }
        if let Ok(owner) = File::open(entry.path().join("owner"))
            && owner.try_lock().is_ok()
        {
            let folder = entry.path();
            let family = Family { first: None, folder: &folder };
            family.kill();
            // What is still there later has been killed all the same.
            let _ = wait_for("the servers are gone", LAST_BREATH, || !family.is_running());
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    remove_shared_memory(&path.join("data"));
    if let Err(error) = fs::remove_dir_all(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        eprintln!("{} is left behind: {error}", path.display());
    }
}

/// A PostgreSQL that was killed leaves a small System V shared memory segment, and the kernel
/// has room for a few thousand. The server wrote its key and number down.
fn remove_shared_memory(data: &Path) {
    let Ok(file) = fs::read_to_string(data.join("postmaster.pid")) else {
        return;
    };
    let Some((key, id)) = file.lines().nth(6).and_then(|line| line.trim().split_once(char::is_whitespace))
    else {
        return;
    };
    let id = id.trim();
    // Only when the kernel still knows this very segment, and no process uses it: workers that
    // have just lost their server go by themselves.
    let mut users = attached(key, id);
    if users.is_some() {
        let _ = wait_for("nobody uses the segment", LAST_BREATH, || {
            users = attached(key, id);
            users.is_none_or(|users| users == 0)
        });
    }
    if users == Some(0) {
        let removed =
            Command::new("ipcrm").args(["-m", id]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!("the shared memory segment {id} is left behind");
        }
    }
}

/// How many processes use a shared memory segment; nothing when there is no such segment.
fn attached(key: &str, id: &str) -> Option<u32> {
    let table = fs::read_to_string("/proc/sysvipc/shm").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        if fields.next()? != key || fields.next()? != id {
            return None;
        }
        // After the permissions, the size and two processes.
        fields.nth(4)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_clears_the_folder_of_a_dead_owner_and_no_other() {
        let home = Folder::new("sweep").unwrap();
        let parent = home.data();

        let dead = create(&parent, "dead").unwrap();
        drop(own(&dead).unwrap());
        let alive = create(&parent, "alive").unwrap();
        let _owner = own(&alive).unwrap();
        let strange = parent.join("someone-else");
        fs::create_dir(&strange).unwrap();
        fs::write(strange.join("owner"), "").unwrap();
        let mut orphan = Command::new("sleep").arg("1000").current_dir(&dead).spawn().unwrap();

        sweep(&parent);
        assert!(!orphan.wait().unwrap().success(), "killed, not finished");
        assert!(!dead.exists());
        assert!(alive.exists());
        assert!(strange.exists());
    }

    #[test]
    fn a_dropped_folder_is_gone() {
        let folder = Folder::new("drop").unwrap();
        let path = folder.path().to_owned();
        fs::write(folder.data().join("file"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
