//! Tables of users that refuse stale tokens, with the statements of `tidelock::fence`.

use test_servers::{MariaDb, Server};
use tidelock::{Locks, Token, fence::Fence};

use crate::{
    sql,
    support::{NAME, Place, shared},
};

trials! {
    a_table_in_postgresql_refuses_a_stale_token,
    a_table_in_mariadb_refuses_a_stale_token,
}

/// The tokens of two holders, one after the other.
async fn two_tokens(locks: &Locks) -> (Token, Token) {
    let first = locks.mutex(NAME).lock().await.unwrap();
    let stale = first.token();
    first.release().await.unwrap();
    let second = locks.mutex(NAME).lock().await.unwrap();
    let later = second.token();
    second.release().await.unwrap();
    (stale, later)
}

async fn a_table_in_postgresql_refuses_a_stale_token() {
    let place = Place::shared();
    let (stale, later) = two_tokens(&place.connect().await).await;
    let fence = Fence::postgres("public.orders", "id", "fence").unwrap();
    sql(
        &shared(),
        "CREATE TABLE orders (id bigint PRIMARY KEY, state text); INSERT INTO orders VALUES (42, 'new')",
    );
    sql(&shared(), &fence.add_column());
    let write = |token: Token, state: &str| {
        let text = format!(
            "PREPARE w(bigint, bigint, text) AS WITH changed AS ({} RETURNING 1) SELECT count(*) FROM changed; EXECUTE w(42, {}, '{state}')",
            fence.update("state = $3"),
            token.as_i64()
        );
        sql(&shared(), &text)
    };
    let claim = |token: Token| {
        let text = format!(
            "PREPARE c(bigint, bigint) AS WITH changed AS ({} RETURNING 1) SELECT count(*) FROM changed; EXECUTE c(42, {})",
            fence.claim(),
            token.as_i64()
        );
        sql(&shared(), &text)
    };
    assert_eq!((write(later, "paid"), write(later, "sent")), ("1".to_owned(), "1".to_owned()));
    // The first holder slept, and wakes up now.
    assert_eq!((write(stale, "cancelled"), claim(stale)), ("0".to_owned(), "0".to_owned()));
    assert_eq!(sql(&shared(), "SELECT state FROM orders"), "sent");
    assert_eq!(claim(later), "1");
}

async fn a_table_in_mariadb_refuses_a_stale_token() {
    let (stale, later) = two_tokens(&Place::shared().connect().await).await;
    let server: Server = MariaDb::new().start().unwrap();
    let fence = Fence::mysql("orders", "id", "fence").unwrap();
    let ask = |text: &str| server.ask(&["-N", "-e", text]).unwrap().trim().to_owned();
    ask("CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT); INSERT INTO orders VALUES (42, 'new')");
    ask(&fence.add_column());
    let write = |token: Token, state: &str| {
        ask(&format!(
            "PREPARE w FROM '{}'; SET @t = {}, @s = '{state}', @k = 42; EXECUTE w USING @t, @s, @k, @t; SELECT ROW_COUNT()",
            fence.update("state = ?"),
            token.as_i64()
        ))
    };
    assert_eq!((write(later, "paid"), write(later, "sent")), ("1".to_owned(), "1".to_owned()));
    assert_eq!(write(stale, "cancelled"), "0");
    assert_eq!(ask("SELECT state FROM orders"), "sent");
}
