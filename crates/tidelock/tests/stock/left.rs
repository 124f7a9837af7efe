//! Calls that are polled and then left alone, neither polled nor dropped.

use std::time::Duration;

use libtest_mimic::Trial;
use test_servers::{MariaDb, Postgres, Proxy, Redis, Server};
use tidelock::stock::Stocks;

/// Longer than it takes to notice that a connection has ended, and shorter than any call may take.
const HALF_WAY: Duration = Duration::from_millis(300);

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |store: &str, start: fn() -> Result<Server, test_servers::Error>| {
        Trial::test(format!("{store}::a_call_that_is_left_half_way_keeps_nobody_from_the_stock"), move || {
            crate::run(left_half_way(start()?))
        })
    };
    vec![
        trial("redis", || Redis::new().start()),
        trial("postgres", || Postgres::new().start()),
        trial("mysql", || MariaDb::new().durable().start()),
    ]
}

/// The call that is left may be the one that opens the connection again, or the next in line for that.
async fn left_half_way(server: Server) {
    let proxy = Proxy::start(server.addr()).unwrap();
    let url = server.url().replace(&server.addr().to_string(), &proxy.addr().to_string());
    assert_ne!(url, server.url());
    let stock = Stocks::connect(&url).await.unwrap().open("item", 10).segments(2).await.unwrap();
    proxy.hold_replies();
    proxy.disconnect();
    // Calls fail until one of them opens a connection on which nothing is answered.
    let mut counting = Vec::new();
    while counting.is_empty() {
        let mut call = Box::pin(stock.tally());
        if tokio::time::timeout(HALF_WAY, &mut call).await.is_err() {
            counting.push(call);
        }
    }
    proxy.heal().unwrap();
    // The watchdog of the trial ends it if this is never answered.
    while stock.take("order", 1).await.is_err() {}
    drop(counting);
}
