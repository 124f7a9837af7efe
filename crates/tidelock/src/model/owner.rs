//! Explicit owners, and the label that people read.

use std::{fmt, sync::Arc};

use super::text::text_conversions;
use crate::error::Error;

/// The longest owner or label, in bytes of UTF-8.
pub const MAX_OWNER_BYTES: usize = 128;

/// The longest text that a candidate of an election advertises, in bytes of UTF-8.
pub const MAX_ADVERTISED_BYTES: usize = 1024;

/// Stands between a label and what is advertised with it, in the text that stores keep as the label. No
/// label has a control character. A store keeps one text and need not know of two.
const ADVERTISES: char = '\u{1f}';

/// How the text begins that is advertised by a claim left behind for a slot that is done.
pub(crate) const DONE: &str = "tidelock done ";

/// An explicit owner of claims.
///
/// A claim of an owner that already holds the same lock re-enters at once, from any task or thread, or from
/// any process if the store supports it (see [`Abilities`](crate::backend::Abilities)). Without an owner,
/// each claim is independent and nothing re-enters. Owners are named explicitly and not derived from the
/// thread, because async tasks move between threads.
///
/// ```
/// use tidelock::Owner;
///
/// let owner = Owner::try_from(format!("worker-{}", 7))?;
/// assert_eq!(owner, Owner::new("worker-7")?);
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// Validates a text and creates an owner from it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) when the text is empty, longer than 128
    /// bytes or contains a control character.
    pub fn new(text: &str) -> Result<Self, Error> {
        check("owner", text)?;
        Ok(Self(text.into()))
    }

    /// Returns the owner as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_conversions!(Owner);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Validates a label, which is shown to people and never compared.
pub(crate) fn label(text: &str) -> Result<Arc<str>, Error> {
    check("label", text)?;
    Ok(text.into())
}

/// Validates a text to advertise.
pub(crate) fn advertised(text: &str) -> Result<Arc<str>, Error> {
    check_up_to("text to advertise", text, MAX_ADVERTISED_BYTES)?;
    Ok(text.into())
}

/// Joins a label and what is advertised with it into the text that a store keeps.
pub(crate) fn join_label(label: &str, advertised: &str) -> Arc<str> {
    format!("{label}{ADVERTISES}{advertised}").into()
}

/// Splits the text that a store keeps into the label and what is advertised with it.
pub(crate) fn split_label(kept: &Arc<str>) -> (Arc<str>, Option<Arc<str>>) {
    match kept.split_once(ADVERTISES) {
        Some((label, advertised)) => (label.into(), Some(advertised.into())),
        None => (Arc::clone(kept), None),
    }
}

/// Whether the text that a store keeps as a label is that of a slot that is done.
pub(crate) fn is_of_done_slot(kept: &str) -> bool {
    kept.split_once(ADVERTISES).is_some_and(|(_, advertised)| advertised.starts_with(DONE))
}

/// Validates the reason for an eviction, which is shown to people.
pub(crate) fn reason(text: &str) -> Result<Arc<str>, Error> {
    if !text.is_empty() {
        check("reason", text)?;
    }
    Ok(text.into())
}

/// Returns the default label of this process: program and process id.
pub(crate) fn default_label() -> Arc<str> {
    let program = std::env::args_os()
        .next()
        .and_then(|path| {
            std::path::Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "unknown".to_owned());
    let program: String = program.chars().filter(|c| !c.is_control()).take(64).collect();
    format!("{program} (pid {})", std::process::id()).into()
}

fn check(what: &str, text: &str) -> Result<(), Error> {
    check_up_to(what, text, MAX_OWNER_BYTES)
}

fn check_up_to(what: &str, text: &str, most: usize) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::invalid_option(format!("the {what} is empty: leave it out or name one")));
    }
    if text.len() > most {
        return Err(Error::invalid_option(format!(
            "the {what} has {} bytes, at most {most} are allowed: shorten it",
            text.len()
        )));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid_option(format!(
            "the {what} {text:?} has a control character: leave it out"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_owners_get_one_clear_sentence() {
        for bad in ["", "a\0", &"x".repeat(129)] {
            let error = Owner::new(bad).unwrap_err();
            assert!(error.is_invalid_option(), "{error}");
            assert!(!error.to_string().contains('\n'));
        }
        assert!(label("\n").unwrap_err().to_string().contains("label"));
    }

    #[test]
    fn what_is_advertised_is_found_again_behind_its_label() {
        let kept = join_label("worker-7", "http://10.0.0.7:8080");
        let (label, advertised_text) = split_label(&kept);
        assert_eq!((&*label, advertised_text.as_deref()), ("worker-7", Some("http://10.0.0.7:8080")));
        assert_eq!(split_label(&"worker-7".into()), ("worker-7".into(), None));
        assert!(advertised(&"x".repeat(MAX_ADVERTISED_BYTES)).is_ok());
        for bad in ["", "a\nb", &"x".repeat(MAX_ADVERTISED_BYTES + 1)] {
            let error = advertised(bad).unwrap_err();
            assert!(error.is_invalid_option() && error.to_string().contains("advertise"), "{error}");
        }
    }

    #[test]
    fn the_default_label_names_the_process() {
        assert!(default_label().contains(&std::process::id().to_string()));
    }
}
