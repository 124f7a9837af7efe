//! Sales in which buyers are killed, servers are killed and come back, and replies are lost.

use std::{collections::HashMap, path::Path, time::Duration};

use libtest_mimic::Trial;
use test_servers::{MariaDb, Postgres, Proxy, Redis, Server};
use tidelock::{
    stock::{Sale, Stock, Stocks},
    testing::rng::Rng,
};

use crate::process::Worker;

const BUYERS: u32 = 4;
/// Orders of a buyer: a server that syncs takes a thousand times as long for each as a file does.
const AT_SERVERS: u32 = 60;
const IN_FILES: u32 = 2_000;

pub(crate) fn trials() -> Vec<Trial> {
    let runs = std::env::var("TIDELOCK_FAULT_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(6);
    (0..runs).map(|seed| Trial::test(format!("faults::run_{seed}"), move || crate::run(sale(seed)))).collect()
}

/// Buyers take and give back while a seed kills some of them, kills servers that keep what they confirmed, and drops replies. Then
/// those that died are asked for again, by others, and every item is accounted for. Every sixth is in files, in PostgreSQL, in MariaDB; the others
/// are on up to three Redis servers.
async fn sale(seed: u64) {
    let mut rng = Rng::new(seed);
    let servers: Vec<Server> = match seed % 6 {
        4 => vec![Postgres::new().durable().start().unwrap()],
        5 => vec![MariaDb::new().durable().start().unwrap()],
        several => (0..several).map(|_| Redis::new().durable().start().unwrap()).collect(),
    };
    let proxies: Vec<Proxy> = servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
    let folder = std::env::temp_dir().join(format!("tl-sale-{}-{seed}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut urls: Vec<_> = servers.iter().map(|server| server.url().to_owned()).collect();
    let through = |(server, proxy): (&Server, &Proxy)| {
        server.url().replacen(&server.addr().to_string(), &proxy.addr().to_string(), 1)
    };
    let mut behind: Vec<_> = servers.iter().zip(&proxies).map(through).collect();
    let orders = if servers.is_empty() { IN_FILES } else { AT_SERVERS };
    if servers.is_empty() {
        urls.push(format!("file:{}/store", folder.display()));
        behind.clone_from(&urls);
    }
    let (item, initial) = (format!("sale-{seed}"), u64::from(BUYERS * orders) * 5 / 8);
    let stock = Stocks::connect_all(&urls).await.unwrap().open(&item, initial).segments(4).await.unwrap();

    let log = |buyer: u32| folder.join(buyer.to_string());
    let start = |buyer: u32| {
        let what = format!("{} {item} {} {orders}", log(buyer).display(), buyer * orders);
        Worker::start(&behind.join(" "), &what, Duration::ZERO)
    };
    let mut buyers: Vec<_> = (0..BUYERS).map(start).collect();
    for fault in 0..6 {
        tokio::time::sleep(rng.millis(5, 60)).await;
        let one = rng.below(servers.len() as u64) as usize;
        match rng.below(5) {
            2 if !servers.is_empty() => proxies[one].drop_replies_once(),
            3 if !servers.is_empty() => proxies[one].disconnect(),
            4 if !servers.is_empty() => {
                servers[one].kill().unwrap();
                servers[one].restart().unwrap();
            }
            _ => {
                // The process that replaces a buyer repeats its orders from the beginning.
                let buyer = rng.below(u64::from(BUYERS)) as usize;
                buyers[buyer].kill();
                buyers[buyer] = start(buyer as u32);
            }
        }
        if fault == 3 && seed.is_multiple_of(2) {
            resize(&stock, 2 + (seed % 5) as u32).await;
        }
    }
    for buyer in &mut buyers {
        buyer.hear("done");
    }
    drop(buyers);
    account(seed, &stock, &folder, initial, orders).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

async fn resize(stock: &Stock, segments: u32) {
    while let Err(error) = stock.resize(segments).await {
        assert!(error.is_unavailable(), "{error}");
    }
}

/// Each order has what its buyer was told, and every item is sold or can be had.
async fn account(seed: u64, stock: &Stock, folder: &Path, initial: u64, orders: u32) {
    let mut told: HashMap<u32, (char, u64)> = HashMap::new();
    for buyer in 0..BUYERS {
        let log = std::fs::read_to_string(folder.join(buyer.to_string())).unwrap();
        for line in log.lines() {
            let (order, n) = line[1..].split_once(' ').unwrap();
            let said = (line.chars().next().unwrap(), n.parse().unwrap());
            let order = order.parse().unwrap();
            // A buyer that was killed and one that came after it are told the same, except where something came back or
            // was there again.
            if let Some(before) = told.insert(order, said) {
                let fits = before == said || before.0 == '-' || (before.0 == '=' && said.0 == '-');
                assert!(fits, "seed {seed}: order {order} was told {before:?} and then {said:?}");
            }
        }
    }
    let mut sold = 0;
    for order in 0..BUYERS * orders {
        let (said, n) =
            told.get(&order).unwrap_or_else(|| panic!("seed {seed}: order {order} was told nothing"));
        match said {
            '+' => {
                sold += n;
                assert_eq!(
                    stock.take(&format!("order-{order}"), *n).await.unwrap(),
                    Sale::Taken,
                    "seed {seed}"
                );
            }
            _ => assert!(!stock.confirm(&format!("order-{order}")).await.unwrap(), "seed {seed}: {order}"),
        }
    }
    let tally = stock.tally().await.unwrap();
    assert_eq!(tally.sold, sold, "seed {seed}: sold to nobody, or sold twice: {tally:?}");
    assert_eq!(tally.sold + tally.remaining, initial, "seed {seed}: {tally:?}");
    // What is left can be had, also what a buyer that was killed had on its way.
    let mut extra = 0;
    for order in 0.. {
        if sold + extra == initial {
            break;
        }
        assert!(order < 20_000, "seed {seed}: {} are stranded", initial - sold - extra);
        if stock.take(&format!("extra-{order}"), 1).await.unwrap().is_taken() {
            extra += 1;
        } else {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(stock.take("one too many", 1).await.unwrap(), Sale::SoldOut, "seed {seed}");
}
