//! Looking at many locks of a server: at all of them page by page of its `SCAN`, or at those of a list.
//!
//! A name that nobody uses is remembered for ten minutes, so most of what a scan finds may be idle. One message for
//! each page reads what is kept at the keys of the page before and asks for the next one. Nothing is kept but locks
//! in use: the memory of a client grows with those, and not with what the scan goes through.
//!
//! `MGET` costs a server less than a script that leaves out idle names, which are 17 bytes each. In a cluster the keys
//! of a page are in many slots, so that each is a `GET` of the same message; the same goes for users who may not use
//! `MGET`.

use std::sync::Arc;

use futures_util::future::try_join_all;
use redis::{ErrorKind, Pipeline, ServerErrorKind, Value};

use super::{
    codec,
    errors::classify,
    fitness::time_of,
    forms,
    link::{Link, Server},
    store::RedisStore,
};
use crate::{
    backend::{Failure, LockView},
    model::name::Name,
};

/// How many keys a server looks at in one call: about half a millisecond of its time.
const PAGE: usize = 500;

/// How many keys are read in one call, at most. A scan often finds a few more than it was asked for, and these are not worth a
/// message of their own.
const MOST_KEYS: usize = 2 * PAGE;

/// How many bytes one message may read, about: a line of thousands who wait is hundreds of kilobytes. How many keys are
/// read together follows from those before: a few at first.
const BYTES: usize = 256 * 1_024;
const FIRST_KEYS: usize = 16;

/// Where a scan begins, and what it says after its last page.
const FIRST: &str = "0";

/// How the keys of a page are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// By one command.
    Together,
    /// By one command for each key.
    Singly,
}

/// A page of a scan: where the next one begins, and the keys of this one.
struct Page {
    next: String,
    keys: Vec<(String, Name)>,
}

impl RedisStore {
    /// All locks in use, by name.
    pub(super) async fn view_all(&self) -> Result<Vec<LockView>, Failure> {
        // Replicas take over and members join while this client uses other slots, or none.
        let servers = self.link.all_now().await?;
        // One page of each member at a time.
        let views = try_join_all(servers.iter().map(|server| self.view_server(server))).await?;
        let mut views: Vec<_> = views.into_iter().flatten().collect();
        // A scan may come across a key twice, the later look counts.
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views.dedup_by(|later, earlier| {
            let is_same = later.name == earlier.name;
            if is_same {
                std::mem::swap(later, earlier);
            }
            is_same
        });
        Ok(views)
    }

    /// All locks in use at one server.
    async fn view_server(&self, server: &Arc<Server>) -> Result<Vec<LockView>, Failure> {
        let mut reading =
            if matches!(self.link, Link::Cluster(_)) { Reading::Singly } else { Reading::Together };
        let mut views = Vec::new();
        let mut page = Page { next: FIRST.to_owned(), keys: Vec::new() };
        let (mut is_last, mut at_once) = (false, FIRST_KEYS);
        loop {
            let later = page.keys.split_off(at_once.min(page.keys.len()));
            let mut message = redis::pipe();
            read_keys(&mut message, &page.keys, reading);
            let goes_on = later.is_empty() && !is_last;
            if goes_on {
                message.add_command(self.scan(&page.next));
            }
            if message.is_empty() {
                return Ok(views);
            }
            let live = server.connection().await?;
            let mut answers = server.ask_live_all(live, &message).await.map_err(|error| classify(&error))?;
            let next = if goes_on { Some(self.page(answers.pop())?) } else { None };
            if reading == Reading::Together && answers.first().is_some_and(is_forbidden) {
                // Once more, in the other way: the scan goes on from the same place.
                reading = Reading::Singly;
                page.keys.extend(later);
                continue;
            }
            let bytes = self.view_page(&page.keys, reading, answers, &mut views, in_use).await?;
            if !page.keys.is_empty() {
                at_once = keys_after(at_once, page.keys.len(), bytes);
            }
            if let Some(next) = next {
                is_last = next.next == FIRST;
                page = next;
            } else if later.is_empty() {
                return Ok(views);
            } else {
                page.keys = later;
            }
        }
    }

    /// The locks of these names that are in use, read together. Nothing if they have to be asked for one by one: in a
    /// cluster, where other programs use the locks as well, or where this user may not read them so.
    pub(super) async fn view_together(&self, names: &[Name]) -> Result<Option<Vec<LockView>>, Failure> {
        if self.fleet.is_some() || matches!(self.link, Link::Cluster(_)) {
            return Ok(None);
        }
        let servers = self.link.all().await?;
        let [server] = &servers[..] else { return Ok(None) };
        let (mut views, mut at_once) = (Vec::new(), FIRST_KEYS);
        let mut left = names;
        while !left.is_empty() {
            let (some, later) = left.split_at(at_once.min(left.len()));
            left = later;
            let keys: Vec<_> = some.iter().map(|name| (self.common.space.key(name), name.clone())).collect();
            let mut message = redis::pipe();
            read_keys(&mut message, &keys, Reading::Together);
            let live = server.connection().await?;
            let answers = server.ask_live_all(live, &message).await.map_err(|error| classify(&error))?;
            if answers.first().is_some_and(is_forbidden) {
                return Ok(None);
            }
            let bytes = self.view_page(&keys, Reading::Together, answers, &mut views, asked_for).await?;
            at_once = keys_after(at_once, keys.len(), bytes);
        }
        Ok(Some(views))
    }

