//! How far the contest is, for those who watch: what is being done, for how long, and how long that may take.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    io::{IsTerminal, Write, stderr},
    path::PathBuf,
};

use tidelock::{line::Moment, testing::Clock};

const WIDTH: usize = 24;
/// Logs get a line about something that takes long after so many seconds, and again.
const REMIND: u64 = 30;

/// A step: by what its time is remembered, and the seconds that it takes if it was never done.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) key: String,
    pub(super) typical: f64,
}

/// A line on standard error that is written over and over. Logs get a line for each step.
#[derive(Debug)]
pub(super) struct Progress {
    watched: bool,
    clock: Clock,
    began: Moment,
    steps: Vec<Step>,
    done: usize,
    times: RefCell<Times>,
    /// When the step began, and when a log was last told about it.
    step_began: Moment,
    reminded: RefCell<Moment>,
}

/// How long things took when they were last done, in seconds.
#[derive(Debug)]
struct Times {
    file: PathBuf,
    known: BTreeMap<String, f64>,
}

impl Progress {
    /// For all steps, in their order. Times are kept in a file from run to run.
    pub(super) fn new(steps: Vec<Step>, file: PathBuf) -> Self {
        let clock = Clock::machine();
        let now = clock.now();
        let known = fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        Self {
            watched: stderr().is_terminal(),
            began: now,
            steps,
            done: 0,
            times: RefCell::new(Times { file, known: known.unwrap_or_default() }),
            step_began: now,
            reminded: RefCell::new(now),
            clock,
        }
    }

    /// The next of all steps begins.
    pub(super) fn step(&mut self, text: &str) {
        self.end_step();
        self.done += 1;
        let now = self.clock.now();
        (self.step_began, self.reminded) = (now, RefCell::new(now));
        let expected = self.steps.get(self.done - 1).map_or(0.0, |step| self.expected(step));
        self.say(&format!("[{}/{}] {text}: about {}", self.done, self.steps.len(), minutes(expected)));
        self.show(text);
    }

    fn end_step(&mut self) {
        if let Some(step) = self.done.checked_sub(1).and_then(|index| self.steps.get(index)) {
            self.took(&step.key, self.seconds_since(self.step_began));
        }
    }

    /// Something took so long: next time, that is expected.
    pub(super) fn took(&self, key: &str, seconds: f64) {
        let mut times = self.times.borrow_mut();
        times.known.insert(key.to_owned(), seconds);
        // What is not remembered is estimated.
        let _ = serde_json::to_string_pretty(&times.known).map(|text| fs::write(&times.file, text));
    }

    fn expected(&self, step: &Step) -> f64 {
        self.times.borrow().known.get(&step.key).copied().unwrap_or(step.typical)
    }

    /// Something beside the steps is done, since a moment.
    pub(super) fn beside(&self, what: &str, step: &Step, since: Moment) {
        let (spent, expected) = (self.seconds_since(since), self.expected(step));
        let text = format!("{what}: {} of about {}", minutes(spent), minutes(expected));
        let now = self.clock.now();
        if now.since(*self.reminded.borrow()).as_secs() >= REMIND {
            *self.reminded.borrow_mut() = now;
            self.say(&text);
        }
        self.show(&text);
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn seconds_since(&self, moment: Moment) -> f64 {
        self.clock.now().since(moment).as_secs_f64()
    }

    /// A line that stays.
    pub(super) fn note(&self, text: &str) {
        let clear = if self.watched { "\r\x1b[K" } else { "" };
        // What cannot be shown is no reason to stop.
        let _ = writeln!(stderr(), "{clear}{text}");
    }

    /// A line for logs.
    pub(super) fn say(&self, text: &str) {
        if !self.watched {
            let _ = writeln!(stderr(), "{text}");
        }
    }

    /// Writes over what was there.
    pub(super) fn show(&self, text: &str) {
        if self.watched {
            let full = WIDTH * self.done.saturating_sub(1) / self.steps.len().max(1);
            let bar: String = (0..WIDTH).map(|at| if at < full { '█' } else { '░' }).collect();
            let spent = self.seconds_since(self.began);
            // What is left of this step counts as the whole of it: better too long than too short.
            let left = self.steps.iter().skip(self.done.saturating_sub(1)).map(|step| self.expected(step));
            let all = spent + left.sum::<f64>();
            let _ = write!(stderr(), "\r\x1b[K{bar} {} of about {}  {text}", minutes(spent), minutes(all));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end_step();
        if self.watched {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// Seconds as people say them.
fn minutes(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_step_took_is_expected_the_next_time() {
        let file = std::env::temp_dir().join(format!("tidelock-bench-times-{}", std::process::id()));
        let step = Step { key: "redis pair".to_owned(), typical: 7.0 };
        let first = Progress::new(vec![step.clone()], file.clone());
        assert_eq!(first.expected(&step), 7.0);
        first.took(&step.key, 61.0);
        assert_eq!(Progress::new(vec![], file.clone()).expected(&step), 61.0);
        assert_eq!(minutes(61.4), "1:01");
        fs::remove_file(file).unwrap();
    }
}
