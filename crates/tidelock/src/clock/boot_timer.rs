//! A timer of the system that runs on while the machine is suspended: a `timerfd` of `CLOCK_BOOTTIME`.

use std::{io, os::fd::OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::Moment;

#[derive(Debug)]
pub(super) struct BootTimer {
    timer: AsyncFd<OwnedFd>,
    /// When it goes off.
    set_to: Option<Moment>,
}

impl BootTimer {
    /// Makes one on the runtime we are in, which must have I/O.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[allow(deprecated, reason = "sound for an OwnedFd, which stays open; its replacement is unsafe")]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self { timer, set_to: None })
    }

    /// Sleeps until `moment`, or less if that spares a system call: on a busy client sleeps are given up all the time,
    /// and the next one is for a little later.
    pub(super) async fn sleep_towards(&mut self, moment: Moment, now: Moment) -> io::Result<()> {
        if self.set_to.is_none_or(|set_to| set_to <= now || moment < set_to) {
            self.set(moment)?;
        }
        loop {
            let mut ready = self.timer.readable().await?;
            // If it went off while nobody slept and was set again since, there is nothing to read.
            if let Ok(read) = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0_u8; 8])?)) {
                self.set_to = None;
                return read.map(drop);
            }
        }
    }

    fn set(&mut self, moment: Moment) -> io::Result<()> {
        let at = Timespec::try_from(std::time::Duration::from_nanos(moment.as_nanos()));
        let at = at.map_err(io::Error::other)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value: at };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        self.set_to = Some(moment);
        Ok(())
    }
}
