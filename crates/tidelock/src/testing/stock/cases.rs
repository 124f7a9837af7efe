//! What every store of stock does.
#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use super::{Case, Counted, Lossy, World};
use crate::{
    Name,
    stock::{Answer, Sale, SegmentId, Step, Stock, TransferId},
};

macro_rules! cases {
    ($($name:ident,)*) => {
        /// Those of one sale.
        pub(super) fn all() -> Vec<Case> {
            vec![$(Case { name: stringify!($name), run: |world| Box::pin($name(world)) }),*]
        }
    };
}

cases! {
    an_order_is_taken_once_however_often_and_by_whom_it_is_asked_for,
    nothing_is_oversold_and_the_last_item_anywhere_is_found,
    many_tasks_of_several_clients_take_each_order_once,
    buyers_that_give_up_take_nobody_along,
    an_order_for_several_is_gathered_from_all_segments,
    an_order_for_more_than_there_is_takes_nothing,
    what_is_given_back_is_sold_again,
    an_order_given_back_before_it_arrives_is_never_taken,
    a_reservation_comes_back_by_itself,
    a_reservation_that_is_confirmed_stays,
    what_is_added_is_sold,
    segments_change_while_selling_and_each_order_is_taken_once,
    orders_from_before_a_change_are_known_after_it,
    a_closed_sale_takes_nothing_and_knows_its_orders,
    stock_of_a_client_that_died_on_its_way_is_found,
    a_refused_buyer_costs_one_step,
    lost_and_late_questions_and_answers_sell_nothing_twice,
    opening_again_finds_what_is_there,
    items_and_orders_of_any_name_are_kept_apart,
}

/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(3_600);
/// Within this anything happens that happens by itself.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn until<F: Future<Output = bool> + Send>(what: &str, is_so: impl Fn() -> F + Send + Sync) {
    let asking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}

/// Takes one for each order, from several tasks. Says how many were sold.
pub(super) async fn sell(stocks: &[Stock], orders: std::ops::Range<u32>) -> usize {
    let mut buyers = JoinSet::new();
    for (task, stock) in stocks.iter().cloned().cycle().take(8).enumerate() {
        let orders = orders.clone().skip(task).step_by(8);
        buyers.spawn(async move {
            let mut sold = 0;
            for order in orders {
                sold += usize::from(
                    stock.take(&format!("order-{order}"), 1).await.expect("an answer").is_taken(),
                );
            }
            sold
        });
    }
    buyers.join_all().await.iter().sum()
}

async fn an_order_is_taken_once_however_often_and_by_whom_it_is_asked_for(world: World) {
    let (one, other) = (world.open(100, 4).await, world.open(100, 4).await);
    for _ in 0..3 {
        for stock in [&one, &other] {
            assert_eq!(stock.take("order-1", 2).await.unwrap(), Sale::Taken);
        }
    }
    let tally = other.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold), (98, 2));
}

async fn nothing_is_oversold_and_the_last_item_anywhere_is_found(world: World) {
    let stocks = [world.open(101, 7).await, world.open(101, 7).await];
    assert_eq!(sell(&stocks, 0..300).await, 101);
    let tally = stocks[0].tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold, tally.returned), (0, 101, 0));
    // An order that was refused stays refused, and one that was not keeps what it has.
    assert_eq!(sell(&stocks, 0..300).await, 101);
}

