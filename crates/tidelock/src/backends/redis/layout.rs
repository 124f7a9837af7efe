//! The layout of everything that is written to Redis for locks: the one place that knows where a field stands.
//!
//! Scripts name fields and codes (`@claim.epoch`, see `scripts.rs`), `codec.rs` reads and writes by the same constants, and
//! docs/backends/redis.md shows the table. How a record may change is in CONTRIBUTING.md. The record of a server that votes
//! is words, not fields: only its form is here. Stock has hashes of its own, which are not described here.

use std::{str::FromStr, sync::LazyLock};

/// What the bytes of a field are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The form of the record, or of the message.
    Form,
    /// One of the codes below.
    Code,
    /// Lower-case hexadecimal digits.
    Hex,
    /// Decimal digits with leading zeros, so that a number stands at a fixed place and numbers compare as text.
    Number,
    /// UTF-8, up to the end of the record.
    Text,
    /// Claims, one behind the other, up to the end of the record.
    Claims,
}

/// A field of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    name: &'static str,
    /// How many bytes are before it.
    pub(super) offset: usize,
    /// How many bytes it has; 0 if it goes on to the end of the record.
    pub(super) width: usize,
    kind: Kind,
    #[cfg_attr(not(test), expect(dead_code, reason = "the table of the documentation is made of it"))]
    what: &'static str,
}

impl Field {
    const fn end(&self) -> usize {
        self.offset + self.width
    }

    /// The text of the field in a record; nothing if the record is too short.
    pub(super) fn of<'a>(&self, record: &'a str) -> Option<&'a str> {
        if self.width == 0 { record.get(self.offset..) } else { record.get(self.offset..self.end()) }
    }

    /// The number that the field is in a record.
    pub(super) fn number<T: FromStr>(&self, record: &str) -> Option<T> {
        let digits = self.of(record)?;
        // `parse` would take a sign for a digit.
        if digits.bytes().all(|digit| digit.is_ascii_digit()) { digits.parse().ok() } else { None }
    }
}

/// Defines a record by its fields in order: name, width, kind, meaning. Offsets are sums of widths.
macro_rules! record {
    ($type:ident { $($field:ident: $width:literal $kind:ident $what:literal,)* }) => {
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $type { $(pub(super) $field: Field,)* }

        impl $type {
            /// The record where it begins behind so many bytes of another one.
            const fn behind(bytes: usize) -> Self {
                let end = bytes;
                $(
                    let $field = Field {
                        name: stringify!($field), offset: end, width: $width, kind: Kind::$kind, what: $what,
                    };
                    let end = $field.end();
                )*
                let _ = end;
                Self { $($field,)* }
            }

            fn fields(&self) -> Vec<Field> {
                vec![$(self.$field,)*]
            }
        }
    };
}

record!(Head {
    letter: 1 Form "the form, or its first letter",
});

record!(Idle {
    letter: 1 Form "`I`",
    epoch: 16 Number "the epoch of the last grant",
});

record!(ClaimRecord {
    mark: 1 Code "the separator; in a record of the form `S` that letter",
    id: 32 Hex "the claim: client 16, number 16",
    renewed: 16 Number "when it was last renewed",
    ttl: 16 Number "its ttl",
    since: 16 Number "when it came",
    hold: 1 Code "whether it holds",
    epoch: 16 Number "the epoch of its grant, or 0",
    held_since: 16 Number "since when it holds, or 0",
    share: 1 Code "what it asks for",
    detached: 1 Number "1 if it outlives its process",
    text: 0 Text "permits `n,of` or `,`; then the owner and the label, each behind a line feed",
});

record!(Plain {
    share: 1 Code "`x`",
    detached: 1 Number "1 if it outlives its process",
    no_owner: 3 Text "a comma and two line feeds: no permits, no owner",
    label: 0 Text "the label",
});

record!(Queue {
    letter: 1 Form "`Q`",
    earliest: 16 Number "when the first lease in it ends, or earlier",
    expires: 16 Number "when the key expires, in milliseconds",
    count: 4 Number "how many claims there are",
    claims: 0 Claims "the holder, then those who wait, in order",
});

