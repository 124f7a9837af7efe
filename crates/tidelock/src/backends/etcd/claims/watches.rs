//! What is watched: lines and keys, on one stream at a time.

use std::collections::{HashSet, VecDeque};

use tokio::sync::mpsc::UnboundedSender;

use super::{Claims, Phase, Progress};
use crate::{
    backends::etcd::{
        codec::{Range, Space},
        proto::{Filter, WatchCancelRequest, WatchCreateRequest, WatchRequest},
    },
    model::name::Name,
};

/// How many may be ahead of a claim that watches all of its line.
const NEAR: usize = 8;

/// A watch of a line or of a key.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) name: Name,
    /// The key, or what all keys of the line begin with.
    pub(super) key: Box<[u8]>,
    pub(super) is_whole: bool,
    /// From which revision on it was asked to tell; zero: from when it was made.
    pub(super) from: i64,
    /// All that happened after this revision is told, once it is made.
    pub(super) covers: Option<i64>,
    /// The revision at which it was made, once it is and while its stream is there.
    pub(super) made_at: Option<i64>,
    pub(super) recent: VecDeque<(i64, Vec<u8>)>,
    /// What happened up to this revision is not remembered.
    pub(super) forgotten: i64,
}

impl Claims {
    /// Watches what the claims of a line need, and nothing else.
    pub(super) fn watch(&mut self, space: &Space, name: &Name) {
        let Some(line) = self.lines.get(name) else { return };
        let needs_whole = line.claims.iter().any(|own| match &own.phase {
            Phase::Waiting(ahead) => ahead.len() <= NEAR,
            Phase::Held(_) => line.whole.is_some(),
            Phase::Asking | Phase::Over => false,
        });
        let mut keys = HashSet::new();
        if !needs_whole {
            for own in line.claims.iter() {
                if let Phase::Waiting(ahead) = &own.phase {
                    keys.insert(own.key.clone());
                    keys.extend(
                        ahead.len().checked_sub(NEAR).map(|index| ahead[index].key.as_slice().into()),
                    );
                }
            }
        }
        let mut over: Vec<_> = line.whole.filter(|_| !needs_whole && !keys.is_empty()).into_iter().collect();
        over.extend(line.single.iter().filter(|(key, _)| !keys.contains(*key)).map(|(_, id)| *id));
        let missing: Vec<_> = keys.into_iter().filter(|key| !line.single.contains_key(key)).collect();
        for id in over {
            self.cancel(id);
        }
        if needs_whole {
            self.watch_whole(space, name, 0);
        }
        for key in missing {
            let id = self.create(name, key.clone(), false, 0);
            if let Some(line) = self.lines.get_mut(name) {
                line.single.insert(key, id);
            }
        }
    }

    /// Watches all of a line, from a revision on or, if that is zero, from now on.
    pub(super) fn watch_whole(&mut self, space: &Space, name: &Name, from: i64) {
        if self.lines.get(name).is_some_and(|line| line.whole.is_none()) {
            let id = self.create(name, space.range(name).0.into(), true, from);
            if let Some(line) = self.lines.get_mut(name) {
                line.whole = Some(id);
            }
        }
    }

    fn create(&mut self, name: &Name, key: Box<[u8]>, is_whole: bool, from: i64) -> i64 {
        self.last_watch += 1;
        let id = self.last_watch;
        let watch = Watch {
            name: name.clone(),
            key,
            is_whole,
            from,
            covers: None,
            made_at: None,
            recent: VecDeque::new(),
            forgotten: 0,
        };
        self.send(watch.request(id));
        self.watches.insert(id, Box::new(watch));
        id
    }

    pub(super) fn cancel(&mut self, id: i64) {
        let Some(watch) = self.watches.remove(&id) else { return };
        if let Some(line) = self.lines.get_mut(&watch.name) {
            line.whole.take_if(|whole| *whole == id);
            line.single.retain(|_, single| *single != id);
        }
        self.send(WatchRequest {
            cancel: Some(WatchCancelRequest { watch_id: id }),
            ..WatchRequest::default()
        });
    }

    pub(in crate::backends::etcd) fn send(&self, request: WatchRequest) {
        if let Some(stream) = &self.stream {
            // A stream that ended is noticed where it is read.
            let _ = stream.send(request);
        }
    }

    /// There is a new stream: everything is watched on it, from where it was last known.
    pub(in crate::backends::etcd) fn opened(&mut self, stream: UnboundedSender<WatchRequest>) {
        self.stream = Some(stream);
        self.progress.send_replace(Progress::default());
        let old = std::mem::take(&mut self.watches);
        for (_, watch) in old {
            let Some(line) = self.lines.get_mut(&watch.name) else { continue };
            let known = line.claims.iter().filter(|own| !matches!(own.phase, Phase::Asking));
            // One that waits is told at once only from the next revision on. All others begin in the past, because a
            // stream with a watch that begins later than now does not tell its progress.
            let from =
                known.map(|own| own.known_at + i64::from(matches!(own.phase, Phase::Waiting(_)))).min();
            let Watch { name, key, is_whole, .. } = *watch;
            if is_whole {
                line.whole = None;
            } else {
                line.single.remove(&key);
            }
            // A line that nobody uses is watched again when somebody does.
            let Some(from) = from else {
                if line.claims.is_empty() {
                    self.lines.remove(&name);
                }
                continue;
            };
            let id = self.create(&name, key.clone(), is_whole, from);
            if let Some(line) = self.lines.get_mut(&name) {
                if is_whole {
                    line.whole = Some(id);
                } else {
                    line.single.insert(key, id);
                }
            }
        }
    }

    /// The stream is over.
    pub(in crate::backends::etcd) fn closed(&mut self) {
        self.stream = None;
        self.progress.send_replace(Progress::default());
        for watch in self.watches.values_mut() {
            watch.covers = None;
            watch.made_at = None;
            watch.recent.clear();
        }
    }

    /// The next watch that nobody else has.
    pub(in crate::backends::etcd) fn spare_watch(&mut self) -> i64 {
        self.last_watch += 1;
        self.last_watch
    }

    /// Watches from now on, and has the line read.
    pub(super) fn watch_anew(&mut self, id: i64) {
        let Some(watch) = self.watches.get(&id) else { return };
        let (name, key, is_whole) = (watch.name.clone(), watch.key.clone(), watch.is_whole);
        self.cancel(id);
        let again = self.create(&name, key.clone(), is_whole, 0);
        if let Some(line) = self.lines.get_mut(&name) {
            if is_whole {
                line.whole = Some(again);
            } else {
                line.single.insert(key, again);
            }
        }
        self.stale.insert(name);
    }
}

impl Watch {
    fn request(&self, id: i64) -> WatchRequest {
        let end = if self.is_whole { end_of(&self.key) } else { Vec::new() };
        watch_request(id, &(self.key.to_vec(), end), self.from)
    }
}

/// The end of all keys that begin like this.
fn end_of(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    if let Some(last) = end.last_mut() {
        // It is a slash.
        *last += 1;
    }
    end
}

/// Asks to be told what is deleted in a range.
pub(in crate::backends::etcd) fn watch_request(id: i64, (key, range_end): &Range, from: i64) -> WatchRequest {
    let create = WatchCreateRequest {
        key: key.clone(),
        range_end: range_end.clone(),
        start_revision: from,
        filters: vec![Filter::NoPut.into()],
        watch_id: id,
    };
    WatchRequest { create: Some(create), ..WatchRequest::default() }
}
