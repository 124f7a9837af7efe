//! A request: its moment, path, query and body.

use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    Request,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::{Number, Value};

use super::{peer::Peer, problem::Problem, said::Said};
use crate::{clock::Moment, values};

/// A body takes at most this many bytes. The longest are lists of names.
const MAX_BODY: usize = 256 * 1024;
/// The type of a body of which each line is a JSON value.
const LINES: &str = "application/x-ndjson";
/// How long a client may take to send it; of one that stays open, the first line.
const BODY_TIME: Duration = Duration::from_secs(30);

/// A request that may be answered.
#[derive(Debug)]
pub(super) struct Asked {
    /// When it was received: the client's own clock was read before.
    pub(super) received: Moment,
    pub(super) peer: Peer,
    /// What stands in the path for the names of its pattern.
    pub(super) parts: Vec<String>,
    query: String,
    /// The body, or its first line if it stays open.
    body: Bytes,
    /// What the client says behind the first line.
    pub(super) said: Option<Said>,
}

impl Asked {
    pub(super) async fn read(
        request: Request<Incoming>,
        received: Moment,
        peer: Peer,
        parts: Vec<String>,
    ) -> Result<Self, Problem> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let stays_open = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == LINES);
        let body = request.into_body();
        let read = async {
            if stays_open {
                let mut said = Said::new(body);
                let first = said.line().await?.unwrap_or_default();
                return Ok((first, Some(said)));
            }
            match Limited::new(body, MAX_BODY).collect().await {
                Ok(body) => Ok((body.to_bytes(), None)),
                Err(error) if error.is::<LengthLimitError>() => {
                    Err(Problem::too_large(format!("the body has more than {MAX_BODY} bytes")))
                }
                Err(error) => Err(Problem::bad_request(format!("the body cannot be read: {error}"))),
            }
        };
        let in_time = tokio::time::timeout(BODY_TIME, read).await;
        let (body, said) =
            in_time.unwrap_or_else(|_| Err(Problem::bad_request("the body did not come in time")))?;
        Ok(Self { received, peer, parts, query, body, said })
    }

    /// The body, as JSON; an empty one is an empty object.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let body = if self.body.trim_ascii().is_empty() { b"{}" } else { &self.body[..] };
        serde_json::from_slice(body).map_err(|error| Problem::bad_request(format!("in the body: {error}")))
    }

    /// A value of the query, decoded.
    pub(super) fn query(&self, name: &str) -> Result<Option<String>, Problem> {
        for pair in self.query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if decode(key)? == name {
                return decode(&value.replace('+', " ")).map(Some);
            }
        }
        Ok(None)
    }
}

/// Text with `%2F` and the like for bytes that a path cannot have.
pub(super) fn decode(text: &str) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let byte = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low)
            }
            (b'%', _) => None,
            (byte, _) => Some(*byte),
        };
        bytes.push(byte.ok_or_else(|| Problem::bad_request("two digits of base 16 must follow each %"))?);
    }
    String::from_utf8(bytes).map_err(|_| Problem::bad_request("text in the path or query is not UTF-8"))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Reads a time: text with units such as `1m30s`, or a number of seconds.
pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        Value::Number(number) => {
            let seconds = number.as_f64().unwrap_or(-1.0);
            let time = Duration::try_from_secs_f64(seconds).map_err(|_| {
                D::Error::custom(
                    "a time is a number of seconds that is not negative, or text such as \"1m30s\"",
                )
            })?;
            return values::checked(time).map(Some).map_err(D::Error::custom);
        }
        _ => return Err(D::Error::custom("a time is a number of seconds, or text such as \"1m30s\"")),
    };
    values::duration(&text).map(Some).map_err(D::Error::custom)
}

/// Reads a whole number, also one that is written as `2.0`.
pub(super) fn whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    // Up to here, every whole number is a floating point number.
    let exact = |value: &f64| value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(value);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was checked")]
    let rounded = number.as_f64().filter(exact).map(|value| value as u64);
    let whole = number.as_u64().or(rounded).and_then(|value| T::try_from(value).ok());
    whole.map(Some).ok_or_else(|| D::Error::custom(format!("{number} is not a whole number, or too large")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_can_be_written_in_a_path() {
        for (written, text) in
            [("a", "a"), ("a%2Fb", "a/b"), ("%e2%82%ac", "€"), ("a+b", "a+b"), ("%25", "%")]
        {
            assert_eq!(decode(written).unwrap(), text);
        }
        for bad in ["%", "%2", "%zz", "%ff", "%+1"] {
            assert!(decode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn whole_numbers_may_be_written_with_a_point() {
        #[derive(Debug, Deserialize)]
        struct Body {
            #[serde(default, deserialize_with = "whole")]
            of: Option<u32>,
        }
        let read = |text: &str| serde_json::from_str::<Body>(text).map(|body| body.of);
        assert_eq!(["{}", r#"{"of":null}"#].map(|text| read(text).unwrap()), [None, None]);
        assert_eq!([r#"{"of":5}"#, r#"{"of":5.0}"#].map(|text| read(text).unwrap()), [Some(5), Some(5)]);
        for bad in ["-1", "1.5", "4294967296", "1e300", "true", r#""5""#] {
            assert!(read(&format!(r#"{{"of":{bad}}}"#)).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_text_or_seconds() {
        #[derive(Debug, Deserialize)]
        struct Body {
            #[serde(default, deserialize_with = "time")]
            wait: Option<Duration>,
        }
        let read = |text: &str| serde_json::from_str::<Body>(text).map(|body| body.wait);
        assert_eq!(read("{}").unwrap(), None);
        assert_eq!(read(r#"{"wait":1.5}"#).unwrap(), Some(Duration::from_millis(1_500)));
        assert_eq!(read(r#"{"wait":"200ms"}"#).unwrap(), Some(Duration::from_millis(200)));
        for bad in ["-1", "1e300", "true", "[]", r#""soon""#, r#""-5s""#] {
            assert!(read(&format!(r#"{{"wait":{bad}}}"#)).is_err(), "{bad}");
        }
    }
}
