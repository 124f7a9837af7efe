//! What is heard unasked; and behind a pooler, where nothing can be heard, who has to be asked about.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Connection, tls::NoTlsStream};

use super::{codec, link::Link, stream::Stream};
use crate::{
    backend::{ClaimId, News, What},
    name::Name,
};

/// What is heard unasked.
#[derive(Debug)]
pub(super) enum Heard {
    News(News),
    /// Pushes may have been missed.
    Cut(Arc<str>),
}

/// Carries what is asked and answered over a connection until it ends, and hands on what comes unasked.
pub(super) async fn drive(mut connection: Connection<Stream, NoTlsStream>, link: Weak<Link>, number: u64) {
    let why = loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(told))) => {
                let Some(link) = link.upgrade() else { return };
                if let Some(news) = codec::news(told.payload(), link.prefix()) {
                    link.tell(Heard::News(news));
                }
            }
            // Notices are for people who type statements.
            Some(Ok(_)) => {}
            Some(Err(error)) => break super::errors::classify(&error).reason,
            None => break "the connection was lost".into(),
        }
    };
    if let Some(link) = link.upgrade() {
        link.cut(number, &why);
    }
}

/// The claims of a client that wait, where nobody can tell it that they do not any more.
///
/// They are asked about in pauses that grow while nothing happens: a lock that goes from hand to hand goes on soon, and one that
/// is held for long costs few questions.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    claims: Mutex<HashMap<ClaimId, Name>>,
    came: Notify,
}

/// The first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(128));

impl Waiting {
    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Name>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim waits, or does not any more.
    pub(super) fn note(&self, name: &Name, id: ClaimId, waits: bool) {
        if waits {
            self.claims().insert(id, name.clone());
            self.came.notify_one();
        } else {
            self.claims().remove(&id);
        }
    }

    /// Those to be asked about, as soon as there are any.
    pub(super) async fn some(&self, pause: &mut Duration) -> Vec<(ClaimId, Name)> {
        loop {
            let came = self.came.notified();
            if !self.claims().is_empty() {
                break;
            }
            came.await;
            *pause = PAUSES.0;
        }
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).clamp(PAUSES.0, PAUSES.1);
        self.claims().iter().map(|(id, name)| (*id, name.clone())).collect()
    }

    /// Of these something is new: the engine asks what.
    pub(super) fn changed(&self, changed: Vec<(ClaimId, Name)>) -> Vec<News> {
        let mut claims = self.claims();
        let known = changed.into_iter().filter(|(id, _)| claims.remove(id).is_some());
        known.map(|(id, name)| News { name, id, what: What::Ask }).collect()
    }
}
