//! How to connect to etcd, for users.

use super::{
    EtcdBackend,
    settings::{EtcdSettings, PREFIX},
};
use crate::backends::shared::{typed::typed_config, url::Url};

typed_config! {
    /// How a client reaches etcd, and where locks are kept there.
    ///
    /// ```no_run
    /// use tidelock::{Locks, backends::etcd::EtcdConfig};
    ///
    /// # async fn connect() -> tidelock::Result<()> {
    /// let config = EtcdConfig::new(["one:2379", "two", "three"])
    ///     .user("shop")
    ///     .password("p@ss/word")
    ///     .ca_file("/etc/etcd/ca.pem")
    ///     .prefix("locks/");
    /// let locks = Locks::connect_with(config).await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    EtcdConfig reads EtcdSettings for EtcdBackend of "etcd", such as "etcd://user:password@host:2379,host,host?prefix=locks/"
}

impl EtcdConfig {
    /// Creates a config for these members, each a host or `host:port`. The default port is 2379.
    pub fn new<H: AsRef<str>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self { url: Url::of("etcd", hosts, EtcdSettings::OPTIONS) }
    }

    /// Sets whether connections use TLS. Default: no.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.url.scheme = if tls { "etcds" } else { "etcd" }.to_owned();
        self
    }

    /// Sets what all keys begin with. Default: `tidelock/`.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        self.set(&PREFIX.about, prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(typed: EtcdConfig, url: &str) {
        assert_eq!(typed.url.parts(), EtcdConfig::from_url(url).unwrap().url.parts(), "{url}");
        typed.settings().unwrap();
    }

    #[test]
    fn a_typed_config_says_what_a_url_would_say() {
        let typed = EtcdConfig::new(["one", "two:7"]).user("me").password("s@/?").prefix("x/").tls(true);
        same(typed, "etcds://me:s%40%2F%3F@one,two:7?prefix=x/");
    }

    #[test]
    fn mistakes_are_reported_when_the_config_is_used() {
        for mistaken in [
            EtcdConfig::new(["a b"]),
            EtcdConfig::new([""; 0]),
            EtcdConfig::new(["a"]).prefix("\n"),
            EtcdConfig::new(["a"]).ca_file("/nonexistent"),
        ] {
            let mistaken = mistaken.password("secret");
            let failure = mistaken.settings().err().unwrap_or_else(|| panic!("{mistaken:?} is fine"));
            assert!(!format!("{failure} {mistaken:?}").contains("secret"), "{failure}");
        }
    }
}
