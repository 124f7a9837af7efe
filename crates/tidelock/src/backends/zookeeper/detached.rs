//! Holds that outlive their clients: renewed by their tickets, and ended by others once their leases are over.

use std::{sync::Arc, time::Duration};

use super::{
    errors::{BAD_VERSION, NO_NODE, ZkError},
    link::{
        session::Session,
        wire::{self, Request},
    },
    order::Order,
    store::{TRIES, ZookeeperStore},
};
use crate::{
    backend::{Claim, Grant, Standing},
    backends::shared::mutex::lock,
    clock::wall_micros,
};

/// A hold that outlives its client is ended by somebody who only tries when its lease was over this long
/// ago by the clocks on the wall; a claim that waits measures it by its client's clock.
const WALL_MARGIN: Duration = Duration::from_secs(60);

/// What was found of holds ahead that outlive their clients.
pub(super) struct LeftHolds {
    /// Whether one was over and is gone now.
    pub(super) ended: bool,
    /// When the first of the others is over, unless it is renewed.
    pub(super) lapse_in: Option<Duration>,
}

impl ZookeeperStore {
    /// Ends holds of clients that are gone if their leases are over. Nobody's clock is asked but this
    /// client's: a hold is over when it was not renewed for as long as its lease since it was first seen.
    pub(super) async fn end_left_holds(
        &self,
        session: &Session,
        parent: &str,
        left: &[(String, Duration)],
        by_wall: bool,
    ) -> Result<LeftHolds, ZkError> {
        let mut found = LeftHolds { ended: false, lapse_in: None };
        for (node, lease) in left {
            let path = format!("{parent}/{node}");
            let stat = match session.ask(Request::exists(&path, false)).await {
                Err(error) if error.is(NO_NODE) => {
                    found.ended = true;
                    continue;
                }
                stat => wire::stat(&stat?)?,
            };
            let now = self.clock.now();
            // As long as it may be relied on, and for as much as clocks may differ.
            let lease = *lease + *lease / 100 + Duration::from_millis(10);
            let since = {
                let mut left = lock(&self.left);
                left.retain(|_, (_, since)| now.since(*since) < crate::MAX_TTL);
                let seen = left.entry(path.clone()).or_insert((stat.mzxid, now));
                if seen.0 != stat.mzxid {
                    *seen = (stat.mzxid, now);
                }
                seen.1
            };
            let wall =
                wall_micros().saturating_sub(u64::try_from(stat.mtime).unwrap_or(0).saturating_mul(1_000));
            let long_over = by_wall && Duration::from_micros(wall) > lease * 2 + WALL_MARGIN;
            if now.since(since) < lease && !long_over {
                let lapse_in = (since + lease).since(now);
                found.lapse_in = Some(found.lapse_in.map_or(lapse_in, |other| other.min(lapse_in)));
                continue;
            }
            // Of this very version: it may have been renewed in between.
            match session.ask(Request::delete(&path, stat.version)).await {
                Ok(_) | Err(ZkError::Code(_)) => found.ended = true,
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Renews a hold by its ticket.
    pub(super) async fn renew_ticket(&self, claim: &Arc<Claim>) -> Result<Standing, ZkError> {
        let (session, parent) = (self.link.any_session(), self.path(&claim.name));
        let children = match self.list_fresh(&session, &parent).await {
            Err(error) if error.is(NO_NODE) => return Ok(Standing::Gone),
            children => children?,
        };
        let found = Order::nodes_of(&children, claim.id);
        let Some((node, epoch)) = found.first().and_then(|node| Some((&node.node, node.epoch?))) else {
            return Ok(Standing::Gone);
        };
        let path = format!("{parent}/{node}");
        for _ in 0..TRIES {
            let (data, stat) = match session.ask(Request::get_data(&path, false)).await {
                Err(error) if error.is(NO_NODE) => return Ok(Standing::Gone),
                read => wire::data(&read?)?,
            };
            match session.ask(Request::set_data(&path, &data, stat.version)).await {
                Ok(_) => {
                    let waiting = u32::try_from(children.len() - found.len()).unwrap_or(u32::MAX);
                    return Ok(Standing::Held(Grant::new(epoch, claim.ttl, waiting)));
                }
                Err(error) if error.is(BAD_VERSION) => {}
                Err(error) if error.is(NO_NODE) => return Ok(Standing::Gone),
                Err(error) => return Err(error),
            }
        }
        Err(ZkError::Lost("others renewed the hold all the time".into()))
    }
}
