//! Limited stock for many concurrent buyers: never oversold, and no stock is stranded.
//!
//! ```
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # rt.block_on(async {
//! use tidelock::stock::{Sale, Stocks};
//!
//! let stocks = Stocks::connect("memory:").await?;                  // or file:, redis:, postgres:, mysql:
//! let stock = stocks.open("10001", 1000).segments(5).await?;       // creates it, or finds it
//! assert_eq!(stock.take("order-1", 1).await?, Sale::Taken);
//! assert_eq!(stock.take("order-1", 1).await?, Sale::Taken);        // the same order: taken once
//! stock.give_back("order-1").await?;
//! assert_eq!(stock.remaining().await?, 1000);
//! # Ok::<(), tidelock::Error>(()) }).unwrap();
//! ```
//!
//! A counter is split into **segments** over one or several servers. The id of an order decides to which
//! segment it belongs, and the order is taken there in one atomic step, so a repetition from any process
//! finds what the first attempt did. If that segment has too little, stock is *moved* there from others, in
//! steps that any client can finish if the one that started them dies. So the last item in any segment is
//! found, an order for several items succeeds if all segments together have enough, and no order is ever in
//! two places.

// | file | what |
// |---|---|
// | `ledger` | the model of one segment, pure |
// | `plan` | which segments an item has, and which an order belongs to |
// | `store` | what a store has to do |
// | `reply` | answers of stores that have only numbers |
// | `together` | steps on orders that go together in one call |
// | `client` | connecting, and asking stores |
// | `opening` | opening the stock of an item |
// | `bounds` | what a handle remembers and how often it asks, at most |
// | `selling` | orders: taking, giving back, finding stock elsewhere |
// | `keeping` | counting, adding, changing the segments, closing |

mod bounds;
mod client;
mod keeping;
mod ledger;
mod opening;
mod plan;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod reply;
mod selling;
mod store;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod together;

pub(crate) use crate::clock::micros;

pub use self::{
    client::{Stock, Stocks},
    keeping::Tally,
    ledger::Ledger,
    opening::Opening,
    selling::Sale,
    store::{Answer, CLOSED, Counts, End, Lent, OrderId, SegmentId, Standing, Step, StockStore, TransferId},
};
