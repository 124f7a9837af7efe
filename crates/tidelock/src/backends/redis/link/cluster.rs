//! A cluster: names are spread over slots, and slots move.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{Cmd, RedisError, ServerErrorKind, Value};

use super::{
    super::{
        errors::classify_connecting,
        settings::{Host, RedisSettings},
    },
    Answer, Common, Form, Server, at,
    slots::{SLOTS, shard, slot},
};
use crate::{
    backend::{Failure, FailureKind},
    backends::shared::{failures, mutex::lock},
    clock::Moment,
};

/// How often a command is sent on to another server before it is given up.
const REDIRECTS: usize = 8;
/// How often the map is asked for while nothing answers.
const REFRESH: Duration = Duration::from_millis(200);
/// How long one member may take to tell the map.
const PATIENCE: Duration = Duration::from_secs(1);

/// The members of a cluster that serve slots.
#[derive(Debug)]
pub(crate) struct Cluster {
    config: Arc<RedisSettings>,
    common: Arc<Common>,
    seeds: Vec<Host>,
    map: Mutex<Map>,
    refreshing: tokio::sync::Mutex<()>,
}

/// Which member serves which slot.
#[derive(Debug, Default)]
struct Map {
    slots: Vec<Option<Arc<Server>>>,
    servers: HashMap<Host, Arc<Server>>,
    asked: Option<Moment>,
}

impl Cluster {
    pub(super) fn new(config: &Arc<RedisSettings>, common: &Arc<Common>, seeds: &[Host]) -> Self {
        Self {
            config: Arc::clone(config),
            common: Arc::clone(common),
            seeds: seeds.to_vec(),
            map: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
        }
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        lock(&self.map)
    }

    /// Knows the map; connections are made as they are needed.
    pub(super) async fn listen(&self) -> Result<(), Failure> {
        if self.map().slots.is_empty() { self.refresh().await } else { Ok(()) }
    }

    /// Each member that serves slots.
    pub(super) async fn all(&self) -> Result<Vec<Arc<Server>>, Failure> {
        self.listen().await?;
        Ok(self.current())
    }

    /// Each member that serves slots by now.
    pub(super) async fn all_now(&self) -> Result<Vec<Arc<Server>>, Failure> {
        self.refresh().await?;
        Ok(self.current())
    }

    /// Each member that served slots when it was last asked.
    pub(super) fn current(&self) -> Vec<Arc<Server>> {
        let mut servers: Vec<Arc<Server>> = Vec::new();
        for server in self.map().slots.iter().flatten() {
            if !servers.iter().any(|known| Arc::ptr_eq(known, server)) {
                servers.push(Arc::clone(server));
            }
        }
        servers
    }

    /// The member that serves a key.
    pub(super) async fn server(&self, key: &str) -> Result<Arc<Server>, Failure> {
        let slot = slot(key);
        let known = || self.map().slots.get(usize::from(slot)).cloned().flatten();
        if let Some(server) = known().filter(|server| !server.is_silent()) {
            return Ok(server);
        }
        // It may have been replaced: another member knows. If nobody answers, what is known counts.
        let refreshed = self.refresh().await;
        match known() {
            Some(server) => Ok(server),
            None => Err(refreshed.err().unwrap_or_else(|| {
                Failure::unreachable(format!("no member of the cluster serves slot {slot}: see CLUSTER INFO"))
            })),
        }
    }

