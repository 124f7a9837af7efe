//! Hearing that another program gave a lock back, so that nobody has to wait for the next look at it.
//!
//! Redisson publishes it. Of a string the server tells by `CLIENT TRACKING` that it changed or expired. Either is heard
//! on connections of their own, by one task of a client. What is missed costs time only: claims look again anyway.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, OnceLock},
    time::Duration,
};

use redis::{
    Cmd, PushInfo, PushKind, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};

use crate::{
    backend::{ClaimId, News, What},
    backends::{
        redis::{codec::text, link::Server, wake::Tell},
        shared::attend,
    },
    clock::{Clock, Moment},
    model::name::Name,
};

/// How many channels stay subscribed that nobody waits for: a lock that goes from hand to hand needs its own soon again.
const IDLE: usize = 64;

/// After how long it is tried again to listen to a server.
const DEAF: Duration = Duration::from_secs(5);

/// What is listened to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sound {
    /// A channel of Redisson; of a shard as well, in a cluster.
    Channel { channel: String, sharded: bool },
    /// A key.
    Key(String),
}

impl Sound {
    fn name(&self) -> &str {
        match self {
            Self::Channel { channel, .. } => channel,
            Self::Key(key) => key,
        }
    }
}

/// Where the ears of a client are told what to listen to.
#[derive(Debug)]
pub(in crate::backends::redis) struct Ears {
    tell: Tell,
    clock: Clock,
    orders: OnceLock<UnboundedSender<Order>>,
}

#[derive(Debug)]
enum Order {
    Listen { server: Arc<Server>, sound: Sound, name: Name, id: ClaimId },
    Forget(ClaimId),
    Heard { at: Box<str>, what: String },
    Cut { at: Box<str>, number: u64 },
}

impl Ears {
    pub(super) fn new(tell: Tell, clock: Clock) -> Self {
        Self { tell, clock, orders: OnceLock::new() }
    }

    /// Asks about a claim when something is heard on its server; once as well when it is listened to.
    pub(super) fn listen(&self, server: Arc<Server>, sound: Sound, name: Name, id: ClaimId) {
        let orders = self.orders.get_or_init(|| {
            let (orders, ordered) = unbounded_channel();
            let task = Task {
                tell: self.tell.clone(),
                clock: self.clock.clone(),
                orders: orders.downgrade(),
                deaf: HashMap::new(),
                lines: HashMap::new(),
                claims: HashMap::new(),
                number: 0,
            };
            attend(task.run(ordered));
            orders
        });
        let _ = orders.send(Order::Listen { server, sound, name, id });
    }

    /// Nobody has to be asked about a claim any more.
    pub(super) fn forget(&self, id: ClaimId) {
        if let Some(orders) = self.orders.get() {
            let _ = orders.send(Order::Forget(id));
        }
    }
}

/// The task that listens. It ends with the client.
struct Task {
    tell: Tell,
    clock: Clock,
    /// Servers where nothing can be heard, and until when nobody tries again.
    deaf: HashMap<Box<str>, Moment>,
    orders: WeakUnboundedSender<Order>,
    lines: HashMap<Box<str>, Line>,
    /// Where a claim is listened for.
    claims: HashMap<ClaimId, (Box<str>, Sound)>,
    number: u64,
}

/// One connection.
struct Line {
    connection: MultiplexedConnection,
    number: u64,
    sounds: HashMap<Sound, Vec<(Name, ClaimId)>>,
    idle: VecDeque<Sound>,
}

impl Task {
    async fn run(mut self, mut ordered: UnboundedReceiver<Order>) {
        while let Some(order) = ordered.recv().await {
            match order {
                Order::Listen { server, sound, name, id } => {
                    let at: Box<str> = server.address().into();
                    if self.claims.get(&id).is_some_and(|(place, known)| *place == at && *known == sound) {
                        continue;
                    }
                    self.forget(id);
                    // A claim that is not listened for looks again by the time.
                    if self.listen(&server, &at, &sound, &name, id).await.is_ok() {
                        self.claims.insert(id, (at, sound));
                        self.ask(name, id);
                    }
                }
                Order::Forget(id) => self.forget(id),
                Order::Heard { at, what } => self.heard(&at, &what),
                Order::Cut { at, number } => self.cut(&at, number),
            }
            self.unsubscribe().await;
        }
    }

    fn ask(&self, name: Name, id: ClaimId) {
        let _ = self.tell.send(Ok(News { name, id, what: What::Ask }));
    }

