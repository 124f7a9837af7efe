//! Why claims were put out, in the data of a lock's node: a client that loses its node reads it there.

use crate::backend::ClaimId;

/// How the data begin; anything else is somebody's own, and is left alone.
const HEAD: &str = "tidelock: put out";
/// How many are remembered.
const KEPT: usize = 8;

/// The latest that were put out, oldest first.
#[derive(Debug)]
pub(crate) struct Notice<'a>(Vec<&'a str>);

impl<'a> Notice<'a> {
    /// Reads the data of a lock's node; nothing if they are somebody's own.
    pub(crate) fn read(data: &'a [u8]) -> Option<Self> {
        if data.is_empty() {
            return Some(Self(Vec::new()));
        }
        let mut lines = std::str::from_utf8(data).ok()?.lines();
        (lines.next() == Some(HEAD)).then(|| Self(lines.collect()))
    }

    /// Why this claim was put out, if it is among them.
    pub(crate) fn reason(&self, id: ClaimId) -> Option<&'a str> {
        let (id, lines) = (id.to_string(), self.0.iter().rev());
        lines.filter_map(|line| line.split_once(' ')).find(|(who, _)| *who == id).map(|(_, why)| why)
    }

    /// All that were put out, with the reasons.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ClaimId, &'a str)> {
        let split = |line: &&'a str| {
            let (id, why) = line.split_once(' ')?;
            Some((ClaimId::from_u128(u128::from_str_radix(id, 16).ok()?), why))
        };
        self.0.iter().filter_map(split)
    }

    /// The data with one more.
    pub(crate) fn with(&self, id: ClaimId, reason: &str) -> Vec<u8> {
        let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let line = format!("{id} {reason}");
        let kept = &self.0[self.0.len().saturating_sub(KEPT - 1)..];
        let lines = std::iter::once(HEAD).chain(kept.iter().copied()).chain(std::iter::once(&*line));
        lines.collect::<Vec<_>>().join("\n").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_what_is_not_ours_is_left_alone() {
        let mut data = Vec::new();
        for id in 0..20 {
            data = Notice::read(&data).unwrap().with(ClaimId::from_u128(id), &format!("no. {id}\nno more"));
        }
        let notice = Notice::read(&data).unwrap();
        assert_eq!(notice.reason(ClaimId::from_u128(19)), Some("no. 19 no more"));
        assert!(notice.reason(ClaimId::from_u128(12)).is_some());
        assert_eq!(notice.reason(ClaimId::from_u128(11)), None);
        assert_eq!(notice.all().count(), KEPT);
        assert_eq!(notice.all().last(), Some((ClaimId::from_u128(19), "no. 19 no more")));
        assert!(Notice::read(b"10.0.0.1").is_none());
    }
}
