//! Waking a task at a moment of the lease clock.
//!
//! The timers of a runtime stop while the machine is suspended. Linux has timers that run on: one of them wakes the task,
//! and nothing wakes it before. Elsewhere, a long sleep is cut into steps, and the clock is read after each.

use std::time::Duration;

use super::{Clock, Moment, Source, boot_timer::BootTimer};

/// The longest sleep of a timer that stops in suspend: a sleeper wakes too late by at most this.
const STEP: Duration = Duration::from_secs(1);

/// The alarm of one task.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Clock,
    timer: Timer,
}

#[derive(Debug)]
enum Timer {
    /// To be made when it is first needed, on the runtime of the task that sleeps.
    Later,
    Boot(BootTimer),
    /// There is none.
    Steps,
}

impl Alarm {
    /// An alarm for a task on a runtime with I/O.
    pub(crate) fn new(clock: &Clock) -> Self {
        let timer = if clock.is_machine() { Timer::Later } else { Timer::Steps };
        Self { clock: clock.clone(), timer }
    }

    /// An alarm for a task on a runtime that may have no I/O.
    pub(crate) fn in_steps(clock: &Clock) -> Self {
        Self { clock: clock.clone(), timer: Timer::Steps }
    }

    /// Sleeps until `moment`, or less. Callers check the clock again.
    pub(crate) async fn sleep_towards(&mut self, moment: Moment) {
        let now = self.clock.now();
        let left = moment.since(now);
        let longest = match &self.clock.0 {
            Source::Machine => STEP,
            Source::Driven(_) => Duration::MAX,
        };
        if left > longest
            && let Some(timer) = self.boot_timer()
        {
            match timer.sleep_towards(moment, now).await {
                Ok(()) => return,
                Err(_) => self.timer = Timer::Steps,
            }
        }
        tokio::time::sleep(left.min(longest)).await;
    }

    fn boot_timer(&mut self) -> Option<&mut BootTimer> {
        if matches!(self.timer, Timer::Later) {
            // Without a free descriptor it goes in steps.
            self.timer = BootTimer::new().map_or(Timer::Steps, Timer::Boot);
        }
        match &mut self.timer {
            Timer::Boot(timer) => Some(timer),
            Timer::Later | Timer::Steps => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than a step, so that it is the timer of the system that wakes.
    const LONG: Duration = Duration::from_millis(1_100);

    #[tokio::test]
    async fn a_long_sleep_ends_at_its_moment_and_not_in_steps() {
        let clock = Clock::machine();
        let mut alarm = Alarm::new(&clock);
        let moment = clock.now() + LONG;
        alarm.sleep_towards(moment).await;
        let has_timer = matches!(alarm.timer, Timer::Boot(_));
        assert_eq!(has_timer, cfg!(any(target_os = "linux", target_os = "android")));
        assert!(!has_timer || clock.now() >= moment);
    }

    #[tokio::test]
    async fn a_sleep_that_was_given_up_does_not_end_the_next_one_early() {
        let clock = Clock::machine();
        let mut alarm = Alarm::new(&clock);
        for long in [LONG * 2, LONG * 3, LONG] {
            let sleep = alarm.sleep_towards(clock.now() + long);
            assert!(tokio::time::timeout(Duration::ZERO, sleep).await.is_err());
        }
        // It went off while nobody slept: that is old news for the next one.
        let first = clock.now() + LONG;
        while clock.now() < first {
            tokio::task::yield_now().await;
        }
        let moment = clock.now() + LONG;
        while clock.now() < moment {
            alarm.sleep_towards(moment).await;
            assert!(matches!(alarm.timer, Timer::Steps) || clock.now() >= moment);
        }
    }

    #[test]
    fn without_io_it_sleeps_in_steps() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let clock = Clock::machine();
            Alarm::in_steps(&clock).sleep_towards(clock.now() + LONG * 100).await;
        });
    }
}
