//! Functions with `#[locked]`: what they hold while they run, and that nothing is left on any path.
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

use std::{fmt::Display, sync::Arc, time::Duration};

use tidelock::{ErrorKind, Locks, Outcome, Result, blocking, locked, testing::take_away};
use tokio::sync::Notify;

type Failed = Box<dyn std::error::Error + Send + Sync>;

async fn client() -> Locks {
    Locks::connect("memory:").await.unwrap()
}

/// The names that are held now.
async fn held(locks: &Locks) -> Vec<String> {
    let views = locks.look_all().await.unwrap();
    views.iter().filter(|view| !view.holders.is_empty()).map(|view| view.name.to_string()).collect()
}

struct Order {
    id: u64,
    lines: (String, u8),
}

#[locked("orders/{order.id}/{order.lines.0}/{{{kind}}}")]
async fn names(locks: &Locks, order: &Order, kind: impl Display + Send + Sync) -> Result<Vec<String>> {
    Ok(held(locks).await)
}

#[tokio::test]
async fn the_name_has_arguments_and_their_fields_and_the_lock_is_free_afterwards() {
    let locks = client().await;
    let order = Order { id: 42, lines: ("tea".into(), 1) };
    assert_eq!(names(&locks, &order, "gift").await.unwrap(), ["orders/42/tea/{gift}"]);
    assert!(held(&locks).await.is_empty());
    assert_eq!(order.lines.1, 1);
}

#[locked("job")]
async fn ends_in_many_ways(locks: Locks, way: &str, moved: String) -> Result<usize, Failed> {
    assert_eq!(held(&locks).await, ["job"]);
    match way {
        "return" => return Ok(moved.len()),
        "error" => return Err("it failed".into()),
        "question mark" => Ok(moved.parse()?),
        "panic" => panic!("on purpose"),
        _ => {
            drop(moved);
            Ok(0)
        }
    }
}

#[tokio::test]
async fn the_lock_is_released_on_every_path() {
    let locks = client().await;
    for (way, is_ok) in [("return", true), ("error", false), ("question mark", false), ("end", true)] {
        let ended = ends_in_many_ways(locks.clone(), way, "text".into()).await;
        assert_eq!(ended.is_ok(), is_ok, "{way}");
        assert!(held(&locks).await.is_empty(), "{way}");
    }
    let panicked = tokio::spawn(ends_in_many_ways(locks.clone(), "panic", String::new())).await;
    assert!(panicked.unwrap_err().is_panic());
    locks.mutex("job").lock().await.unwrap().release().await.unwrap();
}

#[locked("job/{number}", wait = "0s", ttl = Duration::from_secs(10))]
async fn meets(locks: &Locks, number: u32, inside: Arc<Notify>, go_on: Arc<Notify>) -> Result<()> {
    inside.notify_one();
    go_on.notified().await;
    Ok(())
}

