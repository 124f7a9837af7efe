//! What people and programs read: tables, JSON, and what went wrong.

use std::{
    fmt::{self, Write as _},
    fs::File,
    io::{self, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};

use rustix::fs::{OFlags, fcntl_getfl, fstat};
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::exit::Exit;

/// What kept a command from doing its work.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The library says so.
    Lock(tidelock::Error),
    /// Reading or writing failed.
    Io(io::Error),
    /// What was asked makes no sense, or cannot be done here.
    Usage(String),
    /// A command cannot be run.
    Command(Exit, String),
    /// A lock that was to be taken without waiting is taken.
    Busy(String),
    /// A ticket does not hold its lock any more.
    Gone(String),
}

impl Trouble {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Command(exit, _) => *exit,
            Self::Busy(_) => Exit::NotAcquired,
            Self::Gone(_) => Exit::Lost,
            Self::Lock(error) if error.is_timed_out() => Exit::NotAcquired,
            Self::Lock(error) if error.is_lost() => Exit::Lost,
            // `tidelock stores | head -1`: the reader has seen enough.
            Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            _ => Exit::Failed,
        }
    }
}

impl From<tidelock::Error> for Trouble {
    fn from(error: tidelock::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Usage(text) | Self::Command(_, text) | Self::Busy(text) | Self::Gone(text) => text.fmt(f),
        }
    }
}

/// Says on standard error what went wrong, and gives the exit for it.
pub(crate) fn report(trouble: &Trouble) -> Exit {
    let exit = trouble.exit();
    if exit != Exit::Done {
        complain(trouble);
    }
    exit
}

/// Says something on standard error, in one line.
pub(crate) fn complain(what: &dyn fmt::Display) {
    // In one write, so that the lines of several processes do not mix. If standard error is closed
    // there is nobody left to tell; the code still says it.
    let _ = io::stderr().write_all(format!("tidelock: {}\n", clean(&what.to_string())).as_bytes());
}

/// Text from elsewhere without what could move the cursor or begin a new line.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Text from elsewhere in which what is invisible, moves the cursor or turns the direction is written out.
pub(crate) fn escaped(text: &str) -> String {
    let is_plain = |c: char| {
        let turns = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        !c.is_control() && !turns
    };
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) { plain.push(c) } else { plain.extend(c.escape_default()) }
    }
    plain
}

/// A number of locks, in words.
pub(crate) fn locks(count: usize) -> String {
    format!("{count} {}", if count == 1 { "lock" } else { "locks" })
}

/// Prints text.
pub(crate) fn text(text: &str) -> io::Result<()> {
    bytes(text.as_bytes())
}

/// Prints a value in one line of JSON, for a program that reads line by line.
pub(crate) fn json_line(value: &impl Serialize) -> io::Result<()> {
    text(&(serde_json::to_string(value)? + "\n"))
}

/// Prints text that others made.
pub(crate) fn bytes(text: &[u8]) -> io::Result<()> {
    // Not through the buffer of the standard library, which would be written at the end of the program
    // and takes an output that cannot be written to for one that nobody reads.
    File::from(stdout()?).write_all(text)
}

/// Prints text from a thread, so that a reader who is slow does not keep us from hearing a signal.
pub(crate) async fn text_in_background(text: String) -> io::Result<()> {
    tokio::task::spawn_blocking(move || bytes(text.as_bytes()))
        .await
        .unwrap_or_else(|error| Err(error.into()))
}

fn stdout() -> io::Result<OwnedFd> {
    io::stdout().as_fd().try_clone_to_owned()
}

/// Whether somebody can get what is printed: standard output may be closed.
pub(crate) fn is_heard() -> bool {
    let Ok(out) = stdout() else { return false };
    let (Ok(mode), Ok(stat)) = (fcntl_getfl(&out), fstat(&out)) else { return false };
    // The standard library puts the null device in the place of an output that was closed, for reading
    // and writing; a shell that is told to throw away opens it for writing.
    let is_null = std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == stat.st_rdev);
    match mode & OFlags::ACCMODE {
        OFlags::WRONLY => true,
        OFlags::RDWR => !is_null,
        _ => false,
    }
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    text(&to_json(value)?)
}

/// A value as JSON.
pub(crate) fn to_json(value: &impl Serialize) -> io::Result<String> {
    let mut json = serde_json::to_string_pretty(value)?;
    json.push('\n');
    Ok(json)
}

/// Rows under a headline, each column as wide as it must be.
pub(crate) fn table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(|cell| clean(cell))).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].width());
        cells.chain([head[column].width()]).max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in [head.map(str::to_owned)].iter().chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Not by the width of a format, which counts characters: some take two columns, some none.
            let blanks = width - cell.width() + 2;
            // Writing to a string does not fail.
            let _ = write!(line, "{cell}{:blanks$}", "");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// As much of a text as fits into a number of columns.
pub(crate) fn fit(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > columns
    });
    &text[..end.map_or(text.len(), |(end, _)| end)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_table_stand_under_each_other() {
        let rows = [["memory".to_owned(), "yes".to_owned()], ["größer".to_owned(), "no".to_owned()]];
        assert_eq!(
            table(["STORE", "FAIR"], &rows),
            "STORE   FAIR\n\
             memory  yes\n\
             größer  no\n"
        );
    }

    #[test]
    fn characters_that_take_two_columns_or_none_do_not_shift_the_others() {
        let rows = [["夜间报表", "一"], ["cafe\u{301}", "no"], ["a\nb", "🔒"]];
        assert_eq!(
            table(["NAME", "AS"], &rows.map(|row| row.map(str::to_owned))),
            "NAME      AS\n\
             夜间报表  一\n\
             cafe\u{301}      no\n\
             a\u{fffd}b       🔒\n"
        );
        assert_eq!(["夜间", "cafe\u{301}s"].map(|text| fit(text, 4)), ["夜间", "cafe\u{301}"]);
        assert_eq!((fit("夜间", 3), fit("夜间", 0), fit("", 9)), ("夜", "", ""));
    }

    #[test]
    fn text_from_elsewhere_cannot_move_the_cursor() {
        assert_eq!(clean("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn what_turns_text_or_cannot_be_seen_is_written_out() {
        assert_eq!(escaped("a\u{202e}b\u{1b}[2J\n\u{200b}ü 夜"), "a\\u{202e}b\\u{1b}[2J\\n\\u{200b}ü 夜");
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure() {
        assert_eq!(Trouble::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit(), Exit::Done);
        assert_eq!(Trouble::from(io::Error::from(io::ErrorKind::StorageFull)).exit(), Exit::Failed);
    }
}
