//! The messages of errors about stock.

use super::{Error, ErrorKind};
use crate::{
    backend::{Failure, FailureKind},
    model::name::Name,
};

impl Error {
    /// Creates the error for a failure of a store that keeps stock.
    pub(crate) fn stock(store: &str, item: &Name, failure: &Failure) -> Self {
        let (kind, what, now) = match failure.kind {
            FailureKind::Unreachable => (ErrorKind::Unavailable, "is not reachable", ""),
            FailureKind::Unknown => (
                ErrorKind::Unavailable,
                "did not answer",
                "; ask again with the same order: it is taken once",
            ),
            FailureKind::Denied => (ErrorKind::Denied, "refused", ""),
        };
        Self::new(kind, None, format!("{store} {what} for stock {item:?}: {}{now}", failure.reason))
            .caused_by(failure)
    }

    pub(crate) fn stock_closed(item: &Name) -> Self {
        Self::new(
            ErrorKind::Closed,
            None,
            format!("the sale of stock {item:?} is over: nothing can be added or changed any more"),
        )
    }

    pub(crate) fn stock_forgotten(item: &Name) -> Self {
        Self::new(
            ErrorKind::Closed,
            None,
            format!(
                "the sale of stock {item:?} was closed, and its orders are forgotten: open the item again"
            ),
        )
    }

    pub(crate) fn no_such_stock(item: &Name) -> Self {
        Self::new(
            ErrorKind::NoSuchStock,
            None,
            format!("there is no stock {item:?}: open it with a number first"),
        )
    }

    pub(crate) fn other_sale(item: &Name, sale: u64) -> Self {
        Self::new(
            ErrorKind::OtherSale,
            None,
            format!(
                "stock {item:?} was opened for sale {sale:016x}, which was closed, and is sold anew: nothing was changed; open the item again"
            ),
        )
    }

    pub(crate) fn order_mismatch(item: &Name, order: &str, before: u64, asked: u64) -> Self {
        Self::new(
            ErrorKind::OrderMismatch,
            None,
            format!(
                "order {order:?} of stock {item:?} asked for {before} before and asks for {asked} now: nothing was changed; repeat it with {before}, or use a new id"
            ),
        )
    }
}
