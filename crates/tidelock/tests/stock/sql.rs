//! What only databases do: many orders in one commit, and no sale where a commit may be forgotten.

use std::time::Duration;

use libtest_mimic::Trial;
use test_servers::{MariaDb, Postgres, Server, wait_for};
use tidelock::{
    Name,
    backend::FailureKind,
    stock::{Answer, OrderId, Sale, SegmentId, Standing, Step, Stocks},
};
use tokio::task::JoinSet;

const CLIENTS: usize = 3;
const TASKS: usize = 64;
const ORDERS: usize = 10;

/// All that begin with the name of a store.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("postgres::orders_are_more_than_commits_and_no_client_meets_a_deadlock", || {
            crate::run(orders_share_commits(Postgres::new().start()?, postgres_counts))
        }),
        Trial::test("mysql::orders_are_more_than_commits_and_no_client_meets_a_deadlock", || {
            crate::run(orders_share_commits(MariaDb::new().durable().start()?, mysql_counts))
        }),
        Trial::test("postgres::an_order_that_the_server_refuses_takes_no_others_along", || {
            crate::run(one_is_refused(Postgres::new().start()?, "no text has\0this"))
        }),
        Trial::test("mysql::an_order_that_the_server_refuses_takes_no_others_along", || {
            let too_long = "an order of 200 bytes ".repeat(10);
            crate::run(
                async move { one_is_refused(MariaDb::new().durable().start().unwrap(), &too_long).await },
            )
        }),
        Trial::test("mysql::a_server_that_may_forget_sales_is_refused", || {
            crate::run(forgetful_is_refused(MariaDb::new().start()?))
        }),
        Trial::test(
            "mysql::a_server_that_became_read_only_sells_nothing_to_clients_that_are_connected",
            || crate::run(read_only_sells_nothing(MariaDb::new().durable().start()?)),
        ),
    ]
}

/// How many commits and deadlocks there were.
type Counts = fn(&Server) -> (u64, u64);

fn postgres_counts(server: &Server) -> (u64, u64) {
    let ask = |question: &str| server.ask(&["-c", question]).unwrap();
    // A session says what it did when it ends.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    wait_for("all clients are gone", Duration::from_secs(60), || ask(others).trim() == "0").unwrap();
    let said = ask("SELECT xact_commit, deadlocks FROM pg_stat_database WHERE datname = current_database()");
    let (commits, deadlocks) = said.trim().split_once('|').unwrap();
    (commits.parse().unwrap(), deadlocks.parse().unwrap())
}

fn mysql_counts(server: &Server) -> (u64, u64) {
    let ask = |what: &str| {
        let said = server.ask(&["-e", &format!("SHOW GLOBAL STATUS LIKE '{what}'")]).unwrap();
        said.split_whitespace().last().unwrap().parse().unwrap()
    };
    (ask("Com_commit"), ask("Innodb_deadlocks"))
}

/// Tasks of several clients buy one item, from all of its segments at once.
async fn orders_share_commits(server: Server, counts: Counts) {
    let initial = (CLIENTS * TASKS * ORDERS) as u64;
    let open = async || {
        let stocks = Stocks::connect(server.url()).await.unwrap();
        stocks.open("item", initial + 1).segments(8).await.unwrap()
    };
    drop(open().await);
    let (before, _) = counts(&server);
    let mut buyers = JoinSet::new();
    for client in 0..CLIENTS {
        let stock = open().await;
        for task in 0..TASKS {
            let stock = stock.clone();
            buyers.spawn(async move {
                for order in 0..ORDERS {
                    assert!(stock.take(&format!("{client}-{task}-{order}"), 1).await.unwrap().is_taken());
                }
            });
        }
    }
    buyers.join_all().await;
    let (after, deadlocks) = counts(&server);
    let tally = open().await.tally().await.unwrap();
    assert_eq!((tally.sold, tally.remaining), (initial, 1));
    assert_eq!(deadlocks, 0);
    let commits = after - before;
    // A transaction has 128 at most.
    assert!((initial / 128..initial).contains(&commits), "{commits} commits for {initial} orders");
}

/// Of orders that are asked for at once, past all that a client checks before.
async fn one_is_refused(server: Server, refused: &str) {
    let stocks = Stocks::connect(server.url()).await.unwrap();
    let sale = stocks.open("item", 1_000).segments(1).await.unwrap().sale();
    let segment = SegmentId { item: Name::new("item").unwrap(), number: 0 };
    let mut buyers = JoinSet::new();
    for task in 0..TASKS {
        let (store, segment) = (stocks.stores()[0].clone(), segment.clone());
        let is_refused = task == TASKS / 2;
        let order = if is_refused { OrderId::from(refused) } else { format!("order-{task}").into() };
        buyers.spawn(async move {
            let take = Step::Take { fence: 1, order, n: 1, hold: None, brings: None };
            match store.apply(&segment, sale, &take).await {
                Err(failure) if is_refused => assert_eq!(failure.kind, FailureKind::Denied, "{failure}"),
                answer => assert_eq!(answer.unwrap(), Answer::Order(Standing::Taken(1))),
            }
        });
    }
    buyers.join_all().await;
    let tally = stocks.find("item").await.unwrap().tally().await.unwrap();
    assert_eq!((tally.sold, tally.remaining), (TASKS as u64 - 1, 1_000 - TASKS as u64 + 1));
}

/// One that does not write each commit to its disk. Just after its start it is left alone as for locks.
async fn forgetful_is_refused(server: Server) {
    let url = format!("{}?longest_ttl_ms=1", server.url());
    let error = loop {
        match Stocks::connect(&url).await {
            Err(error) if error.is_unavailable() => tokio::time::sleep(Duration::from_millis(50)).await,
            other => break other.unwrap_err(),
        }
    };
    assert!(error.is_denied() && error.to_string().contains("innodb_flush_log_at_trx_commit = 1"), "{error}");
    // Once the setting is corrected, the running server is accepted.
    server.ask(&["-e", "SET GLOBAL innodb_flush_log_at_trx_commit = 1"]).unwrap();
    drop(Stocks::connect(&url).await.unwrap());
}

/// As the old primary of a switch-over: the user who made the procedures may write to a server that is read-only, and they run
/// with those rights.
async fn read_only_sells_nothing(server: Server) {
    let stock = Stocks::connect(server.url()).await.unwrap().open("item", 100).segments(2).await.unwrap();
    assert!(stock.take("before", 1).await.unwrap().is_taken());
    let hold = Duration::from_secs(3_600);
    assert_eq!(stock.reserve("held", 1, hold).await.unwrap(), Sale::Reserved);
    server.ask(&["-e", "SET GLOBAL read_only = 1"]).unwrap();
    let rows = "SELECT SUM(remaining), SUM(held) FROM tidelock_stock_segments";
    let before = server.ask(&["-e", rows]).unwrap();
    let errors = [
        stock.take("while", 1).await.unwrap_err(),
        stock.reserve("a", 1, hold).await.unwrap_err(),
        stock.confirm("held").await.unwrap_err(),
        stock.give_back("before").await.unwrap_err(),
        stock.add(7).await.unwrap_err(),
        stock.resize(5).await.unwrap_err(),
        stock.close().await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_unavailable(), "{error}");
    }
    assert_eq!(server.ask(&["-e", rows]).unwrap(), before);
    server.ask(&["-e", "SET GLOBAL read_only = 0"]).unwrap();
    assert!(stock.take("while", 1).await.unwrap().is_taken());
    let tally = stock.tally().await.unwrap();
    assert_eq!((tally.sold, tally.reserved, tally.remaining), (2, 1, 97));
}
