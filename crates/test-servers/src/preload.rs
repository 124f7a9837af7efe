//! A wall clock and a disk of its own for a server, which a test sets wrong and breaks while the server runs.
//!
//! A small library in C is preloaded into the server. `libfaketime` does the same with the clock of most programs, but
//! not of Redis: both want to be first, it and Redis's allocator. The compiler is the one that links Rust programs.
//! A program that does not call the C library, as etcd, notices nothing of it.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::Call;
use crate::{Error, Server};

const SOURCE: &str = include_str!("preload.c");

/// What the disk of a server does; see [`Server::set_disk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// What it should.
    Well,
    /// It takes this much longer to make anything durable.
    Slow(Duration),
    /// Nothing can be written.
    Full,
    /// Nothing can be made durable.
    Failing,
}

/// The numbers in the file that the library reads, in their order.
#[derive(Clone, Copy)]
enum Number {
    /// By how many microseconds the wall clock is ahead.
    Ahead,
    /// How many microseconds it takes longer to make something durable.
    Slow,
    /// Whether that fails.
    Failing,
    /// Whether a write fails.
    Full,
}

const NUMBERS: usize = 4;

fn file(folder: &Path) -> PathBuf {
    folder.join("preload")
}

/// Lets a program have a wall clock and a disk of its own, which are right at first.
pub(crate) fn give(call: Call, folder: &Path) -> Result<Call, Error> {
    let library = folder.join("preload.so");
    let mut compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-x", "c", "-", "-o"])
        .arg(&library)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(Error::context("the C compiler cannot run"))?;
    if let Some(mut input) = compiler.stdin.take() {
        input.write_all(SOURCE.as_bytes()).map_err(Error::context("the C compiler does not read"))?;
    }
    let status = compiler.wait().map_err(Error::context("the C compiler"))?;
    if !status.success() {
        return Err(Error::new(format!("the C compiler failed ({status})")));
    }
    fs::write(file(folder), [0; 8 * NUMBERS]).map_err(Error::context("no file for clock and disk"))?;
    let text = |path: &Path| path.display().to_string();
    Ok(call.env("LD_PRELOAD", text(&library)).env("TEST_PRELOAD", text(&file(folder))))
}

fn set(folder: &Path, number: Number, value: i64) -> Result<(), Error> {
    // Written in place: the server has the file mapped.
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).open(file(folder))?;
        file.seek(SeekFrom::Start(8 * number as u64))?;
        file.write_all(&value.to_ne_bytes())
    };
    write().map_err(Error::context("the clock or the disk cannot be set"))
}

/// Of servers that were given a clock or a disk of their own.
impl Server {
    /// Sets the wall clock of a server that has one of its own to so many seconds ahead of the right time, or behind it.
    ///
    /// # Errors
    ///
    /// When the file that tells the server cannot be written.
    pub fn set_clock_ahead(&self, seconds: i64) -> Result<(), Error> {
        set(self.folder(), Number::Ahead, seconds * 1_000_000)
    }

    /// Breaks the disk of a server that has one of its own, or lets it be well again.
    ///
    /// # Errors
    ///
    /// When the file that tells the server cannot be written.
    pub fn set_disk(&self, disk: Disk) -> Result<(), Error> {
        let slow = if let Disk::Slow(time) = disk { time } else { Duration::ZERO };
        let numbers = [
            (Number::Slow, i64::try_from(slow.as_micros()).unwrap_or(i64::MAX)),
            (Number::Failing, i64::from(disk == Disk::Failing)),
            (Number::Full, i64::from(disk == Disk::Full)),
        ];
        numbers.into_iter().try_for_each(|(number, value)| set(self.folder(), number, value))
    }
}
