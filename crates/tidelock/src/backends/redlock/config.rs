//! How to connect to several Redis servers that vote, for users.

use std::time::Duration;

use super::{
    RedlockBackend,
    settings::{LONGEST_TTL, RedlockSettings},
};
use crate::backends::{
    redis::{
        Dialect, Scripting,
        options::{DB, EVICTION, LOCK_KEY, MODE, PREFIX, SCRIPTING},
    },
    shared::{typed::typed_config, url::Url},
};

typed_config! {
    /// How a client reaches several Redis servers that vote.
    ///
    /// ```no_run
    /// use tidelock::{Locks, backends::redlock::RedlockConfig};
    ///
    /// # async fn connect() -> tidelock::Result<()> {
    /// let config = RedlockConfig::new(["one", "two", "three:6380"]).password("p@ss/word").tls(true);
    /// let locks = Locks::connect_with(config).await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    RedlockConfig reads RedlockSettings for RedlockBackend of "redlock", such as "redlock://one,two,three,four,five:6380"
}

impl RedlockConfig {
    /// Creates a config for these servers, three to fifteen, each a host or `host:port`. The default port is
    /// 6379.
    pub fn new<H: AsRef<str>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self { url: Url::of("redlock", hosts, RedlockSettings::OPTIONS) }
    }

    /// Sets whether connections use TLS. Default: no.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.url.scheme = if tls { "redlocks" } else { "redlock" }.to_owned();
        self
    }

    /// Sets the number of the database on all servers. Default: 0.
    #[must_use]
    pub fn db(self, db: u32) -> Self {
        self.set(&DB.about, db.to_string())
    }

    /// Sets what all keys and channels begin with. Default: `tidelock:`.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        self.set(&PREFIX.about, prefix)
    }

    /// Sets how a change is made atomic: not by [`Scripting::Off`]. Default: [`Scripting::Any`].
    #[must_use]
    pub fn scripting(self, scripting: Scripting) -> Self {
        self.set(&SCRIPTING.about, scripting.as_str())
    }

    /// Sets the other programs that take the same locks on the same servers. Default: none.
    ///
    /// ```no_run
    /// use tidelock::backends::{redis::Dialect, redlock::RedlockConfig};
    ///
    /// let servers = RedlockConfig::new(["one", "two", "three"]);
    /// let config = servers.mode(Dialect::SetNx).lock_key("redlock:{name}");
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

    /// Sets whether to use servers that may drop locks when memory is short. Default: no.
    #[must_use]
    pub fn allow_eviction(self, allow: bool) -> Self {
        self.set(&EVICTION.about, if allow { "allow" } else { "refuse" })
    }

    /// Sets the longest ttl that any client may ask for, the same for all clients. Default: 60 seconds.
    ///
    /// A server that was started has no vote for as long.
    #[must_use]
    pub fn longest_ttl(self, longest: Duration) -> Self {
        self.set(&LONGEST_TTL.about, longest.as_millis().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(typed: RedlockConfig, url: &str) {
        assert_eq!(typed.url.parts(), RedlockConfig::from_url(url).unwrap().url.parts(), "{url}");
        typed.settings().unwrap();
    }

    #[test]
    fn a_typed_config_says_what_a_url_would_say() {
        let typed = RedlockConfig::new(["a", "b", "c:1"]).password("p").db(1).prefix("x:").tls(true);
        let typed =
            typed.longest_ttl(Duration::from_secs(9)).allow_eviction(false).scripting(Scripting::Functions);
        same(
            typed,
            "redlocks://:p@a,b,c:1?db=1&prefix=x:&longest_ttl_ms=9000&eviction=refuse&scripting=functions",
        );
        let shared = RedlockConfig::new(["a", "b", "c"]).mode(Dialect::SetNx).lock_key("redlock:{name}");
        same(shared, "redlock://a,b,c?mode=setnx&lock_key=redlock:{name}");
    }

    #[test]
    fn mistakes_are_reported_when_the_config_is_used() {
        for mistaken in [
            RedlockConfig::new(["a", "b"]),
            RedlockConfig::new(["a", "b", "c"]).scripting(Scripting::Off),
            RedlockConfig::new(["a", "b", "c"]).longest_ttl(Duration::ZERO),
        ] {
            let mistaken = mistaken.password("secret");
            let failure = mistaken.settings().err().unwrap_or_else(|| panic!("{mistaken:?} is fine"));
            assert!(!format!("{failure} {mistaken:?}").contains("secret"), "{failure}");
        }
    }
}