#[tokio::test]
async fn one_runs_at_a_time_for_each_name() {
    let (locks, inside, go_on) = (client().await, Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = tokio::spawn({
        let (locks, inside, go_on) = (locks.clone(), Arc::clone(&inside), Arc::clone(&go_on));
        async move { meets(&locks, 1, inside, go_on).await }
    });
    inside.notified().await;
    let error = meets(&locks, 1, Arc::clone(&inside), Arc::clone(&go_on)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let other = tokio::spawn({
        let (locks, inside, go_on) = (locks.clone(), Arc::clone(&inside), Arc::clone(&go_on));
        async move { meets(&locks, 2, inside, go_on).await }
    });
    inside.notified().await;
    go_on.notify_waiters();
    first.await.unwrap().unwrap();
    other.await.unwrap().unwrap();
}

/// Tells when it is dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[locked("job")]
async fn runs_for_ever(locks: &Locks, inside: &Notify, dropped: Arc<Notify>) -> Result<()> {
    let _here = Dropped(dropped);
    inside.notify_one();
    std::future::pending().await
}

#[tokio::test]
async fn the_body_is_stopped_when_the_lock_is_lost_and_when_the_caller_goes_away() {
    let (locks, inside, dropped) = (client().await, Notify::new(), Arc::new(Notify::new()));
    let losing = async {
        inside.notified().await;
        take_away(&locks, "job", "by hand").await.unwrap();
    };
    let (ended, ()) = tokio::join!(runs_for_ever(&locks, &inside, Arc::clone(&dropped)), losing);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Lost);
    dropped.notified().await;
    tokio::select! {
        _ = runs_for_ever(&locks, &inside, Arc::clone(&dropped)) => unreachable!("it has no end"),
        () = inside.notified() => {}
    }
    dropped.notified().await;
    locks.mutex("job").lock().await.unwrap().release().await.unwrap();
}

#[locked("prices", shared)]
async fn reads(locks: &Locks) -> Result<bool> {
    let together = locks.rw_lock("prices").try_read().await?.is_some();
    Ok(together && locks.rw_lock("prices").try_write().await?.is_none())
}

#[tokio::test]
async fn a_shared_lock_lets_other_readers_in_and_no_writer() {
    assert!(reads(&client().await).await.unwrap());
}

#[locked("report", once_per = "1d", held = lock)]
async fn reports(locks: &Locks) -> Result<Outcome<u64>> {
    Ok(Outcome::Ran(lock.token().get()))
}

#[tokio::test]
async fn a_job_runs_once_per_period_and_others_learn_that_it_is_done() {
    let locks = client().await;
    assert!(matches!(reports(&locks).await.unwrap(), Outcome::Ran(token) if token > 0));
    assert!(matches!(reports(&locks).await.unwrap(), Outcome::Done(_)));
}

#[locked("short", hold_at_least = "1h")]
async fn is_short(locks: &Locks) -> Result<()> {
    Ok(())
}

#[tokio::test]
async fn a_short_function_keeps_others_out_for_its_time() {
    let locks = client().await;
    is_short(&locks).await.unwrap();
    assert!(locks.mutex("short").try_lock().await.unwrap().is_none());
}

#[locked("moved", locks = to)]
async fn moves(from: &Locks, to: &Locks) -> Result<(usize, usize)> {
    Ok((held(from).await.len(), held(to).await.len()))
}

#[tokio::test]
async fn of_two_clients_the_one_that_is_named_is_used() {
    assert_eq!(moves(&client().await, &client().await).await.unwrap(), (0, 1));
}

struct Shop {
    locks: Locks,
    blocking: blocking::Locks,
    name: &'static str,
    sold: u32,
}

impl Shop {
    #[locked("shop/{self.name}/{item}", locks = self.locks)]
    async fn sells(&mut self, item: &str) -> Result<(u32, Vec<String>)> {
        self.sold += 1;
        Ok((self.sold, held(&self.locks).await))
    }

    #[locked("shop/{self.name}", locks = self.blocking, held = lock)]
    fn counts(&mut self) -> Result<u32, Failed> {
        assert!(lock.is_held() && lock.name().as_str() == "shop/tea");
        self.sold += 1;
        if self.sold > 9 {
            return Err("sold out".into());
        }
        Ok(self.sold)
    }
}

#[test]
fn methods_take_the_client_of_their_value() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locks = runtime.block_on(client());
    let blocking = blocking::Locks::connect("memory:").unwrap();
    let mut shop = Shop { locks, blocking, name: "tea", sold: 0 };
    let (sold, names) = runtime.block_on(shop.sells("green")).unwrap();
    assert_eq!((sold, names), (1, vec!["shop/tea/green".to_owned()]));
    assert_eq!(shop.counts().unwrap(), 2);
    shop.sold = 9;
    assert_eq!(shop.counts().unwrap_err().to_string(), "sold out");
    assert!(shop.blocking.mutex("shop/tea").try_lock().unwrap().is_some(), "it was released");
}

#[locked("by default")]
async fn by_default() -> Result<u64> {
    Ok(7)
}

#[locked("by default", once_per = "week")]
fn by_default_without_async() -> Result<Outcome<u64>> {
    Ok(Outcome::Ran(8))
}

/// The only test here that has a default: it counts for the whole process.
#[test]
fn the_default_client_is_used_where_no_other_is_given_and_it_is_an_error_if_there_is_none() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let missing = runtime.block_on(by_default()).unwrap_err();
    assert!(
        missing.is_invalid_option() && missing.to_string().contains("tidelock::set_default"),
        "{missing}"
    );
    assert!(by_default_without_async().unwrap_err().is_invalid_option());
    blocking::set_default(&blocking::Locks::connect("memory:").unwrap());
    assert_eq!(by_default_without_async().unwrap(), Outcome::Ran(8));
    assert!(matches!(by_default_without_async().unwrap(), Outcome::Done(_)));
    assert_eq!(runtime.block_on(by_default()).unwrap(), 7);
}
