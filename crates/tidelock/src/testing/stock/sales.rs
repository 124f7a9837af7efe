//! What every store of stock does when an item is sold again, and when an order is asked for in another way.
#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::{future::pending, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::{
    Case, World,
    cases::{sell, until},
};
use crate::{
    Name,
    backend::{Call, Failure},
    stock::{Answer, CLOSED, End, Sale, SegmentId, Standing, Step, Stock, StockStore, TransferId},
};

macro_rules! cases {
    ($($name:ident,)*) => {
        pub(super) fn all() -> Vec<Case> {
            vec![$(Case { name: stringify!($name), run: |world| Box::pin($name(world)) }),*]
        }
    };
}

cases! {
    a_late_give_back_to_a_closed_sale_leaves_the_next_sale_as_it_is,
    a_handle_of_a_closed_sale_takes_nothing_from_the_next_with_other_segments,
    every_call_by_a_handle_of_a_closed_sale_is_told_so,
    every_step_of_another_sale_changes_nothing,
    a_late_plan_of_a_closed_sale_does_not_replace_the_next,
    no_question_closes_a_segment,
    a_sale_that_was_closed_in_part_is_closed_by_the_next_that_asks,
    a_sale_that_lost_a_segment_can_be_closed,
    a_plan_that_does_not_fit_its_segments_is_an_error_and_no_loop,
    the_same_order_for_another_amount_is_an_error_that_tells_both,
    an_order_that_is_reserved_and_taken_is_one_order,
    one_id_for_two_amounts_at_once_is_one_order_and_an_error,
    a_refusal_stays_though_too_many_orders_went_unanswered_to_remember,
}

/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(3_600);
/// Within this every call has an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Closes a sale, and opens the item again when it is forgotten.
async fn sell_again(world: &World, old: &Stock, initial: u64, segments: u32) -> Stock {
    old.close_keeping(Duration::from_millis(1)).await.unwrap();
    let stocks = world.stocks().await;
    until("the sale before is forgotten", async || stocks.find(world.item()).await.is_err()).await;
    let new = stocks.open(world.item(), initial).segments(segments).await.unwrap();
    assert_ne!(new.sale(), old.sale());
    new
}

/// The store that has a segment, and its name.
async fn store_of(world: &World, number: u32) -> (Arc<dyn StockStore>, SegmentId) {
    let stores = world.stocks().await.stores().to_vec();
    let segment = SegmentId { item: Name::new(world.item()).unwrap(), number };
    (Arc::clone(&stores[number as usize % stores.len()]), segment)
}

async fn in_time<T>(call: impl Future<Output = T> + Send) -> T {
    tokio::time::timeout(PATIENCE, call).await.expect("an answer, and no loop")
}

async fn a_late_give_back_to_a_closed_sale_leaves_the_next_sale_as_it_is(world: World) {
    let (old, other) = (world.open(100, 4).await, world.open(100, 4).await);
    assert_eq!(old.take("a", 1).await.unwrap(), Sale::Taken);
    let new = sell_again(&world, &old, 100, 4).await;
    // One knows that its sale was closed, and the other does not.
    for stock in [&old, &other] {
        for order in ["a", "b", "c", "d", "e", "f"] {
            let error = in_time(stock.give_back(order)).await.unwrap_err();
            assert!(error.is_other_sale(), "{error}");
        }
    }
    assert_eq!(new.take("all", 100).await.unwrap(), Sale::Taken);
    let tally = new.tally().await.unwrap();
    assert_eq!((tally.sold, tally.remaining, tally.returned), (100, 0, 0));
}

async fn a_handle_of_a_closed_sale_takes_nothing_from_the_next_with_other_segments(world: World) {
    let (old, other) = (world.open(100, 4).await, world.open(100, 4).await);
    let new = sell_again(&world, &old, 100, 7).await;
    for order in 0..40 {
        let order = format!("order-{order}");
        assert_eq!(new.take(&order, 1).await.unwrap(), Sale::Taken);
        assert!(in_time(other.take(&order, 1)).await.is_err_and(|error| error.is_other_sale()));
    }
    assert_eq!(new.tally().await.unwrap().sold, 40);
}

