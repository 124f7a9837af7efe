//! The description of all calls, for programs: made from the table of routes, so that none is missing.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    route::{Call, ROUTES},
    schema::{
        advertised, body, error, flag, label, line, name, object, order, period, share, some_time, start,
        text, time, ttl, view, whole, within, yes_no,
    },
};

/// What the calls of a server depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// The shortest lifetime of a lock in its store.
    pub(super) min_ttl: Duration,
    /// Whether clients have to confirm their holds.
    pub(super) must_confirm: bool,
}

/// The most that there can be of an item, and the most segments.
const MOST: u64 = 1_000_000_000_000;
const MOST_SEGMENTS: u64 = 1_024;

/// What can be said of a call beyond its route.
struct Described {
    summary: &'static str,
    /// The schema of its body, if it takes one.
    body: Option<Value>,
    /// The schema of its answer, or of each line of a stream.
    answer: Value,
    is_stream: bool,
    /// What it can fail with beyond what every call can.
    fails: &'static [u16],
}

/// The document.
pub(super) fn describe(setting: Setting) -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method.as_str().to_ascii_lowercase()] = operation(route.call, route.path, setting);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tidelock serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Locks over HTTP. The answer to a lock is a stream of JSON lines, and the stream is the hold.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": error()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn operation(call: Call, path: &str, setting: Setting) -> Value {
    let Described { summary, body, answer, is_stream, fails } = described(call, setting);
    let kind = match call {
        Call::Metrics => "text/plain",
        _ if is_stream => "application/x-ndjson",
        _ => "application/json",
    };
    let mut responses = Map::new();
    responses.insert("200".to_owned(), json!({"description": "done", "content": {kind: {"schema": answer}}}));
    // Any call can be malformed, be refused, or find its server or store down.
    for status in [400, 401, 403, 404, 413, 429, 500, 503].iter().chain(fails) {
        let content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}});
        responses.insert(status.to_string(), json!({"description": meaning(*status), "content": content}));
    }
    let mut parameters: Vec<Value> = path
        .split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
        .map(|part| json!({"name": part, "in": "path", "required": true, "schema": name()}))
        .collect();
    let query = match call {
        Call::LookAll => Some(("prefix", text())),
        Call::Evict => Some(("reason", label())),
        _ => None,
    };
    parameters.extend(query.map(|(name, schema)| json!({"name": name, "in": "query", "schema": schema})));
    let mut operation = json!({
        "operationId": format!("{call:?}"),
        "summary": summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(schema) = body {
        let required = schema["required"].as_array().is_some_and(|required| !required.is_empty());
        operation["requestBody"] =
            json!({"required": required, "content": {"application/json": {"schema": schema}}});
    }
    operation
}

fn described(call: Call, setting: Setting) -> Described {
    let ttl = || ttl(setting.min_ttl);
    // A hold whose client has to confirm it says so.
    let of_hold = |fields: &[(&str, Value)], required: &[&str]| {
        let confirm = if setting.must_confirm { json!({"const": true}) } else { yes_no() };
        let mut required = required.to_vec();
        required.extend(setting.must_confirm.then_some("confirm"));
        body(&[fields, &[("ttl", ttl()), ("label", label()), ("confirm", confirm)]].concat(), &required)
    };
    let of_lock = [("wait", time()), ("owner", label()), ("max_hold", some_time()), ("progress", yes_no())];
    let plain = |summary, answer| Described { summary, body: None, answer, is_stream: false, fails: &[] };
    match call {
        Call::Lock => hold(
            "Acquires a lock and holds it while the stream is open",
            of_hold(&[&of_lock[..], &[("share", share())]].concat(), &[]),
        ),
        Call::LockAll => hold(
            "Acquires several locks, all or none",
            of_hold(
                &[&of_lock[..], &[("names", json!({"type": "array", "items": name(), "minItems": 1}))]]
                    .concat(),
                &["names"],
            ),
        ),
        Call::LookAll => {
            plain("Lists the locks that are held or waited for", json!({"type": "array", "items": view()}))
        }
        Call::Look => plain("Shows who holds a lock and who waits for it", view()),
        Call::Evict => plain("Takes a claim away by force", flag("evicted")),
        Call::Confirm => Described {
            fails: &[410],
            ..plain(
                "Confirms that the client lives, and says until when its hold is valid",
                object(
                    &[("until_us", whole()), ("token", text()), ("tokens", json!({"type": "array"}))],
                    &["until_us"],
                ),
            )
        },
        Call::Release => Described { fails: &[410], ..plain("Releases a hold", flag("released")) },
        Call::Done => Described { fails: &[410], ..plain("Records that the slot was run", flag("done")) },
        Call::Failed => Described { fails: &[410], ..plain("Says that the slot failed", flag("failed")) },
        Call::Ticket => Described {
            body: Some(body(
                &[("wait", time()), ("ttl", ttl()), ("share", share()), ("label", label())],
                &[],
            )),
            fails: &[408, 409, 410],
            ..plain(
                "Acquires a lock and leaves it held, for the holder of the ticket",
                object(
                    &[("ticket", text()), ("token", text()), ("until_us", whole())],
                    &["ticket", "token", "until_us"],
                ),
            )
        },
        Call::RenewTicket => Described {
            body: Some(body(&[("ticket", text())], &["ticket"])),
            fails: &[410],
            ..plain(
                "Starts the ttl of a ticket again",
                object(&[("token", text()), ("until_us", whole())], &["until_us"]),
            )
        },
        Call::ReleaseTicket => Described {
            body: Some(body(&[("ticket", text())], &["ticket"])),
            fails: &[410],
            ..plain("Releases the lock of a ticket", flag("released"))
        },
        Call::Campaign => hold(
            "Waits until this candidate leads, and leads while the stream is open",
            of_hold(&[("advertise", advertised()), ("progress", yes_no())], &[]),
        ),
        Call::Leader => plain("Shows who leads", json!({"type": "object"})),
        Call::WatchLeader => Described {
            is_stream: true,
            ..plain("Says who leads, now and at each change", line(&["leader", "error"]))
        },
        Call::Once => hold(
            "Gives the right to run a slot of a period, if nobody ran it",
            of_hold(&[("every", period()), ("slot", start()), ("retry_failed", yes_no())], &["every"]),
        ),
        Call::OpenStock => Described {
            body: Some(body(
                &[("amount", within(0, MOST)), ("segments", within(1, MOST_SEGMENTS))],
                &["amount"],
            )),
            fails: &[409],
            ..plain("Opens the stock of an item", json!({"type": "object"}))
        },
        Call::Take => {
            sale("Sells to an order", &[("order", order()), ("amount", within(1, MOST))], &["order"])
        }
        Call::Reserve => {
            let fields = [("order", order()), ("amount", within(1, MOST)), ("ttl", some_time())];
            sale("Reserves for an order", &fields, &["order", "ttl"])
        }
        Call::ConfirmOrder => {
            let done = sale("Sells what was reserved", &[("order", order())], &["order"]);
            Described { answer: flag("confirmed"), ..done }
        }
        Call::GiveBack => {
            let done = sale("Gives back what was taken or reserved", &[("order", order())], &["order"]);
            Described { answer: flag("given_back"), ..done }
        }
        Call::Tally => Described {
            fails: &[409],
            ..plain("Counts what is left, reserved and sold", json!({"type": "object"}))
        },
        Call::Abilities => plain("Says what the store can do", json!({"type": "object"})),
        // OpenAPI knows no such methods.
        Call::TerraformLock | Call::TerraformUnlock => plain("Locks a state of Terraform", json!({})),
        Call::OpenApi => plain("Describes all calls", json!({"type": "object"})),
        Call::Metrics => plain("Has the figures of this server, for Prometheus", text()),
        Call::Health => plain("Says that the server serves", object(&[("status", text())], &["status"])),
    }
}

/// A call whose answer is the stream of a hold.
fn hold(summary: &'static str, body: Value) -> Described {
    let events = ["waiting", "granted", "renewed", "lost", "released", "error"];
    Described { summary, body: Some(body), answer: line(&events), is_stream: true, fails: &[408, 409, 410] }
}

fn sale(summary: &'static str, fields: &[(&str, Value)], required: &[&str]) -> Described {
    let words = json!({"enum": ["taken", "reserved", "sold_out", "closed", "returned"]});
    let answer = object(&[("sale", words)], &["sale"]);
    Described { summary, body: Some(body(fields, required)), answer, is_stream: false, fails: &[409] }
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "the request makes no sense",
        401 => "the token is missing or wrong",
        403 => "this client may not ask",
        404 => "there is no such thing",
        408 => "the lock was not acquired in time",
        409 => "it is taken, done already, or used otherwise",
        410 => "the lock is lost",
        413 => "the body is too large",
        429 => "too many streams are open",
        503 => "the store does not answer, or the server ends",
        _ => "the server failed",
    }
}
