//! How to connect to MySQL or MariaDB, for users.

use std::time::Duration;

use super::{
    MysqlBackend,
    settings::{LONGEST_TTL, MysqlSettings, TLS},
};
use crate::backends::shared::{typed::typed_config, url::Url};

typed_config! {
    /// How a client reaches MySQL or MariaDB.
    ///
    /// With TLS, the driver uses the process-wide rustls provider. Connecting installs *ring* if the program has
    /// not installed one: install your own before that, as a later `install_default` fails.
    ///
    /// ```no_run
    /// use tidelock::{Locks, backends::mysql::MysqlConfig};
    ///
    /// # async fn connect() -> tidelock::Result<()> {
    /// let config = MysqlConfig::new("db:3306", "shop").user("shop").password("p@ss/word");
    /// let locks = Locks::connect_with(config).await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    MysqlConfig reads MysqlSettings for MysqlBackend of "mysql", such as "mysql://user:password@host:3306/database"
}

impl MysqlConfig {
    /// Creates a config for the server that takes writes, a host or `host:port`, and a database there. The
    /// default port is 3306.
    pub fn new(host: impl AsRef<str>, database: impl Into<String>) -> Self {
        let mut url = Url::of("mysql", [host], MysqlSettings::OPTIONS);
        url.path = database.into();
        Self { url }
    }

    /// Sets whether connections use TLS with a verified certificate. Default: yes, unless the host is this
    /// machine.
    #[must_use]
    pub fn tls(self, tls: bool) -> Self {
        self.set(&TLS.about, if tls { "on" } else { "off" })
    }

    /// Sets the longest ttl that any client may ask for, the same for all clients. Default: 60 seconds.
    ///
    /// It matters where the server may forget commits: such a server is not used for as long after its start.
    #[must_use]
    pub fn longest_ttl(self, longest: Duration) -> Self {
        self.set(&LONGEST_TTL.about, longest.as_millis().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(typed: MysqlConfig, url: &str) {
        assert_eq!(typed.url.parts(), MysqlConfig::from_url(url).unwrap().url.parts(), "{url}");
        typed.settings().unwrap();
    }

    #[test]
    fn a_typed_config_says_what_a_url_would_say() {
        let typed = MysqlConfig::new("a:1", "app").user("me").password("p").tls(false);
        same(typed.longest_ttl(Duration::from_secs(9)), "mysql://me:p@a:1/app?tls=off&longest_ttl_ms=9000");
    }

    #[test]
    fn mistakes_are_reported_when_the_config_is_used() {
        for mistaken in [
            MysqlConfig::new("a", ""),
            MysqlConfig::new("a,b", "app"),
            MysqlConfig::new("a", "app").longest_ttl(Duration::ZERO),
            MysqlConfig::new("a", "app").ca_file("/nonexistent"),
        ] {
            let mistaken = mistaken.password("secret");
            let failure = mistaken.settings().err().unwrap_or_else(|| panic!("{mistaken:?} is fine"));
            assert!(!format!("{failure} {mistaken:?}").contains("secret"), "{failure}");
        }
    }
}
