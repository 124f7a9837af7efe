//! How to connect to Redis, for users.

use std::{path::Path, time::Duration};

use super::{
    Dialect, RedisBackend,
    options::{
        DB, EVICTION, FENCED, LOCK_KEY, MODE, PREFIX, REPLICAS, REPLICAS_TIMEOUT, SCRIPTING,
        SENTINEL_PASSWORD, SENTINEL_USER,
    },
    settings::{RedisSettings, Scripting},
};
use crate::{
    backends::shared::{typed::typed_config, url::Url},
    error::Error,
};

typed_config! {
    /// How a client reaches Redis, and how locks are kept there.
    ///
    /// With TLS, the driver uses the process-wide rustls provider. Connecting installs *ring* if the program has
    /// not installed one: install your own before that, as a later `install_default` fails.
    ///
    /// ```no_run
    /// use tidelock::{Locks, backends::redis::RedisConfig};
    ///
    /// # async fn connect() -> tidelock::Result<()> {
    /// let one = RedisConfig::new("cache:6379").password("p@ss/word").db(2).tls(true);
    /// let locks = Locks::connect_with(one).await?;
    ///
    /// let watched = RedisConfig::sentinel(["one", "two", "three"], "main").replicas(1);
    /// let locks = Locks::connect_with(watched).await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    RedisConfig reads RedisSettings for RedisBackend of "redis", such as "redis://user:password@host:6379/0"
}

impl RedisConfig {
    /// Creates a config for one server, a host or `host:port`. The default port is 6379.
    pub fn new(host: impl AsRef<str>) -> Self {
        Self { url: Url::of("redis", [host], RedisSettings::OPTIONS) }
    }

    /// Creates a config for the server behind a socket, named by its absolute path.
    pub fn unix(path: impl AsRef<Path>) -> Self {
        let mut url = Url::of("redis+unix", [""; 0], RedisSettings::OPTIONS);
        match path.as_ref().to_str().and_then(|path| path.strip_prefix('/')) {
            Some(path) => path.clone_into(&mut url.path),
            None => {
                url.note(Error::invalid_option("the path of a socket is absolute and UTF-8: use another"))
            }
        }
        Self { url }
    }

    /// Creates a config for the master of this name, which these Sentinels watch. Their default port is
    /// 26379.
    pub fn sentinel<H: AsRef<str>>(hosts: impl IntoIterator<Item = H>, master: impl Into<String>) -> Self {
        let mut url = Url::of("redis+sentinel", hosts, RedisSettings::OPTIONS);
        url.path = master.into();
        Self { url }
    }