/// More than there is: some orders are of one client, and some of all of them.
async fn many_tasks_of_several_clients_take_each_order_once(world: World) {
    const INITIAL: u64 = 700;
    let mut buyers = JoinSet::new();
    for client in 0..3 {
        let stock = world.open(INITIAL, 5).await;
        for task in 0..64 {
            let stock = stock.clone();
            buyers.spawn(async move {
                let mut taken = Vec::new();
                for round in 0..4 {
                    let all = format!("all-{task}-{round}");
                    if stock.take(&all, 1).await.unwrap().is_taken() {
                        taken.push(all);
                    }
                    let mine = format!("{client}-{task}-{round}");
                    let sale = match round {
                        0 => stock.reserve(&mine, 1, LONG).await.unwrap(),
                        _ => stock.take(&mine, 1).await.unwrap(),
                    };
                    match (sale, round) {
                        (Sale::Reserved, _) => assert!(stock.confirm(&mine).await.unwrap(), "{mine}"),
                        (Sale::Taken, 1) => assert!(stock.give_back(&mine).await.unwrap(), "{mine}"),
                        (Sale::Taken, _) => {}
                        (sale, _) => assert_eq!(sale, Sale::SoldOut, "{mine}"),
                    }
                    if sale != Sale::SoldOut && round != 1 {
                        taken.push(mine);
                    }
                }
                taken
            });
        }
    }
    let taken: HashSet<_> = buyers.join_all().await.into_iter().flatten().collect();
    let stock = world.open(INITIAL, 5).await;
    let tally = stock.tally().await.unwrap();
    assert_eq!(tally.sold, taken.len() as u64, "sold to nobody, or sold twice");
    assert_eq!((tally.sold + tally.remaining, tally.reserved), (INITIAL, 0));
    for order in taken {
        assert_eq!(stock.take(&order, 1).await.unwrap(), Sale::Taken, "{order}");
    }
}

async fn buyers_that_give_up_take_nobody_along(world: World) {
    let stock = world.open(1_000, 4).await;
    for round in 0..4 {
        let mut buyers = JoinSet::new();
        for task in 0..64 {
            let stock = stock.clone();
            buyers.spawn(async move {
                let order = format!("order-{round}-{task}");
                let mut take = std::pin::pin!(stock.take(&order, 1));
                if task % 2 == 0 {
                    return Some(take.await.unwrap());
                }
                // Gives up, sooner or later.
                for _ in 0..task {
                    tokio::select! {
                        biased;
                        sale = &mut take => return Some(sale.unwrap()),
                        () = tokio::task::yield_now() => {}
                    }
                }
                None
            });
        }
        let sales = buyers.join_all().await;
        assert!(sales.iter().flatten().all(|sale| sale.is_taken()), "{sales:?}");
    }
    for order in (0..4).flat_map(|round| (0..64).map(move |task| format!("order-{round}-{task}"))) {
        assert_eq!(stock.take(&order, 1).await.unwrap(), Sale::Taken, "{order}");
    }
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.sold, tally.remaining), (256, 744));
}

async fn an_order_for_several_is_gathered_from_all_segments(world: World) {
    let stock = world.open(10, 5).await;
    assert_eq!(stock.take("all", 10).await.unwrap(), Sale::Taken);
    assert_eq!(stock.take("more", 1).await.unwrap(), Sale::SoldOut);
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold), (0, 10));
}

async fn an_order_for_more_than_there_is_takes_nothing(world: World) {
    let stock = world.open(10, 5).await;
    assert_eq!(stock.take("too many", 11).await.unwrap(), Sale::SoldOut);
    assert_eq!(stock.remaining().await.unwrap(), 10);
    assert!(stock.take("none", 0).await.unwrap_err().is_invalid_option());
    assert!(stock.take("", 1).await.unwrap_err().is_invalid_option());
    assert!(stock.reserve("a", 1, Duration::ZERO).await.unwrap_err().is_invalid_option());
}

async fn what_is_given_back_is_sold_again(world: World) {
    let stock = world.open(3, 3).await;
    assert_eq!(sell(std::slice::from_ref(&stock), 0..3).await, 3);
    assert_eq!(stock.take("late", 1).await.unwrap(), Sale::SoldOut);
    assert!(stock.give_back("order-1").await.unwrap());
    assert!(stock.give_back("order-1").await.unwrap(), "repeated it says the same");
    assert_eq!(stock.take("order-1", 1).await.unwrap(), Sale::Returned);
    assert_eq!(stock.take("late", 1).await.unwrap(), Sale::Taken);
    assert_eq!(stock.take("later", 1).await.unwrap(), Sale::SoldOut);
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold, tally.returned), (0, 3, 1));
}

