//! What a handle remembers and how often it asks: both have an end.

use std::{collections::HashSet, time::Duration};

use super::{client::Stock, store::OrderId};
use crate::error::Result;

/// How often the plan is read again for one call before the caller is told that it does not fit the segments. Each change
/// of the segments costs one.
const READINGS: u32 = 64;
/// How many of them come at once; before each of the others others may finish what they are doing.
const READINGS_AT_ONCE: u32 = 4;
const BETWEEN_READINGS: Duration = Duration::from_millis(5);
/// How many orders without an answer a handle remembers, each with its id of 128 bytes at most.
const UNANSWERED: usize = 65_536;

/// Orders that were asked for and not answered: what was sent for them may still arrive.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    orders: HashSet<OrderId>,
    /// There were too many to remember: any order may be one of them, for as long as this handle lives. A refusal costs one
    /// more step then, and is as sure as before.
    any: bool,
}

impl Unanswered {
    pub(super) fn insert(&mut self, order: OrderId) {
        if self.orders.len() >= UNANSWERED {
            self.orders = HashSet::new();
            self.any = true;
        }
        if !self.any {
            self.orders.insert(order);
        }
    }

    /// Whether an order may be one of them. It is asked for now, and is put back if that is not answered either.
    pub(super) fn remove(&mut self, order: &OrderId) -> bool {
        self.any || self.orders.remove(order)
    }
}

/// How often the plan was read for one call.
#[derive(Debug, Default)]
pub(super) struct Readings(u32);

impl Readings {
    /// Counts one more, after a pause if there were many.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when plan and segments do not come to agree: a server may have gone
    /// back to an earlier state.
    pub(super) async fn next(&mut self, stock: &Stock) -> Result<()> {
        self.0 += 1;
        if self.0 > READINGS {
            let why = "its plan and its segments do not agree, though the plan was read 64 times: a server may have lost what it wrote last (a fail-over, or a restored copy)";
            return Err(stock.unreachable(why));
        }
        if self.0 > READINGS_AT_ONCE {
            tokio::time::sleep(BETWEEN_READINGS).await;
        }
        Ok(())
    }
}
