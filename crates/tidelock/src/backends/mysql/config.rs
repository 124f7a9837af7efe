//! From a URL to a server and options.

use std::{fmt, net::IpAddr, time::Duration};

use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};

use crate::{
    DEFAULT_TTL,
    error::{Error, Result},
    url::Url,
};

const OPTIONS: &str = "tls, ca, cert, key, longest_ttl_ms";
const PORT: u16 = 3306;

/// How a client reaches MySQL or MariaDB.
#[derive(Clone)]
pub struct MysqlConfig {
    pub(super) opts: Opts,
    /// For people.
    pub(super) address: String,
    pub(super) database: String,
    /// The longest lease that any client may ask for, where the server may forget what it confirmed: for so
    /// long such a server is left alone after its start.
    pub(super) longest_ttl: Duration,
}

impl MysqlConfig {
    /// Reads a URL such as `mysql://user:password@host:3306/database`.
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl), without repeating anything that may be secret.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = Url::parse(url)?;
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
        let longest: Option<u64> = url.take_parsed("longest_ttl_ms", "a number of milliseconds above 0")?;
        if longest == Some(0) {
            return Err(Error::invalid_url("the URL's option longest_ttl_ms may not be 0: leave it out"));
        }
        let tls = tls(&mut url, &host)?;
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
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
        url.finish(OPTIONS)?;
        Ok(Self {
            opts: opts.into(),
            address,
            database,
            longest_ttl: longest.map_or(2 * DEFAULT_TTL, Duration::from_millis),
        })
    }
}

/// Encrypted and verified, except where the URL says otherwise or nothing leaves the machine.
fn tls(url: &mut Url, host: &str) -> Result<Option<SslOpts>> {
    let wanted = match url.take("tls").as_deref() {
        None => None,
        Some("on") => Some(true),
        Some("off") => Some(false),
        Some(_) => return Err(Error::invalid_url("the URL's option tls has to be on or off")),
    };
    let is_here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let secure = wanted.unwrap_or(!is_here || url.has_tls_files());
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
    // Without one the driver could not encrypt; one that the program chose stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true);
    Ok(Some(options.with_client_identity(identity)))
}

impl fmt::Debug for MysqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MysqlConfig({}, database {:?})", self.address, self.database)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_their_options() {
        let config = MysqlConfig::from_url("mysql://me:secret@host/locks?longest_ttl_ms=9000").unwrap();
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
            let config = MysqlConfig::from_url(url).unwrap();
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
            let error = MysqlConfig::from_url(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{bad}: {error}");
        }
    }
}