    fn scan(&self, cursor: &str) -> redis::Cmd {
        let mut scan = redis::cmd("SCAN");
        // Not by type: that is another look at each key, and what is no string is left out anyway.
        scan.arg(cursor).arg("MATCH").arg(self.common.space.pattern()).arg("COUNT").arg(PAGE);
        scan
    }

    /// What a scan found.
    fn page(&self, answer: Option<Value>) -> Result<Page, Failure> {
        let answer = answer.unwrap_or(Value::Nil).extract_error().map_err(|error| classify(&error))?;
        let (next, keys): (String, Vec<Vec<u8>>) = redis::from_redis_value(answer)
            .map_err(|error| Failure::unknown(format!("the answer to SCAN cannot be read: {error}")))?;
        let named = keys.into_iter().filter_map(|key| {
            let key = String::from_utf8(key).ok()?;
            let name = self.common.space.name(&key)?;
            Some((key, name))
        });
        Ok(Page { next, keys: named.collect() })
    }

    /// The locks among the keys of a page that are to be shown. Says how many bytes were read.
    async fn view_page(
        &self,
        keys: &[(String, Name)],
        reading: Reading,
        mut answers: Vec<Value>,
        views: &mut Vec<LockView>,
        show: fn(&Name, &[u8], u64) -> Option<LockView>,
    ) -> Result<usize, Failure> {
        if keys.is_empty() {
            return Ok(0);
        }
        let time = answers.pop().unwrap_or(Value::Nil).extract_error().map_err(|error| classify(&error))?;
        let now = time_of(&time).ok_or_else(|| Failure::unknown("the answer to TIME cannot be read"))?;
        if reading == Reading::Together {
            let together = answers.pop().unwrap_or(Value::Nil);
            answers = match together.extract_error().map_err(|error| classify(&error))? {
                Value::Array(heads) => heads,
                _ => return Err(Failure::unknown("the answer to MGET cannot be read")),
            };
        }
        if answers.len() != keys.len() {
            return Err(Failure::unknown("the server answered another question"));
        }
        let mut bytes = 0;
        for ((key, name), head) in keys.iter().zip(answers) {
            match head.extract_error() {
                Ok(Value::BulkString(head)) => {
                    bytes += head.len();
                    views.extend(show(name, &head, now));
                }
                // Given back and forgotten since.
                Ok(_) => {}
                Err(error) => match error.kind() {
                    // Its slot moves, or has moved: it is asked for where it is now.
                    ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
                        let seen = self.see(key).await?;
                        if let Some((now, head)) = codec::seen(&seen)? {
                            views.extend(show(name, head, now));
                        }
                    }
                    _ if error.code() == Some("WRONGTYPE") => {}
                    _ => return Err(classify(&error)),
                },
            }
        }
        Ok(bytes)
    }
}

/// How many keys are read together after up to so many, when some of them had so many bytes.
fn keys_after(at_once: usize, keys: usize, bytes: usize) -> usize {
    // Lines differ: not too many more.
    (keys * BYTES / bytes.max(1)).clamp(1, MOST_KEYS.min(2 * at_once))
}

/// Reads what is kept at keys, and then the time.
fn read_keys(message: &mut Pipeline, keys: &[(String, Name)], reading: Reading) {
    if keys.is_empty() {
        return;
    }
    match reading {
        Reading::Together => {
            let command = message.cmd("MGET");
            keys.iter().for_each(|(key, _)| {
                command.arg(key);
            });
        }
        Reading::Singly => keys.iter().for_each(|(key, _)| {
            message.cmd("GET").arg(key);
        }),
    }
    message.cmd("TIME");
}

/// What is kept at a key that a scan found, if it is a line in use.
fn in_use(name: &Name, head: &[u8], now: u64) -> Option<LockView> {
    let is_shown = !codec::is_idle(head) && forms::is_line(head);
    is_shown.then(|| codec::view(name, head, codec::store_time(now)))?
}

/// What is kept at a key whose name somebody asked for, whatever it is.
fn asked_for(name: &Name, head: &[u8], now: u64) -> Option<LockView> {
    (!codec::is_idle(head)).then(|| codec::view(name, head, codec::store_time(now)))?
}

/// Whether the user may not use a command.
fn is_forbidden(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    error.kind() == Some(ServerErrorKind::NoPerm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_keys_are_read_together_where_lines_are_long() {
        // Idle names: more and more, up to more than a page, however few the scan finds.
        assert_eq!((keys_after(16, 16, 16 * 17), keys_after(600, 600, 600 * 17)), (32, MOST_KEYS));
        assert_eq!((keys_after(PAGE, 3, 3 * 17), keys_after(PAGE, 2, 0)), (MOST_KEYS, MOST_KEYS));
        // Lines of 100 kB, and one that alone is longer than all should be.
        assert_eq!((keys_after(16, 16, 1_600_000), keys_after(1, 1, 10 * BYTES)), (2, 1));
    }
}
