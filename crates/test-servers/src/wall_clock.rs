//! A wall clock of its own for a server, which a test sets while the server runs.
//!
//! A small library in C is preloaded into the server. `libfaketime` does the same for most programs, but not for
//! Redis: both want to be first, it and Redis's allocator. The compiler is the one that links Rust programs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::process::Call;

const SOURCE: &str = include_str!("wall_clock.c");

/// The file that says by how many microseconds the clock is ahead.
fn file(folder: &Path) -> PathBuf {
    folder.join("wall-clock")
}

/// Lets a program have a wall clock of its own, which is right at first.
pub(crate) fn give(call: Call, folder: &Path) -> Result<Call, Error> {
    let library = folder.join("wall-clock.so");
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
    set(folder, 0)?;
    let text = |path: &Path| path.display().to_string();
    Ok(call.env("LD_PRELOAD", text(&library)).env("TEST_WALL_CLOCK", text(&file(folder))))
}

/// Sets the clock to so many microseconds ahead of the right time.
pub(crate) fn set(folder: &Path, micros: i64) -> Result<(), Error> {
    // Written in place: the server has the file mapped.
    let mut file = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(file(folder))
        .map_err(Error::context("no file for the clock"))?;
    file.write_all(&micros.to_ne_bytes()).map_err(Error::context("the clock cannot be set"))
}
