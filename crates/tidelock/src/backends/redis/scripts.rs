//! The scripts: one for each verb, the same text for `EVALSHA` and for a library of functions.

use std::{sync::LazyLock, time::Duration};

use redis::Script;

const LINE: &str = include_str!("scripts/line.lua");

/// How long an idle name is remembered, so that a clock that steps back does not take epochs back.
pub(super) const REMEMBER: Duration = Duration::from_secs(600);

const QUEUE: &str = include_str!("scripts/queue.lua");

/// Where the rules of a line go: behind what is answered without them. Those of a short queue go before.
const MARK: &str = "--@line\n";
const QUEUE_MARK: &str = "--@queue\n";

/// What the scripts of stock share, and where it goes.
const STOCK: &str = include_str!("scripts/stock.lua");
const STOCK_MARK: &str = "--@stock\n";

/// A verb's script.
#[derive(Debug)]
pub(super) struct Verb {
    name: &'static str,
    body: &'static str,
    script: LazyLock<Script>,
    function: LazyLock<String>,
}

macro_rules! verb {
    ($static:ident, $name:literal) => {
        pub(super) static $static: Verb = Verb {
            name: $name,
            body: include_str!(concat!("scripts/", $name, ".lua")),
            script: LazyLock::new(|| Script::new(&text(include_str!(concat!("scripts/", $name, ".lua"))))),
            function: LazyLock::new(|| $static.function_of(&VERSION)),
        };
    };
}

verb!(ENTER, "enter");
verb!(RENEW, "renew");
verb!(LEAVE, "leave");
verb!(LOOK, "look");
verb!(RAISE, "raise");
verb!(STOCK_TAKE, "stock_take");
verb!(STOCK_TAKES, "stock_takes");
verb!(STOCK_END, "stock_end");
verb!(STOCK_LEND, "stock_lend");
verb!(STOCK_BRING, "stock_bring");
verb!(STOCK_SETTLE, "stock_settle");
verb!(STOCK_LOOK, "stock_look");
verb!(STOCK_FILL, "stock_fill");
verb!(STOCK_CLOSE, "stock_close");
verb!(STOCK_PLAN, "stock_plan");

static VERBS: [&Verb; 15] = [
    &ENTER,
    &RENEW,
    &LEAVE,
    &LOOK,
    &RAISE,
    &STOCK_TAKE,
    &STOCK_TAKES,
    &STOCK_END,
    &STOCK_LEND,
    &STOCK_BRING,
    &STOCK_SETTLE,
    &STOCK_LOOK,
    &STOCK_FILL,
    &STOCK_CLOSE,
    &STOCK_PLAN,
];

/// Changes with every change of the rules, so that clients of several versions do not call each
/// other's functions.
static VERSION: LazyLock<String> = LazyLock::new(|| Script::new(&body("")).get_hash()[..8].to_owned());

impl Verb {
    /// The name under which a server knows the script.
    pub(super) fn hash(&self) -> &str {
        self.script.get_hash()
    }

    /// All of it, for a server that does not know it.
    pub(super) fn text(&self) -> String {
        text(self.body)
    }

    /// Its name in the library of functions.
    pub(super) fn function(&self) -> &str {
        &self.function
    }

    fn function_of(&self, version: &str) -> String {
        format!("tidelock_{}_{version}", self.name)
    }
}

/// The text of a script. What nearly always suffices comes first, so that the rules of longer lines
/// are not even set up.
fn text(body: &str) -> String {
    format!("local keys, args = KEYS, ARGV\n{}", with_rules(body))
}

fn with_rules(body: &str) -> String {
    let (first, rest) = body.split_once(MARK).unwrap_or((body, ""));
    let line = if rest.is_empty() { "" } else { LINE };
    let first = first.replace(QUEUE_MARK, QUEUE).replace(STOCK_MARK, STOCK);
    format!("local REMEMBER = {}\n{first}{line}{rest}", REMEMBER.as_millis())
}

/// The library of functions.
pub(super) fn library() -> String {
    format!("#!lua name=tidelock_{}\n{}", *VERSION, body(&VERSION))
}

fn body(version: &str) -> String {
    let mut text = String::new();
    for verb in VERBS {
        // The rules are in each of them: nothing can be called while a library is loaded.
        let (name, body) = (verb.function_of(version), with_rules(verb.body));
        text.push_str(&format!("redis.register_function('{name}', function(keys, args)\n{body}end)\n"));
    }
    text
}
