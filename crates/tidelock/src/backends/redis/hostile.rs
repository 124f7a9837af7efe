//! Readers of replies, messages and records, for [`testing::hostile`](crate::testing::hostile): everybody with
//! the password of the server can write them.

use redis::Value;

use super::codec::{self, Space};
use crate::{
    model::name::Name,
    testing::hostile::{Reader, a_claim, use_line},
};

pub(super) const READERS: [Reader; 2] =
    [Reader { name: "redis_reply", read: reply }, Reader { name: "redis_record", read: record }];

/// A reply of the server, as any of those that are expected.
fn reply(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    let claim = a_claim();
    let _ = codec::entered(&claim, &value);
    for count in 0..3 {
        let _ = codec::standings(&value, count);
    }
    let _ = (codec::left(&value), codec::raised(&value), codec::text(&value));
    if let Ok(Some((now, head))) = codec::seen(&value) {
        let _ = codec::view(&claim.name, head, codec::store_time(now));
    }
    if let Value::BulkString(message) = &value {
        let _ = codec::news(&Space::new("tidelock"), message);
    }
}

/// What is kept at the key of a lock.
fn record(bytes: &[u8]) {
    let Ok(name) = Name::new("a") else { return };
    let _ = (codec::view(&name, bytes, codec::store_time(1)), codec::is_idle(bytes));
    if let Some(line) = codec::line_at(&name, bytes) {
        let _ = codec::write_line(&line);
        use_line(&name, line);
    }
    let _ = codec::news(&Space::new("tidelock"), bytes);
    if let Ok(key) = std::str::from_utf8(bytes) {
        let _ = Space::new("tidelock").name(key);
    }
}
