//! From a URL to members and options.

use std::{fmt, time::Duration};

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::{
    backend::Failure,
    backends::{
        OptionDefault::Value,
        StoreOption,
        shared::{
            options::{CA, CERT, KEY, UrlOption},
            url::{TlsFiles, Url},
        },
    },
    error::{Error, Result},
};

const OPTIONS: &[StoreOption] = &[PREFIX.about, CA, CERT, KEY];
const PORT: u16 = 2379;

pub(super) const PREFIX: UrlOption<String> = UrlOption {
    about: StoreOption::new(
        "prefix",
        Value("tidelock/"),
        "what all keys begin with, without control characters; another prefix has other locks",
    ),
    read: |_, text| match text.unwrap_or_default() {
        prefix if prefix.chars().any(char::is_control) => {
            Err(Error::invalid_url("the prefix may not have control characters: use another"))
        }
        prefix => Ok(prefix.to_owned()),
    },
};

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(2);

/// How a client reaches etcd, and where locks are kept there.
#[derive(Clone)]
pub(super) struct EtcdSettings {
    hosts: Vec<(String, u16)>,
    pub(super) login: Option<(String, String)>,
    tls: Option<ClientTlsConfig>,
    /// What all keys begin with.
    pub(super) prefix: String,
}

impl EtcdSettings {
    pub(super) const OPTIONS: &[StoreOption] = OPTIONS;

    /// Reads what a URL, or a config in its place, says.
    pub(super) fn read(mut url: Url) -> Result<Self> {
        let secure = match &*url.scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(Error::invalid_url("etcd is reached by etcd:// or, with TLS, etcds://")),
        };
        if url.hosts.is_empty() {
            return Err(Error::invalid_url("the URL names no host: write etcd://host:2379"));
        }
        if !url.path.is_empty() {
            return Err(Error::invalid_url(
                "etcd has no databases: leave out what follows the hosts, or write it as ?prefix=",
            ));
        }
        let login = match (url.user.clone(), url.password.clone()) {
            (None, None) => None,
            (Some(user), Some(password)) => Some((user, password)),
            _ => return Err(Error::invalid_url("a login of etcd has both: write etcd://user:password@host")),
        };
        let tls = url.take_tls(secure, "etcd:// does not use it: write etcds://")?.map(tls);
        let prefix = url.take(&PREFIX)?;
        let hosts = url.hosts.iter().map(|(host, port)| (host.clone(), port.unwrap_or(PORT))).collect();
        url.finish()?;
        Ok(Self { hosts, login, tls, prefix })
    }

    /// The members, each with its name for people.
    pub(super) fn endpoints(&self) -> Result<Vec<(String, Endpoint)>, Failure> {
        self.hosts.iter().map(|(host, port)| self.endpoint(host, *port)).collect()
    }

    fn endpoint(&self, host: &str, port: u16) -> Result<(String, Endpoint), Failure> {
        let bad = |error: tonic::transport::Error| {
            Failure::denied(format!("a host or certificate of the URL cannot be used: {error}"))
        };
        let address = crate::backends::shared::address::host_and_port(host, port);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(bad)?;
        let endpoint = endpoint
            .connect_timeout(CONNECT)
            // A peer that vanished without a word is noticed. etcd closes connections that ask more often.
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .user_agent(concat!("tidelock/", env!("CARGO_PKG_VERSION")))
            .map_err(bad)?;
        let Some(tls) = &self.tls else { return Ok((address, endpoint)) };
        let endpoint = endpoint.tls_config(tls.clone().domain_name(host)).map_err(bad)?;
        Ok((address, endpoint))
    }
}

fn tls(files: TlsFiles) -> ClientTlsConfig {
    let config = match files.ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    match files.client {
        Some((cert, key)) => config.identity(Identity::from_pem(cert, key)),
        None => config,
    }
}

impl fmt::Debug for EtcdSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdSettings({:?}, prefix {:?})", self.hosts, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_url(url: &str) -> Result<EtcdSettings> {
        EtcdSettings::read(Url::parse(url, OPTIONS)?)
    }

    #[test]
    fn urls_are_read_with_their_options() {
        let config = from_url("etcd://me:secret@one,two:7,[::1]?prefix=x/").unwrap();
        assert_eq!(config.login, Some(("me".into(), "secret".into())));
        assert_eq!(config.prefix, "x/");
        let names: Vec<_> = config.endpoints().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["one:2379", "two:7", "[::1]:2379"]);
        assert!(!format!("{config:?}").contains("secret"));
        let plain = from_url("etcd://h").unwrap();
        assert!(plain.prefix == "tidelock/" && plain.login.is_none() && plain.tls.is_none());
        assert!(from_url("etcds://h?prefix=").unwrap().tls.is_some());
    }

    #[test]
    fn wrong_urls_get_one_clear_sentence_without_secrets() {
        for bad in [
            "etcd://",
            "etcd://me@h",
            "etcd://:secret@h",
            "etcd://me:secret@h/0",
            "etcd://h?ca=/nonexistent",
            "etcds://h?ca=/nonexistent",
            "etcds://h?cert=/dev/null",
            "etcd://h?prefix=a%0Ab",
            "etcd://me:secret@h?nonsense",
            "etcd2://h",
        ] {
            let error = from_url(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{bad}: {error}");
        }
    }
}
