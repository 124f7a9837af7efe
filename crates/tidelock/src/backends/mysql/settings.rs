//! From a URL to a server and options.

use std::{fmt, time::Duration};

use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};

use crate::{
    backends::{
        OptionDefault::Words,
        StoreOption,
        shared::{
            address::{host_and_port, is_this_machine},
            longest_ttl,
            options::{CA, CERT, KEY, UrlOption},
            url::Url,
        },
    },
    error::{Error, Result},
};

const OPTIONS: &[StoreOption] = &[TLS.about, CA, CERT, KEY, LONGEST_TTL.about];
const PORT: u16 = 3306;

pub(super) const TLS: UrlOption<Option<bool>> = UrlOption {
    about: StoreOption::new(
        "tls",
        Words("`on`, except for this machine (`localhost`, `127.0.0.1`, `::1`)"),
        "`off` sends everything in the clear",
    ),
    read: |about, text| match text {
        None => Ok(None),
        Some("on") => Ok(Some(true)),
        Some("off") => Ok(Some(false)),
        Some(_) => Err(about.has_to_be("on or off")),
    },
};

pub(super) const LONGEST_TTL: UrlOption<Duration> = longest_ttl::option(
    "the longest ttl that any client may ask for, the same for all clients; matters where the server may forget commits",
);

/// How a client reaches MySQL or MariaDB.
#[derive(Clone)]
pub(super) struct MysqlSettings {
    pub(super) opts: Opts,
    /// For people.
    pub(super) address: String,
    pub(super) database: String,
    /// The longest lease that any client may ask for, if the server may forget what it confirmed. Such a
    /// server is not used for this long after its start.
    pub(super) longest_ttl: Duration,
}

impl MysqlSettings {
    pub(super) const OPTIONS: &[StoreOption] = OPTIONS;

    /// Reads what a URL, or a config in its place, says.
    pub(super) fn read(mut url: Url) -> Result<Self> {
        if !matches!(&*url.scheme, "mysql" | "mariadb") {
            return Err(Error::invalid_url("MySQL and MariaDB are reached by mysql:// or mariadb://"));
        }
        let (host, port) = match &url.hosts[..] {
            [(host, port)] => (host.clone(), port.unwrap_or(PORT)),
            [] => {
                return Err(Error::invalid_url("the URL names no host: write mysql://user@host/database"));
            }
            _ => return Err(Error::invalid_url("mysql:// takes one host: the one that takes writes")),
        };
        let database = url.path.clone();
        if database.is_empty() {
            return Err(Error::invalid_url(
                "the URL names no database to keep locks in: write mysql://user@host/database",
            ));
        }
        let longest_ttl = url.take(&LONGEST_TTL)?;
        let tls = tls(&mut url, &host)?;
        let address = host_and_port(&host, port);
        let opts = OptsBuilder::default()
            .ip_or_hostname(host)
            .tcp_port(port)
            .user(url.user.clone())
            .pass(url.password.clone())
            .db_name(Some(database.clone()))
            .ssl_opts(tls)
            // The way in the URL is the way that is taken.
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            // Two questions less for each connection.
            .max_allowed_packet(Some(16 << 20))
            .wait_timeout(Some(28_800))
            .connect_attribute("program_name", "tidelock");
        url.finish()?;
        Ok(Self { opts: opts.into(), address, database, longest_ttl })
    }
}

/// Returns the TLS options: verified TLS, unless the URL says otherwise or nothing leaves the machine.
fn tls(url: &mut Url, host: &str) -> Result<Option<SslOpts>> {
    let wanted = url.take(&TLS)?;
    let secure = wanted.unwrap_or(!is_this_machine(host) || url.has_tls_files());
    let Some(files) = url.take_tls(secure, "tls=off forbids it: leave one of them out")? else {
        return Ok(None);
    };
    let identity = files.client.map(|(cert, key)| ClientIdentity::new(cert.into(), key.into()));
    let ca = files.ca;
    let roots = match ca {
        Some(ca) => vec![ca.into()],
        None => {
            let system = rustls_native_certs::load_native_certs().certs;
            system.into_iter().map(|certificate| certificate.to_vec().into()).collect()
        }
    };
    let options = SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true);
    Ok(Some(options.with_client_identity(identity)))
}

impl fmt::Debug for MysqlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MysqlSettings({}, database {:?})", self.address, self.database)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_url(url: &str) -> Result<MysqlSettings> {
        MysqlSettings::read(Url::parse(url, OPTIONS)?)
    }

    #[test]
    fn urls_are_read_with_their_options() {
        let config = from_url("mysql://me:secret@host/locks?longest_ttl_ms=9000").unwrap();
        assert_eq!((&*config.address, &*config.database), ("host:3306", "locks"));
        assert_eq!(config.longest_ttl, Duration::from_secs(9));
        assert!(!format!("{config:?}").contains("secret"));
        // Nothing goes over a network in the clear unless somebody says so.
        for (url, encrypted) in [
            ("mysql://h/d", true),
            ("mariadb://h:1/d?tls=off", false),
            ("mysql://127.0.0.1/d", false),
            ("mysql://[::1]:7/d?tls=on", true),
            ("mysql://localhost/d", false),
        ] {
            let config = from_url(url).unwrap();
            assert_eq!(config.opts.ssl_opts().is_some(), encrypted, "{url}");
        }
    }

    #[test]
    fn wrong_urls_get_one_clear_sentence_without_secrets() {
        for bad in [
            "mysql://",
            "mysql://me:secret@h",
            "mysql://me:secret@a,b/d",
            "mysql://h/d?tls=maybe",
            "mysql://h/d?ca=/nonexistent",
            "mysql://h/d?tls=off&ca=/dev/null",
            "mysql://h/d?cert=/dev/null",
            "mysql://h/d?longest_ttl_ms=0",
            "mysql://h/d?longest_ttl_ms=soon",
            "mysql://me:secret@h/d?nonsense",
            "mysql2://h/d",
        ] {
            let error = from_url(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{bad}: {error}");
        }
    }
}
