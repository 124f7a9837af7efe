//! News: doorbells of this client, and the end of those it waits behind.
//!
//! All of it happens inside [`Backend::wait`](crate::backend::Backend::wait), which the engine
//! calls again and again: there is no task and no thread of the store's own.

use std::{
    collections::HashMap,
    io,
    os::unix::net as std_net,
    task::{Context, Poll},
    time::Duration,
};

use tokio::net::{UnixDatagram, UnixListener, UnixStream};

use super::{
    codec::{LONGEST_RING, Ring},
    notices::Notices,
    session::{Life, life_after},
    store::FileStore,
};
use crate::backend::{ClientId, Failure, News, What};

/// So many bells in a row may have filled the doorbell: Linux keeps ten by default.
const MAYBE_FULL: usize = 8;
/// From so many on, those who need not be watched any more are let go.
const MANY: usize = 32;
/// When to try again what could not be done.
const SOON: Duration = Duration::from_millis(20);

/// The listening ends of a client.
#[derive(Debug)]
pub(super) struct Wake {
    doorbell: UnixDatagram,
    life: UnixListener,
    /// Those who watch us: kept open, so that they hear our end.
    visitors: Vec<UnixStream>,
    sweep_at: usize,
    /// Those whom we watch.
    watched: HashMap<ClientId, UnixStream>,
    /// Those whom we could not watch yet.
    unwatched: Vec<ClientId>,
    notices: Notices,
}

impl Wake {
    pub(super) fn new(doorbell: std_net::UnixDatagram, life: std_net::UnixListener) -> io::Result<Self> {
        Ok(Self {
            doorbell: UnixDatagram::from_std(doorbell)?,
            life: UnixListener::from_std(life)?,
            visitors: Vec::new(),
            sweep_at: MANY,
            watched: HashMap::new(),
            unwatched: Vec::new(),
            notices: Notices::default(),
        })
    }

    /// The next thing that the engine should hear. Dropped at any await, it loses nothing.
    pub(super) async fn next(&mut self, store: &FileStore) -> Result<News, Failure> {
        loop {
            let left = store.run_errands();
            self.watch(store).await;
            if let Some(news) = store.pop_news() {
                return Ok(news);
            }
            let again = left || !self.unwatched.is_empty();
            tokio::select! {
                () = store.nudge.notified() => {}
                () = store.follows.altered() => self.notices.catch_up(store),
                () = self.notices.tell(&store.follows) => {}
                ready = self.doorbell.readable() => {
                    ready.map_err(|error| deaf(&error))?;
                    self.hear(store)?;
                }
                visitor = self.life.accept() => {
                    // One that came and went is no news; without a free descriptor it waits in the queue.
                    match visitor {
                        Ok((visitor, _)) => self.welcome(visitor),
                        Err(_) => tokio::time::sleep(SOON).await,
                    }
                }
                client = ended(&self.watched) => {
                    self.watched.remove(&client);
                    store.died(client);
                }
                () = tokio::time::sleep(SOON), if again => {}
            }
        }
    }

    /// Hears all that is at the door.
    fn hear(&self, store: &FileStore) -> Result<(), Failure> {
        let mut bytes = [0; LONGEST_RING];
        for heard in 0.. {
            match self.doorbell.try_recv(&mut bytes) {
                Ok(len) => match Ring::read(&bytes[..len]) {
                    Some(Ring::News(news)) => {
                        if news.what != What::Ask {
                            store.forget(news.id);
                        }
                        store.tell(news);
                    }
                    Some(Ring::Moved(id)) => store.refresh(id),
                    // Of another version: a hint, whatever it says.
                    None => store.refresh_all(),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if heard >= MAYBE_FULL {
                        store.refresh_all();
                    }
                    break;
                }
                Err(error) => return Err(deaf(&error)),
            }
        }
        Ok(())
    }

    fn welcome(&mut self, visitor: UnixStream) {
        self.visitors.push(visitor);
        if self.visitors.len() >= self.sweep_at {
            let stays = |visitor: &UnixStream| {
                visitor.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            };
            self.visitors.retain(stays);
            self.sweep_at = (self.visitors.len() * 2).max(MANY);
        }
    }

    /// Watches the clients ahead of our claims.
    async fn watch(&mut self, store: &FileStore) {
        let mut clients = std::mem::take(&mut self.unwatched);
        clients.extend(store.take_unwatched());
        for client in clients {
            if self.watched.contains_key(&client) {
                continue;
            }
            match UnixStream::connect(store.session.life(client)).await {
                Ok(stream) => {
                    self.watched.insert(client, stream);
                }
                Err(error) if life_after(&error) == Life::Dead => store.died(client),
                // Its queue is full, or we have no descriptor left.
                Err(_) => self.unwatched.push(client),
            }
        }
        if self.watched.len() > MANY {
            for client in store.take_unneeded() {
                self.watched.remove(&client);
            }
        }
    }
}

/// Resolves with a client that is over.
async fn ended(watched: &HashMap<ClientId, UnixStream>) -> ClientId {
    std::future::poll_fn(|context| {
        for (client, stream) in watched {
            if is_over(stream, context) {
                return Poll::Ready(*client);
            }
        }
        Poll::Pending
    })
    .await
}

fn is_over(stream: &UnixStream, context: &mut Context<'_>) -> bool {
    // Nobody ever writes to these streams: whatever can be read is the end.
    while stream.poll_read_ready(context).is_ready() {
        match stream.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return true,
        }
    }
    false
}

fn deaf(error: &io::Error) -> Failure {
    Failure::unreachable(format!("cannot hear the doorbell: {error}"))
}
