//! Buyers as processes of their own.

use std::{fs::OpenOptions, io::Write, time::Duration};

use tidelock::stock::{Sale, Stocks};

use crate::process::Job;

/// Buys if this process was started for it.
pub(crate) fn run_if_asked() -> bool {
    let Some(job) = Job::of_this_process() else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(buy(&job));
    true
}

/// Takes one after the other and writes down what it was told, before it asks for the next. Asks again until it is told.
async fn buy(job: &Job) {
    let mut words = job.what.split(' ');
    let (log, item) = (words.next().unwrap(), words.next().unwrap());
    let (first, orders): (u32, u32) =
        (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap());
    let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
    let urls: Vec<_> = job.place.split(' ').collect();
    let stock = persist(async || Stocks::connect_all(&urls).await?.find(item).await).await;
    for order in first..first + orders {
        let id = format!("order-{order}");
        let n = 1 + u64::from(order % 11 == 10);
        let sale = persist(async || stock.take(&id, n).await).await;
        let mut said = match sale {
            Sale::Taken => format!("+{order} {n}\n"),
            _ => format!("-{order} {n}\n"),
        };
        if sale == Sale::Taken && order % 7 == 3 {
            // The line that it took is left out: whether it came back is what counts.
            assert!(persist(async || stock.give_back(&id).await).await);
            said = format!("={order} {n}\n");
        }
        log.write_all(said.as_bytes()).unwrap();
    }
    crate::process::say("done");
}

async fn persist<T, F: Future<Output = tidelock::Result<T>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
