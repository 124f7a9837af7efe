//! A flash sale: little stock, many buyers, none of them disappointed at the till. Start it in several shells at once:
//! together they sell what there is.
//!
//! `cargo run --example flash_sale`, or
//! `TIDELOCK_URL="redis://one redis://two" cargo run --example flash_sale --features redis` for segments on two servers

use std::time::Duration;

use tidelock::stock::{Sale, Stocks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> tidelock::Result<()> {
    let urls = std::env::var("TIDELOCK_URL").unwrap_or_else(|_| "file:".to_owned());
    let stocks = Stocks::connect_all(urls.split(' ')).await?;
    // The first client creates it; all others find it as it is.
    let item = format!("example/flash-sale/{}", std::env::args().nth(1).unwrap_or_default());
    let stock = stocks.open(&item, 1_000).segments(5).await?;

    let mut sold = 0;
    for buyer in 0..300 {
        // The id of the order, not of this call: if the answer is lost, the same order is asked for again, and taken once.
        let order = format!("{}-{buyer}", std::process::id());
        match stock.take(&order, 1).await? {
            Sale::Taken => sold += 1,
            Sale::SoldOut => break,
            other => println!("{order}: {other:?}"),
        }
        // One in ten changes its mind.
        if buyer % 10 == 9 && stock.give_back(&order).await? {
            sold -= 1;
        }
    }

    // In the basket for ten minutes: comes back by itself unless it is paid for.
    let basket = format!("{}-basket", std::process::id());
    if stock.reserve(&basket, 2, Duration::from_secs(600)).await? == Sale::Reserved {
        println!("two in the basket; paid: {}", stock.confirm(&basket).await?);
    }
    let tally = stock.tally().await?;
    println!("sold {sold} here; in all {} sold, {} left", tally.sold, tally.remaining);
    Ok(())
}
