//! Whether a server's clock jumps: leases there run on it, and lapse too early or too late if it does.

use std::time::Duration;

use crate::{
    backend::Failure,
    clock::{Moment, nanos},
};

/// A jump that is shorter does no harm that the margin of leases does not cover.
const SMALLEST: i128 = 250_000_000;
/// How far two clocks may run apart by themselves: one part in so many.
const RATE: i128 = 200;

/// What is known of a server's clock against ours.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClockWatch {
    last: Option<Reading>,
}

/// How far a server's clock was ahead of ours when it last told its time, in nanoseconds: between which bounds, because
/// nobody knows when within a round trip it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) least: i128,
    pub(crate) most: i128,
    /// When it was told.
    pub(crate) at: Moment,
}

impl ClockWatch {
    /// Whether the server ever told its time.
    pub(super) fn is_known(&self) -> bool {
        self.last.is_some()
    }

    /// What the server last told.
    pub(super) fn reading(&self) -> Option<Reading> {
        self.last
    }

    /// Whether a time that the server told shows that its clock jumped. Notes nothing: the next renewal still says so.
    pub(super) fn shows_jump(&self, server_micros: u64, asked: Moment, answered: Moment) -> bool {
        let mut copy = *self;
        copy.note(server_micros, asked, answered).is_err()
    }

    /// What the server's clock says at a moment of ours, about, in microseconds.
    pub(super) fn estimate(&self, at: Moment) -> Option<u64> {
        let last = self.last?;
        let nanos = i128::from(at.as_nanos()) + (last.least + last.most) / 2;
        u64::try_from(nanos / 1_000).ok()
    }

    /// Notes a time that the server told between two moments of ours. Fails if its clock jumped since
    /// the last one; the next time is compared with this one.
    pub(super) fn note(
        &mut self,
        server_micros: u64,
        asked: Moment,
        answered: Moment,
    ) -> Result<(), Failure> {
        let (server, asked_at) = (i128::from(server_micros) * 1_000, i128::from(asked.as_nanos()));
        let now = Reading {
            least: server - i128::from(answered.as_nanos()),
            most: server - asked_at,
            at: answered,
        };
        let Some(before) = self.last.replace(now) else { return Ok(()) };
        let slack = SMALLEST + i128::from(nanos(now.at.since(before.at))) / RATE;
        let (ahead, back) = (now.least - before.most, before.least - now.most);
        let (by, way, then) = if ahead > slack {
            (ahead, "ahead", "locks may have lapsed too early")
        } else if back > slack {
            (back, "back", "locks of dead holders lapse late")
        } else {
            return Ok(());
        };
        let by = Duration::from_nanos(u64::try_from(by).unwrap_or(u64::MAX));
        Err(Failure::unknown(format!(
            "the server's clock jumped {way} by {by:.1?}, so {then}: let it be slewed, not stepped (chronyd, ntpd -x)"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_are_told_from_slow_answers_and_from_drift() {
        let moment = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let start = 1_700_000_000_000_u64;
        // When it was asked and answered here, what the server's clock said, whether that is a jump.
        let table = [
            (1_000, 1_001, 1_000, false),
            (2_000, 2_001, 2_000, false),
            // An answer that took long says little.
            (3_000, 7_000, 3_500, false),
            // A clock that runs a little fast.
            (107_000, 107_001, 107_400, false),
            (108_000, 108_001, 168_400, true),
            // From there on that is its time.
            (109_000, 109_001, 169_400, false),
            (110_000, 110_001, 110_400, true),
            (111_000, 111_001, 111_400, false),
        ];
        let mut watch = ClockWatch::default();
        for (asked, answered, server, jump) in table {
            let told = watch.note((start + server) * 1_000, moment(asked), moment(answered));
            assert_eq!(told.is_err(), jump, "at {asked}: {told:?}");
        }
    }
}
