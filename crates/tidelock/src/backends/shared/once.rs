//! A connection that is made when it is first needed, by one caller, while the others wait for it.

use tokio::sync::Mutex;

use crate::backend::Failure;

/// Who makes the connection.
#[derive(Debug, Default)]
pub(crate) struct Once(Mutex<()>);

impl Once {
    /// The connection, if there is one, or else a new one. `open` runs only if nobody else has just opened one, and has
    /// to keep it where `live` finds it.
    pub(crate) async fn get<T>(
        &self,
        live: impl Fn() -> Option<T> + Send,
        open: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        if let Some(live) = live() {
            return Ok(live);
        }
        let _alone = self.0.lock().await;
        match live() {
            Some(live) => Ok(live),
            None => open.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn all_who_need_a_connection_wait_for_the_one_that_is_made() {
        let (once, live, opened) = (Once::default(), AtomicU32::new(0), AtomicU32::new(0));
        let get = || {
            once.get(|| Some(live.load(Ordering::Relaxed)).filter(|live| *live > 0), async {
                let number = opened.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::task::yield_now().await;
                live.store(number, Ordering::Relaxed);
                Ok(number)
            })
        };
        let (first, second, third) = tokio::join!(get(), get(), get());
        assert_eq!((first.unwrap(), second.unwrap(), third.unwrap()), (1, 1, 1));
        live.store(0, Ordering::Relaxed);
        assert_eq!(get().await.unwrap(), 2, "a connection that is lost is made again");
    }

    #[tokio::test]
    async fn a_failure_is_told_and_the_next_caller_tries_again() {
        let once = Once::default();
        let failed = once.get(|| None::<u32>, async { Err(Failure::unreachable("down")) }).await;
        assert_eq!(&*failed.unwrap_err().reason, "down");
        assert_eq!(once.get(|| None, async { Ok(7) }).await.unwrap(), 7);
    }
}
