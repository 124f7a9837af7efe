//! What `--json` prints has the shape that docs/json.md promises.

mod common;

use std::collections::BTreeMap;

use common::{Running, Store, json, output, stdout};
use serde_json::Value;

/// A script that holds its lock until it reads a line.
const HOLD: &str = "echo $TIDELOCK_TOKEN; read line";

/// The examples of the page, by the command in the headline above each.
fn page() -> BTreeMap<String, Value> {
    let page = include_str!("../../../docs/json.md");
    let sections = page.split("\n## `").skip(1);
    let examples = sections.map(|section| {
        let (command, rest) = section.split_once('`').expect("a headline");
        let example = rest.split_once("```json\n").and_then(|(_, rest)| rest.split_once("```"));
        let (example, _) = example.unwrap_or_else(|| panic!("{command} has an example"));
        (command.to_owned(), serde_json::from_str(example).unwrap_or_else(|e| panic!("{command}: {e}")))
    });
    examples.collect()
}

/// The paths of all keys, and the kinds of their values. Elements of an array count as one.
fn shape(value: &Value) -> BTreeMap<String, &'static str> {
    let mut shape = BTreeMap::new();
    walk(value, String::new(), &mut shape);
    shape
}

fn walk(value: &Value, path: String, shape: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "whole number",
        Value::String(_) => "text",
        Value::Array(values) => {
            values.iter().for_each(|value| walk(value, format!("{path}[]"), shape));
            "array"
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| walk(value, format!("{path}.{key}"), shape));
            "object"
        }
    };
    // Where one element has a value and another has none, the value says more.
    let known = shape.entry(path).or_insert(kind);
    if *known == "null" {
        *known = kind;
    }
}

#[track_caller]
fn is_as_promised(command: &str, printed: &Value) {
    let promised = page();
    let promised = shape(promised.get(command).unwrap_or_else(|| panic!("the page has {command}")));
    let printed = shape(printed);
    // A list that is empty on one side shows nothing of what is in it.
    let is_in_empty = |path: &str, other: &BTreeMap<String, &str>| {
        path.match_indices("[]").any(|(end, _)| {
            let list = &path[..end];
            other.get(list) == Some(&"array")
                && !other.keys().any(|key| key.starts_with(&format!("{list}[]")))
        })
    };
    for (path, kind) in &promised {
        match printed.get(path) {
            None => assert!(is_in_empty(path, &printed), "{command}: {path} is promised and not printed"),
            Some(found) => {
                let is_open = *kind == "null" || *found == "null";
                // JSON has one kind of number; a whole one is a number too.
                let is_number = *kind == "number" && *found == "whole number";
                assert!(is_open || is_number || kind == found, "{command}: {path} is {found}, not {kind}");
            }
        }
    }
    for path in printed.keys() {
        let is_known = promised.contains_key(path) || is_in_empty(path, &promised);
        assert!(is_known, "{command}: {path} is printed and not on the page");
    }
}

#[test]
fn every_command_with_json_is_on_the_page() {
    let page = page();
    let help = stdout(&output(&["--help"]));
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs: Vec<_> = verbs.map_while(|line| line.split_whitespace().next()).collect();
    assert!(verbs.contains(&"run") && verbs.contains(&"man"), "{help}");
    for verb in verbs {
        let is_listed = page.contains_key(&format!("tidelock {verb} --json"));
        let has_json = verb != "help" && stdout(&output(&[verb, "--help"])).contains("--json ");
        assert!(!has_json || is_listed, "{verb} prints JSON and is not on the page");
    }
    assert_eq!(page.len(), 13, "each example is compared below: {:?}", page.keys());
}

#[test]
fn leaders_are_printed_as_promised() {
    let store = Store::new();
    let args = ["elect", "boss", "--advertise", "here", "--", "sh", "-c", HOLD];
    let mut candidate = Running::of(store.tidelock(&args));
    candidate.line();
    is_as_promised("tidelock leader --json", &json(&["leader", "boss", "--json", "--url", &store.url()]));
}

#[test]
fn tickets_are_printed_as_promised() {
    let store = Store::new();
    let url = store.url();
    let acquired = json(&["acquire", "job", "--json", "--url", &url]);
    is_as_promised("tidelock acquire --json", &acquired);
    let ticket = acquired["ticket"].as_str().expect("text");
    is_as_promised("tidelock renew --json", &json(&["--json", "renew", ticket, "--url", &url]));
    is_as_promised("tidelock release --json", &json(&["--json", "--url", &url, "release", ticket]));
}

