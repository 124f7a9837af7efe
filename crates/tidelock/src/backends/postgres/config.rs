//! From a URL to servers and options.

use std::{fmt, path::PathBuf, sync::Arc};

use crate::{
    error::{Error, Result},
    name::MAX_NAME_BYTES,
    tls,
    url::Url,
};

const OPTIONS: &str = "prefix, sslmode, ca, cert, key, host, mode";

/// How a client reaches PostgreSQL, and how locks are kept there.
#[derive(Clone)]
pub struct PostgresConfig {
    /// Tried in order until one is found that grants.
    pub(super) places: Vec<Place>,
    pub(super) login: tokio_postgres::Config,
    pub(super) tls: Tls,
    /// What all names begin with in the database.
    pub(super) prefix: Arc<str>,
    /// Whether a claim holds only with the advisory lock of its name.
    pub(super) advisory: bool,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Host(String, u16),
    /// The directory of its socket, and the port in the socket's name.
    Socket(PathBuf, u16),
}

/// Who may read along.
#[derive(Clone)]
pub(super) enum Tls {
    Off,
    On(Arc<rustls::ClientConfig>),
}

impl PostgresConfig {
    /// Reads a URL such as `postgres://user:password@host:5432/database`.
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl), without repeating anything that may be secret.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = Url::parse(url)?;
        let places = places(&mut url)?;
        let tls = tls_of(&mut url, &places)?;
        let advisory = match url.take("mode").as_deref() {
            None | Some("rows") => false,
            Some("advisory") => true,
            Some(_) => return Err(Error::invalid_url("the URL's option mode has to be rows or advisory")),
        };
        let prefix = url.take("prefix").unwrap_or_default();
        if prefix.chars().any(char::is_control) || prefix.len() > MAX_NAME_BYTES {
            return Err(Error::invalid_url(
                "the prefix may not have control characters or more than 512 bytes: use another",
            ));
        }
        let mut login = tokio_postgres::Config::new();
        login.application_name("tidelock").ssl_mode(tokio_postgres::config::SslMode::Disable);
        if let Some(user) = &url.user {
            login.user(user);
        }
        if let Some(password) = &url.password {
            login.password(password);
        }
        if url.path.contains('/') {
            return Err(Error::invalid_url(
                "the URL names one database after the host: write postgres://host/database",
            ));
        }
        if !url.path.is_empty() {
            login.dbname(&url.path);
        }
        url.finish(OPTIONS)?;
        Ok(Self { places, login, tls, prefix: prefix.into(), advisory })
    }
}

fn places(url: &mut Url) -> Result<Vec<Place>> {
    let hosts = std::mem::take(&mut url.hosts);
    match url.take("host") {
        Some(directory) if hosts.is_empty() && directory.starts_with('/') => {
            let (directory, port) = match directory.rsplit_once(':') {
                Some((directory, port)) => (directory.to_owned(), port.parse().ok()),
                None => (directory, Some(5432)),
            };
            let port = port
                .ok_or_else(|| Error::invalid_url("the port after the socket's directory is not a number"))?;
            Ok(vec![Place::Socket(directory.into(), port)])
        }
        Some(_) => Err(Error::invalid_url(
            "the URL's option host is for the directory of a socket: write postgres:///database?host=/run/postgresql",
        )),
        None if hosts.is_empty() => {
            Err(Error::invalid_url("the URL names no host: write postgres://host:5432/database"))
        }
        None => Ok(hosts.into_iter().map(|(host, port)| Place::Host(host, port.unwrap_or(5432))).collect()),
    }
}

/// A server on another machine is spoken to by TLS with a certificate that is verified, unless the URL says otherwise.
fn tls_of(url: &mut Url, places: &[Place]) -> Result<Tls> {
    let is_near = |place: &Place| match place {
        Place::Host(host, _) => {
            host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
        Place::Socket(..) => true,
    };
    // As PostgreSQL's own clients call them.
    for (theirs, ours) in [("sslrootcert", "ca"), ("sslcert", "cert"), ("sslkey", "key")] {
        url.rename(theirs, ours);
    }
    let secure = match url.take("sslmode").as_deref() {
        None => url.has_tls_files() || !places.iter().all(is_near),
        Some("disable") => false,
        // Encryption for whoever answers keeps nobody out who can answer: it is verified as well.
        Some("require" | "verify-ca" | "verify-full") => true,
        Some(_) => {
            return Err(Error::invalid_url("the URL's option sslmode has to be verify-full or disable"));
        }
    };
    let files = url.take_tls(secure, "sslmode=disable does not use it: leave one of them out")?;
    let Some(files) = files else { return Ok(Tls::Off) };
    if places.iter().any(|place| matches!(place, Place::Socket(..))) {
        return Err(Error::invalid_url("a socket has no TLS: leave sslmode out of the URL"));
    }
    tls::client_config(&files).map(Tls::On)
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresConfig({:?})", self.places)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
            Self::Socket(directory, port) => write!(f, "{}:{port}", directory.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_their_options() {
        let one = PostgresConfig::from_url("postgres://me:secret@127.0.0.1:1/app").unwrap();
        assert_eq!(one.places, [Place::Host("127.0.0.1".into(), 1)]);
        assert!(matches!(one.tls, Tls::Off));
        assert!(!format!("{one:?}").contains("secret"));
        let far = PostgresConfig::from_url("postgresql://me@a,b:2/app?mode=advisory").unwrap();
        assert_eq!(far.places, [Place::Host("a".into(), 5432), Place::Host("b".into(), 2)]);
        assert!(matches!(far.tls, Tls::On(_)) && far.advisory && !one.advisory);
        let open = PostgresConfig::from_url("postgres://a?sslmode=disable").unwrap();
        assert!(matches!(open.tls, Tls::Off));
        let socket = PostgresConfig::from_url("postgres:///app?host=/run/postgresql").unwrap();
        assert_eq!(socket.places, [Place::Socket("/run/postgresql".into(), 5432)]);
    }

    #[test]
    fn wrong_urls_get_one_clear_sentence_without_secrets() {
        for bad in [
            "postgres://",
            "postgres:///app",
            "postgres://h/a/b",
            "postgres://me:secret@h?sslmode=prefer",
            "postgres://h?mode=magic",
            "postgres://h?prefix=%00",
            "postgres://h?host=/run",
            "postgres:///app?host=run",
            "postgres:///app?host=/run:x",
            "postgres:///app?host=/run&sslmode=require",
            "postgres://h?ca=/nonexistent",
            "postgres://h?cert=/dev/null",
            "postgres://h?sslmode=disable&ca=/dev/null",
            "postgres://me:secret@h?nonsense",
        ] {
            let error = PostgresConfig::from_url(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{bad}: {error}");
        }
    }
}
