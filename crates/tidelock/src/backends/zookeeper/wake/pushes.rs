//! What the engine is told, kept until it asks: the latest for each claim and nothing else, so that however much
//! happens while nobody waits, no more is kept than there are claims.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard},
};

use tokio::sync::Notify;

use crate::{
    backend::{ClaimId, Failure, News},
    backends::shared::{failures::no_more_news, mutex::lock},
};

/// The news of a client.
#[derive(Debug, Default)]
pub(crate) struct Pushes {
    queue: Mutex<Queue>,
    pushed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// One for each claim, in the order in which the first news of each came.
    order: VecDeque<ClaimId>,
    latest: HashMap<ClaimId, News>,
    is_closed: bool,
}

impl Pushes {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Adds news. They replace what was not told yet of the same claim: what is newer is what counts.
    pub(crate) fn push(&self, news: News) {
        let id = news.id;
        let mut queue = self.queue();
        if queue.latest.insert(id, news).is_none() {
            queue.order.push_back(id);
        }
        drop(queue);
        self.pushed.notify_one();
    }

    /// Its client is done with a claim: nobody has to be told of it any more.
    pub(crate) fn forget(&self, id: ClaimId) {
        let mut queue = self.queue();
        if queue.latest.remove(&id).is_some() {
            queue.order.retain(|other| *other != id);
        }
    }

    /// Nothing will be told any more.
    pub(crate) fn close(&self) {
        self.queue().is_closed = true;
        self.pushed.notify_one();
    }

    /// The next news, as soon as there are some. They are taken only if they are returned.
    pub(crate) async fn next(&self) -> Result<News, Failure> {
        loop {
            {
                let mut queue = self.queue();
                if let Some(id) = queue.order.pop_front()
                    && let Some(news) = queue.latest.remove(&id)
                {
                    return Ok(news);
                }
                if queue.is_closed {
                    return Err(no_more_news());
                }
            }
            // Only one task waits: what is pushed in between has left a permit.
            self.pushed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Name,
        backend::{Grant, What},
    };

    fn news(id: u128, what: What) -> News {
        News { name: Name::new("a").unwrap(), id: ClaimId::from_u128(id), what }
    }

    fn granted() -> What {
        What::Granted(Grant::new(1, std::time::Duration::from_secs(1), 0))
    }

    #[tokio::test]
    async fn of_a_claim_only_the_latest_is_kept_and_claims_keep_their_order() {
        let pushes = Pushes::default();
        for _ in 0..1_000 {
            pushes.push(news(1, granted()));
            pushes.push(news(2, What::Ask));
            pushes.push(news(3, granted()));
        }
        pushes.push(news(1, What::Evicted("no".into())));
        pushes.forget(ClaimId::from_u128(2));
        assert_eq!(pushes.queue().order.len(), 2);
        assert_eq!(pushes.next().await.unwrap(), news(1, What::Evicted("no".into())));
        assert_eq!(pushes.next().await.unwrap(), news(3, granted()));
        assert!(pushes.queue().latest.is_empty());
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_takes_nothing_with_it() {
        let pushes = Pushes::default();
        assert!(tokio::time::timeout(std::time::Duration::ZERO, pushes.next()).await.is_err());
        pushes.push(news(1, What::Ask));
        drop(pushes.next());
        assert_eq!(pushes.next().await.unwrap(), news(1, What::Ask));
        pushes.push(news(2, What::Ask));
        pushes.close();
        assert_eq!(pushes.next().await.unwrap(), news(2, What::Ask));
        assert!(pushes.next().await.is_err() && pushes.next().await.is_err());
    }
}
