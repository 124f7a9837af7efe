//! Names that are followed: each is watched as a whole, on the stream that tells of this client's own claims.

use std::collections::HashMap;

use super::{
    proto::{WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse},
    store::EtcdStore,
};
use crate::model::name::Name;

/// The watches of names that are followed. Those of a stream end with it.
#[derive(Debug, Default)]
pub(super) struct Following {
    watches: HashMap<i64, Watch>,
    by_name: HashMap<Name, i64>,
}

#[derive(Debug)]
struct Watch {
    name: Name,
    is_made: bool,
}

impl Following {
    /// Watches names that are new, and stops to watch those that nobody follows any more.
    pub(super) fn catch_up(&mut self, store: &EtcdStore) {
        let mut old = std::mem::take(&mut self.by_name);
        for (name, is_live) in store.follows.names() {
            let id = match old.remove(&name) {
                Some(id) => {
                    // It was dropped, and followed again before we saw that.
                    if !is_live && self.watches.get(&id).is_some_and(|watch| watch.is_made) {
                        store.follows.live(&name);
                    }
                    id
                }
                None => self.create(store, &name),
            };
            self.by_name.insert(name, id);
        }
        for id in old.into_values() {
            self.watches.remove(&id);
            let cancel = Some(WatchCancelRequest { watch_id: id });
            store.claims().send(WatchRequest { cancel, ..WatchRequest::default() });
        }
    }

    fn create(&mut self, store: &EtcdStore, name: &Name) -> i64 {
        let (key, range_end) = store.space.range(name);
        let mut claims = store.claims();
        let id = claims.spare_watch();
        let create = WatchCreateRequest { key, range_end, watch_id: id, ..WatchCreateRequest::default() };
        claims.send(WatchRequest { create: Some(create), ..WatchRequest::default() });
        self.watches.insert(id, Watch { name: name.clone(), is_made: false });
        id
    }

    /// The stream said something, perhaps about a name that is followed.
    pub(super) fn heard(&mut self, store: &EtcdStore, response: &WatchResponse) {
        let Some(watch) = self.watches.get_mut(&response.watch_id) else { return };
        if response.canceled {
            // It may not be watched. Followers ask, and it is tried again on the next stream.
            watch.is_made = false;
            store.follows.cut(&watch.name);
        } else if response.created {
            watch.is_made = true;
            store.follows.live(&watch.name);
        } else if !response.events.is_empty() {
            store.follows.changed(&watch.name);
        }
    }

    /// The stream ended, and all watches with it.
    pub(super) fn closed(&mut self, store: &EtcdStore) {
        self.watches.clear();
        self.by_name.clear();
        store.follows.cut_all();
    }
}
