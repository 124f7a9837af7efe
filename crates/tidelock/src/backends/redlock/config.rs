//! From a URL to servers and options.

use std::{collections::HashSet, fmt, time::Duration};

use super::super::redis::RedisConfig;
use crate::{
    DEFAULT_TTL,
    error::{Error, Result},
    url::Url,
};

/// More would cost more than they save; a set of servers is kept in a few bits.
const MOST: usize = 15;

/// How a client reaches the servers that vote.
#[derive(Clone)]
pub struct RedlockConfig {
    pub(super) servers: Vec<RedisConfig>,
    /// The longest lease that any client may ask for: for so long a server that was started has no vote.
    pub(super) longest_ttl: Duration,
}

impl RedlockConfig {
    /// Reads a URL such as `redlock://one,two,three,four,five:6380`.
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl), without repeating anything that may be secret.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = Url::parse(url)?;
        let scheme = match &*url.scheme {
            "redlock" => "redis",
            "redlocks" => "rediss",
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
        let longest: Option<u64> = url.take_parsed("longest_ttl_ms", "a number of milliseconds above 0")?;
        if longest == Some(0) {
            return Err(Error::invalid_url("the URL's option longest_ttl_ms may not be 0: leave it out"));
        }
        scheme.clone_into(&mut url.scheme);
        let of_host = |host| {
            let mut url = url.clone();
            url.hosts.push(host);
            RedisConfig::from_parts(url)
        };
        let servers: Vec<_> = hosts.into_iter().map(of_host).collect::<Result<_>>()?;
        if !servers.iter().all(RedisConfig::can_vote) {
            return Err(Error::invalid_url(
                "redlock:// asks single servers by scripts: leave out replicas= and scripting=off",
            ));
        }
        Ok(Self { servers, longest_ttl: longest.map_or(2 * DEFAULT_TTL, Duration::from_millis) })
    }
}

impl fmt::Debug for RedlockConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedlockConfig({:?})", self.servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_their_options() {
        let five =
            RedlockConfig::from_url("redlock://:secret@a,b,c:1,d,e?prefix=x:&longest_ttl_ms=9000").unwrap();
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
            "redlock://:secret@a,b,c?nonsense",
            "redlock://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
        ] {
            let error = RedlockConfig::from_url(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{bad}: {error}");
        }
    }
}