record!(LongLine {
    form: 3 Form "`V01`",
    epoch: 16 Number "the epoch of the last grant",
    earliest: 16 Number "when the first lease in it ends, or earlier",
    expires: 16 Number "when the key expires, in milliseconds",
    held: 8 Number "how many claims hold",
    waiting: 8 Number "how many wait",
    bases: 8 Number "how many hold without riding on another claim",
    used: 10 Number "permits in use",
    exclusive: 1 Number "1 if an exclusive claim holds",
    sharing: 8 Number "how many claims share",
    capacity: 10 Number "permits in all; -1 for readers, 0 if nobody shares",
    holders_at: 10 Number "where the holders begin, counted from 1",
    waiters_at: 10 Number "where those who wait begin, counted from 1",
    length: 10 Number "how long the record is",
    claims: 0 Claims "a gap that holders left, the holders, then those who wait, in order",
});

record!(Transactions {
    letter: 1 Form "`T`",
    epoch: 16 Number "the epoch of the last grant",
    claims: 0 Claims "the holders, then those who wait, in order",
});

record!(Id {
    client: 16 Hex "the client",
    number: 16 Hex "the number that the client gave the claim",
});

record!(Granted {
    letter: 1 Form "`G`",
    id: 32 Hex "the claim",
    epoch: 16 Number "the epoch of the grant",
    ttl: 16 Number "its ttl",
    text: 0 Text "how many wait behind it; then a line feed and the key of the lock",
});

record!(Evicted {
    letter: 1 Form "`E`",
    id: 32 Hex "the claim",
    text: 0 Text "the reason; then a line feed and the key of the lock",
});

pub(super) const HEAD: Head = Head::behind(0);
pub(super) const IDLE: Idle = Idle::behind(0);
pub(super) const CLAIM: ClaimRecord = ClaimRecord::behind(0);
pub(super) const PLAIN: Plain = Plain::behind(0);
pub(super) const QUEUE: Queue = Queue::behind(0);
/// The first claim of a queue, which holds.
pub(super) const QUEUE_HOLDER: ClaimRecord = ClaimRecord::behind(QUEUE.claims.offset);
pub(super) const LINE: LongLine = LongLine::behind(0);
pub(super) const TRANSACTIONS: Transactions = Transactions::behind(0);
pub(super) const ID: Id = Id::behind(0);
pub(super) const GRANTED: Granted = Granted::behind(0);
pub(super) const EVICTED: Evicted = Evicted::behind(0);

/// A record as scripts and the documentation name it.
struct Record {
    name: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the table of the documentation is made of it"))]
    what: &'static str,
    fields: Vec<Field>,
}

/// All records. A record with no description is another view of one that has.
static RECORDS: LazyLock<Vec<Record>> = LazyLock::new(|| {
    let record = |name, what, fields| Record { name, what, fields };
    vec![
        record("head", "", HEAD.fields()),
        record("idle", "Form `I`: nobody is in line.", IDLE.fields()),
        record(
            "claim",
            "A claim of a line. A record of the form `S` is one claim, which holds.",
            CLAIM.fields(),
        ),
        record("single", "", CLAIM.fields()),
        record("plain", "", PLAIN.fields()),
        record("queue.holder", "", QUEUE_HOLDER.fields()),
        record(
            "queue",
            "Form `Q`: 2 to 32 exclusive claims without owners, of which the first holds.",
            QUEUE.fields(),
        ),
        record("line", "Form `V01`: every other line that scripts write.", LINE.fields()),
        record("transactions", "Form `T`: a line of clients with `?scripting=off`.", TRANSACTIONS.fields()),
        record("id", "", ID.fields()),
        record("granted", "A message to an inbox: a claim holds.", GRANTED.fields()),
        record("evicted", "A message to an inbox: a claim was evicted.", EVICTED.fields()),
    ]
});

/// A value with a meaning.
struct Code {
    group: &'static str,
    name: &'static str,
    text: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the table of the documentation is made of it"))]
    what: &'static str,
}

