//! Sales in a cluster whose slots are being moved, and whose masters hand over to their replicas.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use libtest_mimic::Trial;
use test_servers::{Cluster, Redis, Server};
use tidelock::{
    stock::{Sale, Stock, Stocks},
    testing::rng::Rng,
};
use tokio::task::JoinSet;

const SEGMENTS: u32 = 3;
const CLIENTS: u32 = 3;
const TASKS: u32 = 8;
/// Longer than any trial takes.
const LONG: Duration = Duration::from_secs(3_600);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("redis::a_slot_that_is_only_opened_for_a_move_sells_as_any_other", || {
            crate::run(only_migrating())
        }),
        Trial::test("redis::a_segment_in_two_halves_does_a_step_or_does_nothing", || crate::run(in_halves())),
        Trial::test("redis::a_sale_goes_on_while_slots_are_moved_key_by_key_and_back", || {
            crate::run(under_load(|cluster| {
                for round in 0..runs(4) {
                    (0..SEGMENTS).for_each(|number| move_segment(cluster, number, round % 2 == 0));
                }
            }))
        }),
        Trial::test("redis::a_sale_goes_on_while_masters_of_a_cluster_hand_over", || {
            crate::run(under_load(|cluster| {
                for round in 0..runs(3) {
                    let master = cluster.master_of_key(&key(round as u32 % SEGMENTS)).unwrap();
                    cluster.fail_over(master).unwrap();
                }
            }))
        }),
    ]
}

fn runs(few: usize) -> usize {
    std::env::var("TIDELOCK_FAULT_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(few)
}

fn key(number: u32) -> String {
    format!("slots:stock:{{{number}/item}}")
}

fn cluster() -> Arc<Cluster> {
    Arc::new(Redis::new().patient().start_cluster().unwrap())
}

async fn open(cluster: &Cluster, initial: u64, segments: u32) -> Stock {
    let stocks = Stocks::connect(&format!("{}?prefix=slots:", cluster.url())).await.unwrap();
    stocks.open("item", initial).segments(segments).await.unwrap()
}

fn another_master<'a>(cluster: &'a Cluster, than: &Server) -> &'a Server {
    cluster.masters().into_iter().find(|master| master.addr() != than.addr()).unwrap()
}

/// A key of a segment at a time, the agenda first or last.
fn move_segment(cluster: &Cluster, number: u32, agenda_first: bool) {
    let slot = cluster.slot_of_key(&key(number)).unwrap();
    let to = another_master(cluster, cluster.master_of_slot(slot).unwrap());
    let half_way = cluster.begin_slot_move(slot, to).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let (hash, agenda) = (key(number), format!("{}:a", key(number)));
    let keys = if agenda_first { [agenda, hash] } else { [hash, agenda] };
    for key in keys {
        // Neither is ever missing.
        half_way.move_key(&key).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    half_way.finish().unwrap();
}

/// Everything that makes the agenda empty and fills it again.
async fn each_kind_of_step(stock: &Stock, name: &str) {
    let order = |what: &str| format!("{what}-{name}");
    let before = stock.tally().await.unwrap().reserved;
    assert_eq!(stock.take(&order("sold"), 1).await.unwrap(), Sale::Taken);
    for round in 0..3 {
        let (held, kept) = (order(&format!("held-{round}")), order(&format!("kept-{round}")));
        assert_eq!(stock.reserve(&held, 1, LONG).await.unwrap(), Sale::Reserved);
        assert!(stock.give_back(&held).await.unwrap());
        assert_eq!(stock.reserve(&kept, 1, LONG).await.unwrap(), Sale::Reserved);
        assert!(stock.confirm(&kept).await.unwrap());
        let lapses = order(&format!("lapses-{round}"));
        assert_eq!(stock.reserve(&lapses, 1, Duration::from_millis(1)).await.unwrap(), Sale::Reserved);
        while stock.tally().await.unwrap().reserved > before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(stock.reserve(&lapses, 1, LONG).await.unwrap(), Sale::Returned);
    }
}

/// No key moves.
async fn only_migrating() {
    let cluster = cluster();
    let stock = open(&cluster, 100, 1).await;
    each_kind_of_step(&stock, "before").await;
    for key in [key(0), "slots:plan:{item}".to_owned()] {
        let slot = cluster.slot_of_key(&key).unwrap();
        let to = another_master(&cluster, cluster.master_of_slot(slot).unwrap());
        cluster.begin_slot_move(slot, to).unwrap();
    }
    each_kind_of_step(&stock, "while").await;
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.sold, tally.remaining, tally.returned), (8, 92, 12));
    // The plan can be written there too.
    stock.close().await.unwrap();
    assert_eq!(stock.take("late", 1).await.unwrap(), Sale::Closed);
}