#[test]
fn locks_are_printed_as_promised() {
    let store = Store::new();
    let url = store.url();
    let mut holder = store.run(&["job", "--permits", "2/5", "--owner", "me"], HOLD);
    let token = holder.line();
    let _waiter = store.run(&["job", "--permits", "4/5"], HOLD);
    common::until("somebody waits", || store.waiters("job") == 1);
    let shown = json(&["show", "job", "--json", "--url", &url]);
    is_as_promised("tidelock show --json", &shown);
    assert!(shown["token"] == *token && shown["holders"][0]["token"] == *token, "{shown}");
    assert_eq!(shown["waiters"][0]["token"], Value::Null);
    is_as_promised("tidelock show --json", &json(&["show", "free", "--json", "--url", &url]));
    let listed = json(&["ls", "--json", "--url", &url]);
    is_as_promised("tidelock ls --json", &listed);
    assert_eq!(listed[0]["holders"][0]["token"], *token);
    let found = json(&["break", "--prefix", "job", "--reason", "x", "--json", "--url", &url]);
    is_as_promised("tidelock break --json", &found[0]);
    assert_eq!(found[0]["would_evict"][0]["token"], *token);
    is_as_promised(
        "tidelock break --json",
        &json(&["break", "job", "--reason", "x", "--json", "--url", &url]),
    );
    is_as_promised(
        "tidelock break --json",
        &json(&["break", "free", "--reason", "x", "--json", "--url", &url]),
    );
}

#[test]
fn events_are_printed_as_promised() {
    let store = Store::new();
    let mut watching = Running::of(store.tidelock(&["events", "--json", "--interval", "100ms"]));
    let mut next = || serde_json::from_str::<Value>(&watching.line()).expect("a line of JSON");
    assert_eq!(next()["event"], "watching");
    let mut holder = store.run(&["job"], HOLD);
    holder.line();
    assert_eq!(next()["event"], "granted");
    let _waiter = store.run(&["job"], HOLD);
    assert_eq!(next()["event"], "queued");
    holder.say("");
    let pair = [next(), next()];
    let granted = pair.iter().find(|event| event["event"] == "granted").expect("the waiter's turn");
    is_as_promised("tidelock events --json", granted);
}

#[test]
fn stores_are_printed_as_promised() {
    let store = Store::new();
    let found = json(&["doctor", "--json", "--url", &store.url()]);
    is_as_promised("tidelock doctor --json", &found);
    assert_eq!(found["fit"], true);
    let found = json(&["doctor", "--json", "--url", "memory:"]);
    is_as_promised("tidelock doctor --json", &found);
    assert_eq!(found["fit"], false);
    is_as_promised("tidelock stores --json", &json(&["stores", "--json"]));
    is_as_promised("tidelock stores --options --json", &json(&["--json", "stores", "--options"]));
}

#[test]
fn a_sale_is_printed_as_promised() {
    let dir = tempfile::tempdir().expect("a directory");
    let chart = dir.path().join("chart.svg");
    let chart = chart.to_str().expect("text");
    let sale = ["demo", "flash-sale", "--json", "--buyers", "20", "--stock", "10", "--processes", "2"];
    is_as_promised("tidelock demo flash-sale --json", &json(&[&sale[..], &["--out", chart]].concat()));
}

#[test]
fn a_torture_is_printed_as_promised() {
    let dir = tempfile::tempdir().expect("a directory");
    let client = |number: u32, granted: u64| {
        format!("1 hello {number} 0\n2 asked 0 0 x 0 0\n{granted} granted 0 {granted} 80\n95 bye done\n")
    };
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
    write("client-0.0.log", &client(0, 10));
    write("client-1.0.log", &client(1, 20));
    write(
        "run.log",
        "1 plan 42 redis 1000 true false\n1 lock 0 1000 torture/a\n15 fault 0 cut client-0.0\n16 healed 0\n",
    );
    let found = json(&["torture", "--json", "--check", dir.path().to_str().expect("text")]);
    assert_eq!(found["verdict"], "violations");
    is_as_promised("tidelock torture --json", &found);
}
