//! From a URL to servers and options.

use std::{fmt, sync::Arc};

use super::{codec::nodes::Dialect, link::wire::Acl};
use crate::{
    backends::{
        OptionDefault::{Value, Words},
        StoreOption,
        shared::{
            options::{self, CA, CERT, KEY, UrlOption},
            tls,
            url::Url,
        },
    },
    error::{Error, Result},
};

const OPTIONS: &[StoreOption] = &[AUTH.about, ACL.about, DIALECT.about, CA, CERT, KEY];

/// Whether the login is by SASL.
pub(super) const AUTH: UrlOption<bool> = UrlOption {
    about: StoreOption::new(
        "auth",
        Value("digest"),
        "`digest`: only the ACL of nodes knows the login; `sasl`: the server checks it",
    ),
    read: |about, text| match text {
        Some("digest") => Ok(false),
        Some("sasl") => Ok(true),
        _ => Err(about.has_to_be("digest or sasl")),
    },
};

pub(super) const ACL: UrlOption<Option<String>> = UrlOption {
    about: StoreOption::new(
        "acl",
        Words("`creator` with a login, else `open`"),
        "who may do what with the nodes: `creator`, `open`, or a list such as `world:anyone:r`",
    ),
    read: options::text,
};

pub(super) const DIALECT: UrlOption<Dialect> = UrlOption {
    about: StoreOption::new(
        "dialect",
        Value("curator"),
        "whose node names are written: `curator`, `kazoo` or `both`",
    ),
    read: |about, text| match text {
        Some("curator") => Ok(Dialect::Curator),
        Some("kazoo") => Ok(Dialect::Kazoo),
        Some("both") => Ok(Dialect::Both),
        _ => Err(about.has_to_be("curator, kazoo or both")),
    },
};

/// What locks are kept below when the URL does not say.
const DEFAULT_ROOT: &str = "/tidelock";

const ALL_PERMISSIONS: i32 = 31;

/// How a client reaches ZooKeeper, and how locks are kept there.
#[derive(Clone)]
pub(super) struct ZookeeperSettings {
    pub(super) hosts: Vec<(String, u16)>,
    /// The path below which all locks are, without a slash at its end.
    pub(super) root: String,
    pub(super) login: Option<Login>,
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    pub(super) acl: Arc<[Acl]>,
    pub(super) dialect: Dialect,
}

/// Who the client says it is.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
    pub(super) sasl: bool,
}

impl ZookeeperSettings {
    pub(super) const OPTIONS: &[StoreOption] = OPTIONS;

    /// Reads what a URL, or a config in its place, says.
    pub(super) fn read(mut url: Url) -> Result<Self> {
        let secure = url.scheme.ends_with('s');
        if url.hosts.is_empty() {
            return Err(Error::invalid_url("the URL names no host: write zookeeper://host:2181"));
        }
        let port = if secure { 2281 } else { 2181 };
        let hosts = url.hosts.iter().map(|(host, at)| (host.clone(), at.unwrap_or(port))).collect();
        let tls = url
            .take_tls(secure, "zookeeper:// does not use it: write zookeepers://")?
            .as_ref()
            .map(tls::client_config)
            .transpose()?;
        let login = login(&mut url)?;
        let acl = acl(url.take(&ACL)?.as_deref(), login.is_some())?;
        let dialect = url.take(&DIALECT)?;
        let root = root(&url.path)?;
        url.finish()?;
        Ok(Self { hosts, root, login, tls, acl, dialect })
    }

    pub(super) fn has_open_nodes(&self) -> bool {
        self.acl.iter().any(|acl| acl.scheme == "world" && acl.permissions & !1 != 0)
    }
}

fn root(path: &str) -> Result<String> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(DEFAULT_ROOT.to_owned());
    }
    let bad = |element: &str| {
        matches!(element, "" | "." | "..") || element.chars().any(|c| c.is_control() || u32::from(c) > 0xd7ff)
    };
    if path.split('/').any(bad) || path.split('/').next() == Some("zookeeper") {
        return Err(Error::invalid_url(
            "the path in the URL is none that ZooKeeper allows for locks: write zookeeper://host/some/path",
        ));
    }
    Ok(format!("/{path}"))
}

