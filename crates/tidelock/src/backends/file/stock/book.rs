//! The file of a segment: opened when it is first needed, locked for each step, removed when its sale is forgotten.

use std::{
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, TryLockError},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::{
    failed, open,
    page::{MAGIC, MAGIC_BEFORE, Page},
};
use crate::{
    backend::Failure,
    backends::shared::mutex::lock,
    clock::wall_micros,
    stock::{Answer, Step},
};

/// The file of a segment. It is opened when it is first needed.
#[derive(Debug)]
pub(super) struct Book {
    path: PathBuf,
    /// An flock belongs to the open file, not to the thread: threads of this client meet here.
    file: Mutex<Option<File>>,
}

impl Book {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: Mutex::new(None) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a step. [`None`]: somebody else is at it.
    pub(super) fn try_apply(&self, sale: u64, step: &Step) -> Result<Option<Answer>, Failure> {
        let mut file = match self.file.try_lock() {
            Ok(file) => file,
            Err(TryLockError::WouldBlock) => return Ok(None),
            // The task that panicked has left the file as it was, or with a step done.
            Err(TryLockError::Poisoned(file)) => file.into_inner(),
        };
        if file.is_none() {
            if !matches!(step, Step::Fill { .. }) && !self.path.exists() {
                return Ok(Some(Answer::Absent));
            }
            *file = Some(open(&self.path)?);
        }
        let Some(open) = &*file else { return Ok(None) };
        match flock(open, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) => return Err(failed("lock", &self.path, &error.into())),
        }
        let page = Page::open(&self.path, open, &[MAGIC]);
        let gone =
            matches!(&page, Ok(page) if page.state.sequence == 0 || page.is_over()) && was_removed(open);
        let done = page.and_then(|mut page| page.step(sale, step, wall_micros()));
        // Cannot fail on a lock that is held; and if it did, closing the file would free it.
        let _ = flock(open, FlockOperation::Unlock);
        if gone {
            // A new sale has another file of that name.
            *file = None;
            return Ok(None);
        }
        done.map(Some)
    }

    /// Removes the file of a sale that is forgotten. Says whether there was one.
    pub(super) fn remove_if_over(&self) -> Result<bool, Failure> {
        if !self.path.exists() {
            return Ok(false);
        }
        let opened = open(&self.path)?;
        flock(&opened, FlockOperation::LockExclusive)
            .map_err(|error| failed("lock", &self.path, &error.into()))?;
        let page = Page::open(&self.path, &opened, &[MAGIC, MAGIC_BEFORE])?;
        if page.state.sequence != 0 && !page.is_over() {
            // A plan that was lost: the client that fills says that there is another sale.
            return Ok(false);
        }
        std::fs::remove_file(&self.path).map_err(|error| failed("remove", &self.path, &error))?;
        *lock(&self.file) = None;
        Ok(true)
    }
}

fn was_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|data| data.nlink() == 0)
}