    /// Creates a config for the cluster that these servers belong to. Their default port is 6379.
    pub fn cluster<H: AsRef<str>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self { url: Url::of("redis+cluster", hosts, RedisSettings::OPTIONS) }
    }

    /// Sets whether connections use TLS. Default: no.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        let kind = self.url.scheme.split_once('+').map(|(_, kind)| format!("+{kind}")).unwrap_or_default();
        self.url.scheme = format!("{}{kind}", if tls { "rediss" } else { "redis" });
        self
    }

    /// Sets the number of the database. Default: 0, the only one of a cluster.
    #[must_use]
    pub fn db(self, db: u32) -> Self {
        self.set(&DB.about, db.to_string())
    }

    /// Sets what all keys and channels begin with. Default: `tidelock:`.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        self.set(&PREFIX.about, prefix)
    }

    /// Sets how many replicas must confirm a grant before anybody relies on it. Default: 0.
    #[must_use]
    pub fn replicas(self, replicas: u32) -> Self {
        self.set(&REPLICAS.about, replicas.to_string())
    }

    /// Sets how long the replicas may take. Default: 500 milliseconds.
    ///
    /// After this time, the grant is given back, with an error.
    #[must_use]
    pub fn replicas_timeout(self, limit: Duration) -> Self {
        self.set(&REPLICAS_TIMEOUT.about, limit.as_millis().to_string())
    }

    /// Sets how a change is made atomic. Default: [`Scripting::Any`].
    #[must_use]
    pub fn scripting(self, scripting: Scripting) -> Self {
        self.set(&SCRIPTING.about, scripting.as_str())
    }

    /// Sets the other programs that take the same locks. Default: none.
    ///
    /// ```no_run
    /// use tidelock::backends::redis::{Dialect, RedisConfig};
    ///
    /// let config = RedisConfig::new("cache").mode(Dialect::SetNx).lock_key("lock:{name}");
    /// # drop(config);
    /// ```
    #[must_use]
    pub fn mode(self, mode: Dialect) -> Self {
        self.set(&MODE.about, mode.as_str())
    }

    /// Sets what those programs call a lock: a text around `{name}`. Default: `{name}`.
    #[must_use]
    pub fn lock_key(self, template: impl Into<String>) -> Self {
        self.set(&LOCK_KEY.about, template)
    }

    /// Sets whether locks are taken as an `RFencedLock` of Redisson, which has a counter. Default: no.
    ///
    /// [`Guard::foreign_token`](crate::Guard::foreign_token) returns what it counted.
    ///
    /// ```no_run
    /// use tidelock::backends::redis::{Dialect, RedisConfig};
    ///
    /// let config = RedisConfig::new("cache").mode(Dialect::Redisson).fenced(true);
    /// # drop(config);
    /// ```
    #[must_use]
    pub fn fenced(self, fenced: bool) -> Self {
        self.set(&FENCED.about, if fenced { "1" } else { "0" })
    }

    /// Sets whether to use a server that may drop locks when memory is short. Default: no.
    #[must_use]
    pub fn allow_eviction(self, allow: bool) -> Self {
        self.set(&EVICTION.about, if allow { "allow" } else { "refuse" })
    }

    /// Sets the user at the Sentinels; [`user`](Self::user) is for the master. Default: none.
    #[must_use]
    pub fn sentinel_user(self, user: impl Into<String>) -> Self {
        self.set(&SENTINEL_USER.about, user)
    }

    /// Sets the password at the Sentinels; [`password`](Self::password) is for the master. Default: none.
    #[must_use]
    pub fn sentinel_password(self, password: impl Into<String>) -> Self {
        self.set(&SENTINEL_PASSWORD.about, password)
    }

    /// Returns the library of functions that [`Scripting::Functions`] calls.
    ///
    /// An administrator loads it with `FUNCTION LOAD REPLACE`.
    pub fn function_library() -> String {
        super::scripts::LOCKS.text()
    }

    /// Returns the library of functions that stock calls with [`Scripting::Functions`].
    #[cfg(feature = "stock")]
    pub fn stock_function_library() -> String {
        super::scripts::STOCK.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(typed: RedisConfig, url: &str) {
        assert_eq!(typed.url.parts(), RedisConfig::from_url(url).unwrap().url.parts(), "{url}");
        typed.settings().unwrap();
    }

    #[test]
    fn a_typed_config_says_what_a_url_would_say() {
        let one = RedisConfig::new("a:7").password("s@/?").db(2).prefix("x:").scripting(Scripting::Scripts);
        let one = one.replicas(1).replicas_timeout(Duration::from_secs(1)).allow_eviction(true).tls(true);
        same(
            one,
            "rediss://:s%40%2F%3F@a:7?db=2&prefix=x:&scripting=scripts&replicas=1&replicas_timeout_ms=1000&eviction=allow",
        );
        same(RedisConfig::unix("/run/redis.sock").db(1), "redis+unix:///run/redis.sock?db=1");
        let sentinel = RedisConfig::sentinel(["a", "b:1"], "main").sentinel_user("s").sentinel_password("p");
        same(sentinel.user("me"), "redis+sentinel://me@a,b:1/main?sentinel_user=s&sentinel_password=p");
        same(RedisConfig::cluster(["a", "b"]).tls(true), "rediss+cluster://a,b");
        let shared = RedisConfig::new("a").mode(Dialect::Redisson).lock_key("app:{name}").fenced(true);
        same(shared, "redis://a?mode=redisson&lock_key=app:{name}&fenced=1");
    }

    #[test]
    fn mistakes_are_reported_when_the_config_is_used() {
        for mistaken in [
            RedisConfig::new("a b"),
            RedisConfig::cluster([""; 0]),
            RedisConfig::cluster(["a"]).db(1),
            RedisConfig::new("a").prefix("{"),
            RedisConfig::unix("relative"),
            RedisConfig::unix("/run/x").tls(true),
            RedisConfig::new("a").ca_file("/nonexistent"),
        ] {
            let mistaken = mistaken.password("secret");
            let failure = mistaken.settings().err().unwrap_or_else(|| panic!("{mistaken:?} is fine"));
            assert!(!format!("{failure} {mistaken:?}").contains("secret"), "{failure}");
        }
    }
}
