//! Durations in messages.

use std::{fmt, time::Duration};

/// A duration as people write it: `250ms`, `8.0s`, `12m`, `3h`.
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match seconds {
            s if s < 1.0 => write!(f, "{}ms", self.0.as_millis()),
            s if s < 60.0 && self.0.subsec_millis() == 0 => write!(f, "{}s", self.0.as_secs()),
            s if s < 60.0 => write!(f, "{s:.1}s"),
            s if s < 3_600.0 => {
                write!(f, "{}m{:02}s", self.0.as_secs() / 60, self.0.as_secs() % 60)
            }
            _ => write!(f, "{}h{:02}m", self.0.as_secs() / 3_600, self.0.as_secs() / 60 % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_like_speech() {
        let text = |ms| Span(Duration::from_millis(ms)).to_string();
        assert_eq!(
            [text(250), text(8_000), text(8_049), text(61_000), text(3_660_000)],
            ["250ms", "8s", "8.0s", "1m01s", "1h01m"]
        );
    }
}
