//! What servers tell unasked, and work that nobody waits for.

use std::{collections::VecDeque, future::poll_fn, sync::Arc, task::Poll};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{super::redis, round::Later, store::RedlockStore};
use crate::{
    backend::{Failure, News, What},
    backends::shared::following::Following,
};

/// Where a client hears of its claims, and does what need not be waited for.
pub(crate) struct Wake {
    servers: Vec<redis::Wake>,
    later: UnboundedReceiver<Later>,
    under_way: FuturesUnordered<Later>,
    /// What is to be told next.
    news: VecDeque<News>,
    following: Following,
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Wake").field(&self.servers.len()).finish()
    }
}

impl Wake {
    pub(super) fn new(
        servers: Vec<redis::Wake>,
        later: UnboundedReceiver<Later>,
        following: Following,
    ) -> Self {
        Self { servers, later, under_way: FuturesUnordered::new(), news: VecDeque::new(), following }
    }
}

impl RedlockStore {
    /// The next thing that is heard unasked, or found out by what was left to be done.
    pub(super) async fn wait(self: &Arc<Self>, wake: &mut Wake) -> Result<News, Failure> {
        let Wake { servers, later, under_way, news, following } = wake;
        let told = poll_fn(|context| {
            loop {
                if let Some(news) = news.pop_front() {
                    return Poll::Ready(Ok(news));
                }
                let mut is_idle = true;
                while let Poll::Ready(Some(work)) = later.poll_recv(context) {
                    under_way.push(work);
                }
                // Nearly always there is nothing to tell of it, and there may be much of it.
                while let Poll::Ready(Some(done)) = under_way.poll_next_unpin(context) {
                    if let Some(news) = done {
                        return Poll::Ready(Ok(news));
                    }
                    is_idle = false;
                }
                for (server, told) in servers.iter_mut().enumerate() {
                    let Poll::Ready(heard) = told.poll(context) else { continue };
                    is_idle = false;
                    match heard {
                        Ok(news) => {
                            if let Some(news) = self.heard(server, news) {
                                return Poll::Ready(Ok(news));
                            }
                        }
                        // What it said unasked may have been missed. That of the others was not, and
                        // listening has to continue: not a failure.
                        Err(_) => {
                            self.reconnect_lost();
                            news.extend(self.claims.all().map(|(name, id)| News {
                                name,
                                id,
                                what: What::Ask,
                            }));
                        }
                    }
                }
                if is_idle {
                    return Poll::Pending;
                }
            }
        });
        tokio::select! {
            biased;
            told = told => told,
            never = following.run(self) => match never {},
        }
    }

    fn heard(self: &Arc<Self>, server: usize, news: News) -> Option<News> {
        match &news.what {
            // First in line there, which is not enough where other programs take the lock, too.
            What::Granted(_) if self.shares && self.claims.claim(news.id).is_some() => {
                Some(News { what: What::Ask, ..news })
            }
            What::Granted(_) => self.holds_at(server, &news.name, news.id),
            What::Evicted(_) => {
                let (claim, asked) = self.claims.evicted_at(news.id, server)?;
                // Where nobody put it out it would keep others waiting.
                self.leave_later(&claim, asked);
                Some(news)
            }
            What::Ask => Some(news),
        }
    }
}
