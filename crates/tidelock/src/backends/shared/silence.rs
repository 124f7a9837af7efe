//! How long a server has not answered. A connection over which nothing comes is given up, although nothing said that
//! it is lost.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::clock::{Clock, Moment, nanos};

/// Since when no question to a server was answered.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    clock: Clock,
    /// In nanoseconds; 0 if nobody gave a question up since the last answer.
    since: AtomicU64,
}

impl Silence {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, since: AtomicU64::new(0) }
    }

    /// A question is sent. If it is dropped before its answer came, the silence begins.
    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked(self)
    }

    /// Whether a question was given up before its answer came, and none came since.
    pub(crate) fn is_silent(&self) -> bool {
        self.since.load(Ordering::Relaxed) != 0
    }

    /// Whether that is so for longer than this.
    pub(crate) fn is_longer_than(&self, limit: Duration) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since != 0 && self.clock.now().since(Moment::from_nanos(since)) > limit
    }

    /// An answer came.
    pub(crate) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }
}

/// A question that waits for its answer.
#[derive(Debug)]
#[must_use = "dropped, it is a question that was given up"]
pub(crate) struct Asked<'a>(&'a Silence);

impl Asked<'_> {
    /// Its answer is there, or it is known that none will come.
    pub(crate) fn answered<T>(self, _: &T) {
        self.0.end();
        std::mem::forget(self);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let now = nanos(self.0.clock.now().since(Moment::default())).max(1);
        // The first of several is the one that counts.
        let _ = self.0.since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_given_up_begins_a_silence_and_an_answer_ends_it() {
        let silence = Silence::default();
        silence.asked().answered(&());
        assert!(!silence.is_silent());
        drop(silence.asked());
        assert!(silence.is_silent() && !silence.is_longer_than(Duration::from_secs(3_600)));
        silence.asked().answered(&());
        assert!(!silence.is_silent() && !silence.is_longer_than(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_lasts_from_the_first_question_that_was_given_up() {
        let clock = Clock::driven(0);
        let silence = Silence::new(clock);
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(silence.asked());
        tokio::time::advance(Duration::from_secs(5)).await;
        drop(silence.asked());
        assert!(!silence.is_longer_than(Duration::from_secs(5)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(silence.is_longer_than(Duration::from_secs(5)));
    }
}
