//! A file that is kept open: locked, a counter written into it, unlocked.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    os::unix::fs::FileExt,
    path::PathBuf,
};

use tokio::sync::Mutex;

use crate::drive::library::{Failed, Library, Lock, Use};

#[derive(Debug)]
pub(in crate::drive) struct Files {
    folder: PathBuf,
    /// What is sold, by all tasks.
    stock: Mutex<Option<Flock>>,
}

impl Files {
    pub(in crate::drive) async fn connect(url: &str) -> Result<Self, Failed> {
        let folder = PathBuf::from(url.trim_start_matches("file:"));
        fs::create_dir_all(&folder).map_err(Failed::because)?;
        Ok(Self { folder, stock: Mutex::default() })
    }
}

/// An open file.
#[derive(Debug)]
pub(in crate::drive) struct Flock {
    file: File,
    counter: u64,
}

impl Library for Files {
    type Lock = Flock;

    async fn lock(&self, name: &str, wanted: Use) -> Result<Flock, Failed> {
        if wanted != Use::Alone {
            return Err(Failed::NoSuchThing);
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.folder.join(name));
        Ok(Flock { file: file.map_err(Failed::because)?, counter: 0 })
    }

    async fn open(&self, name: &str) -> Result<(), Failed> {
        *self.stock.lock().await = Some(self.lock(name, Use::Alone).await?);
        Ok(())
    }

    async fn sell(&self, _: &str, _order: u64) -> Result<(), Failed> {
        let mut stock = self.stock.lock().await;
        let stock = stock.as_mut().ok_or_else(|| Failed::because("the stock is not open"))?;
        stock.take().await?;
        stock.give_back(()).await
    }
}

impl Lock for Flock {
    type Held = ();

    async fn take(&mut self) -> Result<(), Failed> {
        self.counter += 1;
        let taken = self.file.lock().and_then(|()| self.file.write_all_at(&self.counter.to_le_bytes(), 0));
        taken.map_err(Failed::because)
    }

    async fn give_back(&mut self, (): ()) -> Result<(), Failed> {
        self.file.unlock().map_err(Failed::because)
    }

    async fn attempt(&mut self) -> Result<bool, Failed> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(Failed::because(error)),
        }
    }
}
