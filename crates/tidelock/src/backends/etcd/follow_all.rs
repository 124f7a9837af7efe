//! All names, followed: one watch of all keys of locks, on a stream of its own, which is open while somebody follows.
//!
//! Renewals write nothing, so only those who come and go are told. The reason of an eviction is a key, too, for the
//! client whose claim it was; it is written with the deletion of the claim.

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::sync::mpsc::unbounded_channel;

use super::{
    errors::classify,
    proto::{EventType, WatchCreateRequest, WatchRequest, WatchResponse},
    store::EtcdStore,
};
use crate::backend::{Failure, TellAll};

/// After how long it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

impl EtcdStore {
    /// Listens to the cluster, again whenever the stream ends.
    pub(super) async fn hear_all(self: Arc<Self>, told: TellAll) -> Infallible {
        told.tells_evictions();
        loop {
            // Why it ended is what questions say as well.
            let _ = self.listen_to_all(&told).await;
            told.cut();
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Tells what one stream says, until it ends.
    async fn listen_to_all(&self, told: &TellAll) -> Result<(), Failure> {
        let mut in_use = self.link.in_use();
        let (ask, requests) = unbounded_channel();
        let (key, range_end) = self.space.all();
        let create = WatchCreateRequest { key, range_end, watch_id: 1, ..WatchCreateRequest::default() };
        let _ = ask.send(WatchRequest { create: Some(create), ..WatchRequest::default() });
        let (mut stream, number) = self.link.watch(requests).await?;
        loop {
            let said = tokio::select! {
                said = stream.message() => said.map_err(|status| classify(&status))?,
                // Questions go to another member by now: this one may be cut off.
                _ = in_use.wait_for(|in_use| *in_use != number) => return Ok(()),
            };
            match said {
                Some(said) if !said.canceled => self.pass_on(told, &said),
                _ => return Ok(()),
            }
        }
    }

    fn pass_on(&self, told: &TellAll, said: &WatchResponse) {
        if said.created {
            told.live();
        }
        for event in &said.events {
            let Some(kv) = &event.kv else { continue };
            if let Some((name, _)) = self.space.name(&kv.key) {
                told.changed(name);
            } else if event.r#type == EventType::Put as i32
                && let Some(claim) = self.space.evicted(&kv.key)
            {
                told.evicted(claim, String::from_utf8_lossy(&kv.value).into());
            }
        }
    }
}
