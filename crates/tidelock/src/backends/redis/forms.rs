//! What is kept at the key of a lock that this client does not read: its form, what this client reads, and what to do.

use super::layout::form;
use crate::backend::Failure;

/// Who found it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    /// A script. It reads what scripts write.
    Script,
    /// A transaction. It reads what transactions write; `whole` says that scripts could read what it found.
    Transaction { whole: bool },
    /// `look`, which reads all forms.
    Look,
}

/// What is kept at a key, as far as its beginning tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found<'a> {
    /// A form of versions before the first that is read.
    Older(&'a str),
    /// A form of versions after this one.
    Newer(&'a str),
    /// A form that this version has.
    Ours(&'static str),
    Foreign,
}

impl<'a> Found<'a> {
    fn at(head: &'a [u8]) -> Self {
        match head {
            [b'L', b'0'..=b'9', ..] => Self::Older(form::OLDER),
            [b'V', b'0'..=b'9', b'0'..=b'9', ..] => {
                let found = std::str::from_utf8(&head[..form::LINE.len()]).unwrap_or_default();
                match found.cmp(form::LINE) {
                    std::cmp::Ordering::Less => Self::Older(found),
                    std::cmp::Ordering::Equal => Self::Ours(form::LINE),
                    std::cmp::Ordering::Greater => Self::Newer(found),
                }
            }
            [b'S', next, ..] if is_hex(*next) => Self::Ours(form::SINGLE),
            [b'Q', b'0'..=b'9', ..] => Self::Ours(form::QUEUE),
            [b'T', b'0'..=b'9', ..] => Self::Ours(form::TRANSACTIONS),
            [b'I', b'0'..=b'9', ..] => Self::Ours(form::IDLE),
            _ => Self::Foreign,
        }
    }
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// What is kept at the key of a lock cannot be read by this client: says what it is and what to do.
pub(super) fn unreadable(head: &[u8], reader: Reader) -> Failure {
    Failure::denied(explain(head, reader))
}

/// The form that was found, the forms that this version reads, and what to do.
pub(super) fn explain(head: &[u8], reader: Reader) -> String {
    let this = format!(
        "this one ({}) reads the forms {}, {}, {}, {} and {}",
        env!("CARGO_PKG_VERSION"),
        form::IDLE,
        form::SINGLE,
        form::QUEUE,
        form::TRANSACTIONS,
        form::LINE
    );
    match (Found::at(head), reader) {
        (Found::Older(form::OLDER), _) => format!(
            "an older version of tidelock keeps this lock in its form {}, of several keys, and {this}: let those clients finish and update them, or clear it with `tidelock break NAME --reason TEXT` when they have stopped",
            form::OLDER
        ),
        (Found::Older(form), _) => format!(
            "an older version of tidelock keeps this lock in its form {form}, and {this}: let those clients finish and update them, or clear it with `tidelock break NAME --reason TEXT` when they have stopped"
        ),
        (Found::Newer(form), _) => format!(
            "a newer version of tidelock keeps this lock in its form {form}, and {this}: update this client"
        ),
        (Found::Ours(form::TRANSACTIONS), Reader::Script) => format!(
            "clients with scripting=off keep this lock (form {}), and this client uses scripts: agree on one of both, or use another ?prefix= in the URL",
            form::TRANSACTIONS
        ),
        (Found::Ours(form), Reader::Transaction { whole: true }) => format!(
            "clients that use scripts keep this lock (form {form}), and this one has scripting=off: agree on one of both, or use another ?prefix= in the URL"
        ),
        (Found::Ours(form), _) => format!(
            "the record of this lock (form {form}) is damaged: clear it with `tidelock break NAME --reason TEXT`"
        ),
        (Found::Foreign, _) => {
            let start = String::from_utf8_lossy(&head[..head.len().min(16)]);
            format!(
                "something else is kept under the key of this lock: it begins with {start:?}, and {this}: use another ?prefix= in the URL, or clear it with `tidelock break NAME --reason TEXT`"
            )
        }
    }
}

/// Whether what is kept at a key looks like a line of any version, so that it is listed among all locks.
pub(super) fn is_line(head: &[u8]) -> bool {
    matches!(head, [b'S' | b'Q' | b'T' | b'L' | b'V' | b'I', next, ..] if is_hex(*next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_named_by_its_form_and_by_the_forms_that_are_read() {
        const THESE: &str = "reads the forms I, S, Q, T and V01";
        let (script, look) = (Reader::Script, Reader::Look);
        let (whole, torn) = (Reader::Transaction { whole: true }, Reader::Transaction { whole: false });
        // What is found, by whom, and what is said.
        let table: &[(&str, Reader, &[&str])] = &[
            ("V02 anything", script, &["newer", "form V02,", THESE, "update this client"]),
            ("V10", whole, &["newer", "form V10,", THESE]),
            ("V00x", look, &["older", "form V00,", THESE]),
            ("L17,1", script, &["older", "form L,", THESE, "tidelock break"]),
            ("T17", script, &["scripting=off", "(form T)", "uses scripts"]),
            ("V01x", whole, &["clients that use scripts", "(form V01)", "this one has scripting=off"]),
            ("Sabc", whole, &["clients that use scripts", "(form S)"]),
            ("V01x", torn, &["(form V01) is damaged", "tidelock break"]),
            ("V01x", script, &["(form V01) is damaged"]),
            ("Q00", script, &["(form Q) is damaged"]),
            ("Sabc", look, &["(form S) is damaged"]),
            ("T17", torn, &["(form T) is damaged"]),
            ("V2", script, &["begins with \"V2\"", THESE]),
            ("hello", script, &["begins with \"hello\"", THESE, "?prefix="]),
            ("", look, &["begins with \"\""]),
        ];
        for (found, reader, said) in table {
            let text = explain(found.as_bytes(), *reader);
            assert!(said.iter().all(|part| text.contains(part)), "{found} {reader:?}: {text}");
        }
    }
}
