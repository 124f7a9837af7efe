//! How much a database keeps of names that nobody uses, in a sentence for people.

use std::time::Duration;

/// What a database keeps of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// About how many, as far as the server has counted.
    pub(crate) names: Option<u64>,
    pub(crate) bytes: u64,
    /// For how long after its last use.
    pub(crate) remembered: Duration,
    /// When the name was last used that was not used for longest, where the server knows.
    pub(crate) oldest: Option<Duration>,
}

impl Kept {
    /// For people. `change` says how the time is set.
    pub(crate) fn note(&self, change: &str) -> String {
        let names = self.names.map_or("names".to_owned(), |names| format!("about {names} names"));
        let oldest =
            self.oldest.map_or(String::new(), |oldest| format!(", the oldest unused for {}", span(oldest)));
        format!(
            "the tables keep {names} in {:.1} MiB{oldest}; a name is kept for {} after its last use: {change} to change that",
            self.bytes as f64 / f64::from(1 << 20),
            span(self.remembered)
        )
    }
}

/// In days or hours.
fn span(time: Duration) -> String {
    let hours = time.as_secs() / 3_600;
    match (hours / 24, hours % 24) {
        (1, 0) => "a day".to_owned(),
        (days, 0) if days > 0 => format!("{days} days"),
        _ if hours == 1 => "an hour".to_owned(),
        _ => format!("{hours} hours"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_told_with_its_size_and_age() {
        let day = Duration::from_secs(86_400);
        let kept = Kept { names: Some(20_000), bytes: 3 << 20, remembered: day, oldest: Some(day * 2) };
        assert_eq!(
            kept.note("update a row"),
            "the tables keep about 20000 names in 3.0 MiB, the oldest unused for 2 days; a name is kept for a day after its last use: update a row to change that"
        );
        let kept = Kept { names: None, remembered: day / 8, oldest: None, ..kept };
        assert!(kept.note("").contains("keep names in 3.0 MiB; a name is kept for 3 hours"));
    }
}
