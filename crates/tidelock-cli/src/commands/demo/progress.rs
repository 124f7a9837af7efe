//! A line that says how far the sale is, for those who watch.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::Mutex,
    time::Duration,
};

use super::way::Way;
use crate::clock::Moment;

/// How often the line is written: more often cannot be read.
const EVERY: Duration = Duration::from_millis(50);
const WIDTH: u32 = 24;

/// A line on standard error that is written over and over. Logs do not get it.
#[derive(Debug)]
pub(super) struct Progress {
    watched: bool,
    last: Mutex<Moment>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { watched: stderr().is_terminal(), last: Mutex::default() }
    }

    pub(super) fn show(&self, way: Way, sold: u32, stock: u32, served: u32, buyers: u32) {
        let Ok(mut last) = self.last.lock() else { return };
        let now = Moment::now();
        if !self.watched || now.since(*last) < EVERY {
            return;
        }
        *last = now;
        let full = (u64::from(sold) * u64::from(WIDTH) / u64::from(stock)).min(u64::from(WIDTH)) as usize;
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(WIDTH as usize - full));
        let over = if sold > stock { format!("  OVERSOLD by {}", sold - stock) } else { String::new() };
        let title = way.title();
        // Progress that cannot be shown is no reason to stop.
        let _ = write!(
            stderr(),
            "\r\x1b[K{title:12} {bar} {sold} of {stock} sold, {served} of {buyers} buyers{over}"
        );
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.watched {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
