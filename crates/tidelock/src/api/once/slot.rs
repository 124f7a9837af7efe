//! Periods and slots: which stretch of time a run belongs to. Pure.
//!
//! Times are whole seconds of UTC since 1970. Slots follow from the time alone, so that machines agree on them without
//! asking each other.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use crate::error::{Error, Result};

const DAY: u64 = 86_400;
const WEEK: u64 = 7 * DAY;

/// The longest period.
const LONGEST: u64 = 366 * DAY;

/// 1970 began on a Thursday; weeks begin on Mondays.
const FIRST_MONDAY: u64 = 4 * DAY;

/// How often something is to run once.
///
/// ```
/// use std::time::Duration;
/// use tidelock::Period;
///
/// let quarter = Period::every(Duration::from_secs(15 * 60));
/// assert_eq!(quarter.to_string(), "15m");
/// assert_eq!("1d".parse::<Period>()?, Period::every(Duration::from_secs(86_400)));
/// assert_eq!("month".parse::<Period>()?, Period::monthly());
/// assert!("0s".parse::<Period>().is_err());
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Period(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Every(Duration),
    Week,
    Month,
}

impl Period {
    /// A period of this length: whole seconds, up to 366 days. Slots are aligned to 1970-01-01T00:00:00Z.
    ///
    /// A length that is not allowed is reported when the period is used.
    pub fn every(length: Duration) -> Self {
        Self(Kind::Every(length))
    }

    /// Weeks, from Monday to Sunday, in UTC.
    pub fn weekly() -> Self {
        Self(Kind::Week)
    }

    /// Calendar months, in UTC.
    pub fn monthly() -> Self {
        Self(Kind::Month)
    }

    /// The length in seconds, if it is the same for all slots.
    fn seconds(self) -> Result<Option<u64>> {
        match self.0 {
            Kind::Month => Ok(None),
            Kind::Week => Ok(Some(WEEK)),
            Kind::Every(length)
                if length.subsec_nanos() == 0 && (1..=LONGEST).contains(&length.as_secs()) =>
            {
                Ok(Some(length.as_secs()))
            }
            Kind::Every(length) => Err(Error::invalid_option(format!(
                "a period of {length:?} is not allowed: use whole seconds, from 1 s to 366 days"
            ))),
        }
    }

    /// The slot that a moment is in.
    pub(super) fn slot_at(self, seconds: u64) -> Result<Slot> {
        let start = match (self.0, self.seconds()?) {
            (Kind::Week, Some(length)) => {
                let since = seconds.saturating_sub(FIRST_MONDAY);
                FIRST_MONDAY + since - since % length
            }
            (_, Some(length)) => seconds - seconds % length,
            (_, None) => {
                let (year, month, _) = civil(seconds / DAY);
                days(year, month, 1) * DAY
            }
        };
        self.slot_from(start)
    }

    /// The slot that begins at a moment.
    pub(super) fn slot_from(self, start: u64) -> Result<Slot> {
        let end = match self.seconds()? {
            Some(length) => start.saturating_add(length),
            None => {
                let (year, month, day) = civil(start / DAY);
                let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                // The same day of the next month, or its last.
                let last = days(year + u64::from(month == 12), month % 12 + 1, 1) - days(year, month, 1);
                (days(year, month, 1) + u64::from(day).min(last) - 1) * DAY + start % DAY
            }
        };
        Ok(Slot { start, end })
    }

    /// The slot before another one.
    pub(super) fn before(self, slot: Slot) -> Option<Slot> {
        let start = match self.seconds().ok()? {
            Some(length) => slot.start.checked_sub(length)?,
            None => return self.slot_at(slot.start.checked_sub(1)?).ok(),
        };
        self.slot_from(start).ok()
    }
}

/// As [`Period::every`], in the largest unit that divides it: `90s`, `15m`, `6h`, `1d`; or `week` or `month`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = match self.0 {
            Kind::Week => return f.write_str("week"),
            Kind::Month => return f.write_str("month"),
            Kind::Every(length) => length,
        };
        if length.subsec_nanos() != 0 {
            return write!(f, "{length:?}");
        }
        let seconds = length.as_secs();
        let units = [("d", DAY), ("h", 3_600), ("m", 60)];
        match units.iter().find(|(_, unit)| seconds > 0 && seconds % unit == 0) {
            Some((name, unit)) => write!(f, "{}{name}", seconds / unit),
            None => write!(f, "{seconds}s"),
        }
    }
}

/// Reads what a [`Period`] is printed as.
impl std::str::FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let period = match text {
            "week" => Self::weekly(),
            "month" => Self::monthly(),
            _ => {
                let (number, unit) =
                    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
                let unit = match unit {
                    "" | "s" => 1,
                    "m" => 60,
                    "h" => 3_600,
                    "d" => DAY,
                    _ => 0,
                };
                let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
                let seconds = seconds.filter(|_| unit > 0).ok_or_else(|| {
                    Error::invalid_option(format!(
                        "{text:?} is no period: write one such as 15m, 6h, 1d, week or month"
                    ))
                })?;
                Self::every(Duration::from_secs(seconds))
            }
        };
        period.seconds().map(|_| period)
    }
}

/// One stretch of time of a [`Period`]: a run belongs to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Slot {
    /// Returns when it begins.
    pub fn start(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.start)
    }

    /// Returns when it ends and the next one begins.
    pub fn end(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.end)
    }
}

