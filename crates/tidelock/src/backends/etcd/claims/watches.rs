//! What is watched: lines and keys, on one stream at a time.

use std::{
    collections::{HashSet, VecDeque},
    num::NonZeroI64,
};

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

/// A watch of a line or of a key. Each lock that is held for long has one: so what most of them do not
/// need is apart.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) name: Name,
    /// From which revision on it was asked to tell; zero: from when it was made.
    pub(super) from: i64,
    /// The revision at which it was made, once it is and while its stream is there. No store is at zero.
    pub(super) made_at: Option<NonZeroI64>,
    pub(super) more: Option<Box<More>>,
}

/// What only a watch needs that is of one key, or that told something.
#[derive(Debug, Default)]
pub(super) struct More {
    /// The key, unless it is all keys of the line.
    key: Option<Box<[u8]>>,
    /// What it told.
    pub(super) recent: VecDeque<(i64, Vec<u8>)>,
    /// What happened up to this revision is not remembered.
    pub(super) forgotten: i64,
}

impl Claims {
    /// Watches what the claims of a line need, and nothing else.
    pub(super) fn watch(&mut self, name: &Name) {
        let Some(line) = self.lines.get(name) else { return };
        let needs_whole = line.claims.iter().any(|own| match &own.phase {
            Phase::Waiting(ahead) => ahead.0.len() <= NEAR,
            Phase::Held(_) => line.whole.is_some(),
            Phase::Asking | Phase::Over => false,
        });
        let mut keys: HashSet<Box<[u8]>> = HashSet::new();
        if !needs_whole {
            for own in line.claims.iter() {
                if let Phase::Waiting(ahead) = &own.phase {
                    keys.insert(own.key(&self.space).into());
                    let near = ahead.0.len().checked_sub(NEAR);
                    keys.extend(near.map(|index| ahead.0[index].key.as_slice().into()));
                }
            }
        }
        let mut over: Vec<_> = line.whole.filter(|_| !needs_whole && !keys.is_empty()).into_iter().collect();
        over.extend(line.single().filter(|(key, _)| !keys.contains(*key)).map(|(_, id)| id));
        let missing: Vec<_> = keys.into_iter().filter(|key| line.single_of(key).is_none()).collect();
        for id in over {
            self.cancel(id);
        }
        if needs_whole {
            self.watch_whole(name, 0);
        }
        for key in missing {
            self.create(name, Some(key), 0);
        }
    }

    /// Watches all of a line, from a revision on or, if that is zero, from now on.
    pub(super) fn watch_whole(&mut self, name: &Name, from: i64) {
        if self.lines.get(name).is_some_and(|line| line.whole.is_none()) {
            self.create(name, None, from);
        }
    }

    /// Watches a key of a line, or all of them.
    fn create(&mut self, name: &Name, key: Option<Box<[u8]>>, from: i64) {
        self.last_watch += 1;
        let id = self.last_watch;
        let more = key.clone().map(|key| Box::new(More { key: Some(key), ..More::default() }));
        let watch = Watch { name: name.clone(), from, made_at: None, more };
        self.send(watch.request(&self.space, id));
        self.watches.insert(id, Box::new(watch));
        if let Some(line) = self.lines.get_mut(name) {
            line.is_watched_by(key, id);
        }
    }

    pub(super) fn cancel(&mut self, id: i64) {
        let Some(watch) = self.watches.remove(&id) else { return };
        if let Some(line) = self.lines.get_mut(&watch.name) {
            line.is_not_watched_by(id);
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
        for (id, watch) in old {
            let Some(line) = self.lines.get_mut(&watch.name) else { continue };
            let known = line.claims.iter().filter(|own| !matches!(own.phase, Phase::Asking));
            // One that waits is told at once only from the next revision on. All others begin in the past, because a
            // stream with a watch that begins later than now does not tell its progress.
            let from =
                known.map(|own| own.known_at + i64::from(matches!(own.phase, Phase::Waiting(_)))).min();
            let Watch { name, more, .. } = *watch;
            let key = more.and_then(|more| more.key);
            line.is_not_watched_by(id);
            // A line that nobody uses is watched again when somebody does.
            let Some(from) = from else {
                if line.claims.is_empty() {
                    self.lines.remove(&name);
                }
                continue;
            };
            self.create(&name, key, from);
        }
    }

    /// The stream is over.
    pub(in crate::backends::etcd) fn closed(&mut self) {
        self.stream = None;
        self.progress.send_replace(Progress::default());
        for watch in self.watches.values_mut() {
            watch.made_at = None;
            if let Some(more) = &mut watch.more {
                more.recent.clear();
            }
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
        let (name, key) = (watch.name.clone(), watch.key().map(Box::from));
        self.cancel(id);
        self.create(&name, key, 0);
        self.stale.insert(name);
    }
}

impl Watch {
    /// The key, unless it is all keys of the line.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.more.as_ref()?.key.as_deref()
    }

    /// All that happened after this revision is told, once it is made.
    pub(super) fn covers(&self) -> Option<i64> {
        let made_at = self.made_at?.get();
        Some(if self.from == 0 { made_at } else { self.from - 1 })
    }

    fn request(&self, space: &Space, id: i64) -> WatchRequest {
        let range = match self.key() {
            None => space.range(&self.name),
            Some(key) => (key.to_vec(), Vec::new()),
        };
        watch_request(id, &range, self.from)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_kept_in_few_bytes() {
        assert!(size_of::<Watch>() <= 48, "{}", size_of::<Watch>());
    }
}