/// Defines groups of codes: the name in Rust, the name in scripts, the text, the meaning.
macro_rules! codes {
    ($($group:ident { $($const:ident $name:literal $text:literal $what:literal,)* })*) => {
        $(
            pub(super) mod $group {
                $(pub(in crate::backends::redis) const $const: &str = $text;)*
            }
        )*
        static CODES: &[Code] = &[
            $($(Code { group: stringify!($group), name: $name, text: $text, what: $what },)*)*
        ];
    };
}

codes! {
    form {
        IDLE "idle" "I" "nobody is in line",
        SINGLE "single" "S" "one claim, which holds",
        QUEUE "queue" "Q" "a short queue",
        LINE "line" "V01" "any other line; the digits are its version",
        TRANSACTIONS "transactions" "T" "a line of clients with `?scripting=off`",
        OLDER "older" "L" "a line of version 0.1, of several keys: not read",
    }
    hold {
        WAITS "waits" "0" "waits",
        HOLDS "holds" "1" "holds",
        RIDES "rides" "2" "holds because its owner does",
    }
    share {
        EXCLUSIVE "exclusive" "x" "exclusive",
        SHARED "shared" "s" "shared with other readers",
        PERMITS "permits" "p" "permits",
    }
    news {
        GRANTED "granted" "G" "the claim holds",
        EVICTED "evicted" "E" "the claim was evicted",
    }
    server {
        FORM "form" "1" "what clients of servers that vote keep at `<prefix>server`: this, the run and since when, with blanks between",
    }
    mark {
        SEPARATOR "separator" "\u{1e}" "begins each claim of a line; no owner and no label has it",
    }
}

/// What a name in a script stands for; nothing if there is no such name. `base` is a variable of the script: where the record
/// begins in a longer string, counted from 1.
pub(super) fn value_of(path: &str, base: Option<&str>) -> Option<String> {
    if base.is_none()
        && let Some(code) = code(path)
    {
        return Some(code);
    }
    let find = |record: &&Record| path.strip_prefix(record.name).is_some_and(|rest| rest.starts_with('.'));
    let record = RECORDS.iter().find(find)?;
    let path = &path[record.name.len() + 1..];
    if path == "width" {
        let last = record.fields.last().filter(|field| field.width > 0)?;
        return Some(last.end().to_string());
    }
    // From one field to another one: `epoch..held_since`.
    let (from, path) = path.split_once("..").map_or((None, path), |(from, path)| (Some(from), path));
    let (to, part) = path.split_once('.').map_or((path, None), |(to, part)| (to, Some(part)));
    let index = |name: &str| record.fields.iter().position(|field| field.name == name);
    let (first, last) = (index(from.unwrap_or(to))?, index(to)?);
    let fields = record.fields.get(first..=last)?;
    let (begin, end) = (fields.first()?.offset, fields.last().map(Field::end)?);
    let place = |bytes: usize| match base {
        None => bytes.to_string(),
        Some(base) => format!("{base} + {}", bytes - 1),
    };
    match part {
        Some("begin") => Some(place(begin + 1)),
        Some("before") => Some(place(begin)),
        // What goes on to the end has no end to name.
        _ if fields.iter().any(|field| field.width == 0) => None,
        None => Some(format!("{}, {}", place(begin + 1), place(end))),
        Some("after") => Some(place(end + 1)),
        Some("width") => Some((end - begin).to_string()),
        Some("format") => fields.iter().map(format_of).collect(),
        Some(_) => None,
    }
}

fn code(path: &str) -> Option<String> {
    let mut words = path.split('.');
    let (group, name, part) = (words.next()?, words.next()?, words.next());
    let code = CODES.iter().find(|code| (code.group, code.name) == (group, name))?;
    match (part, words.next()) {
        (None, _) => Some(code.text.to_owned()),
        (Some("letter"), None) => code.text.get(..1).map(str::to_owned),
        (Some("byte"), None) => code.text.bytes().next().map(|byte| byte.to_string()),
        _ => None,
    }
}