async fn every_call_by_a_handle_of_a_closed_sale_is_told_so(world: World) {
    let (closer, idle) = (world.open(20, 3).await, world.open(20, 3).await);
    assert_eq!(idle.reserve("held", 1, LONG).await.unwrap(), Sale::Reserved);
    let new = sell_again(&world, &closer, 20, 5).await;
    for old in [&closer, &idle] {
        assert!(in_time(old.take("a", 1)).await.unwrap_err().is_other_sale());
        assert!(in_time(old.take("b", 20)).await.unwrap_err().is_other_sale());
        assert!(in_time(old.reserve("c", 1, LONG)).await.unwrap_err().is_other_sale());
        assert!(in_time(old.confirm("held")).await.unwrap_err().is_other_sale());
        assert!(in_time(old.tally()).await.unwrap_err().is_other_sale());
        assert!(in_time(old.resize(9)).await.unwrap_err().is_other_sale());
        assert!(in_time(old.close()).await.unwrap_err().is_other_sale());
    }
    assert!(in_time(idle.add(5)).await.unwrap_err().is_other_sale());
    assert!(in_time(closer.add(5)).await.unwrap_err().is_closed());
    let text = in_time(idle.take("a", 1)).await.unwrap_err().to_string();
    assert!(
        text.contains(&format!("{:016x}", idle.sale())) && text.ends_with("open the item again"),
        "{text}"
    );
    assert_eq!((new.segments(), new.remaining().await.unwrap()), (5, 20));
    assert_eq!(sell(std::slice::from_ref(&new), 0..30).await, 20);
}

/// Past all that a client checks before.
async fn every_step_of_another_sale_changes_nothing(world: World) {
    let stock = world.open(10, 1).await;
    assert_eq!(stock.reserve("held", 2, LONG).await.unwrap(), Sale::Reserved);
    let (store, segment) = store_of(&world, 0).await;
    let transfer = TransferId(7);
    let order = |order: &str| order.into();
    let steps = [
        Step::Fill { fence: 1, n: 5 },
        Step::Take { fence: 1, order: order("a"), n: 1, hold: None, brings: None },
        Step::Take { fence: 9, order: order("a"), n: 0, hold: None, brings: Some((transfer, 3)) },
        Step::Take { fence: CLOSED, order: order("a"), n: 1, hold: Some(LONG), brings: None },
        Step::End { fence: 9, order: order("held"), how: End::GiveBack },
        Step::End { fence: CLOSED, order: order("held"), how: End::Confirm },
        Step::End { fence: 1, order: order("b"), how: End::Void },
        Step::Lend { transfer, n: 1, to: 0 },
        Step::Bring { transfer, n: 4 },
        Step::Settle { transfer },
        Step::Look,
        Step::Close { keep: Duration::from_millis(1) },
    ];
    for other in [stock.sale() + 1, 0, 1] {
        for step in &steps {
            let answer = store.apply(&segment, other, step).await.unwrap();
            assert_eq!(answer, Answer::OtherSale, "{step:?}");
        }
    }
    assert!(stock.confirm("held").await.unwrap());
    assert_eq!(stock.take("b", 1).await.unwrap(), Sale::Taken);
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold, tally.reserved, tally.returned), (7, 3, 0, 0));
}

async fn a_late_plan_of_a_closed_sale_does_not_replace_the_next(world: World) {
    let old = world.open(10, 2).await;
    let (store, segment) = store_of(&world, 0).await;
    let before = store.plan(&segment.item).await.unwrap();
    let new = sell_again(&world, &old, 10, 2).await;
    let after = store.plan(&segment.item).await.unwrap();
    assert_ne!(before, after);
    for late in [before.as_deref(), None] {
        assert!(!store.replan(&segment.item, late, "a plan that comes too late", None).await.unwrap());
    }
    assert_eq!(store.plan(&segment.item).await.unwrap(), after);
    assert_eq!(new.remaining().await.unwrap(), 10);
}

async fn no_question_closes_a_segment(world: World) {
    let stock = world.open(10, 1).await;
    let (store, segment) = store_of(&world, 0).await;
    let take = Step::Take { fence: CLOSED, order: "a".into(), n: 1, hold: None, brings: None };
    for step in [take.clone(), Step::End { fence: CLOSED, order: "a".into(), how: End::GiveBack }] {
        let answer = store.apply(&segment, stock.sale(), &step).await.unwrap();
        assert_eq!(answer, Answer::Stale(1), "{step:?}");
    }
    assert_eq!(stock.take("a", 1).await.unwrap(), Sale::Taken);
    // And one that is closed takes nothing, even if it is asked to.
    stock.close().await.unwrap();
    let take = Step::Take { fence: CLOSED, order: "b".into(), n: 1, hold: None, brings: None };
    let answer = store.apply(&segment, stock.sale(), &take).await.unwrap();
    assert_eq!(answer, Answer::Order(Standing::Unknown));
    assert_eq!(stock.tally().await.unwrap().sold, 1);
}

