//! How to connect to ZooKeeper, for users.

use super::{
    ZookeeperBackend,
    codec::nodes::Dialect,
    settings::{ACL, AUTH, DIALECT, ZookeeperSettings},
};
use crate::backends::shared::{typed::typed_config, url::Url};

typed_config! {
    /// How a client reaches ZooKeeper, and how locks are kept there.
    ///
    /// ```no_run
    /// use tidelock::{Locks, backends::zookeeper::ZookeeperConfig};
    ///
    /// # async fn connect() -> tidelock::Result<()> {
    /// let config = ZookeeperConfig::new(["one:2181", "two", "three"])
    ///     .root("/shop/locks")
    ///     .user("shop")
    ///     .password("p@ss/word");
    /// let locks = Locks::connect_with(config).await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    ZookeeperConfig reads ZookeeperSettings for ZookeeperBackend of "zookeeper", such as "zookeeper://user:password@one:2181,two,three/path"
}

impl ZookeeperConfig {
    /// Creates a config for these servers, each a host or `host:port`. The default port is 2181, or 2281 with
    /// TLS.
    pub fn new<H: AsRef<str>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self { url: Url::of("zookeeper", hosts, ZookeeperSettings::OPTIONS) }
    }

    /// Sets whether connections use TLS. Default: no.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.url.scheme = if tls { "zookeepers" } else { "zookeeper" }.to_owned();
        self
    }

    /// Sets the path below which all locks are. Default: `/tidelock`.
    #[must_use]
    pub fn root(mut self, path: impl AsRef<str>) -> Self {
        let path = path.as_ref();
        path.strip_prefix('/').unwrap_or(path).clone_into(&mut self.url.path);
        self
    }

    /// Sets whether the server checks the login by SASL. Default: no, only the ACL of nodes knows it.
    #[must_use]
    pub fn sasl(self, sasl: bool) -> Self {
        self.set(&AUTH.about, if sasl { "sasl" } else { "digest" })
    }

    /// Sets who may do what with the nodes: `creator`, `open`, or a list such as `world:anyone:r`. Default:
    /// `creator` with a login, else `open`.
    #[must_use]
    pub fn acl(self, acl: impl Into<String>) -> Self {
        self.set(&ACL.about, acl)
    }

    /// Sets whose node names are written. Default: [`Dialect::Curator`].
    #[must_use]
    pub fn dialect(self, dialect: Dialect) -> Self {
        self.set(
            &DIALECT.about,
            match dialect {
                Dialect::Curator => "curator",
                Dialect::Kazoo => "kazoo",
                Dialect::Both => "both",
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(typed: ZookeeperConfig, url: &str) {
        assert_eq!(typed.url.parts(), ZookeeperConfig::from_url(url).unwrap().url.parts(), "{url}");
        typed.settings().unwrap();
    }

    #[test]
    fn a_typed_config_says_what_a_url_would_say() {
        let typed = ZookeeperConfig::new(["a", "b:1"]).root("/app/locks").user("me").password("p");
        let typed = typed.sasl(true).acl("open").dialect(Dialect::Both).tls(true);
        same(typed, "zookeepers://me:p@a,b:1/app/locks?auth=sasl&acl=open&dialect=both");
    }

    #[test]
    fn mistakes_are_reported_when_the_config_is_used() {
        for mistaken in [
            ZookeeperConfig::new([""; 0]),
            ZookeeperConfig::new(["a"]).root("/zookeeper/x"),
            ZookeeperConfig::new(["a"]),
            ZookeeperConfig::new(["a"]).acl("world"),
        ] {
            let mistaken = mistaken.password("secret");
            let failure = mistaken.settings().err().unwrap_or_else(|| panic!("{mistaken:?} is fine"));
            assert!(!format!("{failure} {mistaken:?}").contains("secret"), "{failure}");
        }
    }
}
