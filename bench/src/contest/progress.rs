//! A bar that says how far the contest is, for those who watch.

use std::io::{IsTerminal, Write, stderr};

use tidelock::{line::Moment, testing::Clock};

const WIDTH: usize = 24;

/// A line on standard error that is written over and over. Logs get a line for each step.
#[derive(Debug)]
pub(super) struct Progress {
    watched: bool,
    clock: Clock,
    began: Moment,
    done: usize,
    all: usize,
}

impl Progress {
    pub(super) fn new(all: usize) -> Self {
        let clock = Clock::machine();
        Self { watched: stderr().is_terminal(), began: clock.now(), clock, done: 0, all }
    }

    /// The next of all steps begins.
    pub(super) fn step(&mut self, text: &str) {
        self.done += 1;
        if !self.watched {
            // What cannot be shown is no reason to stop.
            let _ = writeln!(stderr(), "[{}/{}] {text}", self.done, self.all);
        }
        self.show(text);
    }

    /// Writes over what was there.
    pub(super) fn show(&self, text: &str) {
        if self.watched {
            let full = WIDTH * self.done.saturating_sub(1) / self.all.max(1);
            let bar: String = (0..WIDTH).map(|at| if at < full { '█' } else { '░' }).collect();
            let seconds = self.clock.now().since(self.began).as_secs();
            let _ = write!(stderr(), "\r\x1b[K{bar} {}:{:02}  {text}", seconds / 60, seconds % 60);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.watched {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
