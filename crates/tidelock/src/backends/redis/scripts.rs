//! The scripts: one for each verb, the same text for `EVALSHA` and for a library of functions.
//!
//! The files name what `layout.rs` has, and the server gets numbers and letters:
//!
//! | in a file | on the server | what |
//! |---|---|---|
//! | `sub(head, @claim.epoch)` | `sub(head, 83, 98)` | the field of a record |
//! | `sub(line, @claim.epoch(at))` | `sub(line, at + 82, at + 97)` | the same in a record that begins at `at` |
//! | `@claim.epoch.begin`, `.before`, `.after` | `83`, `82`, `99` | its first byte, the byte before it, the byte after it |
//! | `@claim.epoch.width`, `.format` | `16`, `%016d` | its width, and how it is written |
//! | `@claim.epoch..held_since.width` | `32` | several fields |
//! | `'@form.single'`, `@form.single.byte` | `'S'`, `83` | a code |

use std::{sync::LazyLock, time::Duration};

use redis::Script;

use super::layout;

const LINE: &str = include_str!("scripts/line.lua");

/// How long an idle name is remembered, so that a clock that steps back does not take epochs back.
pub(super) const REMEMBER: Duration = Duration::from_secs(600);

const QUEUE: &str = include_str!("scripts/queue.lua");

/// Where the rules of a line go: behind what is answered without them. Those of a short queue go before.
const MARK: &str = "--@line\n";
const QUEUE_MARK: &str = "--@queue\n";

/// What the scripts of stock share, and where it goes.
const SEGMENT: &str = include_str!("scripts/stock.lua");
const STOCK_MARK: &str = "--@stock\n";

/// What the scripts share that share locks with other programs, and the verbs that they extend: each is a script whose
/// first line is one of these marks.
const FLEET_RULES: &str = include_str!("scripts/fleet.lua");
const RULES_MARK: &str = "--@rules\n";
const EXTENDED: [(&str, &str); 4] = [
    ("--@enter\n", include_str!("scripts/enter.lua")),
    ("--@renew\n", include_str!("scripts/renew.lua")),
    ("--@leave\n", include_str!("scripts/leave.lua")),
    ("--@fleet\n", ""),
];

/// A library of functions on a server. Locks and stock have one each: a change of one does not make administrators
/// load the other again.
#[derive(Debug)]
pub(super) struct Library {
    name: &'static str,
    verbs: &'static [&'static Verb],
    version: LazyLock<String>,
    /// How an administrator prints it.
    pub(super) print: &'static str,
}

/// A verb's script.
#[derive(Debug)]
pub(super) struct Verb {
    name: &'static str,
    /// With the rules that it needs, and values in the place of names. Put together once: every connection needs it.
    body: LazyLock<String>,
    script: LazyLock<Script>,
    function: LazyLock<String>,
}

macro_rules! library {
    ($library:ident, $prefix:literal, $print:literal: $($static:ident $name:literal,)*) => {
        pub(super) static $library: Library = Library {
            name: $prefix,
            verbs: &[$(&$static,)*],
            version: LazyLock::new(|| Script::new(&$library.body("")).get_hash()[..8].to_owned()),
            print: $print,
        };

        $(pub(super) static $static: Verb = Verb {
            name: $name,
            body: LazyLock::new(|| with_rules(include_str!(concat!("scripts/", $name, ".lua")))),
            script: LazyLock::new(|| Script::new(&$static.text())),
            function: LazyLock::new(|| $static.function_of(&$library.version)),
        };)*
    };
}

library! { LOCKS, "tidelock", "tidelock schema --print redis":
    ENTER "enter",
    RENEW "renew",
    LEAVE "leave",
    LOOK "look",
    RAISE "raise",
    TOGETHER "together",
}

library! { FLEET, "tidelock_fleet", "tidelock schema --print redis":
    FLEET_ENTER "fleet_enter",
    FLEET_RENEW "fleet_renew",
    FLEET_LEAVE "fleet_leave",
    FLEET_LOOK "fleet_look",
    FLEET_FREE "fleet_free",
}

#[cfg(feature = "stock")]
library! { STOCK, "tidelock_stock", "tidelock schema --print redis --stock":
    STOCK_TAKE "stock_take",
    STOCK_TAKES "stock_takes",
    STOCK_END "stock_end",
    STOCK_LEND "stock_lend",
    STOCK_BRING "stock_bring",
    STOCK_SETTLE "stock_settle",
    STOCK_LOOK "stock_look",
    STOCK_FILL "stock_fill",
    STOCK_CLOSE "stock_close",
    STOCK_PLAN "stock_plan",
}

impl Library {
    /// The text that a server loads.
    pub(super) fn text(&self) -> String {
        format!("#!lua name={}\n{}", self.name(), self.body(&self.version))
    }

    /// Its name, which changes with its code, so that clients of several versions do not call each other's functions.
    pub(super) fn name(&self) -> String {
        format!("{}_{}", self.name, *self.version)
    }

    /// Whether a function has one of its names.
    pub(super) fn has_function(&self, name: &str) -> bool {
        self.verbs.iter().any(|verb| verb.function() == name)
    }