async fn an_order_given_back_before_it_arrives_is_never_taken(world: World) {
    let (stock, other) = (world.open(3, 2).await, world.open(3, 2).await);
    assert!(!stock.give_back("slow").await.unwrap());
    assert_eq!(other.take("slow", 1).await.unwrap(), Sale::SoldOut);
    assert_eq!(stock.remaining().await.unwrap(), 3);
}

async fn a_reservation_comes_back_by_itself(world: World) {
    let (stock, other) = (world.open(2, 2).await, world.open(2, 2).await);
    let short = Duration::from_millis(300);
    assert_eq!(stock.reserve("a", 2, short).await.unwrap(), Sale::Reserved);
    until("what was reserved can be had", async || other.take("b", 2).await.unwrap().is_taken()).await;
    assert_eq!(stock.reserve("a", 2, short).await.unwrap(), Sale::Returned);
    assert!(!stock.confirm("a").await.unwrap());
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold, tally.reserved, tally.returned), (0, 2, 0, 2));
}

async fn a_reservation_that_is_confirmed_stays(world: World) {
    let stock = world.open(2, 2).await;
    let short = Duration::from_secs(2);
    assert_eq!(stock.reserve("a", 1, short).await.unwrap(), Sale::Reserved);
    assert_eq!(stock.reserve("b", 1, short).await.unwrap(), Sale::Reserved);
    assert_eq!(stock.tally().await.unwrap().reserved, 2);
    assert!(stock.confirm("a").await.unwrap() && stock.confirm("a").await.unwrap());
    assert!(!stock.confirm("nobody").await.unwrap());
    until("the other one comes back", async || stock.remaining().await.unwrap() == 1).await;
    assert_eq!(stock.take("a", 1).await.unwrap(), Sale::Taken);
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.sold, tally.reserved, tally.returned), (1, 0, 1));
}

async fn what_is_added_is_sold(world: World) {
    let (stock, other) = (world.open(5, 3).await, world.open(5, 3).await);
    assert_eq!(sell(&[stock.clone(), other.clone()], 0..20).await, 5);
    stock.add(7).await.unwrap();
    assert_eq!(stock.remaining().await.unwrap(), 7);
    // Another client may believe for a moment that there is nothing.
    until("all of it is sold", async || {
        let sold = sell(std::slice::from_ref(&other), 100..120).await;
        let _ = sell(std::slice::from_ref(&other), 0..20).await;
        sold == 7 || stock.remaining().await.unwrap() == 0
    })
    .await;
    assert_eq!(stock.tally().await.unwrap().sold, 12);
}

async fn segments_change_while_selling_and_each_order_is_taken_once(world: World) {
    let stocks = [world.open(400, 3).await, world.open(400, 3).await];
    let keeper = world.open(400, 3).await;
    let changing = async {
        for segments in [9, 2, 5, 1, 6] {
            keeper.resize(segments).await.unwrap();
        }
    };
    // Each order is asked for by both clients, whichever mapping they know.
    let (one, two, ()) = tokio::join!(sell(&stocks[..1], 0..300), sell(&stocks[1..], 0..300), changing);
    assert_eq!((one, two), (300, 300));
    let tally = keeper.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold), (100, 300));
    assert_eq!(keeper.segments(), 6);
    assert_eq!(sell(&stocks, 300..500).await, 100);
    assert_eq!(keeper.remaining().await.unwrap(), 0);
}

