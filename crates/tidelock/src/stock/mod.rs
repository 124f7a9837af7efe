//! Limited stock for very many buyers: never oversold, and nothing stranded.
//!
//! ```
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # rt.block_on(async {
//! use tidelock::stock::{Sale, Stocks};
//!
//! let stocks = Stocks::connect("memory:").await?;                  // file:, redis://…, postgres://…, mysql://… too
//! let stock = stocks.open("10001", 1000).segments(5).await?;       // makes it, or finds it
//! assert_eq!(stock.take("order-1", 1).await?, Sale::Taken);
//! assert_eq!(stock.take("order-1", 1).await?, Sale::Taken);        // the same order: taken once
//! stock.give_back("order-1").await?;
//! assert_eq!(stock.remaining().await?, 1000);
//! # Ok::<(), tidelock::Error>(()) }).unwrap();
//! ```
//!
//! A counter cut into **segments** over one or several servers. An order belongs to one of them by its id, and is taken
//! there in one atomic step: so a repetition, from whichever process, finds what the first try did. If that segment has
//! too little, stock is *moved* there from others, in steps that anybody can finish if their client dies. So the last
//! item anywhere is found, an order for several is met if all segments together can, and no order is ever in two places.
//!
//! | file | what |
//! |---|---|
//! | `ledger` | the model of one segment, pure |
//! | `plan` | which segments an item has, and which an order belongs to |
//! | `store` | what a store has to do |
//! | `reply` | answers of stores that have only numbers |
//! | `together` | steps on orders that go together in one call |
//! | `client` | connecting and opening |
//! | `selling` | orders: taking, giving back, finding stock elsewhere |
//! | `keeping` | counting, adding, changing the segments, closing |

mod client;
mod keeping;
mod ledger;
mod plan;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod reply;
mod selling;
mod store;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod together;

pub(crate) use self::ledger::micros;
pub use self::{
    client::{Opening, Stock, Stocks},
    keeping::Tally,
    ledger::Ledger,
    selling::Sale,
    store::{Answer, CLOSED, Counts, End, Lent, OrderId, SegmentId, Standing, Step, StockStore, TransferId},
};