/// Steps that need both halves wait, and others do not.
async fn in_halves() {
    let cluster = cluster();
    let stock = open(&cluster, 100, 1).await;
    each_kind_of_step(&stock, "before").await;
    for (round, agenda_first) in [true, false].into_iter().enumerate() {
        let slot = cluster.slot_of_key(&key(0)).unwrap();
        let to = another_master(&cluster, cluster.master_of_slot(slot).unwrap());
        let half_way = cluster.begin_slot_move(slot, to).unwrap();
        let (hash, agenda) = (key(0), format!("{}:a", key(0)));
        let (first, second) = if agenda_first { (&agenda, &hash) } else { (&hash, &agenda) };
        half_way.move_key(first).unwrap();
        assert_eq!(stock.take(&format!("plain-{round}"), 1).await.unwrap(), Sale::Taken);
        let held = format!("waits-{round}");
        let (stock_of_task, id) = (stock.clone(), held.clone());
        let mut waits = JoinSet::new();
        waits.spawn(async move {
            loop {
                match stock_of_task.reserve(&id, 1, LONG).await {
                    Ok(sale) => return sale,
                    Err(error) => assert!(error.is_unavailable(), "{error}"),
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(waits.try_join_next().is_none(), "it was reserved in half a segment");
        half_way.move_key(second).unwrap();
        assert_eq!(waits.join_next().await.unwrap().unwrap(), Sale::Reserved);
        each_kind_of_step(&stock, &format!("moved-{round}")).await;
        half_way.finish().unwrap();
        assert!(stock.give_back(&held).await.unwrap());
        each_kind_of_step(&stock, &format!("finished-{round}")).await;
    }
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.sold, tally.reserved, tally.remaining + tally.sold), (22, 0, 100));
}

/// Buyers of several clients take, reserve, confirm and give back more than there is while something is done to the
/// cluster. Then every item is accounted for.
async fn under_load(trouble: impl Fn(&Cluster) + Send + 'static) {
    const INITIAL: u64 = 400;
    let cluster = cluster();
    let stock = open(&cluster, INITIAL, SEGMENTS).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut buyers = JoinSet::new();
    for client in 0..CLIENTS {
        let stock = open(&cluster, INITIAL, SEGMENTS).await;
        for task in 0..TASKS {
            let (stock, is_over) = (stock.clone(), Arc::clone(&is_over));
            buyers.spawn(async move { buy(&stock, client * TASKS + task, &is_over).await });
        }
    }
    let troubled = Arc::clone(&cluster);
    let trouble = std::thread::spawn(move || trouble(&troubled));
    while !trouble.is_finished() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    is_over.store(true, Ordering::SeqCst);
    let asked = buyers.join_all().await;
    trouble.join().expect("the trouble was made");
    let told: HashMap<_, _> = asked.into_iter().flatten().collect();
    let mut sold = 0;
    for (order, (n, is_sold)) in &told {
        sold += if *is_sold { *n } else { 0 };
        assert_eq!(stock.confirm(order).await.unwrap(), *is_sold, "{order}");
    }
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.sold, tally.reserved), (sold, 0), "sold to nobody, or sold twice: {tally:?}");
    assert_eq!(tally.sold + tally.remaining, INITIAL, "{tally:?}");
    let mut extra = 0;
    while sold < INITIAL {
        assert!(extra < 20_000, "{} are stranded", INITIAL - sold);
        sold += u64::from(stock.take(&format!("extra-{extra}"), 1).await.unwrap().is_taken());
        extra += 1;
    }
    assert_eq!(stock.take("one too many", 1).await.unwrap(), Sale::SoldOut);
}

/// What each order asked for, and whether it is sold at the end.
async fn buy(stock: &Stock, task: u32, is_over: &AtomicBool) -> Vec<(String, (u64, bool))> {
    let mut rng = Rng::new(u64::from(task));
    let mut told = Vec::new();
    let mut mine: Vec<String> = Vec::new();
    for number in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let (order, n) = (format!("{task}-{number}"), 1 + rng.below(8) / 7);
        let is_sold = match rng.below(4) {
            0 => {
                let sale = persist(async || stock.reserve(&order, n, LONG).await).await;
                sale == Sale::Reserved && persist(async || stock.confirm(&order).await).await
            }
            1 => {
                if persist(async || stock.reserve(&order, n, LONG).await).await == Sale::Reserved {
                    assert!(persist(async || stock.give_back(&order).await).await);
                }
                false
            }
            _ => persist(async || stock.take(&order, n).await).await.is_taken(),
        };
        if is_sold {
            mine.push(order.clone());
        }
        told.push((order, (n, is_sold)));
        // Some come back, so that there is always something to be sold.
        if mine.len() > 10 {
            let order = mine.swap_remove(rng.below(mine.len() as u64) as usize);
            assert!(persist(async || stock.give_back(&order).await).await);
            told.iter_mut().filter(|(id, _)| *id == order).for_each(|(_, (_, is_sold))| *is_sold = false);
        }
    }
    told
}

/// Asks until there is an answer.
async fn persist<T, F: Future<Output = tidelock::Result<T>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
