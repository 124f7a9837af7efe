//! What happened to a claim, as far as it is known.

use std::{sync::Arc, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeMap};
use tidelock::{Name, Token, backend::ClaimId};

use crate::clock::{Moment, unix_ms};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Grows by one with each event of this observer.
    pub(crate) serial: u64,
    /// When it happened, or was seen to have happened.
    pub(crate) at: Moment,
    /// If the moment is not known: when it had not happened yet.
    pub(crate) after: Option<Moment>,
    pub(crate) name: Name,
    pub(crate) claim: ClaimId,
    pub(crate) label: Arc<str>,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It stands in line.
    Queued,
    /// It holds.
    Granted {
        token: Option<Token>,
        /// How long it waited, if that was seen.
        waited: Option<Duration>,
    },
    /// It was renewed when less than a third of its lease was left.
    RenewedLate { left: Duration },
    /// It is no longer in line.
    Ended {
        how: Ending,
        /// How long it held. Nothing if it had waited.
        held: Option<Duration>,
        token: Option<Token>,
    },
}

/// How a claim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its program released it, or gave up waiting.
    Released,
    /// Nobody renewed it in time.
    Expired,
    /// Somebody took it away, for this reason.
    Evicted { reason: Arc<str> },
    /// Its program was told that it is lost, for this reason.
    Lost { reason: Arc<str> },
    /// Released or evicted: it is not known which.
    Gone,
}

impl What {
    /// In one word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Granted { .. } => "granted",
            Self::RenewedLate { .. } => "renewed_late",
            Self::Ended { how, .. } => match how {
                Ending::Released => "released",
                Ending::Expired => "expired",
                Ending::Evicted { .. } => "evicted",
                Ending::Lost { .. } => "lost",
                Ending::Gone => "gone",
            },
        }
    }

    /// Why, if somebody said it.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Ended { how: Ending::Evicted { reason } | Ending::Lost { reason }, .. } => Some(reason),
            _ => None,
        }
    }

    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Self::Granted { token, .. } | Self::Ended { token, .. } => *token,
            _ => None,
        }
    }
}

impl Event {
    /// About how many bytes of memory it takes.
    pub(super) fn size(&self) -> usize {
        let reason = self.what.reason().map_or(0, str::len);
        size_of::<Self>() + self.label.len() + self.name.as_str().len() + reason
    }
}

/// As programs read it. Moments are milliseconds since 1970 by this machine's clock.
impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event", self.what.word())?;
        map.serialize_entry("at_ms", &unix_ms(self.at))?;
        if let Some(after) = self.after {
            map.serialize_entry("after_ms", &unix_ms(after))?;
        }
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("claim", &self.claim)?;
        map.serialize_entry("label", &*self.label)?;
        if let Some(token) = self.what.token() {
            map.serialize_entry("token", &token)?;
        }
        match &self.what {
            What::Granted { waited: Some(waited), .. } => {
                map.serialize_entry("waited_ms", &millis(*waited))?
            }
            What::RenewedLate { left } => map.serialize_entry("left_ms", &millis(*left))?,
            What::Ended { held: Some(held), .. } => map.serialize_entry("held_ms", &millis(*held))?,
            _ => {}
        }
        if let Some(reason) = self.what.reason() {
            map.serialize_entry("reason", reason)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_with_what_is_known_of_it() {
        let event = |what| Event {
            serial: 1,
            at: Moment::now(),
            after: None,
            name: Name::new("orders/42").unwrap(),
            claim: ClaimId::from_u128(7),
            label: "worker-7".into(),
            what,
        };
        let waited = Some(Duration::from_millis(1_500));
        let granted = serde_json::to_value(event(What::Granted { token: None, waited })).unwrap();
        assert_eq!((&granted["event"], &granted["waited_ms"]), (&"granted".into(), &1_500.into()));
        assert!(granted.get("token").is_none() && granted.get("reason").is_none());
        let how = Ending::Evicted { reason: "it hangs".into() };
        let ended = What::Ended { how, held: Some(Duration::from_secs(2)), token: None };
        let ended = serde_json::to_value(event(ended)).unwrap();
        assert_eq!((&ended["event"], &ended["reason"]), (&"evicted".into(), &"it hangs".into()));
        assert_eq!(ended["held_ms"], 2_000);
    }
}