/// Its beginning, as `2026-11-16T10:15:00Z`.
impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.start / DAY);
        let second = self.start % DAY;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// A time in the form in which the beginning of a slot is printed, to the second.
pub(super) fn to_text(time: SystemTime) -> String {
    let start = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Slot { start, end: start }.to_string()
}

/// Reads the beginning of a slot: `2026-11-16T10:15`, with or without seconds and an offset from UTC.
pub(super) fn read_start(text: &str) -> Result<u64> {
    start(text).ok_or_else(|| {
        Error::invalid_option(format!(
            "{text:?} is no slot: write when it begins, such as 2026-11-16T10:15 in UTC or 2026-11-16T11:15+01:00"
        ))
    })
}

fn start(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let fields = |text: &str, mark: char| -> Option<Vec<u64>> {
        let number = |field: &str| {
            field.parse().ok().filter(|_| (2..=4).contains(&field.len()) && !field.starts_with('+'))
        };
        text.split(mark).map(number).collect()
    };
    let &[year, month, day] = &fields(date, '-')?[..] else { return None };
    let (time, offset) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => match time.find(['+', '-']) {
            None => (time, 0),
            Some(at) => {
                let &[hours, minutes] = &fields(&time[at + 1..], ':')?[..] else { return None };
                let offset =
                    i64::try_from((hours < 24 && minutes < 60).then_some(hours * 3_600 + minutes * 60)?)
                        .ok()?;
                (&time[..at], if time[at..].starts_with('+') { offset } else { -offset })
            }
        },
    };
    let (hour, minute, second) = match fields(time, ':')?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
    if !(1970..=9_999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days(year, month, day);
    let is_real = civil(days) == (year, month, day) && hour < 24 && minute < 60 && second < 60;
    let local = days * DAY + hour * 3_600 + minute * 60 + second;
    is_real.then(|| local.checked_add_signed(-offset)).flatten()
}

/// The days from 1970-01-01 to a date, in the calendar of Gregory. Years begin in March, so that leap days come last.
fn days(year: u64, month: u32, day: u32) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * u64::from(month) + 2) / 5 + u64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day counted from 1970-01-01.
fn civil(days: u64) -> (u64, u32, u32) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * month + 2) / 5 + 1) as u32;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month as u32, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (day, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (789, (1972, 2, 29)),
            (11_016, (2000, 2, 29)),
            (20_773, (2026, 11, 16)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(day), date);
            assert_eq!(days(date.0, date.1, date.2), day);
        }
        for day in 0..80_000 {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), day);
        }
    }

    #[test]
    fn a_slot_is_read_as_it_is_printed_and_in_other_forms() {
        let slot = |text| Period::monthly().slot_from(read_start(text).unwrap()).unwrap().to_string();
        for text in [
            "2026-11-16T10:15",
            "2026-11-16T10:15:00",
            "2026-11-16 10:15Z",
            "2026-11-16T11:15+01:00",
            "2026-11-15T23:45:00-10:30",
        ] {
            assert_eq!(slot(text), "2026-11-16T10:15:00Z", "{text}");
        }
        assert_eq!(slot("2026-11-16"), "2026-11-16T00:00:00Z");
        for bad in [
            "",
            "now",
            "2026",
            "2026-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-11-16T24:00",
            "2026-11-16T10",
            "2026-11-16T10:60",
            "1969-12-31",
            "2026-11-16T10:15+25:00",
            "2026-11-16T10:15+1",
            "26-11-16",
            "2026-11-16T10:15:00.5",
            "2026-+1-16",
            "2026-11-0",
            "-2026-11-16",
        ] {
            let error = read_start(bad).unwrap_err();
            assert!(
                error.is_invalid_option() && error.to_string().contains("2026-11-16T10:15"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn moments_of_one_period_are_in_one_slot_and_slots_follow_each_other() {
        let periods =
            ["1s", "90s", "15m", "6h", "1d", "week", "month"].map(|text| text.parse::<Period>().unwrap());
        for period in periods {
            let mut slot = period.slot_at(1_794_824_100).unwrap();
            for _ in 0..40 {
                assert!(slot.start < slot.end);
                assert_eq!(period.slot_at(slot.start).unwrap(), slot, "{period}");
                assert_eq!(period.slot_at(slot.end - 1).unwrap(), slot, "{period}");
                let next = period.slot_at(slot.end).unwrap();
                assert_eq!((next.start, period.before(next)), (slot.end, Some(slot)), "{period}");
                slot = next;
            }
        }
        let week = Period::weekly().slot_at(read_start("2026-11-18T12:00").unwrap()).unwrap();
        assert_eq!(week.to_string(), "2026-11-16T00:00:00Z", "a Monday");
        let month = Period::monthly().slot_from(read_start("2026-01-31T06:00").unwrap()).unwrap();
        assert_eq!(Slot { start: month.end, end: 0 }.to_string(), "2026-02-28T06:00:00Z");
    }

    #[test]
    fn what_is_no_period_gets_a_sentence() {
        for bad in ["", "0", "0s", "m", "1x", "-5m", "1.5h", "367d", "99999999999999999999d", "weeks"] {
            let error = bad.parse::<Period>().unwrap_err();
            assert!(error.is_invalid_option() && error.to_string().contains("period"), "{bad}: {error}");
        }
        assert!(Period::every(Duration::from_millis(1_500)).slot_at(5).is_err());
        for text in ["90s", "15m", "6h", "7d", "week", "month"] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), text);
        }
    }
}
