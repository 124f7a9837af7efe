//! Who holds, from the keys of a line. All clients see the same keys with the same revisions.
//!
//! A hold's number is the revision at which its first claim came, and so is its epoch, but for the base. A claim
//! that could ride writes that down first: others hear only what is deleted, so they must not count on it before.

use super::codec::Contender;
use crate::{
    backend::Share,
    backends::shared::order::{InLine, Order},
};

impl InLine for Contender {
    const RIDES_FIRST: bool = true;

    fn share(&self) -> Share {
        self.share
    }

    fn owner(&self) -> Option<&str> {
        self.owner.as_ref().map(|owner| owner.as_str())
    }

    fn rides(&self) -> bool {
        self.rides.is_some()
    }
}

/// Works out who holds.
pub(super) fn order(line: &[Contender]) -> Order {
    Order::of(line, Contender::hold)
}

/// Those ahead of a claim that waits.
pub(super) fn ahead_of(index: usize, order: &Order) -> impl Iterator<Item = usize> {
    order.holders().chain(order.waiters().take_while(move |waiter| *waiter != index))
}