async fn orders_from_before_a_change_are_known_after_it(world: World) {
    let (old, new) = (world.open(50, 2).await, world.open(50, 2).await);
    assert_eq!(sell(std::slice::from_ref(&old), 0..30).await, 30);
    new.resize(8).await.unwrap();
    assert_eq!(sell(std::slice::from_ref(&new), 0..30).await, 30);
    assert_eq!(new.remaining().await.unwrap(), 20);
    for order in 0..10 {
        assert!(new.give_back(&format!("order-{order}")).await.unwrap());
        // This one still goes by the mapping before.
        assert_eq!(old.take(&format!("order-{order}"), 1).await.unwrap(), Sale::Returned);
    }
    let tally = old.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold, tally.returned), (30, 20, 10));
}

async fn a_closed_sale_takes_nothing_and_knows_its_orders(world: World) {
    let (stock, other) = (world.open(5, 3).await, world.open(5, 3).await);
    assert_eq!(stock.take("a", 1).await.unwrap(), Sale::Taken);
    stock.close().await.unwrap();
    stock.close().await.unwrap();
    for stock in [&stock, &other] {
        assert_eq!(stock.take("b", 1).await.unwrap(), Sale::Closed);
        assert_eq!(stock.take("a", 1).await.unwrap(), Sale::Taken);
        assert!(stock.add(1).await.is_err_and(|error| error.is_closed()));
    }
    assert!(other.give_back("a").await.unwrap());
    let tally = other.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold, tally.returned), (5, 0, 1));
    assert_eq!(world.open(5, 3).await.take("c", 1).await.unwrap(), Sale::Closed);
}

/// As a client leaves it that is killed after the first of three steps, and after the second.
async fn stock_of_a_client_that_died_on_its_way_is_found(world: World) {
    let stock = world.open(2, 2).await;
    let stores = world.stocks().await.stores().to_vec();
    let segment = |number: u32| SegmentId { item: Name::new(world.item()).unwrap(), number };
    let store = |number: u32| &stores[number as usize % stores.len()];
    for number in 0..2 {
        let lend = Step::Lend { transfer: TransferId(number.into()), n: 1, to: 1 - number };
        let lent = store(number).apply(&segment(number), stock.sale(), &lend).await.unwrap();
        assert_eq!(lent, Answer::Lent { n: 1, pending: 1 });
    }
    let bring = Step::Bring { transfer: TransferId(0), n: 1 };
    assert_eq!(store(1).apply(&segment(1), stock.sale(), &bring).await.unwrap(), Answer::Brought(false));
    // One has arrived, and one is on its way: both are counted once.
    assert_eq!(stock.remaining().await.unwrap(), 2);
    let sold = AtomicU64::new(0);
    until("both are sold", async || {
        for order in 0..4 {
            let sale = stock.take(&format!("order-{order}"), 1).await.unwrap();
            sold.fetch_or(u64::from(sale.is_taken()) << order, Ordering::SeqCst);
        }
        sold.load(Ordering::SeqCst).count_ones() == 2
    })
    .await;
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold), (0, 2));
}

async fn a_refused_buyer_costs_one_step(world: World) {
    const REFUSED: u64 = 2_000;
    let steps = Arc::new(AtomicU64::new(0));
    let stocks = world.behind(|store| Counted::new(store, &steps)).await;
    let stock = stocks.open(world.item(), 20).segments(5).await.unwrap();
    assert_eq!(sell(std::slice::from_ref(&stock), 0..40).await, 20);
    let (before, clock) = (steps.load(Ordering::SeqCst), crate::clock::Clock::machine());
    let began = clock.now();
    for order in 0..REFUSED {
        assert_eq!(stock.take(&format!("late-{order}"), 1).await.unwrap(), Sale::SoldOut);
    }
    let asked = steps.load(Ordering::SeqCst) - before;
    // Every 100 ms each of the five segments may be asked once more, by somebody who then asks its own again.
    let looked = 10 * (2 + clock.now().since(began).as_millis() as u64 / 100);
    assert!((REFUSED..=REFUSED + looked).contains(&asked), "{asked} steps for {REFUSED} refused buyers");
}

