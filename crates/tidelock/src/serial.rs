//! How values are written for other programs, with the feature `serde`.
//!
//! | value | form |
//! |---|---|
//! | [`Token`], [`Ticket`], [`Name`], [`Owner`], [`ClaimId`] | their text |
//! | [`LockView`], [`ClaimView`] | as `tidelock ls --json` prints them (docs/json.md) |
//!
//! The form is described here and not by the types, so that a renamed field does not change what others read.

use std::{fmt, sync::Arc, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, Visitor},
};

use crate::{
    api::ticket::Ticket,
    backend::{Capacity, ClaimId, ClaimView, Foreign, LockView, Share},
    model::name::Name,
    model::owner::Owner,
    model::token::Token,
};

/// Reads a text and makes a value of it, or says what was expected.
struct Text<T> {
    expected: &'static str,
    read: fn(&str) -> Result<T, String>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).map_err(E::custom)
    }
}

/// Writes values as their text and reads them with a function that checks it.
macro_rules! as_text {
    ($($kind:ty: $expected:literal, $read:expr;)+) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text { expected: $expected, read: $read })
            }
        }
    )+};
}

as_text! {
    Token: "a fencing token as text", parsed;
    Ticket: "a ticket", parsed;
    Name: "the name of a lock", parsed;
    Owner: "an owner", parsed;
    ClaimId: "the id of a claim, 32 hexadecimal digits", claim_id;
    Capacity: "\"readers\", or a number of permits such as \"5 permits\"", capacity;
}

fn parsed<T: std::str::FromStr<Err = crate::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: crate::Error| error.to_string())
}

fn claim_id(text: &str) -> Result<ClaimId, String> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_id.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    number.map(ClaimId::from_u128).ok_or_else(|| format!("{text:?} is not the id of a claim"))
}

fn capacity(text: &str) -> Result<Capacity, String> {
    match text.strip_suffix(" permits").map(str::parse) {
        Some(Ok(permits)) => Ok(Capacity::Of(permits)),
        None if text == "readers" => Ok(Capacity::Unbounded),
        _ => Err(format!("{text:?} is not the capacity of a lock")),
    }
}

/// A lock, as others read it.
#[derive(Serialize, Deserialize)]
struct Lock {
    name: Name,
    capacity: Option<Capacity>,
    token: Option<Token>,
    holders: Vec<ClaimView>,
    waiters: Vec<ClaimView>,
}

/// A claim, as others read it.
#[derive(Serialize, Deserialize)]
struct Claim {
    claim: ClaimId,
    label: String,
    /// Views that earlier versions wrote have none.
    #[serde(default)]
    advertised: Option<String>,
    owner: Option<Owner>,
    share: Kind,
    permits: Option<u32>,
    of: Option<u32>,
    token: Option<Token>,
    age_ms: u64,
    expires_in_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    foreign: Option<Stranger>,
}

/// A holder of another make, as others read it.
#[derive(Serialize, Deserialize)]
struct Stranger {
    kind: String,
    id: String,
    count: u64,
    expires: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Exclusive,
    Shared,
    Permits,
}

impl Serialize for LockView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let token = self.token();
        let Self { name, capacity, holders, waiters, .. } = self.clone();
        Lock { name, capacity, token, holders, waiters }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LockView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Lock { name, capacity, token, holders, waiters } = Lock::deserialize(deserializer)?;
        Ok(Self { holders, waiters, ..Self::new(name, capacity, token.map_or(0, Token::epoch)) })
    }
}

impl Serialize for ClaimView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (share, permits, of) = match self.share {
            Share::Exclusive => (Kind::Exclusive, None, None),
            Share::Shared => (Kind::Shared, None, None),
            Share::Permits { n, of } => (Kind::Permits, Some(n), Some(of)),
        };
        let claim = Claim {
            claim: self.id,
            label: self.label.as_ref().to_owned(),
            advertised: self.advertised.as_ref().map(|text| text.as_ref().to_owned()),
            owner: self.owner.clone(),
            share,
            permits,
            of,
            token: self.token(),
            age_ms: millis(self.age),
            expires_in_ms: millis(self.lapse_in),
            foreign: self.foreign.as_ref().map(|foreign| Stranger {
                kind: foreign.kind.to_string(),
                id: foreign.id.to_string(),
                count: foreign.count,
                expires: foreign.expires,
            }),
        };
        claim.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ClaimView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let claim = Claim::deserialize(deserializer)?;
        let share = match (claim.share, claim.permits, claim.of) {
            (Kind::Exclusive, ..) => Share::Exclusive,
            (Kind::Shared, ..) => Share::Shared,
            (Kind::Permits, Some(n), Some(of)) => Share::Permits { n, of },
            (Kind::Permits, ..) => return Err(D::Error::custom("a claim of permits lacks their number")),
        };
        Ok(Self {
            id: claim.claim,
            share,
            owner: claim.owner,
            label: Arc::from(claim.label),
            advertised: claim.advertised.map(Arc::from),
            epoch: claim.token.map(Token::epoch),
            age: Duration::from_millis(claim.age_ms),
            lapse_in: Duration::from_millis(claim.expires_in_ms),
            foreign: claim
                .foreign
                .map(|Stranger { kind, id, count, expires }| Foreign::new(&kind, &id, count, expires)),
        })
    }
}
