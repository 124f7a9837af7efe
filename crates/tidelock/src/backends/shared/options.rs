//! Options of URLs: declared once, and read as they were declared. Those that several stores have are here.

use crate::{
    backends::{OptionDefault, StoreOption},
    error::{Error, Result},
};

/// An option and how its value is read.
pub(crate) struct UrlOption<T: 'static> {
    pub(crate) about: StoreOption,
    /// Reads a value: the one in the URL, else the default. `None` where that is in words.
    pub(crate) read: fn(&StoreOption, Option<&str>) -> Result<T>,
}

impl<T> UrlOption<T> {
    /// What the option is in a URL that has this value for it, or does not have it.
    pub(crate) fn value(&self, written: Option<&str>) -> Result<T> {
        let default = match self.about.default {
            OptionDefault::Value(default) => Some(default),
            OptionDefault::Words(_) => None,
        };
        (self.read)(&self.about, written.or(default))
    }
}

impl StoreOption {
    pub(crate) const fn new(name: &'static str, default: OptionDefault, meaning: &'static str) -> Self {
        Self { name, alias: None, default, meaning }
    }

    /// The same option, which other clients of the server call by another name.
    #[cfg(feature = "postgres")]
    pub(crate) const fn or(self, alias: &'static str) -> Self {
        Self { alias: Some(alias), ..self }
    }

    /// A value that the option cannot have.
    pub(crate) fn has_to_be(&self, what: &str) -> Error {
        Error::invalid_url(format!("the option {} has to be {what}", self.name))
    }

    /// Reads a number.
    pub(crate) fn number<T: std::str::FromStr>(&self, text: Option<&str>, what: &str) -> Result<T> {
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| self.has_to_be(&format!("{what}: correct it or leave it out")))
    }
}

/// A text that may be left out.
pub(crate) fn text(_: &StoreOption, text: Option<&str>) -> Result<Option<String>> {
    Ok(text.map(ToOwned::to_owned))
}

/// The options about TLS, which [`Url::take_tls`](super::url::Url::take_tls) reads.
pub(crate) const CA: StoreOption = StoreOption::new(
    "ca",
    OptionDefault::Words("the system's authorities"),
    "a PEM file with the authorities that may sign the server's certificate; for TLS",
);
pub(crate) const CERT: StoreOption = StoreOption::new(
    "cert",
    OptionDefault::Words("none"),
    "a PEM file with the client's certificate, together with `key`; for TLS",
);
pub(crate) const KEY: StoreOption = StoreOption::new(
    "key",
    OptionDefault::Words("none"),
    "a PEM file with the client's key, together with `cert`; for TLS",
);
