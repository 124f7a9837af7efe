//! The options of a URL. `redlock` has some of them too.

use std::time::Duration;

use super::{
    fleet::{Dialect, Template},
    settings::Scripting,
};
use crate::{
    backends::{
        OptionDefault::{Value, Words},
        StoreOption,
        shared::options::{self, CA, CERT, KEY, UrlOption},
    },
    error::{Error, Result},
};

pub(in crate::backends) const OPTIONS: &[StoreOption] = &[
    PREFIX.about,
    DB.about,
    REPLICAS.about,
    REPLICAS_TIMEOUT.about,
    SCRIPTING.about,
    MODE.about,
    LOCK_KEY.about,
    FENCED.about,
    EVICTION.about,
    CA,
    CERT,
    KEY,
    SENTINEL_USER.about,
    SENTINEL_PASSWORD.about,
];

pub(in crate::backends) const PREFIX: UrlOption<String> = UrlOption {
    about: StoreOption::new(
        "prefix",
        Value("tidelock:"),
        "what keys and channels begin with, without braces or control characters; another prefix has other locks",
    ),
    read: |_, text| match text.unwrap_or_default() {
        prefix if prefix.contains(['{', '}']) || prefix.chars().any(char::is_control) => {
            Err(Error::invalid_url("the prefix may not have braces or control characters: use another"))
        }
        prefix => Ok(prefix.to_owned()),
    },
};

pub(in crate::backends) const DB: UrlOption<Option<i64>> = UrlOption {
    about: StoreOption::new(
        "db",
        Words("the number in the path, else 0"),
        "the database; a cluster has only 0",
    ),
    read: |_, text| text.map(database).transpose(),
};

pub(super) const REPLICAS: UrlOption<u32> = UrlOption {
    about: StoreOption::new(
        "replicas",
        Value("0"),
        "how many replicas must confirm a grant before anybody relies on it",
    ),
    read: |about, text| about.number(text, "a number of replicas"),
};

pub(super) const REPLICAS_TIMEOUT: UrlOption<Duration> = UrlOption {
    about: StoreOption::new(
        "replicas_timeout_ms",
        Value("500"),
        "how long the replicas may take; after that the grant is given back, with an error",
    ),
    read: |about, text| about.number(text, "a number of milliseconds").map(Duration::from_millis),
};

pub(in crate::backends) const SCRIPTING: UrlOption<Scripting> = UrlOption {
    about: StoreOption::new(
        "scripting",
        Value("on"),
        "how a change is made atomic: `on`, `scripts`, `functions` or `off`",
    ),
    read: |about, text| match text {
        Some("on") => Ok(Scripting::Any),
        Some("scripts") => Ok(Scripting::Scripts),
        Some("functions") => Ok(Scripting::Functions),
        Some("off") => Ok(Scripting::Off),
        _ => Err(about.has_to_be("on, scripts, functions or off")),
    },
};

/// Whose locks are taken on top of ours.
pub(in crate::backends) const MODE: UrlOption<Option<Dialect>> = UrlOption {
    about: StoreOption::new(
        "mode",
        Value("line"),
        "`redisson` or `setnx`: a lock holds only while it also has the lock of those programs",
    ),
    read: |about, text| match text {
        Some("line") => Ok(None),
        Some("redisson") => Ok(Some(Dialect::Redisson)),
        Some("setnx") => Ok(Some(Dialect::SetNx)),
        _ => Err(about.has_to_be("line, redisson or setnx")),
    },
};

/// What those programs call a lock.
pub(in crate::backends) const LOCK_KEY: UrlOption<Template> = UrlOption {
    about: StoreOption::new(
        "lock_key",
        Value("{name}"),
        "with `mode`: the key of those programs for a lock, such as `lock:{name}`",
    ),
    read: |about, text| {
        Template::new(text.unwrap_or_default())
            .ok_or_else(|| about.has_to_be("a text with {name} in it once, such as lock:{name}"))
    },
};

/// Whether the counter of Redisson's fenced lock grows with our grants, too.
pub(super) const FENCED: UrlOption<bool> = UrlOption {
    about: StoreOption::new(
        "fenced",
        Value("0"),
        "with `mode=redisson`: `1` takes a lock as an `RFencedLock`, with a token of its counter",
    ),
    read: |about, text| match text {
        Some("0") => Ok(false),
        Some("1") => Ok(true),
        _ => Err(about.has_to_be("0 or 1")),
    },
};

/// Whether a server is used that may evict locks.
pub(in crate::backends) const EVICTION: UrlOption<bool> = UrlOption {
    about: StoreOption::new(
        "eviction",
        Value("refuse"),
        "`allow` uses a server that may drop locks when memory is short",
    ),
    read: |about, text| match text {
        Some("refuse") => Ok(false),
        Some("allow") => Ok(true),
        _ => Err(about.has_to_be("refuse or allow")),
    },
};

pub(super) const SENTINEL_USER: UrlOption<Option<String>> = UrlOption {
    about: StoreOption::new(
        "sentinel_user",
        Words("none"),
        "the user at the Sentinels; the one in the URL is for the master",
    ),
    read: options::text,
};

pub(super) const SENTINEL_PASSWORD: UrlOption<Option<String>> = UrlOption {
    about: StoreOption::new(
        "sentinel_password",
        Words("none"),
        "the password at the Sentinels; the one in the URL is for the master",
    ),
    read: options::text,
};

/// The number of a database, in an option or in the path.
pub(super) fn database(text: &str) -> Result<i64> {
    match text {
        "" => Ok(0),
        text => text.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
            Error::invalid_url("the database in the URL is not a number: write redis://host/0")
        }),
    }
}
