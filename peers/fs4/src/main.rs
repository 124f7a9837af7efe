//! `flock` by fs4: a pair opens the file, locks it, unlocks it and closes it.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use driver::{Answer, AnyLock, Library, Lock};
use fs4::{FileExt, TryLockError};

mod driver;

struct Folder(PathBuf);

struct Flock {
    path: PathBuf,
    take: fn(&File) -> io::Result<()>,
    held: Option<File>,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

impl Lock for Flock {
    async fn lock(&mut self) -> Answer {
        let (path, take) = (self.path.clone(), self.take);
        let locked = tokio::task::spawn_blocking(move || {
            let file = open(&path)?;
            take(&file)?;
            io::Result::Ok(file)
        });
        self.held = Some(locked.await??);
        Ok(())
    }

    async fn unlock(&mut self) -> Answer {
        // This waits for nobody.
        Ok(self.held.take().map_or(Ok(()), |file| FileExt::unlock(&file))?)
    }
}

impl Folder {
    fn flock(&self, name: &str, take: fn(&File) -> io::Result<()>) -> Box<dyn AnyLock> {
        Box::new(Flock { path: self.0.join(name), take, held: None })
    }
}

impl Library for Folder {
    async fn connect(servers: &str) -> Answer<Self> {
        std::fs::create_dir_all(servers)?;
        Ok(Self(servers.into()))
    }

    async fn lock(&self, name: &str) -> Answer<Box<dyn AnyLock>> {
        Ok(self.flock(name, FileExt::lock))
    }

    async fn attempt(&self, name: &str) -> Answer<bool> {
        match FileExt::try_lock(&open(&self.0.join(name))?) {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    async fn read_write(&self, name: &str) -> Answer<[Box<dyn AnyLock>; 2]> {
        Ok([self.flock(name, FileExt::lock_shared), self.flock(name, FileExt::lock)])
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    driver::main::<Folder>().await
}
