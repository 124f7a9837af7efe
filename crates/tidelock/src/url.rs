//! URLs of stores with servers: `scheme://user:password@host:port,host:port/path?option=value`.
//!
//! Several hosts are the rule here, which general URL parsers do not take; and nothing that was
//! typed is ever repeated in an error, because part of it may be a password.

use std::{fmt, fs};

use crate::error::{Error, Result};

/// A URL taken apart.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Host and port, in order.
    pub(crate) hosts: Vec<(String, Option<u16>)>,
    /// What follows the hosts, without the first slash.
    pub(crate) path: String,
    options: Vec<(String, String)>,
}

/// What the files of a URL's options about TLS hold.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    /// Whom to trust, instead of those whom the system trusts.
    pub(crate) ca: Option<Vec<u8>>,
    /// Certificate and key of the client.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Url {
    /// Takes a URL apart.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| {
            Error::invalid_url(
                "the URL of a server begins with its scheme and ://, such as redis://host:6379",
            )
        })?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match place.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, place),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => (None, None),
            Some((user, password)) => (decode(user)?, decode(password)?),
        };
        let hosts = hosts.split(',').filter(|host| !host.is_empty()).map(host).collect::<Result<_>>()?;
        let options =
            query.split('&').filter(|option| !option.is_empty()).map(option).collect::<Result<_>>()?;
        let path = decode(path)?.unwrap_or_default();
        Ok(Self { scheme: scheme.to_owned(), user, password, hosts, path, options })
    }

    /// Takes an option out.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let index = self.options.iter().position(|(key, _)| key == name)?;
        Some(self.options.remove(index).1)
    }

    /// Calls an option by another name, unless there is one of that name.
    #[cfg(feature = "postgres")]
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if self.options.iter().all(|(name, _)| name != to) {
            let found = self.options.iter_mut().find(|(name, _)| name == from);
            found.into_iter().for_each(|(name, _)| to.clone_into(name));
        }
    }

    /// Takes an option out and reads it.
    pub(crate) fn take_parsed<T: std::str::FromStr>(&mut self, name: &str, what: &str) -> Result<Option<T>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let parsed = text.parse().map_err(|_| {
            Error::invalid_url(format!("the URL's option {name} has to be {what}: mend it or leave it out"))
        })?;
        Ok(Some(parsed))
    }

    /// Whether there are files for TLS among the options.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn has_tls_files(&self) -> bool {
        self.options.iter().any(|(name, _)| matches!(&**name, "ca" | "cert" | "key"))
    }

    /// Takes the options about TLS out and reads their files; nothing if there is no TLS. `otherwise` says why there is
    /// none and what to do about it.
    pub(crate) fn take_tls(&mut self, secure: bool, otherwise: &str) -> Result<Option<TlsFiles>> {
        let mut file = |option: &str| -> Result<Option<Vec<u8>>> {
            let Some(path) = self.take(option) else { return Ok(None) };
            if !secure {
                return Err(Error::invalid_url(format!(
                    "the URL's option {option} is about TLS, and {otherwise}"
                )));
            }
            fs::read(&path).map(Some).map_err(|error| {
                Error::invalid_url(format!("cannot read the file of the URL's option {option}: {error}"))
            })
        };
        let (ca, cert, key) = (file("ca")?, file("cert")?, file("key")?);
        let client = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err(Error::invalid_url("a client certificate needs both options, cert and key")),
        };
        Ok(secure.then_some(TlsFiles { ca, client }))
    }

    /// Nothing may be left: an option that is not known would be one that is not heeded.
    pub(crate) fn finish(self, known: &str) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid_url(format!(
                "the URL has an option {:?} that {} does not know (it knows: {known})",
                name.chars().take(32).collect::<String>(),
                self.scheme
            ))),
        }
    }
}

fn host(text: &str) -> Result<(String, Option<u16>)> {
    let bad = || Error::invalid_url("a host in the URL is not of the form host, host:port or [ipv6]:port");
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(bad)?;
        (host, port.strip_prefix(':').or(if port.is_empty() { None } else { Some("bad") }))
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() || host.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(bad());
    }
    let port = port.map(|port| port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)).transpose()?;
    Ok((host.to_owned(), port))
}

fn option(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    Ok((decode(name)?.unwrap_or_default(), decode(value)?.unwrap_or_default()))
}

/// Undoes percent-encoding; nothing if there is nothing.
fn decode(text: &str) -> Result<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    match unescape(text) {
        Some(text) => Ok(Some(text)),
        None => Err(Error::invalid_url(
            "the URL has a % that two hexadecimal digits do not follow, or bytes that are not UTF-8: write a % itself as %25",
        )),
    }
}

/// Undoes percent-encoding.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push((digit()? << 4 | digit()?) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{:?}/{}", self.scheme, self.hosts, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_with_several_hosts_and_hostile_passwords() {
        let mut url = Url::parse("redis+sentinel://me:p%40s@s:1@one,two:7,[::1]:8/main/2?a=b%20c&d").unwrap();
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@s@s:1")));
        assert_eq!(
            url.hosts,
            [("one".into(), None), ("two".into(), Some(7)), ("::1".into(), Some(8))] as [(String, _); 3]
        );
        let options = (url.take("a"), url.take("d"));
        assert_eq!((&*url.path, options), ("main/2", (Some("b c".into()), Some("".into()))));
        assert!(!format!("{url:?}").contains("p@s"));
        url.finish("a, d").unwrap();
    }

    #[test]
    fn what_is_wrong_is_said_without_repeating_it() {
        for bad in [
            "redis:",
            "redis://h:0",
            "redis://h:x",
            "redis://[::1",
            "redis://a b",
            "redis://:%zz@secret",
            "redis://[::1]7",
        ] {
            let error = Url::parse(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{error}");
        }
        assert!(
            Url::parse("redis://h?nonsense=1")
                .unwrap()
                .finish("x")
                .unwrap_err()
                .to_string()
                .contains("nonsense")
        );
    }
}