    fn body(&self, version: &str) -> String {
        let mut text = String::new();
        for verb in self.verbs {
            // The rules are in each of them: nothing can be called while a library is loaded.
            let (name, body) = (verb.function_of(version), &*verb.body);
            text.push_str(&format!("redis.register_function('{name}', function(keys, args)\n{body}end)\n"));
        }
        text
    }
}

impl Verb {
    /// The name under which a server knows the script.
    pub(super) fn hash(&self) -> &str {
        self.script.get_hash()
    }

    /// All of it, for a server that does not know it.
    pub(super) fn text(&self) -> String {
        format!("local keys, args = KEYS, ARGV\n{}", *self.body)
    }

    /// Its name in the library of functions.
    pub(super) fn function(&self) -> &str {
        &self.function
    }

    fn function_of(&self, version: &str) -> String {
        format!("tidelock_{}_{version}", self.name)
    }
}

/// A script with what it includes. What nearly always suffices comes first, so that the rules of longer lines are not even
/// set up.
fn with_rules(body: &str) -> String {
    let extended = EXTENDED.iter().find_map(|(mark, verb)| Some((verb, body.strip_prefix(mark)?)));
    if let Some((verb, rest)) = extended {
        let ordinary = if verb.is_empty() { String::new() } else { with_rules(verb) };
        let rest = rest.replace(RULES_MARK, FLEET_RULES);
        return format!("local function ordinary(keys, args)\n{ordinary}end\n{rest}");
    }
    let (first, rest) = body.split_once(MARK).unwrap_or((body, ""));
    let line = if rest.is_empty() { "" } else { LINE };
    let first = first.replace(QUEUE_MARK, QUEUE).replace(STOCK_MARK, SEGMENT);
    let text = format!("local REMEMBER = {}\n{first}{line}{rest}", REMEMBER.as_millis());
    // What is not known must not reach a server: inside quotes it would be written as it stands.
    named(&text).unwrap_or_else(|name| panic!("a script names {name}, which layout.rs does not have"))
}

/// The text with values in the place of names; the name that stands for nothing, if there is one.
fn named(text: &str) -> Result<String, String> {
    let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('@') {
        done.push_str(before);
        let end = after.find(|c: char| !is_word(c) && c != '.').unwrap_or(after.len());
        let (path, after) = after.split_at(end);
        // A pattern may go on with a bracket, too.
        let base = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        let base = base.filter(|(base, _)| !base.is_empty() && base.chars().all(is_word));
        let value = layout::value_of(path, base.map(|(base, _)| base));
        done.push_str(&value.ok_or_else(|| format!("@{path}"))?);
        rest = base.map_or(after, |(_, after)| after);
    }
    done.push_str(rest);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_layout_does_not_have_is_an_error() {
        assert_eq!(
            named("sub(head, @claim.epoch(at)) == '@form.idle'"),
            Ok("sub(head, at + 82, at + 97) == 'I'".into())
        );
        assert_eq!(named("'^@form.older(%d+),'"), Ok("'^L(%d+),'".into()));
        for (text, name) in
            [("sub(head, @claim.epochs)", "@claim.epochs"), ("'@form.lost'", "@form.lost"), ("a @ b", "@")]
        {
            assert_eq!(named(text), Err(name.into()));
        }
    }

    /// Servers know a script by its hash, and clients of several versions share what a server has loaded.
    #[test]
    fn the_text_that_is_sent_is_that_of_the_release_before() {
        let hashes = [
            (&ENTER, "89ceea9096a7118b6269cbda9f8328a16d5e5d90"),
            (&RENEW, "03f7c15302981c574b6114bbdda208c3e79dbecc"),
            (&LEAVE, "9c44af3d1e345ccf4750848b50f3ee030a3adb25"),
            (&LOOK, "124a63f853b9a627953c5adfb5ab5c153644bf61"),
            (&RAISE, "ad3f97d4f988aec0ebb408a004a7cb6c8e441f0b"),
            (&TOGETHER, "21caf1e90d7d1106fbf8122aad7a44d2152720fd"),
        ];
        for (verb, hash) in hashes {
            assert_eq!(
                verb.hash(),
                hash,
                "{}.lua, or what it includes, sends another text. If that is meant, write the new hash here; if a record changes, see CONTRIBUTING.md, \"Change a record in Redis\"",
                verb.name
            );
        }
    }

    #[test]
    fn all_names_in_all_scripts_are_known() {
        for library in [
            &LOCKS,
            &FLEET,
            #[cfg(feature = "stock")]
            &STOCK,
        ] {
            for verb in library.verbs {
                assert!(!verb.text().contains('@'), "{}", verb.name);
            }
            assert!(!library.text().contains('@'));
        }
    }

    /// A change of stock must not change what administrators loaded for locks.
    #[cfg(feature = "stock")]
    #[test]
    fn locks_and_stock_have_libraries_of_their_own() {
        assert!(!LOCKS.text().contains("stock") && LOCKS.name() != STOCK.name());
        assert!(STOCK.verbs.iter().all(|verb| !LOCKS.has_function(verb.function())));
    }
}
