//! From a URL to servers and options.

use std::{fmt, path::PathBuf, sync::Arc};

use crate::{
    backends::{
        OptionDefault::{Value, Words},
        StoreOption,
        shared::{
            address::{host_and_port, is_this_machine},
            options::{self, CA, CERT, KEY, UrlOption},
            tls,
            url::Url,
        },
    },
    error::{Error, Result},
    model::name::MAX_NAME_BYTES,
};

/// The options about TLS have the names that PostgreSQL's own clients give them, too.
const OPTIONS: &[StoreOption] = &[
    PREFIX.about,
    SSLMODE.about,
    CA.or("sslrootcert"),
    CERT.or("sslcert"),
    KEY.or("sslkey"),
    HOST.about,
    MODE.about,
    OWNER.about,
];

pub(super) const PREFIX: UrlOption<String> = UrlOption {
    about: StoreOption::new(
        "prefix",
        Value(""),
        "what names begin with in the database, without control characters; another prefix has other locks",
    ),
    read: |_, text| match text.unwrap_or_default() {
        prefix if prefix.chars().any(char::is_control) || prefix.len() > MAX_NAME_BYTES => {
            Err(Error::invalid_url(
                "the prefix may not have control characters or more than 512 bytes: use another",
            ))
        }
        prefix => Ok(prefix.to_owned()),
    },
};

/// Whether there is TLS.
pub(super) const SSLMODE: UrlOption<Option<bool>> = UrlOption {
    about: StoreOption::new(
        "sslmode",
        Words("`verify-full`; `disable` if all hosts are this machine"),
        "`verify-full`: TLS with a verified certificate; `disable`: none",
    ),
    read: |about, text| match text {
        None => Ok(None),
        Some("disable") => Ok(Some(false)),
        // Encryption without a verified peer does not keep an attacker out: the certificate is verified as well.
        Some("require" | "verify-ca" | "verify-full") => Ok(Some(true)),
        Some(_) => Err(about.has_to_be("verify-full or disable")),
    },
};

pub(super) const HOST: UrlOption<Option<String>> = UrlOption {
    about: StoreOption::new(
        "host",
        Words("none"),
        "the directory of the server's socket, for a URL without a host; `:5433` after it for another port",
    ),
    read: options::text,
};

/// Whether locks are advisory locks too.
pub(super) const MODE: UrlOption<bool> = UrlOption {
    about: StoreOption::new(
        "mode",
        Value("rows"),
        "`advisory`: a lock holds only while its session also has the advisory lock of its name",
    ),
    read: |about, text| match text {
        Some("rows") => Ok(false),
        Some("advisory") => Ok(true),
        _ => Err(about.has_to_be("rows or advisory")),
    },
};

pub(super) const OWNER: UrlOption<Option<String>> = UrlOption {
    about: StoreOption::new(
        "owner",
        Words("none"),
        "a role that may own the schema, besides those that are trusted anyway",
    ),
    read: options::text,
};

/// How a client reaches PostgreSQL, and how locks are kept there.
#[derive(Clone)]
pub(super) struct PostgresSettings {
    /// Tried in order until one is found that grants.
    pub(super) addresses: Vec<Address>,
    pub(super) login: tokio_postgres::Config,
    pub(super) tls: Tls,
    /// What all names begin with in the database.
    pub(super) prefix: Arc<str>,
    /// Whether a claim holds only with the advisory lock of its name.
    pub(super) advisory: bool,
    /// A role that may own the schema, besides those that may do what this client may anyway.
    pub(super) owner: Option<String>,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
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

impl PostgresSettings {
    pub(super) const OPTIONS: &[StoreOption] = OPTIONS;

    /// Reads what a URL, or a config in its place, says.
    pub(super) fn read(mut url: Url) -> Result<Self> {
        let addresses = addresses(&mut url)?;
        let tls = tls_of(&mut url, &addresses)?;
        let advisory = url.take(&MODE)?;
        let prefix = url.take(&PREFIX)?;
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
        let owner = url.take(&OWNER)?;
        url.finish()?;
        Ok(Self { addresses, login, tls, prefix: prefix.into(), advisory, owner })
    }
}

fn addresses(url: &mut Url) -> Result<Vec<Address>> {
    let hosts = std::mem::take(&mut url.hosts);
    match url.take(&HOST)? {
        Some(directory) if hosts.is_empty() && directory.starts_with('/') => {
            let (directory, port) = match directory.rsplit_once(':') {
                Some((directory, port)) => (directory.to_owned(), port.parse().ok()),
                None => (directory, Some(5432)),
            };
            let port = port
                .ok_or_else(|| Error::invalid_url("the port after the socket's directory is not a number"))?;
            Ok(vec![Address::Socket(directory.into(), port)])
        }
        Some(_) => Err(Error::invalid_url(
            "the URL's option host is for the directory of a socket: write postgres:///database?host=/run/postgresql",
        )),
        None if hosts.is_empty() => {
            Err(Error::invalid_url("the URL names no host: write postgres://host:5432/database"))
        }
        None => Ok(hosts.into_iter().map(|(host, port)| Address::Host(host, port.unwrap_or(5432))).collect()),
    }
}

/// Uses TLS with a verified certificate for a server on another machine, unless the URL says otherwise.
fn tls_of(url: &mut Url, addresses: &[Address]) -> Result<Tls> {
    let is_near = |address: &Address| match address {
        Address::Host(host, _) => is_this_machine(host),
        Address::Socket(..) => true,
    };
    let wanted = url.take(&SSLMODE)?;
    let secure = wanted.unwrap_or_else(|| url.has_tls_files() || !addresses.iter().all(is_near));
    let files = url.take_tls(secure, "sslmode=disable does not use it: leave one of them out")?;
    let Some(files) = files else { return Ok(Tls::Off) };
    if addresses.iter().any(|address| matches!(address, Address::Socket(..))) {
        return Err(Error::invalid_url("a socket has no TLS: leave sslmode out of the URL"));
    }
    tls::client_config(&files).map(Tls::On)
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresSettings({:?})", self.addresses)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host, port) => f.write_str(&host_and_port(host, *port)),
            Self::Socket(directory, port) => write!(f, "{}:{port}", directory.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_url(url: &str) -> Result<PostgresSettings> {
        PostgresSettings::read(Url::parse(url, OPTIONS)?)
    }

    #[test]
    fn urls_are_read_with_their_options() {
        let one = from_url("postgres://me:secret@127.0.0.1:1/app").unwrap();
        assert_eq!(one.addresses, [Address::Host("127.0.0.1".into(), 1)]);
        assert!(matches!(one.tls, Tls::Off));
        assert!(!format!("{one:?}").contains("secret"));
        let far = from_url("postgresql://me@a,b:2/app?mode=advisory&owner=deployer").unwrap();
        assert_eq!((far.owner.as_deref(), one.owner.as_deref()), (Some("deployer"), None));
        assert_eq!(far.addresses, [Address::Host("a".into(), 5432), Address::Host("b".into(), 2)]);
        assert!(matches!(far.tls, Tls::On(_)) && far.advisory && !one.advisory);
        let open = from_url("postgres://a?sslmode=disable").unwrap();
        assert!(matches!(open.tls, Tls::Off));
        let socket = from_url("postgres:///app?host=/run/postgresql").unwrap();
        assert_eq!(socket.addresses, [Address::Socket("/run/postgresql".into(), 5432)]);
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
            let error = from_url(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{bad}: {error}");
        }
    }
}
