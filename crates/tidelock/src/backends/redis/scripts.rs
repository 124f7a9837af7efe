//! The scripts: one for each verb, the same text for `EVALSHA` and for a library of functions.

use std::sync::LazyLock;

use redis::Script;

const LINE: &str = include_str!("scripts/line.lua");

/// Where the rules of a line go: behind what is answered without them.
const MARK: &str = "--@line\n";

/// A verb's script.
#[derive(Debug)]
pub(super) struct Verb {
    /// Its name in the library of functions.
    pub(super) function: &'static str,
    body: &'static str,
    script: LazyLock<Script>,
}

macro_rules! verb {
    ($static:ident, $function:literal, $file:literal) => {
        pub(super) static $static: Verb = Verb {
            function: $function,
            body: include_str!($file),
            script: LazyLock::new(|| Script::new(&text(include_str!($file)))),
        };
    };
}

verb!(ENTER, "tidelock_enter", "scripts/enter.lua");
verb!(RENEW, "tidelock_renew", "scripts/renew.lua");
verb!(LEAVE, "tidelock_leave", "scripts/leave.lua");
verb!(LOOK, "tidelock_look", "scripts/look.lua");

impl Verb {
    /// The name under which a server knows the script.
    pub(super) fn hash(&self) -> &str {
        self.script.get_hash()
    }

    /// All of it, for a server that does not know it.
    pub(super) fn text(&self) -> String {
        text(self.body)
    }
}

/// The text of a script. What nearly always suffices comes first, so that the rules of longer lines
/// are not even set up.
fn text(body: &str) -> String {
    let (first, rest) = body.split_once(MARK).unwrap_or((body, ""));
    let line = if rest.is_empty() { "" } else { LINE };
    format!("local keys, args = KEYS, ARGV\n{first}{line}{rest}")
}

/// The library of functions, for servers whose users may not run scripts.
pub(super) fn library() -> String {
    let mut text = format!("#!lua name=tidelock\n{LINE}");
    for verb in [&ENTER, &RENEW, &LEAVE, &LOOK] {
        let body = verb.body.replace(MARK, "");
        text.push_str(&format!(
            "redis.register_function('{}', function(keys, args)\n{body}end)\n",
            verb.function
        ));
    }
    text
}
