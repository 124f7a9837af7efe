//! A wall clock and a disk of its own for a server, which a test sets wrong and breaks while the server runs.
//!
//! A small library in C is preloaded into the server. `libfaketime` does the same with the clock of most programs, but
//! not of Redis: both want to be first, it and Redis's allocator. The compiler is the one that links Rust programs.
//! A program that does not call the C library, as etcd, notices nothing of it.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

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
    /// By how many millionths it runs fast.
    Rate,
    /// Since when, in microseconds of the right clock.
    Since,
    /// How many microseconds it takes longer to make something durable.
    Slow,
    /// Whether that fails.
    Failing,
    /// Whether a write fails.
    Full,
}

const NUMBERS: usize = 6;

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
    set_from(folder, number, &[value])
}

/// Sets a number and those after it, at once.
fn set_from(folder: &Path, first: Number, values: &[i64]) -> Result<(), Error> {
    let bytes: Vec<_> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    // Written in place: the server has the file mapped.
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).open(file(folder))?;
        file.seek(SeekFrom::Start(8 * first as u64))?;
        file.write_all(&bytes)
    };
    write().map_err(Error::context("the clock or the disk cannot be set"))
}

fn get(folder: &Path, number: Number) -> Result<i64, Error> {
    let bytes = fs::read(file(folder)).map_err(Error::context("the clock or the disk cannot be read"))?;
    let at = 8 * number as usize;
    let number = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    number.map(i64::from_ne_bytes).ok_or_else(|| Error::new("the file for clock and disk is too short"))
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

    /// Lets the wall clock of a server that has one of its own run fast by so many millionths, or slow. It does not jump.
    ///
    /// # Errors
    ///
    /// When the file that tells the server cannot be read or written.
    #[allow(clippy::disallowed_methods, reason = "the clock that is made wrong for the server")]
    pub fn set_clock_rate(&self, ppm: i64) -> Result<(), Error> {
        let folder = self.folder();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let gained = (now - get(folder, Number::Since)?) * get(folder, Number::Rate)? / 1_000_000;
        set_from(folder, Number::Ahead, &[get(folder, Number::Ahead)? + gained, ppm, now])
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