    /// Asks the member that serves a key, and follows where it points.
    pub(super) async fn ask(&self, key: &str, make: &(dyn Fn(Form<'_>) -> Cmd + Send + Sync)) -> Answer {
        let slot = slot(key);
        let shard = shard(slot);
        let mut last = Failure::unreachable("the slot is on the move");
        for _ in 0..REDIRECTS {
            let server = self.server(key).await?;
            let answer = match server.hear_shard(&shard).await {
                Ok(Ok(())) => {
                    server.ask(&make(Form { shard: Some(&shard), functions: server.has_functions() })).await
                }
                // The channel was refused for the reason that the command would be: its slot is elsewhere.
                Ok(Err(error)) => Ok(Err(error)),
                Err(failure) => Err(failure),
            };
            let error = match answer {
                Ok(Err(error)) => error,
                Ok(Ok(value)) => return Ok(Ok(value)),
                Err(failure) if failure.kind == FailureKind::Unreachable => {
                    self.refresh().await?;
                    if self.serves(slot, &server) {
                        return Err(failure);
                    }
                    last = failure;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            match error.kind() {
                redis::ErrorKind::Server(ServerErrorKind::Moved) => {
                    if !self.follow(slot, &error)? {
                        return Ok(Err(error));
                    }
                }
                redis::ErrorKind::Server(ServerErrorKind::Ask) => {
                    let Some(host) = redirect(&error) else { return Ok(Err(error)) };
                    let member = self.member(&host)?;
                    member.connection().await?;
                    let functions = member.has_functions();
                    let command = make(Form { shard: Some("?"), functions });
                    let mut both = redis::pipe();
                    both.cmd("ASKING").ignore().add_command(command);
                    let answers = member.ask_all(&both).await?;
                    match answers.and_then(|mut answers| answers.pop().unwrap_or(Value::Nil).extract_error())
                    {
                        Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::TryAgain) => {
                            last = classify_connecting(&error);
                            tokio::time::sleep(REFRESH / 8).await;
                        }
                        answer => return Ok(answer),
                    }
                }
                // The key expired between the look at its slot and the first look of the script: it did nothing.
                _ if is_non_local(&error) => last = classify_connecting(&error),
                redis::ErrorKind::Server(ServerErrorKind::TryAgain) => {
                    last = classify_connecting(&error);
                    tokio::time::sleep(REFRESH / 8).await;
                }
                redis::ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::ClusterDown) => {
                    self.refresh().await?;
                    return Ok(Err(error));
                }
                _ => return Ok(Err(error)),
            }
        }
        Err(last)
    }

    /// Notes who serves a slot now. Says whether the error told.
    fn follow(&self, slot: u16, moved: &RedisError) -> Result<bool, Failure> {
        let Some(host) = redirect(moved) else { return Ok(false) };
        let server = self.member(&host)?;
        if let Some(at) = self.map().slots.get_mut(usize::from(slot)) {
            *at = Some(server);
        }
        Ok(true)
    }

    /// The member that serves a key, and what channels there end with.
    pub(super) async fn server_and_shard(&self, key: &str) -> Result<(Arc<Server>, Box<str>), Failure> {
        let server = self.server(key).await?;
        Ok((server, shard(slot(key))))
    }

    /// After a failure at a member: whether another one serves the key now.
    pub(super) async fn is_elsewhere(
        &self,
        key: &str,
        server: &Arc<Server>,
        error: Option<&RedisError>,
    ) -> bool {
        let slot = slot(key);
        let moved = |error: &&RedisError| error.kind() == redis::ErrorKind::Server(ServerErrorKind::Moved);
        let asked = match error.filter(moved) {
            Some(error) => self.follow(slot, error),
            None => self.refresh().await.map(|()| true),
        };
        asked.is_ok_and(|told| told) && !self.serves(slot, server)
    }

    fn serves(&self, slot: u16, server: &Arc<Server>) -> bool {
        self.map()
            .slots
            .get(usize::from(slot))
            .is_some_and(|at| at.as_ref().is_some_and(|at| Arc::ptr_eq(at, server)))
    }

    fn member(&self, host: &Host) -> Result<Arc<Server>, Failure> {
        let mut map = self.map();
        if let Some(server) = map.servers.get(host) {
            return Ok(Arc::clone(server));
        }
        let client = self.config.client(host).map_err(|error| classify_connecting(&error))?;
        let server = Server::new(at(host), client, &self.common);
        map.servers.insert(host.clone(), Arc::clone(&server));
        Ok(server)
    }

    /// Asks for the map: the first answer is believed, and corrected by redirections. Slots that it leaves out are asked
    /// for elsewhere: a member that was to get a slot forgets its owner when a replica takes over there.
    async fn refresh(&self) -> Result<(), Failure> {
        let _alone = self.refreshing.lock().await;
        let now = self.common.clock.now();
        if self.map().asked.is_some_and(|asked| now.since(asked) < REFRESH) {
            return Ok(());
        }
        let (mut reasons, mut cause) = (Vec::new(), None);
        let (mut asked, mut slots): (Vec<Host>, Option<Vec<_>>) = (Vec::new(), None);
        // Members that an answer names are asked too.
        while let Some(host) = self.next_to_ask(&asked) {
            match tokio::time::timeout(PATIENCE, self.ask_for_map(&host)).await {
                Ok(Ok(told)) => {
                    let slots = slots.get_or_insert_with(|| vec![None; SLOTS]);
                    slots
                        .iter_mut()
                        .zip(told)
                        .filter(|(known, _)| known.is_none())
                        .for_each(|(known, told)| *known = told);
                    if slots.iter().all(Option::is_some) {
                        break;
                    }
                }
                Ok(Err(failure)) if failure.kind == FailureKind::Denied => return Err(failure),
                Ok(Err(failure)) => {
                    reasons.push(failure.reason.to_string());
                    cause = cause.or(failure.cause);
                }
                Err(_) => reasons.push(format!("{}: no answer within {PATIENCE:?}", at(&host))),
            }
            asked.push(host);
        }
        if let Some(slots) = slots {
            let mut map = self.map();
            map.slots = slots;
            map.asked = Some(self.common.clock.now());
            return Ok(());
        }
        let reason = format!("no member of the cluster tells who serves what ({})", reasons.join("; "));
        Err(Failure { cause, ..Failure::unreachable(reason) })
    }

    /// A member that is known and was not asked yet.
    fn next_to_ask(&self, asked: &[Host]) -> Option<Host> {
        let map = self.map();
        map.servers.keys().chain(&self.seeds).find(|host| !asked.contains(host)).cloned()
    }

    async fn ask_for_map(&self, host: &Host) -> Result<Vec<Option<Arc<Server>>>, Failure> {
        let failed = |error| failures::at(at(host), classify_connecting(&error));
        // A connection of its own: a replica tells the map too, and is no server that grants locks.
        let client = self.config.client(host).map_err(failed)?;
        let mut connection = client.get_multiplexed_async_connection().await.map_err(failed)?;
        let mut command = redis::cmd("CLUSTER");
        let answer: Value = command.arg("SLOTS").query_async(&mut connection).await.map_err(failed)?;
        let mut slots = vec![None; SLOTS];
        let Value::Array(ranges) = answer else { return Err(Failure::unreachable("its map cannot be read")) };
        for range in &ranges {
            let Some((from, to, (name, port))) = read_range(range) else { continue };
            let name = if name.is_empty() || name == "?" { host.0.clone() } else { name };
            let server = self.member(&(name, port))?;
            for at in slots.iter_mut().take(to + 1).skip(from) {
                *at = Some(Arc::clone(&server));
            }
        }
        Ok(slots)
    }
}

fn read_range(range: &Value) -> Option<(usize, usize, Host)> {
    let [Value::Int(from), Value::Int(to), Value::Array(master), ..] = range.as_sequence()? else {
        return None;
    };
    let [name, Value::Int(port), ..] = &**master else { return None };
    let name = match name {
        Value::BulkString(name) => String::from_utf8(name.clone()).ok()?,
        _ => String::new(),
    };
    Some((usize::try_from(*from).ok()?, usize::try_from(*to).ok()?, (name, u16::try_from(*port).ok()?)))
}

/// Whether a script touched a key that is not at this member. Ours do so only before they change anything.
fn is_non_local(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("access a non local key"))
}

fn redirect(error: &RedisError) -> Option<Host> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}