async fn lost_and_late_questions_and_answers_sell_nothing_twice(world: World) {
    for seed in 0..4 {
        let world = World { item: format!("{}/{seed}", world.item), ..world.clone() };
        let clean = world.open(60, 4).await;
        let mut buyers = JoinSet::new();
        for buyer in 0..4 {
            let stocks = world.behind(|store| Lossy::new(store, seed * 10 + buyer)).await;
            let world = world.clone();
            buyers.spawn(async move {
                let stock = persist(async || stocks.find(world.item()).await).await;
                let (mut taken, mut refused) = (Vec::new(), 0);
                for order in 0..30 {
                    let order = format!("{buyer}-{order}");
                    match persist(async || stock.take(&order, 1).await).await {
                        Sale::Taken => taken.push(order),
                        _ => refused += 1,
                    }
                    // Some come back, and some of those while others are refused.
                    if taken.len() % 5 == 4 {
                        let order = taken.pop().unwrap_or_default();
                        assert!(persist(async || stock.give_back(&order).await).await);
                    }
                }
                (taken, refused)
            });
        }
        let sold: Vec<_> = buyers.join_all().await;
        let taken: Vec<_> = sold.iter().flat_map(|(taken, _)| taken).collect();
        let tally = clean.tally().await.unwrap();
        assert_eq!(tally.sold, taken.len() as u64, "seed {seed}: sold to nobody, or sold twice");
        assert_eq!(tally.sold + tally.remaining, 60, "seed {seed}");
        for order in taken {
            assert_eq!(clean.take(order, 1).await.unwrap(), Sale::Taken, "seed {seed}: {order}");
        }
        // What is left can be had, strays and all.
        let left = std::sync::atomic::AtomicU32::new(1_000);
        until("nothing is stranded", async || {
            let first = left.fetch_add(20, Ordering::SeqCst);
            sell(std::slice::from_ref(&clean), first..first + 20).await;
            clean.remaining().await.unwrap() == 0
        })
        .await;
        assert_eq!(clean.tally().await.unwrap().sold, 60, "seed {seed}");
    }
}

/// Asks until there is an answer.
pub(super) async fn persist<T, F: Future<Output = crate::Result<T>> + Send>(
    ask: impl Fn() -> F + Send + Sync,
) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    }
}

async fn opening_again_finds_what_is_there(world: World) {
    let stocks = world.stocks().await;
    assert!(stocks.find(world.item()).await.is_err_and(|error| error.is_no_such_stock()));
    let opening = |segments| stocks.open(world.item(), 9).segments(segments);
    let (one, other) = tokio::join!(opening(3).into_future(), opening(3).into_future());
    assert_eq!(one.unwrap().take("a", 4).await.unwrap(), Sale::Taken);
    assert_eq!(other.unwrap().remaining().await.unwrap(), 5);
    let found = opening(7).await.unwrap();
    assert_eq!((found.segments(), found.remaining().await.unwrap()), (3, 5));
    assert_eq!(stocks.find(world.item()).await.unwrap().take("a", 4).await.unwrap(), Sale::Taken);
    assert!(stocks.open(world.item(), 10).await.is_err_and(|error| error.is_invalid_option()));
    assert!(opening(0).await.is_err_and(|error| error.is_invalid_option()));
    assert!(stocks.open("", 10).await.is_err_and(|error| error.is_invalid_name()));
}

async fn items_and_orders_of_any_name_are_kept_apart(world: World) {
    let stocks = world.stocks().await;
    let items = ["a", "A", "a/", "1/a", "{a}", "..", "a b", "🛒", "%7Ba%7D", "o", "n"];
    for (count, item) in items.iter().enumerate() {
        let item = format!("{}{item}", world.item());
        let stock = stocks.open(&item, 10 + count as u64).segments(2).await.unwrap();
        for order in items {
            // The first item has one less than there are orders.
            let sale = stock.take(order, 1).await.unwrap();
            assert_eq!(sale.is_taken(), count > 0 || order != "n", "{item:?} {order:?}");
        }
    }
}
