//! URLs of stores with servers: `scheme://user:password@host:port,host:port/path?option=value`.
//!
//! Several hosts are the rule here, which general URL parsers do not take; and nothing that was
//! typed is ever repeated in an error, because part of it may be a password.

use std::{fmt, fs, path::Path};

use super::options::{CA, CERT, KEY, UrlOption};
use crate::{
    backends::StoreOption,
    error::{Error, Result},
    model::escape::unescape,
};

/// A URL taken apart.
#[derive(Clone)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Host and port, in order.
    pub(crate) hosts: Vec<(String, Option<u16>)>,
    /// What follows the hosts, without the first slash.
    pub(crate) path: String,
    options: Vec<(String, String)>,
    /// The options that its store has.
    known: &'static [StoreOption],
    /// The first mistake made while the parts were set.
    mistake: Option<Error>,
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
    /// Takes a URL apart. `known` are the options of its store.
    pub(crate) fn parse(url: &str, known: &'static [StoreOption]) -> Result<Self> {
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
        let scheme = scheme.to_owned();
        let mut url = Self { scheme, user, password, hosts, path, options, known, mistake: None };
        for option in known {
            option.alias.into_iter().for_each(|alias| url.rename(alias, option.name));
        }
        Ok(url)
    }

    /// Puts a URL together from hosts such as `one`, `two:6380` and `[::1]:6381`.
    pub(crate) fn of<H: AsRef<str>>(
        scheme: &str,
        hosts: impl IntoIterator<Item = H>,
        known: &'static [StoreOption],
    ) -> Self {
        let (scheme, path) = (scheme.to_owned(), String::new());
        let mut url = Self {
            scheme,
            user: None,
            password: None,
            hosts: Vec::new(),
            path,
            options: Vec::new(),
            known,
            mistake: None,
        };
        for text in hosts {
            match host(text.as_ref()) {
                Ok(host) => url.hosts.push(host),
                Err(mistake) => url.note(mistake),
            }
        }
        url
    }

    /// Notes a mistake that [`check`](Self::check) reports, unless there was one before.
    pub(crate) fn note(&mut self, mistake: Error) {
        self.mistake.get_or_insert(mistake);
    }

    /// Reports a mistake that was made while the parts were set.
    pub(crate) fn check(&self) -> Result<()> {
        self.mistake.clone().map_or(Ok(()), Err)
    }

    /// Sets an option, in place of what it was before.
    pub(crate) fn set(&mut self, option: &StoreOption, value: String) {
        self.take_text(option);
        self.options.push((option.name.to_owned(), value));
    }

    /// Sets an option that names a file.
    pub(crate) fn set_file(&mut self, option: &StoreOption, path: &Path) {
        match path.to_str() {
            Some(path) => self.set(option, path.to_owned()),
            None => self.note(Error::invalid_option("the path of a file for TLS is not UTF-8: use another")),
        }
    }

    /// Takes an option out and reads it.
    pub(crate) fn take<T>(&mut self, option: &UrlOption<T>) -> Result<T> {
        option.value(self.take_text(&option.about).as_deref())
    }

    fn take_text(&mut self, option: &StoreOption) -> Option<String> {
        let index = self.options.iter().position(|(key, _)| key == option.name)?;
        Some(self.options.remove(index).1)
    }

    /// Calls an option by another name, unless there is one of that name.
    fn rename(&mut self, from: &str, to: &str) {
        if self.options.iter().all(|(name, _)| name != to) {
            let found = self.options.iter_mut().find(|(name, _)| name == from);
            found.into_iter().for_each(|(name, _)| to.clone_into(name));
        }
    }

    /// Whether there are files for TLS among the options.
    pub(crate) fn has_tls_files(&self) -> bool {
        self.options.iter().any(|(name, _)| [CA.name, CERT.name, KEY.name].contains(&&**name))
    }

    /// Takes the options about TLS out and reads their files; nothing if there is no TLS. `otherwise` says why there is
    /// none and what to do about it.
    pub(crate) fn take_tls(&mut self, secure: bool, otherwise: &str) -> Result<Option<TlsFiles>> {
        let mut file = |option: &StoreOption| -> Result<Option<Vec<u8>>> {
            let Some(path) = self.take_text(option) else { return Ok(None) };
            let option = option.name;
            if !secure {
                return Err(Error::invalid_url(format!("the option {option} is about TLS, and {otherwise}")));
            }
            fs::read(&path).map(Some).map_err(|error| {
                Error::invalid_url(format!("cannot read the file of the option {option}: {error}"))
            })
        };
        let (ca, cert, key) = (file(&CA)?, file(&CERT)?, file(&KEY)?);
        let client = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err(Error::invalid_url("a client certificate needs both options, cert and key")),
        };
        Ok(secure.then_some(TlsFiles { ca, client }))
    }

    /// Nothing may be left: an option that is not known would be one that is not heeded.
    pub(crate) fn finish(self) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid_url(format!(
                "the URL has an option {:?} that {} does not know (it knows: {})",
                name.chars().take(32).collect::<String>(),
                self.scheme,
                self.known.iter().map(|option| option.name).collect::<Vec<_>>().join(", ")
            ))),
        }
    }
}

