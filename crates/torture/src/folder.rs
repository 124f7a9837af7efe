//! The folder of `file:`, and what the programs of its machine do to it.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

use test_servers::{Error, Server};

use crate::stand::Stand;

/// Where full disks are tried, the folder is a file system of its own: of this many bytes and files.
const SIZE: &str = "size=64m,nr_inodes=2000";

/// What fills it, and what clutters it.
const FILLER: &str = "filler";

pub(crate) struct Folder {
    temporary: tempfile::TempDir,
    /// Whether it is a file system of its own.
    is_mounted: bool,
    /// Files that are locked as backups and editors do.
    locked: Mutex<Vec<File>>,
}

impl Folder {
    pub(crate) fn new() -> Result<Self, Error> {
        let temporary = tempfile::tempdir().map_err(text)?;
        // Only root may, and not everywhere.
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", SIZE, "tidelock-torture"])
            .arg(temporary.path())
            .output();
        let is_mounted = mount.is_ok_and(|output| output.status.success());
        if !is_mounted {
            println!("without full disks, because no file system can be mounted");
        }
        Ok(Self { temporary, is_mounted, locked: Mutex::default() })
    }

    fn locked(&self) -> MutexGuard<'_, Vec<File>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder with the locks.
    fn home(&self) -> PathBuf {
        self.temporary.path().join("locks")
    }

    /// Where things are put that fill the file system.
    fn filler(&self) -> PathBuf {
        self.temporary.path().join(FILLER)
    }

    /// The files that clients lock while they change a queue.
    fn files(&self) -> Result<Vec<PathBuf>, Error> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.home()).map_err(text)? {
            let entry = entry.map_err(text)?;
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                files.push(entry.path());
            }
        }
        files.sort();
        Ok(files)
    }

    /// Locks some of the files against everybody, for as long as the fault takes.
    fn lock(&self, files: &[PathBuf]) -> Result<(), Error> {
        for file in files {
            let file = File::options().read(true).write(true).open(file).map_err(text)?;
            file.lock().map_err(text)?;
            self.locked().push(file);
        }
        Ok(())
    }

    /// Writes until there is no room for a single byte.
    fn fill(&self) -> Result<(), Error> {
        fs::create_dir_all(self.filler()).map_err(text)?;
        let mut file = File::create(self.filler().join("bytes")).map_err(text)?;
        let mut size = 1 << 20;
        while size > 0 {
            if file.write_all(&vec![1; size]).is_err() {
                size /= 2;
            }
        }
        Ok(())
    }

    /// Creates files until no more can be created.
    fn use_up_files(&self) -> Result<(), Error> {
        fs::create_dir_all(self.filler()).map_err(text)?;
        let mut number = 0;
        while File::create(self.filler().join(number.to_string())).is_ok() {
            number += 1;
        }
        Ok(())
    }

    /// Files of others in the folder, as they come to lie there.
    fn clutter(&self) -> Result<(), Error> {
        for name in [".DS_Store", "core.1", "0", "lock", "locks.bak", "a b\u{1b}[31m", FILLER] {
            fs::write(self.home().join(format!("{name}.clutter")), b"\0not a lock\n").map_err(text)?;
        }
        fs::create_dir_all(self.home().join("folder.clutter")).map_err(text)
    }

    fn tidy_up(&self) -> Result<(), Error> {
        for entry in fs::read_dir(self.home()).map_err(text)? {
            let path = entry.map_err(text)?.path();
            if path.extension().is_some_and(|extension| extension == "clutter") {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Reads all of it, over and over.
    fn back_up(&self) -> Result<(), Error> {
        for file in (0..20).flat_map(|_| self.files()).flatten() {
            // One that went away is in no backup.
            let _ = fs::read(file);
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_mounted {
            // At once, also if a client is still there.
            let _ = Command::new("umount").arg("--lazy").arg(self.temporary.path()).status();
        }
    }
}

impl Stand for Folder {
    fn url(&self) -> String {
        format!("file:{}", self.home().display())
    }

    fn keepers(&self) -> Vec<&Server> {
        Vec::new()
    }

    fn faults(&self) -> Vec<&'static str> {
        let mut faults = vec!["lock-one-file", "lock-all-files", "clutter", "backup"];
        if self.is_mounted {
            faults.extend(["full-disk", "no-inodes"]);
        }
        faults
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "lock-one-file" => self.lock(self.files()?.get(..1).unwrap_or_default()),
            "lock-all-files" => self.lock(&self.files()?),
            "clutter" => self.clutter(),
            "backup" => self.back_up(),
            "full-disk" => self.fill(),
            "no-inodes" => self.use_up_files(),
            _ => Err(Error::new(format!("file knows no fault {fault:?}"))),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "full-disk" | "no-inodes" => remove(&self.filler()),
            "clutter" => self.tidy_up(),
            _ => {
                self.locked().clear();
                Ok(())
            }
        }
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    let is_folder = path.is_dir();
    if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }.map_err(text)
}

fn text(error: std::io::Error) -> Error {
    Error::new(error.to_string())
}
