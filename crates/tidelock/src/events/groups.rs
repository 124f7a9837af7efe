//! Groups of locks: the only way for the name of a lock into a label, so that labels have few values.
//!
//! A name is reported under the first pattern that it matches, and under `other` if it matches none. Without
//! patterns there is no label.

use std::sync::Arc;

use crate::{
    error::{Error, Result},
    model::name::Name,
};

/// Each group is a time series of every metric, in every process.
const MOST: usize = 64;

/// The group of names that no pattern matches.
const OTHER: &str = "other";

/// Patterns of names, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups(Option<Arc<[Arc<str>]>>);

impl Groups {
    /// Reads patterns.
    ///
    /// # Errors
    /// When there are too many, or when one matches nothing.
    pub(crate) fn new(patterns: &[String]) -> Result<Self> {
        if patterns.len() > MOST {
            return Err(Error::invalid_option(format!(
                "{} groups of metrics are too many: use at most {MOST}, with patterns such as orders/*",
                patterns.len()
            )));
        }
        if patterns.iter().any(String::is_empty) {
            return Err(Error::invalid_option("a group of metrics is empty: use a pattern such as orders/*"));
        }
        let mut all: Vec<Arc<str>> = patterns.iter().map(|pattern| pattern.as_str().into()).collect();
        all.push(OTHER.into());
        Ok(Self((!patterns.is_empty()).then(|| all.into())))
    }

    /// All groups; one without a name if there are none.
    #[cfg(feature = "metrics")]
    pub(super) fn all(&self) -> Vec<Option<Arc<str>>> {
        self.0.as_ref().map_or(vec![None], |groups| groups.iter().cloned().map(Some).collect())
    }

    /// The group of a name, if there are groups.
    #[cfg_attr(not(any(feature = "metrics", test)), allow(dead_code, reason = "only metrics have groups"))]
    pub(crate) fn of(&self, name: &Name) -> Option<Arc<str>> {
        let (other, patterns) = self.0.as_ref()?.split_last()?;
        let group = patterns.iter().find(|pattern| matches(pattern, name.as_str())).unwrap_or(other);
        Some(Arc::clone(group))
    }
}

/// A star at the end stands for the rest of the name.
fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(patterns: &[&str], name: &str) -> Option<String> {
        let patterns: Vec<_> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        Groups::new(&patterns).unwrap().of(&Name::new(name).unwrap()).map(|group| group.to_string())
    }

    #[test]
    fn a_name_belongs_to_the_first_pattern_that_it_matches_and_else_to_other() {
        let patterns = ["orders/vip/*", "orders/*", "report"];
        for (name, group) in [
            ("orders/vip/1", "orders/vip/*"),
            ("orders/1", "orders/*"),
            ("orders/", "orders/*"),
            ("report", "report"),
            ("reports", "other"),
            ("orders", "other"),
        ] {
            assert_eq!(of(&patterns, name).as_deref(), Some(group), "{name}");
        }
    }

    #[test]
    fn without_patterns_there_are_no_groups() {
        assert_eq!(of(&[], "orders/1"), None);
    }

    #[test]
    fn more_groups_than_are_good_for_labels_are_refused() {
        let patterns = |count: usize| (0..count).map(|n| format!("{n}/*")).collect::<Vec<_>>();
        assert!(Groups::new(&patterns(MOST)).is_ok());
        assert!(Groups::new(&patterns(MOST + 1)).unwrap_err().to_string().contains("at most 64"));
        assert!(Groups::new(&[String::new()]).is_err());
    }
}