fn host(text: &str) -> Result<(String, Option<u16>)> {
    let bad = || Error::invalid_url("a host is not of the form host, host:port or [ipv6]:port");
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(bad)?;
        (host, port.strip_prefix(':').or(if port.is_empty() { None } else { Some("bad") }))
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() || host.chars().any(|c| c.is_control() || c.is_whitespace() || ",/?@".contains(c)) {
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

/// For tests of typed configs.
#[cfg(test)]
impl Url {
    /// All that it says, in one order.
    pub(crate) fn parts(&self) -> impl PartialEq + fmt::Debug + use<> {
        let mut options = self.options.clone();
        options.sort();
        let place = (self.scheme.clone(), self.hosts.clone(), self.path.clone());
        (place, self.user.clone(), self.password.clone(), options)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{:?}/{}", self.scheme, self.hosts, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::{OptionDefault::Words, shared::options::text};

    const A: UrlOption<Option<String>> = UrlOption {
        about: StoreOption { alias: Some("alpha"), ..StoreOption::new("a", Words(""), "") },
        read: text,
    };
    const D: UrlOption<Option<String>> =
        UrlOption { about: StoreOption::new("d", Words(""), ""), read: text };
    const OPTIONS: &[StoreOption] = &[A.about, D.about];

    fn parse(url: &str) -> Result<Url> {
        Url::parse(url, OPTIONS)
    }

    #[test]
    fn a_url_is_taken_apart_with_several_hosts_and_hostile_passwords() {
        let mut url = parse("redis+sentinel://me:p%40s@s:1@one,two:7,[::1]:8/main/2?a=b%20c&d").unwrap();
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@s@s:1")));
        assert_eq!(
            url.hosts,
            [("one".into(), None), ("two".into(), Some(7)), ("::1".into(), Some(8))] as [(String, _); 3]
        );
        let options = (url.take(&A).unwrap(), url.take(&D).unwrap());
        assert_eq!((&*url.path, options), ("main/2", (Some("b c".into()), Some("".into()))));
        assert!(!format!("{url:?}").contains("p@s"));
        url.finish().unwrap();
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
            let error = parse(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{error}");
        }
        let unknown = parse("redis://h?nonsense=1").unwrap().finish().unwrap_err().to_string();
        assert!(
            unknown.contains("an option \"nonsense\" that redis does not know (it knows: a, d)"),
            "{unknown}"
        );
    }

    #[test]
    fn an_option_has_one_value_by_whichever_name() {
        let mut url = parse("redis://h?alpha=1").unwrap();
        assert_eq!(url.take(&A).unwrap().as_deref(), Some("1"));
        let mut url = parse("redis://h?alpha=1&a=2").unwrap();
        assert_eq!(url.take(&A).unwrap().as_deref(), Some("2"));
        assert!(url.finish().unwrap_err().to_string().contains("alpha"));
    }
}
