//! A cluster: names are spread over slots, and slots move.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{Cmd, RedisError, ServerErrorKind, Value};

use super::{
    config::{Host, RedisConfig},
    errors::classify_connecting,
    link::{Common, Link},
    servers::{Answer, Form, at},
};
use crate::{
    backend::{Failure, FailureKind},
    clock::Moment,
};

const SLOTS: usize = 16_384;
/// How often a command is sent on to another server before it is given up.
const REDIRECTS: usize = 8;
/// How often the map is asked for while nothing answers.
const REFRESH: Duration = Duration::from_millis(200);
/// How long one member may take to tell the map.
const PATIENCE: Duration = Duration::from_secs(1);

/// The members of a cluster that serve slots.
#[derive(Debug)]
pub(super) struct Cluster {
    config: Arc<RedisConfig>,
    common: Arc<Common>,
    seeds: Vec<Host>,
    map: Mutex<Map>,
    refreshing: tokio::sync::Mutex<()>,
}

/// Which member serves which slot.
#[derive(Debug, Default)]
struct Map {
    slots: Vec<Option<Arc<Link>>>,
    links: HashMap<Host, Arc<Link>>,
    /// A text with this slot, for channels: the same for every client.
    tags: HashMap<u16, Box<str>>,
    asked: Option<Moment>,
}

