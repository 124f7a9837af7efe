//! From a URL to servers and options.

use std::{fmt, time::Duration};

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, TlsCertificates, io::tcp::TcpSettings,
};

use crate::{
    backends::{
        StoreOption,
        shared::{
            provider,
            url::{TlsFiles, Url},
        },
    },
    error::{Error, Result},
};

use super::fleet::{Dialect, Template};
use super::options::{
    DB, EVICTION, FENCED, LOCK_KEY, MODE, OPTIONS, PREFIX, REPLICAS, REPLICAS_TIMEOUT, SCRIPTING,
    SENTINEL_PASSWORD, SENTINEL_USER, database,
};

/// How a client reaches Redis, and how locks are kept there.
#[derive(Clone)]
pub(crate) struct RedisSettings {
    pub(super) address: Address,
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub(super) tls: Option<TlsFiles>,
    pub(super) db: i64,
    /// What all keys and channels begin with.
    pub(super) prefix: String,
    /// How many replicas have to confirm a grant.
    pub(super) replicas: u32,
    pub(super) replicas_timeout: Duration,
    pub(super) scripting: Scripting,
    /// Whose locks are taken on top of ours, and how they are called.
    pub(super) mode: Option<(Dialect, Template)>,
    /// Whether each of them raises the counter of an `RFencedLock`.
    pub(super) fenced: bool,
    /// Whether a server that may evict locks is used all the same.
    pub(super) eviction_allowed: bool,
}

/// Where the servers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    One(Host),
    Socket(String),
    /// Sentinels, and the name of the master they watch.
    Sentinel(Vec<Host>, String),
    /// Some members of a cluster.
    Cluster(Vec<Host>),
}

/// A host and its port.
pub(super) type Host = (String, u16);

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    user: Option<String>,
    password: Option<String>,
}

/// How a change is made atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scripting {
    /// Functions where the client may load them, else scripts: a function is called in less time.
    Any,
    /// Scripts, sent once and then called by their hash.
    Scripts,
    /// Functions of a library that an administrator loaded.
    Functions,
    /// Watched keys and transactions.
    Off,
}

impl Scripting {
    /// Returns its name in a URL.
    pub(in crate::backends) fn as_str(self) -> &'static str {
        match self {
            Self::Any => "on",
            Self::Scripts => "scripts",
            Self::Functions => "functions",
            Self::Off => "off",
        }
    }
}

impl RedisSettings {
    pub(super) const OPTIONS: &[StoreOption] = OPTIONS;

    /// Reads what a URL, or a config in its place, says.
    pub(super) fn read(mut url: Url) -> Result<Self> {
        let (scheme, kind) = url.scheme.split_once('+').unwrap_or((&url.scheme, ""));
        let (secure, kind) = (scheme == "rediss", kind.to_owned());
        let config = Self::take_from(&mut url, secure, &kind)?;
        url.finish()?;
        Ok(config)
    }

    /// Takes what a URL says of one server, or of the servers of another kind, out of it.
    pub(in crate::backends) fn take_from(url: &mut Url, secure: bool, kind: &str) -> Result<Self> {
        let tls = url.take_tls(secure, "redis:// does not use it: write rediss://")?;
        let hosts = |url: &Url, port| -> Result<Vec<Host>> {
            if url.hosts.is_empty() {
                return Err(Error::invalid_url("the URL names no host: write redis://host:6379"));
            }
            Ok(url.hosts.iter().map(|(host, at)| (host.clone(), at.unwrap_or(port))).collect())
        };
        let (address, db) = match kind {
            "" => {
                let mut hosts = hosts(url, 6379)?;
                if hosts.len() > 1 {
                    return Err(Error::invalid_url(
                        "redis:// takes one host: use redis+sentinel:// or redis+cluster:// for several",
                    ));
                }
                (Address::One(hosts.remove(0)), url.path.clone())
            }
            "unix" if secure => {
                return Err(Error::invalid_url("a socket has no TLS: leave one of them out"));
            }
            "unix" if url.hosts.is_empty() && !url.path.is_empty() => {
                (Address::Socket(format!("/{}", url.path)), String::new())
            }
            "unix" => {
                return Err(Error::invalid_url(
                    "write redis+unix:///path/of/the/socket, with ?db= if needed",
                ));
            }
            "sentinel" => {
                let (master, db) = url.path.split_once('/').unwrap_or((&url.path, ""));
                if master.is_empty() {
                    return Err(Error::invalid_url(
                        "the URL does not name the master: write redis+sentinel://host,host/NAME",
                    ));
                }
                (Address::Sentinel(hosts(url, 26379)?, master.to_owned()), db.to_owned())
            }
            "cluster" => (Address::Cluster(hosts(url, 6379)?), url.path.clone()),
            _ => {
                return Err(Error::invalid_url(
                    "Redis is reached by redis://, rediss://, redis+unix://, redis+sentinel:// or redis+cluster://",
                ));
            }
        };
        let db = match url.take(&DB)? {
            Some(db) => db,
            None => database(&db)?,
        };
        if db != 0 && matches!(address, Address::Cluster(_)) {
            return Err(Error::invalid_url("a cluster has database 0 only: leave the number out"));
        }
        let (mode, template) = (url.take(&MODE)?, url.take(&LOCK_KEY)?);
        if mode.is_none() && !template.is_name() {
            return Err(Error::invalid_url(
                "lock_key is the key of other programs for a lock: it needs mode=redisson or mode=setnx",
            ));
        }
        let fenced = url.take(&FENCED)?;
        if fenced && mode != Some(Dialect::Redisson) {
            return Err(Error::invalid_url(
                "fenced=1 raises the counter of Redisson's RFencedLock: it needs mode=redisson",
            ));
        }
        let scripting = url.take(&SCRIPTING)?;
        if mode.is_some() && matches!(scripting, Scripting::Off | Scripting::Functions) {
            return Err(Error::invalid_url(
                "mode=redisson and mode=setnx take the lock of other programs within a script: leave out scripting=off and scripting=functions",
            ));
        }
        Ok(Self {
            address,
            mode: mode.map(|dialect| (dialect, template)),
            fenced,
            login: Login { user: url.user.clone(), password: url.password.clone() },
            sentinel_login: Login {
                user: url.take(&SENTINEL_USER)?,
                password: url.take(&SENTINEL_PASSWORD)?,
            },
            tls,
            db,
            prefix: url.take(&PREFIX)?,
            replicas: url.take(&REPLICAS)?,
            replicas_timeout: url.take(&REPLICAS_TIMEOUT)?,
            scripting,
            eviction_allowed: url.take(&EVICTION)?,
        })
    }