    async fn listen(
        &mut self,
        server: &Arc<Server>,
        at: &str,
        sound: &Sound,
        name: &Name,
        id: ClaimId,
    ) -> Result<(), ()> {
        if !self.lines.contains_key(at) {
            let now = self.clock.now();
            if self.deaf.get(at).is_some_and(|until| now < *until) {
                return Err(());
            }
            match self.connect(server, at, matches!(sound, Sound::Key(_))).await {
                Ok(line) => drop(self.lines.insert(at.into(), line)),
                Err(()) => {
                    // It may not be allowed: each look at the lock would connect again.
                    self.deaf.insert(at.into(), now + DEAF);
                    return Err(());
                }
            }
        }
        let Some(line) = self.lines.get_mut(at) else { return Err(()) };
        if !line.sounds.contains_key(sound) {
            let begun = match sound {
                Sound::Channel { channel, sharded } => {
                    subscribe(&mut line.connection, "SUBSCRIBE", channel, *sharded).await
                }
                // Reading a key makes the server tell of its next change.
                Sound::Key(key) => send(&mut line.connection, redis::cmd("GET").arg(key)).await,
            };
            begun.map_err(drop)?;
        }
        line.idle.retain(|idle| idle != sound);
        line.sounds.entry(sound.clone()).or_default().push((name.clone(), id));
        Ok(())
    }

    async fn connect(&mut self, server: &Arc<Server>, at: &str, tracks: bool) -> Result<Line, ()> {
        self.number += 1;
        let (orders, number, place) = (self.orders.clone(), self.number, Box::<str>::from(at));
        let hear = move |push: PushInfo| {
            let Some(orders) = orders.upgrade() else { return };
            let (at, what) = (place.clone(), push.data.first());
            match push.kind {
                PushKind::Message | PushKind::SMessage => {
                    if let Some(what) = what.and_then(text) {
                        let _ = orders.send(Order::Heard { at, what: what.to_owned() });
                    }
                }
                PushKind::Invalidate => match what {
                    Some(Value::Array(keys)) => {
                        for key in keys.iter().filter_map(text) {
                            let _ = orders.send(Order::Heard { at: at.clone(), what: key.to_owned() });
                        }
                    }
                    // All keys were deleted.
                    _ => drop(orders.send(Order::Cut { at, number })),
                },
                // A slot that was moved ends subscriptions; the driver may be confused by that, too.
                PushKind::Disconnection | PushKind::SUnsubscribe => {
                    let _ = orders.send(Order::Cut { at, number });
                }
                _ => {}
            }
        };
        let mut connection = server.another_connection(hear).await.map_err(drop)?;
        if tracks {
            send(&mut connection, redis::cmd("CLIENT").arg("TRACKING").arg("ON")).await.map_err(drop)?;
        }
        Ok(Line { connection, number, sounds: HashMap::new(), idle: VecDeque::new() })
    }

    fn heard(&mut self, at: &str, what: &str) {
        let Some(line) = self.lines.get_mut(at) else { return };
        let some: Vec<_> = line.sounds.keys().filter(|sound| sound.name() == what).cloned().collect();
        for sound in some {
            // Of a key the server tells once.
            let claims = match sound {
                Sound::Channel { .. } => line.sounds.get(&sound).cloned().unwrap_or_default(),
                Sound::Key(_) => line.sounds.remove(&sound).unwrap_or_default(),
            };
            for (name, id) in claims {
                if matches!(sound, Sound::Key(_)) {
                    self.claims.remove(&id);
                }
                let _ = self.tell.send(Ok(News { name, id, what: What::Ask }));
            }
        }
    }

    /// A connection ended: whatever was said since was missed.
    fn cut(&mut self, at: &str, number: u64) {
        if self.lines.get(at).is_none_or(|line| line.number != number) {
            return;
        }
        let Some(line) = self.lines.remove(at) else { return };
        for (name, id) in line.sounds.into_values().flatten() {
            self.claims.remove(&id);
            self.ask(name, id);
        }
    }

    fn forget(&mut self, id: ClaimId) {
        let Some((at, sound)) = self.claims.remove(&id) else { return };
        let Some(line) = self.lines.get_mut(&at) else { return };
        let Some(claims) = line.sounds.get_mut(&sound) else { return };
        claims.retain(|(_, other)| *other != id);
        if claims.is_empty() {
            match sound {
                Sound::Channel { .. } => line.idle.push_back(sound),
                // The server tells once more, and nobody is asked about.
                Sound::Key(_) => drop(line.sounds.remove(&sound)),
            }
        }
    }

    /// Ends subscriptions that nobody has needed for long.
    async fn unsubscribe(&mut self) {
        for line in self.lines.values_mut() {
            while line.idle.len() > IDLE {
                let Some(sound) = line.idle.pop_front() else { break };
                if let Sound::Channel { channel, sharded } = &sound
                    && line.sounds.get(&sound).is_some_and(Vec::is_empty)
                {
                    // If that fails the connection ends, and all of it.
                    let _ = subscribe(&mut line.connection, "UNSUBSCRIBE", channel, *sharded).await;
                    line.sounds.remove(&sound);
                }
            }
        }
    }
}

async fn subscribe(
    connection: &mut MultiplexedConnection,
    verb: &str,
    channel: &str,
    sharded: bool,
) -> Result<(), RedisError> {
    send(connection, redis::cmd(verb).arg(channel)).await?;
    if sharded {
        // A server before 7.0 has no shards, and nobody publishes there.
        let _ = send(connection, redis::cmd(&format!("S{verb}")).arg(channel)).await;
    }
    Ok(())
}

async fn send(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<(), RedisError> {
    connection.req_packed_command(command).await.and_then(Value::extract_error).map(drop)
}
