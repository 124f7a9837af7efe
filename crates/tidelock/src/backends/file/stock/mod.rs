//! Stock in files of this machine: a file for each segment, changed under its flock.
//!
//! Unlike locks, stock outlives a restart of the machine, and orders come by the million: so it has files of its own
//! beside the shards, in the folder `stock`.
//!
//! | file | what |
//! |---|---|
//! | `book` | the file of a segment: opened, locked, removed |
//! | `page` | that file while it is locked: its state in two copies, and a table of orders and transfers |
//! | `state` | the numbers of a segment and its entries, as bytes |
//! | `steps` | the rules of [`Ledger`](crate::stock::Ledger) on a page |

mod book;
mod page;
mod state;
mod steps;

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use self::book::Book;
use super::{FileConfig, codec::hash};
use crate::{
    backend::{Call, Failure},
    backends::shared::{failures::copy_of, mutex::lock},
    clock::{Clock, wall_micros},
    model::name::Name,
    stock::{Answer, SegmentId, Step, StockStore, micros},
};

/// The format of plans, in their second line.
const FORMAT: &str = "format 2";
/// How often a file that is in use is tried again at once: a step takes a few microseconds.
const SPINS: usize = 64;
/// How long a file may be in use before somebody is told that it stands still.
const STALLED: Duration = Duration::from_secs(2);

/// Stock in files of a directory.
///
/// [`Stocks::connect`](crate::stock::Stocks::connect) is the usual way to use it. To wrap it or to mix stores, connect
/// it yourself:
///
/// ```no_run
/// # use std::sync::Arc;
/// use tidelock::{
///     backends::file::{FileConfig, FileStock},
///     stock::Stocks,
/// };
///
/// # async fn connect() -> tidelock::Result<()> {
/// let store = FileStock::open(&FileConfig::new("/var/lib/shop/stock"))?;
/// let stocks = Stocks::with_stores(vec![Arc::new(store)])?;
/// # drop(stocks);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FileStock {
    files: Arc<Files>,
}

#[derive(Debug)]
struct Files {
    folder: PathBuf,
    clock: Clock,
    books: Mutex<HashMap<SegmentId, Arc<Book>>>,
    /// An flock belongs to the open file, not to the thread: threads of this client meet here.
    planning: Mutex<()>,
}

impl FileStock {
    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// [`Denied`](crate::backend::FailureKind::Denied) when the directory cannot be used.
    pub fn open(config: &FileConfig) -> Result<Self, Failure> {
        let folder = config.prepare()?.join("stock");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| failed("make", &folder, &error))?;
        let files =
            Files { folder, clock: Clock::machine(), books: Mutex::default(), planning: Mutex::default() };
        Ok(Self { files: Arc::new(files) })
    }
}

impl StockStore for FileStock {
    fn name(&self) -> &'static str {
        "file"
    }

    fn plan(&self, item: &Name) -> Call<Option<String>> {
        Call::now(self.files.read_plan(item))
    }

    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
        let (files, item, text) = (Arc::clone(&self.files), item.clone(), text.to_owned());
        let before = before.map(str::to_owned);
        Call::later(async move {
            let over = keep.map(|keep| wall_micros().saturating_add(micros(keep)));
            files
                .until_free(&files.path(&item, "plan"), || {
                    files.try_replan(&item, before.as_deref(), &text, over)
                })
                .await
        })
    }

    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
        let book = self.files.book(segment);
        match book.try_apply(sale, step) {
            Ok(Some(answer)) => return Call::now(Ok(answer)),
            Ok(None) => {}
            Err(failure) => return Call::now(Err(failure)),
        }
        let (files, step) = (Arc::clone(&self.files), step.clone());
        Call::later(async move { files.until_free(book.path(), || book.try_apply(sale, &step)).await })
    }
}

impl Files {
    fn path(&self, item: &Name, kind: &str) -> PathBuf {
        let name = item.as_str().as_bytes();
        self.folder.join(format!("{:016x}{:016x}.{kind}", hash(11, name), hash(12, name)))
    }

