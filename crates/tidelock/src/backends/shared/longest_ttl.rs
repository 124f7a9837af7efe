//! The longest lease that any client asks for. A server that may forget what it granted is not used for that
//! long after its start.

use std::time::Duration;

use super::options::UrlOption;
use crate::{
    backend::Failure,
    backends::{OptionDefault, StoreOption},
    error::Error,
};

/// The option `longest_ttl_ms` of a URL. Without it, it is twice the default ttl.
pub(crate) const fn option(meaning: &'static str) -> UrlOption<Duration> {
    UrlOption {
        about: StoreOption::new("longest_ttl_ms", OptionDefault::Value("60000"), meaning),
        read: |about, text| match about.number(text, "a number of milliseconds above 0")? {
            0 => Err(Error::invalid_url("the option longest_ttl_ms may not be 0: leave it out")),
            longest => Ok(Duration::from_millis(longest)),
        },
    }
}

/// Refuses a claim with a longer one. `than` says what takes the longest of them; `instead` is what else can be done.
pub(crate) fn refuse(ttl: Duration, longest: Duration, than: &str, instead: &str) -> Failure {
    Failure::denied(format!(
        "a ttl of {ttl:?} is longer than {than}, which is {longest:?}: ask for less, {instead}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DEFAULT_TTL;

    #[test]
    fn the_option_is_a_number_above_zero() {
        let read = |text| option("").value(text);
        assert_eq!(read(Some("9000")).unwrap(), Duration::from_secs(9));
        assert_eq!(read(None).unwrap(), 2 * DEFAULT_TTL);
        for bad in ["0", "soon", "-1", ""] {
            let error = read(Some(bad)).unwrap_err();
            assert!(error.to_string().contains("longest_ttl_ms"), "{error}");
        }
    }

    #[test]
    fn a_refusal_says_both_times_and_what_to_do() {
        let failure =
            refuse(Duration::from_secs(9), Duration::from_secs(5), "a server sleeps", "or wake it earlier");
        assert_eq!(
            &*failure.reason,
            "a ttl of 9s is longer than a server sleeps, which is 5s: ask for less, or wake it earlier"
        );
    }
}