    /// Whether other programs take the same locks.
    pub(in crate::backends) fn has_mode(&self) -> bool {
        self.mode.is_some()
    }

    /// Whether the server can be one of several that vote.
    pub(in crate::backends) fn can_vote(&self) -> bool {
        matches!(self.address, Address::One(_)) && self.replicas == 0 && self.scripting != Scripting::Off
    }

    /// Whether tokens of an `RFencedLock` are asked for.
    pub(in crate::backends) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// A client for one server of this installation.
    pub(super) fn client(&self, host: &Host) -> Result<Client, redis::RedisError> {
        self.client_at(address(host, self.tls.is_some()), &self.login, self.db)
    }

    /// A client for the server behind a socket.
    pub(super) fn client_of_socket(&self, path: &str) -> Result<Client, redis::RedisError> {
        self.client_at(ConnectionAddr::Unix(path.into()), &self.login, self.db)
    }

    /// A client for a Sentinel.
    pub(super) fn client_of_sentinel(&self, host: &Host) -> Result<Client, redis::RedisError> {
        self.client_at(address(host, self.tls.is_some()), &self.sentinel_login, 0)
    }

    fn client_at(
        &self,
        address: ConnectionAddr,
        login: &Login,
        db: i64,
    ) -> Result<Client, redis::RedisError> {
        let mut settings = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("tidelock", env!("CARGO_PKG_VERSION"))
            .set_db(db);
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        let info: ConnectionInfo =
            address.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp());
        match &self.tls {
            None => Client::open(info),
            Some(tls) => {
                provider::ensure();
                let client_tls = tls.client.clone();
                let client_tls =
                    client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
                Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: tls.ca.clone() })
            }
        }
    }
}

fn address((host, port): &Host, secure: bool) -> ConnectionAddr {
    if secure {
        ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host.clone(), *port)
    }
}

/// A peer that vanished without a word is noticed within seconds.
fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(Duration::from_secs(5));
    settings
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisSettings({:?}, prefix {:?})", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_url(url: &str) -> Result<RedisSettings> {
        RedisSettings::read(Url::parse(url, OPTIONS)?)
    }

    #[test]
    fn urls_are_read_with_their_options() {
        let one = from_url("redis://me:secret@host/2?prefix=x:&replicas=1").unwrap();
        assert_eq!((&one.address, one.db, one.replicas), (&Address::One(("host".into(), 6379)), 2, 1));
        assert!(!format!("{one:?}").contains("secret"));
        let socket = from_url("redis+unix:///run/redis.sock?db=1").unwrap();
        assert_eq!((socket.address, socket.db), (Address::Socket("/run/redis.sock".into()), 1));
        let sentinel = from_url("redis+sentinel://a,b:1/main/3").unwrap();
        let hosts = vec![("a".into(), 26379), ("b".into(), 1)];
        assert_eq!((sentinel.address, sentinel.db), (Address::Sentinel(hosts, "main".into()), 3));
        let cluster = from_url("rediss+cluster://a,b?scripting=functions").unwrap();
        assert!(cluster.tls.is_some() && cluster.scripting == Scripting::Functions);
    }

    #[test]
    fn wrong_urls_get_one_clear_sentence_without_secrets() {
        for bad in [
            "redis://",
            "redis://a,b",
            "redis://:secret@h/x",
            "redis://h?ca=/nonexistent",
            "rediss://h?ca=/nonexistent",
            "rediss://h?cert=/dev/null",
            "redis+sentinel://a,b",
            "redis+cluster://a/1",
            "redis+unix://host/path",
            "redis+other://h",
            "redis://:secret@h?replicas=many",
            "redis://h?scripting=maybe",
            "redis://h?prefix=a{b",
            "redis://h?nonsense",
            "redis://h?mode=java",
            "redis://h?mode=setnx&scripting=off",
            "redis://h?mode=redisson&scripting=functions",
            "redis://h?mode=setnx&lock_key=lock:",
            "redis://h?mode=setnx&lock_key={name}{name}",
            "redis://h?lock_key=lock:{name}",
            "redis://h?fenced=1",
            "redis://h?mode=setnx&fenced=1",
            "redis://h?mode=redisson&fenced=yes",
        ] {
            let error = from_url(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{bad}: {error}");
        }
    }
}
