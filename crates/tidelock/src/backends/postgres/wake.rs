//! News from the server: told over the connection, or, behind a pooler, found out by asking.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{
    claims::{Advisory, Polled},
    store::PostgresStore,
};
use crate::{
    backend::{ClaimId, Failure, Leave, News, What},
    backends::shared::{following::Following, news::Told},
    model::name::Name,
};

/// What is kept between two calls of `wait`.
#[derive(Debug)]
pub(crate) struct Wake {
    claims: Claimed,
    /// Nothing behind a pooler.
    following: Option<Following>,
}

impl Wake {
    pub(super) fn new(told: Told, following: Option<Following>) -> Self {
        let claims = Claimed { told, news: VecDeque::new(), pause: Duration::ZERO };
        Self { claims, following }
    }

    /// The next thing that happens to a claim unasked. Meanwhile names are followed.
    pub(super) async fn next(&mut self, store: &Arc<PostgresStore>) -> Result<News, Failure> {
        let Some(following) = &mut self.following else { return self.claims.next(store).await };
        tokio::select! {
            biased;
            news = self.claims.next(store) => news,
            never = following.run(store) => match never {},
        }
    }
}

/// What is heard about claims.
#[derive(Debug)]
struct Claimed {
    told: Told,
    /// What asking brought and nobody has read yet.
    news: VecDeque<News>,
    /// How long to wait before asking again.
    pause: Duration,
}

impl Claimed {
    async fn next(&mut self, store: &PostgresStore) -> Result<News, Failure> {
        store.link.connection().await?;
        if let Some(news) = self.news.pop_front() {
            return Ok(news);
        }
        match (&store.claims.polled, &store.claims.advisory) {
            (Some(polled), _) => self.next_polled(store, polled).await,
            (None, Some(advisory)) => self.next_advisory(store, advisory).await,
            (None, None) => self.next_told(store).await,
        }
    }

    /// Behind a pooler: the connection tells only that it is lost.
    async fn next_polled(&mut self, store: &PostgresStore, polled: &Polled) -> Result<News, Failure> {
        loop {
            let some = tokio::select! {
                told = self.told.next() => return read(store, told),
                some = polled.some(&mut self.pause) => some,
            };
            self.news.extend(polled.changed(store.peek(some).await?));
            if let Some(news) = self.news.pop_front() {
                self.pause = Duration::ZERO;
                return Ok(news);
            }
        }
    }

    /// With advisory locks: a claim whose lease ends gives its lock back.
    async fn next_advisory(&mut self, store: &PostgresStore, advisory: &Advisory) -> Result<News, Failure> {
        loop {
            tokio::select! {
                news = self.next_told(store) => {
                    let news = news?;
                    match news.what {
                        // A claim that is granted a row has to take the lock, too.
                        What::Granted(_) => return Ok(News { what: What::Ask, ..news }),
                        What::Evicted(_) => let_go(store, advisory, &news.name, news.id).await,
                        What::Ask => {}
                    }
                    return Ok(news);
                }
                (name, id) = advisory.next_lapse() => let_go(store, advisory, &name, id).await,
            }
        }
    }

    async fn next_told(&mut self, store: &PostgresStore) -> Result<News, Failure> {
        read(store, self.told.next().await)
    }
}

/// Notes that news are read.
fn read(store: &PostgresStore, told: Result<News, Failure>) -> Result<News, Failure> {
    if told.is_ok() {
        store.link.told();
    }
    told
}

/// A row lapses automatically; the lock of a session that lives does not. If this fails the session has ended.
async fn let_go(store: &PostgresStore, advisory: &Advisory, name: &Name, id: ClaimId) {
    let _ = store.take_out(name, id, &Leave::Done).await;
    advisory.forget(id);
}
