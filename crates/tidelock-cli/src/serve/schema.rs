//! The values of calls, as JSON Schema: what is accepted, as exactly as a schema can say it.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidelock::{MAX_ADVERTISED_BYTES, MAX_NAME_BYTES, MAX_OWNER_BYTES, MAX_TTL};

/// Numbers with units, the longer ones first, or a number of seconds; none so large that it is refused.
const TIME: &str = concat!(
    r"^(([0-9]{1,4}(\.[0-9]{1,3})?d)?([0-9]{1,4}(\.[0-9]{1,3})?h)?([0-9]{1,7}(\.[0-9]{1,3})?m)?",
    r"([0-9]{1,7}(\.[0-9]{1,3})?s)?([0-9]{1,7}(\.[0-9]{1,3})?ms)?|[0-9]{1,7}(\.[0-9]{1,3})?)$"
);
/// As long as any lease may be, and at least a second, which is enough for every store.
const LEASE: &str = r"^([1-9][0-9]{0,3}s|([1-9][0-9]{0,2}|1[0-3][0-9]{2})m|([1-9]|1[0-9]|2[0-4])h)$";
const PERIOD: &str = r"^([1-9][0-9]{0,4}[sm]|[1-9][0-9]{0,2}h|([1-9][0-9]?|[12][0-9]{2})d|week|month)$";
/// The start of a slot, in UTC.
const START: &str = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?Z)?$";
/// A century, which no time may exceed.
const LONGEST: u64 = 100 * 366 * 86_400;

/// An object, as part of an answer: there may be more in it.
pub(super) fn object(fields: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// An object in a request: nothing else may be in it, and `null` is as good as nothing.
pub(super) fn body(fields: &[(&str, Value)], required: &[&str]) -> Value {
    let mut schema = object(fields, required);
    for (name, field) in fields.iter().filter(|(name, _)| !required.contains(name)) {
        schema["properties"][name] = json!({"anyOf": [field, {"type": "null"}]});
    }
    schema["additionalProperties"] = false.into();
    schema
}

/// Text without control characters. Its length is limited in bytes, of which a character has up to four.
fn printable(most: usize) -> Value {
    let few = most / 4;
    let pattern = format!(r"^([\u0020-\u007E]{{1,{most}}}|[^\u0000-\u001F\u007F-\u009F]{{1,{few}}})$");
    json!({"type": "string", "pattern": pattern})
}

pub(super) fn name() -> Value {
    printable(MAX_NAME_BYTES)
}

/// The label or the owner of a claim.
pub(super) fn label() -> Value {
    printable(MAX_OWNER_BYTES)
}

pub(super) fn advertised() -> Value {
    printable(MAX_ADVERTISED_BYTES)
}

/// The id of an order.
pub(super) fn order() -> Value {
    printable(128)
}

pub(super) fn time() -> Value {
    json!({"oneOf": [
        {"type": "string", "minLength": 1, "pattern": TIME},
        {"type": "number", "minimum": 0, "maximum": LONGEST},
    ]})
}

/// A time that is not zero.
pub(super) fn some_time() -> Value {
    json!({"oneOf": [
        {"type": "string", "pattern": LEASE},
        {"type": "number", "minimum": 0.001, "maximum": LONGEST},
    ]})
}

/// The lifetime of a lock.
pub(super) fn ttl(least: Duration) -> Value {
    json!({"oneOf": [
        {"type": "string", "pattern": LEASE},
        {"type": "number", "minimum": least.as_secs_f64(), "maximum": MAX_TTL.as_secs()},
    ]})
}

pub(super) fn period() -> Value {
    json!({"oneOf": [
        {"type": "string", "pattern": PERIOD},
        {"type": "integer", "minimum": 1, "maximum": 366 * 86_400},
    ]})
}

pub(super) fn start() -> Value {
    json!({"type": "string", "pattern": START})
}

/// How a lock is shared. `permits` is not larger than `of`.
pub(super) fn share() -> Value {
    let permits = body(
        &[("permits", within(1, u32::MAX.into())), ("of", within(1, u32::MAX.into()))],
        &["permits", "of"],
    );
    json!({"oneOf": [{"enum": ["exclusive", "write", "shared"]}, permits]})
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn whole() -> Value {
    json!({"type": "integer", "minimum": 0})
}

/// A whole number in these bounds.
pub(super) fn within(least: u64, most: u64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

pub(super) fn yes_no() -> Value {
    json!({"type": "boolean"})
}

pub(super) fn line(events: &[&str]) -> Value {
    object(&[("event", json!({"enum": events}))], &["event"])
}

pub(super) fn flag(name: &str) -> Value {
    object(&[(name, yes_no())], &[name])
}

pub(super) fn error() -> Value {
    object(
        &[("kind", text()), ("message", text()), ("retryable", yes_no())],
        &["kind", "message", "retryable"],
    )
}

/// A lock as others see it.
pub(super) fn view() -> Value {
    let list = json!({"type": "array"});
    object(&[("name", text()), ("holders", list.clone()), ("waiters", list)], &["name", "holders", "waiters"])
}