/// As a client leaves it that is killed while it closes a sale.
async fn a_sale_that_was_closed_in_part_is_closed_by_the_next_that_asks(world: World) {
    let (stock, other) = (world.open(40, 4).await, world.open(40, 4).await);
    assert_eq!(sell(std::slice::from_ref(&stock), 0..20).await, 20);
    let (store, segment) = store_of(&world, 2).await;
    let closed = store.apply(&segment, stock.sale(), &Step::Close { keep: LONG }).await.unwrap();
    assert_eq!(closed, Answer::Done);
    // Orders of the segment that is closed find out, and all others learn of it.
    let mut is_closed = false;
    for order in 100..140 {
        let sale = in_time(stock.take(&format!("order-{order}"), 1)).await.unwrap();
        // Until then other segments may sell out: which orders are of the closed one differs from sale to sale.
        assert!(sale == Sale::Closed || !is_closed, "{order}: {sale:?}");
        is_closed |= sale == Sale::Closed;
    }
    assert!(is_closed);
    for order in 140..150 {
        assert_eq!(in_time(other.take(&format!("order-{order}"), 1)).await.unwrap(), Sale::Closed);
    }
    assert!(in_time(other.give_back("order-1")).await.unwrap());
    let opened = world.open(40, 4).await;
    assert_eq!(opened.take("late", 1).await.unwrap(), Sale::Closed);
    let tally = opened.tally().await.unwrap();
    assert_eq!((tally.sold + tally.remaining, tally.returned), (40, 1));
}

async fn a_sale_that_lost_a_segment_can_be_closed(world: World) {
    let stock = world.open(40, 4).await;
    let (store, segment) = store_of(&world, 1).await;
    let forget = Step::Close { keep: Duration::from_millis(1) };
    assert_eq!(store.apply(&segment, stock.sale(), &forget).await.unwrap(), Answer::Done);
    let look = async || store.apply(&segment, stock.sale(), &Step::Look).await.unwrap();
    until("a segment is forgotten", async || look().await == Answer::Absent).await;
    assert!(stock.tally().await.unwrap_err().is_denied());
    in_time(stock.close_keeping(Duration::from_millis(1))).await.unwrap();
    until("the sale is forgotten", async || world.stocks().await.find(world.item()).await.is_err()).await;
    assert_eq!(world.open(30, 2).await.remaining().await.unwrap(), 30);
}

/// As after a server that went back to an earlier state: a segment has seen a mapping that no plan has.
async fn a_plan_that_does_not_fit_its_segments_is_an_error_and_no_loop(world: World) {
    let stock = world.open(10, 1).await;
    let (store, segment) = store_of(&world, 0).await;
    let ahead = Step::Take { fence: 7, order: "-".into(), n: 0, hold: None, brings: None };
    let answer = store.apply(&segment, stock.sale(), &ahead).await.unwrap();
    assert_eq!(answer, Answer::Order(Standing::Unknown));
    let error = in_time(stock.take("a", 1)).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("do not agree"), "{error}");
    assert!(in_time(stock.give_back("a")).await.unwrap_err().is_unavailable());
    assert_eq!(stock.remaining().await.unwrap(), 10);
}

async fn the_same_order_for_another_amount_is_an_error_that_tells_both(world: World) {
    let (stock, other) = (world.open(100, 4).await, world.open(100, 4).await);
    assert_eq!(stock.take("sold", 2).await.unwrap(), Sale::Taken);
    assert_eq!(stock.reserve("held", 3, LONG).await.unwrap(), Sale::Reserved);
    assert_eq!(stock.take("back", 4).await.unwrap(), Sale::Taken);
    assert!(stock.give_back("back").await.unwrap());
    let check = async |stock: &Stock| {
        for (order, before) in [("sold", 2), ("held", 3), ("back", 4)] {
            for asked in [before - 1, before + 1, 1_000_000] {
                let errors = [
                    stock.take(order, asked).await.unwrap_err(),
                    stock.reserve(order, asked, LONG).await.unwrap_err(),
                ];
                for error in errors {
                    let text = error.to_string();
                    let both = format!("asked for {before} before and asks for {asked} now");
                    assert!(error.is_order_mismatch() && text.contains(&both), "{text}");
                }
            }
        }
    };
    check(&other).await;
    // Wherever the orders belong since.
    stock.resize(7).await.unwrap();
    check(&other).await;
    assert_eq!(stock.take("sold", 2).await.unwrap(), Sale::Taken);
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold, tally.reserved, tally.returned), (95, 2, 3, 4));
    stock.close().await.unwrap();
    check(&other).await;
}

