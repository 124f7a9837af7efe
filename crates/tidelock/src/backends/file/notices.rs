//! Names that are followed: the kernel tells of each change of the file that a line is kept in.
//!
//! Nobody who changes a line does anything for it. A file has the lines of many names, so followers hear of changes of
//! others as well, and of renewals; however many there are, they are told after a short rest.

use std::{collections::HashMap, io, path::PathBuf, pin::Pin, time::Duration};

use tokio::time::Sleep;

use super::{inotify::Inotify, store::FileStore};
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