/// How `string.format` writes a number.
fn format_of(field: &Field) -> Option<String> {
    match (field.kind, field.width) {
        (Kind::Number, 1) => Some("%d".to_owned()),
        (Kind::Number, width) => Some(format!("%0{width}d")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "<!-- the layout of records: a test of layout.rs compares this part -->\n";
    const END: &str = "<!-- the end of the layout -->\n";

    fn table() -> String {
        let mut text = String::new();
        for record in RECORDS.iter().filter(|record| !record.what.is_empty()) {
            text += &format!(
                "\n{}\n\n| field | offset | bytes | kind | what |\n|---|---|---|---|---|\n",
                record.what
            );
            for field in &record.fields {
                let Field { name, offset, width, kind, what } = field;
                let width = if *width == 0 { "the rest".to_owned() } else { width.to_string() };
                let kind = format!("{kind:?}").to_lowercase();
                text += &format!("| `{name}` | {offset} | {width} | {kind} | {what} |\n");
            }
        }
        text += "\n| code | text | byte | what |\n|---|---|---|---|\n";
        for Code { group, name, text: code, what } in CODES {
            let shown = code.escape_debug().to_string().replace("\\u{1e}", "\\x1e");
            text += &format!("| `{group}.{name}` | `{shown}` | {} | {what} |\n", code.as_bytes()[0]);
        }
        text + "\n"
    }

    #[test]
    fn the_documentation_shows_this_layout() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/backends/redis.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once(BEGIN).expect("the page has no mark where the layout begins");
        let (shown, after) = rest.split_once(END).expect("the page has no mark where the layout ends");
        if std::env::var_os("TIDELOCK_UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
            return;
        }
        assert!(
            shown == table(),
            "docs/backends/redis.md does not show the layout of layout.rs. If the layout may change (CONTRIBUTING.md, \"Change a record in Redis\"), write the table with\n  TIDELOCK_UPDATE_DOCS=1 cargo test -p tidelock --features redis --lib the_documentation_shows_this_layout\nIt is:\n{}",
            table()
        );
    }

    #[test]
    fn the_end_of_a_plain_claim_is_that_of_a_claim() {
        let end = CLAIM.share.offset;
        assert_eq!(PLAIN.detached.offset + end, CLAIM.detached.offset);
        assert_eq!(PLAIN.no_owner.offset + end, CLAIM.text.offset);
        assert_eq!(ID.number.end(), CLAIM.id.width);
        assert_eq!(form::LINE.len(), LINE.form.width);
        assert_eq!(HEAD.letter.end(), IDLE.letter.end());
    }

    #[test]
    fn names_stand_for_places_and_codes() {
        let table = [
            ("claim.epoch", None, Some("83, 98")),
            ("claim.epoch", Some("at"), Some("at + 82, at + 97")),
            ("claim.epoch.begin", None, Some("83")),
            ("claim.epoch.before", None, Some("82")),
            ("claim.epoch.before", Some("at"), Some("at + 81")),
            ("claim.epoch.after", Some("at"), Some("at + 98")),
            ("claim.epoch..held_since.width", None, Some("32")),
            ("claim.text.begin", None, Some("117")),
            ("queue.holder.id", None, Some("39, 70")),
            ("queue.count.format", None, Some("%04d")),
            ("idle.width", None, Some("17")),
            ("form.line", None, Some("V01")),
            ("form.line.letter", None, Some("V")),
            ("form.single.byte", None, Some("83")),
            // There is no such record, field, part or code, or it has no end.
            ("claims.epoch", None, None),
            ("claim.epochs", None, None),
            ("claim.epoch.middle", None, None),
            ("claim.held_since..epoch.width", None, None),
            ("claim.text", None, None),
            ("claim.id.format", None, None),
            ("queue.width", None, None),
            ("form.lines", None, None),
            ("form.line.bytes", None, None),
            ("claim", None, None),
            ("", None, None),
        ];
        for (path, base, value) in table {
            assert_eq!(value_of(path, base).as_deref(), value, "{path} {base:?}");
        }
    }
}