async fn an_order_that_is_reserved_and_taken_is_one_order(world: World) {
    let (stock, other) = (world.open(10, 2).await, world.open(10, 2).await);
    assert_eq!(stock.reserve("a", 2, LONG).await.unwrap(), Sale::Reserved);
    assert_eq!(other.take("a", 2).await.unwrap(), Sale::Reserved, "it is not sold before it is confirmed");
    assert_eq!(stock.tally().await.unwrap().reserved, 2);
    assert!(other.confirm("a").await.unwrap());
    assert_eq!(stock.reserve("a", 2, LONG).await.unwrap(), Sale::Taken, "it was confirmed");
    assert_eq!(stock.take("b", 3).await.unwrap(), Sale::Taken);
    assert_eq!(other.reserve("b", 3, LONG).await.unwrap(), Sale::Taken, "it is sold already");
    assert!(other.give_back("b").await.unwrap());
    assert_eq!(stock.reserve("b", 3, LONG).await.unwrap(), Sale::Returned);
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.remaining, tally.sold, tally.reserved, tally.returned), (8, 2, 0, 3));
}

async fn one_id_for_two_amounts_at_once_is_one_order_and_an_error(world: World) {
    let stock = world.open(1_000, 2).await;
    let mut buyers = JoinSet::new();
    for task in 0_u64..64 {
        let stock = stock.clone();
        buyers.spawn(async move {
            // Four of each id: two ask for one, and two for two.
            let order = format!("order-{}", task / 4);
            (order.clone(), 1 + task % 2, stock.take(&order, 1 + task % 2).await)
        });
    }
    let mut taken = std::collections::HashMap::new();
    for (order, n, sale) in buyers.join_all().await {
        match sale {
            Ok(sale) => {
                assert_eq!(sale, Sale::Taken);
                assert_eq!(*taken.entry(order).or_insert(n), n, "one id was taken for two amounts");
            }
            Err(error) => assert!(error.is_order_mismatch(), "{error}"),
        }
    }
    assert_eq!((taken.len() as u64, taken.values().sum()), (16, stock.tally().await.unwrap().sold));
}

/// Answers nothing to takes until it is told to.
#[derive(Debug)]
struct Mute {
    inner: Arc<dyn StockStore>,
    is_mute: std::sync::atomic::AtomicBool,
}

impl StockStore for Mute {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn plan(&self, item: &Name) -> Call<Option<String>> {
        self.inner.plan(item)
    }

    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
        self.inner.replan(item, before, text, keep)
    }

    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
        if self.is_mute.load(std::sync::atomic::Ordering::SeqCst) {
            return Call::later(pending::<Result<Answer, Failure>>());
        }
        self.inner.apply(segment, sale, step)
    }
}

/// Buyers that give up before they have an answer: each may still take, so the refusal of each must be made to stay.
async fn a_refusal_stays_though_too_many_orders_went_unanswered_to_remember(world: World) {
    let front = |inner| Mute { inner, is_mute: false.into() };
    let stores: Vec<_> =
        world.stocks().await.stores().iter().cloned().map(|store| Arc::new(front(store))).collect();
    let fronts = stores.iter().map(|store| Arc::clone(store) as Arc<dyn StockStore>).collect();
    let stocks = crate::stock::Stocks::with_stores(fronts).unwrap();
    let stock = stocks.open(world.item(), 2).segments(1).await.unwrap();
    assert_eq!(stock.take("all", 2).await.unwrap(), Sale::Taken);
    let mute = |is_mute| {
        stores.iter().for_each(|store| store.is_mute.store(is_mute, std::sync::atomic::Ordering::SeqCst))
    };
    mute(true);
    for order in 0..70_000 {
        let order = format!("order-{order}");
        let mut take = std::pin::pin!(stock.take(&order, 1));
        assert!(futures_poll(take.as_mut()).await.is_none());
    }
    mute(false);
    // The first is long forgotten, and the last is remembered.
    for order in ["order-0", "order-69999"] {
        assert_eq!(stock.take(order, 1).await.unwrap(), Sale::SoldOut);
    }
    assert!(stock.give_back("all").await.unwrap());
    let (store, segment) = store_of(&world, 0).await;
    for order in ["order-0", "order-69999"] {
        // What was sent first arrives now, when there is enough.
        let late = Step::Take { fence: 1, order: order.into(), n: 1, hold: None, brings: None };
        let answer = store.apply(&segment, stock.sale(), &late).await.unwrap();
        assert_eq!(answer, Answer::Order(Standing::Void), "{order}");
    }
    assert_eq!(stock.remaining().await.unwrap(), 2);
}

/// What a future has at once.
async fn futures_poll<F: Future + Send>(future: std::pin::Pin<&mut F>) -> Option<F::Output>
where
    F::Output: Send,
{
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}
