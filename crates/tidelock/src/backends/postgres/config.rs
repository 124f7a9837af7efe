//! How to connect to PostgreSQL, for users.

use std::path::Path;

use super::{
    PostgresBackend,
    settings::{HOST, MODE, OWNER, PREFIX, PostgresSettings, SSLMODE},
};
use crate::{
    backends::shared::{typed::typed_config, url::Url},
    error::Error,
};

typed_config! {
    /// How a client reaches PostgreSQL, and how locks are kept there.
    ///
    /// ```no_run
    /// use tidelock::{Locks, backends::postgres::PostgresConfig};
    ///
    /// # async fn connect() -> tidelock::Result<()> {
    /// let config = PostgresConfig::new(["db:5432"]).database("shop").user("shop").password("p@ss/word");
    /// let locks = Locks::connect_with(config).await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    PostgresConfig reads PostgresSettings for PostgresBackend of "postgres", such as "postgres://user:password@host:5432/database"
}

impl PostgresConfig {
    /// Creates a config for these servers, each a host or `host:port`, tried in order until one grants. The
    /// default port is 5432.
    pub fn new<H: AsRef<str>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self { url: Url::of("postgres", hosts, PostgresSettings::OPTIONS) }
    }

    /// Creates a config for the server whose socket is in this directory, such as `/run/postgresql`.
    pub fn socket(directory: impl AsRef<Path>, port: u16) -> Self {
        let mut url = Url::of("postgres", [""; 0], PostgresSettings::OPTIONS);
        match directory.as_ref().to_str() {
            Some(directory) => url.set(&HOST.about, format!("{directory}:{port}")),
            None => url.note(Error::invalid_option("the directory of the socket is not UTF-8: use another")),
        }
        Self { url }
    }

    /// Sets whether connections use TLS with a verified certificate. Default: yes, unless all hosts are this
    /// machine.
    #[must_use]
    pub fn tls(self, tls: bool) -> Self {
        self.set(&SSLMODE.about, if tls { "verify-full" } else { "disable" })
    }

    /// Sets the database. Default: the one with the name of the user.
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.url.path = database.into();
        self
    }

    /// Sets what names begin with in the database. Default: nothing.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        self.set(&PREFIX.about, prefix)
    }

    /// Sets whether a lock holds only while its session also has the advisory lock of its name. Default: no.
    #[must_use]
    pub fn advisory(self, advisory: bool) -> Self {
        self.set(&MODE.about, if advisory { "advisory" } else { "rows" })
    }

    /// Sets a role that may own the schema, besides those that are trusted anyway. Default: none.
    #[must_use]
    pub fn schema_owner(self, role: impl Into<String>) -> Self {
        self.set(&OWNER.about, role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(typed: PostgresConfig, url: &str) {
        assert_eq!(typed.url.parts(), PostgresConfig::from_url(url).unwrap().url.parts(), "{url}");
        typed.settings().unwrap();
    }

    #[test]
    fn a_typed_config_says_what_a_url_would_say() {
        let typed = PostgresConfig::new(["a", "b:1"]).user("me").password("p").database("app").tls(false);
        let typed = typed.prefix("x/").advisory(true).schema_owner("deployer");
        same(typed, "postgres://me:p@a,b:1/app?sslmode=disable&prefix=x/&mode=advisory&owner=deployer");
        let socket = PostgresConfig::socket("/run/postgresql", 5433).database("app");
        same(socket, "postgres:///app?host=/run/postgresql:5433");
    }

    #[test]
    fn mistakes_are_reported_when_the_config_is_used() {
        for mistaken in [
            PostgresConfig::new([""; 0]),
            PostgresConfig::socket("/run", 1).tls(true),
            PostgresConfig::new(["a"]).prefix("\0"),
            PostgresConfig::new(["a"]).database("a/b"),
        ] {
            let mistaken = mistaken.password("secret");
            let failure = mistaken.settings().err().unwrap_or_else(|| panic!("{mistaken:?} is fine"));
            assert!(!format!("{failure} {mistaken:?}").contains("secret"), "{failure}");
        }
    }
}
