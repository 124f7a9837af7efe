//! Values as they are typed: times and permits; and times as they are read.

use std::{fmt, time::Duration};

use tidelock::Period;

/// Some of a number of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) n: u32,
    pub(crate) of: u32,
}

/// The units of a time and their seconds, from long to short.
const UNITS: [(&str, f64); 5] = [("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001)];

/// Reads a time: `250ms`, `5s`, `1m30s`, `1.5h`; a number alone counts seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if is_negative(text) {
        return Err("a time is not negative: write one such as 250ms, 5s, 1m30s or 1h".to_owned());
    }
    let seconds = seconds(text).ok_or("write numbers and units, such as 250ms, 5s, 1m30s or 1h")?;
    checked(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Past a century the arithmetic of deadlines ends before the wait does.
pub(crate) fn checked(time: Duration) -> Result<Duration, String> {
    Some(time)
        .filter(|time| time.as_secs() <= 100 * 366 * 86_400)
        .ok_or_else(|| "that is too long".to_owned())
}

/// Reads a time to wait.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    if is_negative(text) {
        return Err(
            "a time is not negative: 0 does not wait, and without --wait there is no limit".to_owned()
        );
    }
    duration(text)
}

fn is_negative(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// The sum of the parts of a time, each with its unit, the longer units first.
fn seconds(text: &str) -> Option<f64> {
    let (mut rest, mut units, mut sum) = (text, &UNITS[..], 0.0);
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit_ends = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_ends);
        let number: f64 = number.parse().ok()?;
        // Only of a number alone is it clear what it counts.
        if unit.is_empty() {
            return (rest.len() == text.len()).then_some(number);
        }
        let place = units.iter().position(|(name, _)| *name == unit)?;
        sum += number * units[place].1;
        (rest, units) = (after, &units[place + 1..]);
        if rest.is_empty() {
            return Some(sum);
        }
    }
}

/// Reads a period: a time in whole seconds, `week` or `month`.
pub(crate) fn period(text: &str) -> Result<Period, String> {
    let refused = |error: tidelock::Error| error.to_string();
    if matches!(text, "week" | "month") {
        return text.parse().map_err(refused);
    }
    let length = duration(text).map_err(|_| "write a period, such as 15m, 6h, 1d, week or month")?;
    // Read as it is printed, which says what is wrong with it.
    Period::every(length).to_string().parse().map_err(refused)
}

/// Reads permits: `2/5`.
pub(crate) fn permits(text: &str) -> Result<Permits, String> {
    let (n, of) = text.split_once('/').ok_or("write how many of how many, such as 2/5")?;
    let number = |text: &str| {
        // `parse` would take a plus sign.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| digits).ok_or("write two whole numbers, such as 2/5")
    };
    match (number(n)?, number(of)?) {
        (_, 0) => {
            Err("a lock with permits has at least 1: write how many of how many, such as 2/5".to_owned())
        }
        (n, of) if n == 0 || n > of => Err(format!("{n} of {of} permits cannot be held: write 1 to {of}")),
        (n, of) => Ok(Permits { n, of }),
    }
}

/// A time as people say it: `250ms`, `8.2s`, `12m05s`, `3h20m`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.as_millis());
        let text = match seconds {
            0 => format!("{millis}ms"),
            1..10 if millis % 1_000 >= 100 => format!("{}.{}s", seconds, millis % 1_000 / 100),
            1..60 => format!("{seconds}s"),
            60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
            3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
            _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_unit() {
        let millis = |text| duration(text).map(|time| time.as_millis());
        assert_eq!(
            ["250ms", "5s", "5", "0", "2m", "1h", "1.5s", "1d"].map(millis),
            [250, 5_000, 5_000, 0, 120_000, 3_600_000, 1_500, 86_400_000].map(Ok)
        );
    }

    #[test]
    fn times_are_read_as_they_are_printed() {
        for seconds in [0, 1, 59, 60, 90, 3_599, 3_660, 86_400, 93_600, 8_640_000] {
            let time = Duration::from_secs(seconds);
            assert_eq!(duration(&Span(time).to_string()), Ok(time));
        }
        assert_eq!(duration("1m30s").map(|time| time.as_secs()), Ok(90));
        assert_eq!(duration("1d2h3m4s5ms").map(|time| time.as_millis()), Ok(93_784_005));
        assert_eq!(duration("1h1.5s").map(|time| time.as_millis()), Ok(3_601_500));
    }

    #[test]
    fn what_is_no_time_gets_a_sentence() {
        for bad in [
            "", "s", "5 s", "-5s", "-5", "-.5h", "--5", "+5", "5x", "5ms5", "1m30", "30s1m", "1s1s", "1m-5s",
            "1e9", "inf", "nan", ".", "1.2.3s", "９s",
        ] {
            assert!(duration(bad).is_err_and(|why| why.contains("250ms")), "{bad:?}");
        }
        assert!(duration("-5s").is_err_and(|why| why.contains("not negative")));
        assert!(wait("-1").is_err_and(|why| why.contains("without --wait there is no limit")));
        assert!(duration("99999999999999999999h").is_err_and(|why| why.contains("too long")));
    }

    #[test]
    fn permits_are_some_of_a_number() {
        assert_eq!(permits("2/5"), Ok(Permits { n: 2, of: 5 }));
        for bad in ["", "x", "2", "0/5", "6/5", "0/0", "-1/5", "+1/5", "1/", "/5", "1/2/3", "1/4294967296"] {
            assert!(permits(bad).is_err_and(|why| !why.is_empty()), "{bad:?}");
        }
        for (bad, why) in [
            ("0/0", "a lock with permits has at least 1: write how many of how many, such as 2/5"),
            ("0/5", "0 of 5 permits cannot be held: write 1 to 5"),
            ("6/5", "6 of 5 permits cannot be held: write 1 to 5"),
        ] {
            assert_eq!(permits(bad), Err(why.to_owned()));
        }
    }

    #[test]
    fn spans_read_like_speech() {
        let text = |millis| Span(Duration::from_millis(millis)).to_string();
        assert_eq!(
            [250, 1_000, 8_249, 12_999, 725_000, 12_000_000, 180_000_000].map(text),
            ["250ms", "1s", "8.2s", "12s", "12m05s", "3h20m", "2d02h"]
        );
    }
}