fn login(url: &mut Url) -> Result<Option<Login>> {
    let sasl = url.take(&AUTH)?;
    match (url.user.take(), url.password.take()) {
        (Some(user), password) => {
            if user.contains(':') && !sasl {
                return Err(Error::invalid_url("a user of ZooKeeper may not have a colon in its name"));
            }
            Ok(Some(Login { user, password: password.unwrap_or_default(), sasl }))
        }
        (None, Some(_)) => {
            Err(Error::invalid_url("the URL has a password without a user: write user:password@host"))
        }
        (None, None) if sasl => {
            Err(Error::invalid_url("auth=sasl needs a login in the URL: write user:password@host"))
        }
        (None, None) => Ok(None),
    }
}

/// Who may do what with the nodes of locks.
fn acl(option: Option<&str>, has_login: bool) -> Result<Arc<[Acl]>> {
    let one = |scheme: &str, id: &str| -> Arc<[Acl]> {
        [Acl { permissions: ALL_PERMISSIONS, scheme: scheme.to_owned(), id: id.to_owned() }].into()
    };
    match option {
        None if has_login => Ok(one("auth", "")),
        None | Some("open") => Ok(one("world", "anyone")),
        Some("creator") if has_login => Ok(one("auth", "")),
        Some("creator") => {
            Err(Error::invalid_url("acl=creator needs a login in the URL: write user:password@host"))
        }
        Some(list) => list.split(',').map(entry).collect::<Result<Vec<_>>>().map(Into::into),
    }
}

/// One entry as the command line of ZooKeeper has it: `scheme:id:cdrwa`.
fn entry(text: &str) -> Result<Acl> {
    let bad = || {
        Error::invalid_url(
            "the URL's option acl has to be open, creator, or a list of scheme:id:permissions such as world:anyone:r",
        )
    };
    let (scheme, rest) = text.split_once(':').ok_or_else(bad)?;
    let (id, letters) = rest.rsplit_once(':').ok_or_else(bad)?;
    let mut permissions = 0;
    for letter in letters.chars() {
        permissions |= match letter {
            'r' => 1,
            'w' => 2,
            'c' => 4,
            'd' => 8,
            'a' => 16,
            _ => return Err(bad()),
        };
    }
    if permissions == 0 || scheme.is_empty() {
        return Err(bad());
    }
    Ok(Acl { permissions, scheme: scheme.to_owned(), id: id.to_owned() })
}

impl fmt::Debug for ZookeeperSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZookeeperSettings({:?}, root {:?}, {:?})", self.hosts, self.root, self.dialect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_url(url: &str) -> Result<ZookeeperSettings> {
        ZookeeperSettings::read(Url::parse(url, OPTIONS)?)
    }

    #[test]
    fn urls_are_read_with_their_options() {
        let one = from_url("zookeeper://me:secret@a:1,b/app/locks/?dialect=both").unwrap();
        assert_eq!(one.hosts, [("a".into(), 1), ("b".into(), 2181)]);
        assert_eq!((&*one.root, one.dialect, &*one.acl[0].scheme), ("/app/locks", Dialect::Both, "auth"));
        assert!(!one.has_open_nodes() && !format!("{one:?}").contains("secret"));
        let plain = from_url("zk://a").unwrap();
        assert_eq!((&*plain.root, plain.has_open_nodes()), ("/tidelock", true));
        let acl = from_url("zk://a?acl=digest:me:h%3D:cdrwa,world:anyone:r").unwrap();
        assert_eq!((acl.acl[0].permissions, acl.acl[1].permissions), (31, 1));
        assert!(!acl.has_open_nodes());
        let secure = from_url("zks://me:x@a?auth=sasl").unwrap();
        assert!(secure.tls.is_some() && secure.login.unwrap().sasl && secure.hosts[0].1 == 2281);
    }

    #[test]
    fn wrong_urls_get_one_clear_sentence_without_secrets() {
        for bad in [
            "zookeeper://",
            "zookeeper://:secret@h",
            "zookeeper://h/a//b",
            "zookeeper://h/zookeeper/x",
            "zookeeper://h/..",
            "zookeeper://me:secret@h?auth=magic",
            "zookeeper://h?auth=sasl",
            "zookeeper://h?acl=creator",
            "zookeeper://h?acl=world",
            "zookeeper://h?acl=world:anyone:x",
            "zookeeper://h?dialect=latin",
            "zookeeper://h?ca=/nonexistent",
            "zookeepers://h?ca=/nonexistent",
            "zookeepers://h?cert=/dev/null",
            "zookeeper://h?nonsense",
        ] {
            let error = from_url(bad).unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{bad}: {error}");
        }
    }
}
