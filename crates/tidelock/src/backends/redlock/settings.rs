//! From a URL to servers and options.

use std::{collections::HashSet, fmt, time::Duration};

use crate::{
    backends::{
        StoreOption,
        redis::{
            RedisSettings,
            options::{DB, EVICTION, LOCK_KEY, MODE, PREFIX, SCRIPTING},
        },
        shared::{
            longest_ttl,
            options::{CA, CERT, KEY, UrlOption},
            url::Url,
        },
    },
    error::{Error, Result},
};

/// The options of a single server, which apply to all servers, and one more. Servers that vote have no
/// replicas and no Sentinels.
pub(super) const OPTIONS: &[StoreOption] = &[
    PREFIX.about,
    DB.about,
    SCRIPTING.about,
    MODE.about,
    LOCK_KEY.about,
    EVICTION.about,
    CA,
    CERT,
    KEY,
    LONGEST_TTL.about,
];

pub(super) const LONGEST_TTL: UrlOption<Duration> = longest_ttl::option(
    "the longest ttl that any client may ask for, the same for all clients; a server that was started has no vote for as long",
);

/// More would cost more than they save; a set of servers is kept in a few bits.
const MOST: usize = 15;

/// How a client reaches the servers that vote.
#[derive(Clone)]
pub(super) struct RedlockSettings {
    pub(super) servers: Vec<RedisSettings>,
    /// The longest lease that any client may ask for: a server has no vote for this long after its start.
    pub(super) longest_ttl: Duration,
}

impl RedlockSettings {
    pub(super) const OPTIONS: &[StoreOption] = OPTIONS;

    /// Reads what a URL, or a config in its place, says.
    pub(super) fn read(mut url: Url) -> Result<Self> {
        let secure = match &*url.scheme {
            "redlock" => false,
            "redlocks" => true,
            _ => {
                return Err(Error::invalid_url("servers that vote are reached by redlock:// or redlocks://"));
            }
        };
        let hosts = std::mem::take(&mut url.hosts);
        let different: HashSet<_> = hosts.iter().map(|(host, port)| (host, port.unwrap_or(6379))).collect();
        if different.len() < hosts.len() {
            return Err(Error::invalid_url("a server is named twice in the URL: each has one vote only"));
        }
        if hosts.len() < 3 {
            return Err(Error::invalid_url(
                "redlock:// needs at least three servers, so that one may fail: name them all, as in redlock://a,b,c, or use redis:// for one",
            ));
        }
        if hosts.len() > MOST {
            return Err(Error::invalid_url(format!(
                "redlock:// takes at most {MOST} servers: five are plenty"
            )));
        }
        let longest_ttl = url.take(&LONGEST_TTL)?;
        let of_host = |host| {
            let mut url = url.clone();
            url.hosts.push(host);
            let server = RedisSettings::take_from(&mut url, secure, "")?;
            url.finish()?;
            Ok(server)
        };
        let servers: Vec<_> = hosts.into_iter().map(of_host).collect::<Result<_>>()?;
        if !servers.iter().all(RedisSettings::can_vote) {
            return Err(Error::invalid_url(
                "redlock:// asks single servers by scripts: leave out replicas= and scripting=off",
            ));
        }
        if servers.iter().any(RedisSettings::is_fenced) {
            return Err(Error::invalid_url(
                "each server has a counter of its own for RFencedLock, and they differ: leave out fenced=1",
            ));
        }
        Ok(Self { servers, longest_ttl })
    }
}

impl fmt::Debug for RedlockSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedlockSettings({:?})", self.servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_url(url: &str) -> Result<RedlockSettings> {
        RedlockSettings::read(Url::parse(url, OPTIONS)?)
    }

    #[test]
    fn urls_are_read_with_their_options() {
        let five = from_url("redlock://:secret@a,b,c:1,d,e?prefix=x:&longest_ttl_ms=9000").unwrap();
        assert_eq!((five.servers.len(), five.longest_ttl), (5, Duration::from_secs(9)));
        assert!(!format!("{five:?}").contains("secret"));
    }

    #[test]
    fn wrong_urls_get_one_clear_sentence_without_secrets() {
        for bad in [
            "redlock://",
            "redlock://a,b",
            "redlock://a,b,a:6379",
            "redlock://a,b,c?longest_ttl_ms=0",
            "redlock://a,b,c?longest_ttl_ms=soon",
            "redlock://a,b,c?scripting=off",
            "redlock://a,b,c?replicas=1",
            "redlock://a,b,c?lock_key=lock:{name}",
            "redlock://a,b,c?mode=redisson&fenced=1",
            "redlock://a,b,c?mode=setnx&scripting=functions",
            "redlock://:secret@a,b,c?nonsense",
            "redlock://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
        ] {
            let error = from_url(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{bad}: {error}");
        }
    }
}
