//! Names that are followed: the kernel tells of each change of the file that a line is kept in.
//!
//! Nobody who changes a line does anything for it. A file has the lines of many names, so followers hear of changes of
//! others as well, and of renewals; however many there are, they are told after a short rest.

use std::{collections::HashMap, io, path::PathBuf, pin::Pin, time::Duration};

use tokio::time::Sleep;

use self::sys::Inotify;
use super::store::FileStore;
use crate::{backend::Follows, model::name::Name};

/// How long nobody is told after something was: a file that changes all the time is not read as often.
const REST: Duration = Duration::from_millis(20);

/// The files that are watched, while names are followed.
#[derive(Debug, Default)]
pub(super) struct Notices {
    inotify: Option<Inotify>,
    watched: HashMap<PathBuf, Watched>,
    rest: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Watched {
    number: i32,
    names: Vec<Name>,
}

impl Notices {
    /// Watches the files of names that are new, and no others.
    pub(super) fn catch_up(&mut self, store: &FileStore) {
        let mut wanted: HashMap<PathBuf, Vec<Name>> = HashMap::new();
        let names = store.follows.names();
        for (name, _) in &names {
            wanted.entry(store.bucket_of(name).0.path().to_owned()).or_default().push(name.clone());
        }
        if wanted.is_empty() {
            // With it all its watches end.
            self.inotify = None;
            self.watched.clear();
            return;
        }
        if self.inotify.is_none() {
            // There is a limit for each user: without it followers ask.
            self.inotify = Inotify::new().ok();
        }
        let Some(inotify) = &self.inotify else { return };
        self.watched.retain(|path, watched| {
            let stays = wanted.contains_key(path);
            if !stays {
                inotify.forget(watched.number);
            }
            stays
        });
        for (path, names) in wanted {
            match self.watched.get_mut(&path) {
                Some(watched) => watched.names = names,
                None => {
                    if let Ok(number) = watch(inotify, store, &names[0]) {
                        self.watched.insert(path, Watched { number, names });
                    }
                }
            }
        }
        for (name, is_live) in names {
            if !is_live && self.watched.contains_key(store.bucket_of(&name).0.path()) {
                store.follows.live(&name);
            }
        }
    }

    /// Tells followers when a file has changed. Dropped at any await, it loses nothing.
    pub(super) async fn tell(&mut self, follows: &Follows) {
        if let Some(rest) = &mut self.rest {
            rest.as_mut().await;
            self.rest = None;
        }
        let Some(inotify) = &self.inotify else { return std::future::pending().await };
        match inotify.changed().await {
            Ok(numbers) => {
                for watched in self.watched.values().filter(|watched| numbers.contains(&watched.number)) {
                    watched.names.iter().for_each(|name| follows.changed(name));
                }
            }
            Err(_) => {
                (self.inotify, self.watched) = (None, HashMap::new());
                follows.cut_all();
            }
        }
        self.rest = Some(Box::pin(tokio::time::sleep(REST)));
    }
}

/// Watches the file of a name, which is made if it is not there yet.
fn watch(inotify: &Inotify, store: &FileStore, name: &Name) -> io::Result<i32> {
    let (shard, _) = store.bucket_of(name);
    match inotify.watch(shard.path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // If somebody else is making it, it is there.
            let _ = shard.try_begin();
            inotify.watch(shard.path())
        }
        watched => watched,
    }
}

#[cfg(target_os = "linux")]
mod sys {
    use std::{io, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

    use rustix::{
        fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init, remove_watch},
        io::Errno,
    };
    use tokio::io::unix::AsyncFd;

    /// What the kernel calls an inotify instance.
    #[derive(Debug)]
    pub(super) struct Inotify(AsyncFd<OwnedFd>);

    impl Inotify {
        #[allow(
            deprecated,
            reason = "its successor is unsafe for types that may change their descriptor; an owned one stays"
        )]
        pub(super) fn new() -> io::Result<Self> {
            AsyncFd::new(init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?).map(Self)
        }

        pub(super) fn watch(&self, path: &Path) -> io::Result<i32> {
            Ok(add_watch(self.0.get_ref(), path, WatchFlags::MODIFY)?)
        }

        pub(super) fn forget(&self, number: i32) {
            // It fails only if the file is gone, and the watch with it.
            let _ = remove_watch(self.0.get_ref(), number);
        }

        /// Which watches told of a change.
        pub(super) async fn changed(&self) -> io::Result<Vec<i32>> {
            let mut ready = self.0.readable().await?;
            let mut bytes = [const { MaybeUninit::uninit() }; 4_096];
            let mut reader = Reader::new(self.0.get_ref(), &mut bytes);
            let mut numbers = Vec::new();
            loop {
                match reader.next() {
                    Ok(event) if numbers.last() == Some(&event.wd()) => {}
                    Ok(event) => numbers.push(event.wd()),
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        return Ok(numbers);
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod sys {
    use std::{io, path::Path};

    /// There is none here: followers ask.
    #[derive(Debug)]
    pub(super) struct Inotify(std::convert::Infallible);

    impl Inotify {
        pub(super) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn watch(&self, _path: &Path) -> io::Result<i32> {
            match self.0 {}
        }

        pub(super) fn forget(&self, _number: i32) {
            match self.0 {}
        }

        pub(super) async fn changed(&self) -> io::Result<Vec<i32>> {
            match self.0 {}
        }
    }
}