    fn book(&self, segment: &SegmentId) -> Arc<Book> {
        let mut books = lock(&self.books);
        if let Some(book) = books.get(segment) {
            return Arc::clone(book);
        }
        let book = Arc::new(Book::new(self.path(&segment.item, &segment.number.to_string())));
        books.insert(segment.clone(), Arc::clone(&book));
        book
    }

    /// The first line says when it is forgotten, the second which format it has, the third the item. Two
    /// items whose names have the same hash share a file: the second is refused by its name, its segments by their sale.
    fn read_plan(&self, item: &Name) -> Result<Option<String>, Failure> {
        let path = self.path(item, "plan");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path, &error)),
        };
        let mut lines = text.splitn(4, '\n');
        let mut line = || lines.next().unwrap_or_default();
        let (over, version, name, text) = (line(), line(), line(), line());
        if over.parse().is_ok_and(|over: u64| over != 0 && over <= wall_micros()) {
            return Ok(None);
        }
        match version {
            FORMAT if name == item.as_str() => Ok(Some(text.to_owned())),
            _ => Err(Failure::denied(format!(
                "{} is not the plan of this item, or of another version of tidelock: close the sale with that version, or stop all that use it and remove the file",
                path.display()
            ))),
        }
    }

    /// [`None`]: somebody else is at it.
    fn try_replan(
        &self,
        item: &Name,
        expected: Option<&str>,
        text: &str,
        over: Option<u64>,
    ) -> Result<Option<bool>, Failure> {
        let Ok(_alone) = self.planning.try_lock() else { return Ok(None) };
        // The plan itself is replaced: a lock on it would be one on a file that is gone.
        let door = self.path(item, "lock");
        let door_file = open(&door)?;
        match flock(&door_file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) => return Err(failed("lock", &door, &error.into())),
        }
        let before = self.read_plan(item)?;
        if before.as_deref() != expected {
            return Ok(Some(false));
        }
        if before.is_none() {
            // The segments of a sale that is forgotten: a new one must not find them.
            self.forget(item)?;
        }
        let (path, new) = (self.path(item, "plan"), self.path(item, "new"));
        let whole = format!("{}\n{FORMAT}\n{item}\n{text}", over.unwrap_or(0));
        let written = File::create(&new).and_then(|mut file| file.write_all(whole.as_bytes()));
        written.and_then(|()| fs::rename(&new, &path)).map_err(|error| failed("write", &path, &error))?;
        Ok(Some(true))
    }

    /// Removes the segments of an item whose time is over.
    fn forget(&self, item: &Name) -> Result<(), Failure> {
        for number in 0..=u32::MAX {
            let segment = SegmentId { item: item.clone(), number };
            let book = self.book(&segment);
            lock(&self.books).remove(&segment);
            if !book.remove_if_over()? {
                break;
            }
        }
        Ok(())
    }

    /// Tries again until a file is free, for a while.
    async fn until_free<T>(
        &self,
        path: &Path,
        attempt: impl Fn() -> Result<Option<T>, Failure> + Send + Sync,
    ) -> Result<T, Failure> {
        let end = self.clock.now() + STALLED;
        loop {
            for _ in 0..SPINS {
                if let Some(answer) = attempt()? {
                    return Ok(answer);
                }
                std::thread::yield_now();
            }
            if self.clock.now() > end {
                return Err(Failure::unreachable(format!(
                    "{} has been in use by another process for {STALLED:?}: let it go on (kill -CONT) or end it",
                    path.display()
                )));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(|error| failed("open", path, &error))
}

/// What an error of the system means. Nothing changed: what was written in part does not count.
fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    let text = format!("cannot {what} {}: {error}", path.display());
    let failure = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Failure::unreachable(format!("{text}; free some space"))
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Failure::denied(format!("{text}; make the directory writable for this user"))
        }
        _ => Failure::denied(text),
    };
    failure.caused_by(copy_of(error))
}