impl Cluster {
    pub(super) fn new(config: &Arc<RedisConfig>, common: &Arc<Common>, seeds: &[Host]) -> Self {
        Self {
            config: Arc::clone(config),
            common: Arc::clone(common),
            seeds: seeds.to_vec(),
            map: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
        }
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Knows the map; links are made as they are needed.
    pub(super) async fn listen(&self) -> Result<(), Failure> {
        if self.map().slots.is_empty() { self.refresh().await } else { Ok(()) }
    }

    /// A link to each member that serves slots.
    pub(super) async fn all(&self) -> Result<Vec<Arc<Link>>, Failure> {
        self.listen().await?;
        Ok(self.current())
    }

    /// A link to each member that served slots when it was last asked.
    pub(super) fn current(&self) -> Vec<Arc<Link>> {
        let mut links: Vec<Arc<Link>> = Vec::new();
        for link in self.map().slots.iter().flatten() {
            if !links.iter().any(|known| Arc::ptr_eq(known, link)) {
                links.push(Arc::clone(link));
            }
        }
        links
    }

    /// The link to the member that serves a key.
    pub(super) async fn link(&self, key: &str) -> Result<Arc<Link>, Failure> {
        let slot = slot(key);
        let known = || self.map().slots.get(usize::from(slot)).cloned().flatten();
        if let Some(link) = known().filter(|link| !link.is_silent()) {
            return Ok(link);
        }
        // It may have been replaced: another member knows. If nobody answers, what is known counts.
        let refreshed = self.refresh().await;
        match known() {
            Some(link) => Ok(link),
            None => Err(refreshed.err().unwrap_or_else(|| {
                Failure::unreachable(format!("no member of the cluster serves slot {slot}: see CLUSTER INFO"))
            })),
        }
    }

    /// Asks the member that serves a key, and follows where it points.
    pub(super) async fn ask(&self, key: &str, make: &(dyn Fn(Form<'_>) -> Cmd + Send + Sync)) -> Answer {
        let slot = slot(key);
        let shard = self.shard(slot);
        let mut all_keys = true;
        let mut last = Failure::unreachable("the slot is on the move");
        for _ in 0..REDIRECTS {
            let link = self.link(key).await?;
            let answer = match link.hear_shard(&shard).await {
                Ok(Ok(())) => {
                    link.ask(&make(Form { all_keys, shard: Some(&shard), functions: link.has_functions() }))
                        .await
                }
                // The channel was refused for the reason that the command would be: its slot is elsewhere.
                Ok(Err(error)) => Ok(Err(error)),
                Err(failure) => Err(failure),
            };
            let error = match answer {
                Ok(Err(error)) => error,
                Ok(Ok(value)) => {
                    if needs_all_keys(&value) {
                        // Half of the line is at another member: it is whole again in a moment.
                        tokio::time::sleep(REFRESH / 8).await;
                        all_keys = true;
                        continue;
                    }
                    return Ok(Ok(value));
                }
                Err(failure) if failure.kind == FailureKind::Unreachable => {
                    self.refresh().await?;
                    if self.serves(slot, &link) {
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
                    let command = make(Form { all_keys, shard: Some("?"), functions });
                    let mut both = redis::pipe();
                    both.cmd("ASKING").ignore().add_command(command);
                    let answers = member.ask_all(&both).await?;
                    match answers.and_then(|mut answers| answers.pop().unwrap_or(Value::Nil).extract_error())
                    {
                        Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::TryAgain) => {
                            // Not all keys are there: the head alone may do.
                            all_keys = !all_keys;
                            last = classify_connecting(&error);
                            tokio::time::sleep(REFRESH / 8).await;
                        }
                        Ok(value) if needs_all_keys(&value) => {
                            all_keys = true;
                            tokio::time::sleep(REFRESH / 8).await;
                        }
                        answer => return Ok(answer),
                    }
                }
                redis::ErrorKind::Server(ServerErrorKind::TryAgain) => {
                    all_keys = !all_keys;
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
        let link = self.member(&host)?;
        if let Some(at) = self.map().slots.get_mut(usize::from(slot)) {
            *at = Some(link);
        }
        Ok(true)
    }

    /// The link to the member that serves a key, and what channels there end with.
    pub(super) async fn place(&self, key: &str) -> Result<(Arc<Link>, Box<str>), Failure> {
        let link = self.link(key).await?;
        Ok((link, self.shard(slot(key))))
    }

    /// After a failure at a member: whether another one serves the key now.
    pub(super) async fn is_elsewhere(&self, key: &str, link: &Arc<Link>, error: Option<&RedisError>) -> bool {
        let slot = slot(key);
        let moved = |error: &&RedisError| error.kind() == redis::ErrorKind::Server(ServerErrorKind::Moved);
        let asked = match error.filter(moved) {
            Some(error) => self.follow(slot, error),
            None => self.refresh().await.map(|()| true),
        };
        asked.is_ok_and(|told| told) && !self.serves(slot, link)
    }

    fn serves(&self, slot: u16, link: &Arc<Link>) -> bool {
        self.map()
            .slots
            .get(usize::from(slot))
            .is_some_and(|at| at.as_ref().is_some_and(|at| Arc::ptr_eq(at, link)))
    }

    fn member(&self, host: &Host) -> Result<Arc<Link>, Failure> {
        let mut map = self.map();
        if let Some(link) = map.links.get(host) {
            return Ok(Arc::clone(link));
        }
        let client = self.config.client(host).map_err(|error| classify_connecting(&error))?;
        let link = Link::new(at(host), client, &self.common);
        map.links.insert(host.clone(), Arc::clone(&link));
        Ok(link)
    }

    /// What channels of a slot end with.
    fn shard(&self, slot: u16) -> Box<str> {
        let mut map = self.map();
        map.tags
            .entry(slot)
            .or_insert_with(|| {
                let tag = (0_u32..).map(|n| format!(":{{{n:x}}}")).find(|tag| self::slot(tag) == slot);
                tag.unwrap_or_default().into()
            })
            .clone()
    }

    /// Asks for the map: whoever answers first is believed, and mended by redirections.
    async fn refresh(&self) -> Result<(), Failure> {
        let _alone = self.refreshing.lock().await;
        let now = self.common.clock.now();
        if self.map().asked.is_some_and(|asked| now.since(asked) < REFRESH) {
            return Ok(());
        }
        let mut hosts: Vec<_> = self.map().links.keys().cloned().collect();
        hosts.extend(self.seeds.iter().filter(|seed| !hosts.contains(seed)).cloned().collect::<Vec<_>>());
        let mut reasons = Vec::new();
        for host in hosts {
            match tokio::time::timeout(PATIENCE, self.ask_for_map(&host)).await {
                Ok(Ok(slots)) => {
                    let mut map = self.map();
                    map.slots = slots;
                    map.asked = Some(self.common.clock.now());
                    return Ok(());
                }
                Ok(Err(failure)) if failure.kind == FailureKind::Denied => return Err(failure),
                Ok(Err(failure)) => reasons.push(failure.reason.to_string()),
                Err(_) => reasons.push(format!("{}: no answer within {PATIENCE:?}", at(&host))),
            }
        }
        Err(Failure::unreachable(format!(
            "no member of the cluster tells who serves what ({})",
            reasons.join("; ")
        )))
    }

    async fn ask_for_map(&self, host: &Host) -> Result<Vec<Option<Arc<Link>>>, Failure> {
        let failed = |error| {
            let failure = classify_connecting(&error);
            Failure { reason: format!("{}: {}", at(host), failure.reason).into(), ..failure }
        };
        // A connection of its own: a replica tells the map too, and is no link to grant locks.
        let client = self.config.client(host).map_err(failed)?;
        let mut connection = client.get_multiplexed_async_connection().await.map_err(failed)?;
        let mut command = redis::cmd("CLUSTER");
        let answer: Value = command.arg("SLOTS").query_async(&mut connection).await.map_err(failed)?;
        let mut slots = vec![None; SLOTS];
        let Value::Array(ranges) = answer else { return Err(Failure::unreachable("its map cannot be read")) };
        for range in &ranges {
            let Some((from, to, (name, port))) = read_range(range) else { continue };
            let name = if name.is_empty() || name == "?" { host.0.clone() } else { name };
            let link = self.member(&(name, port))?;
            for at in slots.iter_mut().take(to + 1).skip(from) {
                *at = Some(Arc::clone(&link));
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

fn redirect(error: &RedisError) -> Option<Host> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

/// Whether a script answered that the head alone is not enough.
fn needs_all_keys(value: &Value) -> bool {
    match value {
        Value::Int(8) => true,
        Value::Array(values) => matches!(**values, [Value::Int(8)]),
        _ => false,
    }
}

/// The slot of a key: of what stands between its first braces, if anything does.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed.as_bytes()) % SLOTS as u16
}

/// CRC-16/XMODEM, as Redis Cluster uses it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!((slot("foo"), slot("{foo}:x"), slot("a{foo}{b}")), (12_182, 12_182, 12_182));
        assert_eq!(slot("{}foo"), crc16(b"{}foo") % 16_384);
    }
}
