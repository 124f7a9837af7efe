//! The fencing token: the number that a protected resource compares.

use std::{fmt, str::FromStr};

use crate::error::Error;

/// How many hand-offs inside one process fit between two grants of the store.
pub(crate) const HAND_OFFS: u32 = (1 << HAND_OFF_BITS) - 1;
const HAND_OFF_BITS: u32 = 10;
/// The largest epoch for which there is room.
#[cfg(all(unix, feature = "file"))]
pub(crate) const LARGEST_EPOCH: u64 = u64::MAX >> HAND_OFF_BITS;

/// A number that is larger for every later holder of the same lock.
///
/// Send it with each write that the lock protects, and let the resource refuse any number smaller than the
/// largest it has seen. Then even a holder that was paused until after its lease expired can do no harm.
///
/// A token consists of the *epoch* that the store assigned to the grant, and the number of hand-offs inside
/// this process since then. It fits into a signed 64-bit column until the year 2255.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// let locks = tidelock::Locks::connect("memory:").await?;
/// let first = locks.mutex("orders/42").lock().await?;
/// let earlier = first.token();
/// first.release().await?;
/// let second = locks.mutex("orders/42").lock().await?;
/// assert!(second.token() > earlier);
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
///
/// To send it, use its number or its text. In JSON, use the text: the number is larger than the integers that
/// JavaScript keeps exactly.
///
/// ```
/// use tidelock::Token;
///
/// let token: Token = "1747".parse()?;
/// assert_eq!(u64::from(token), 1_747);
/// assert_eq!(Token::from_u64(1_747), token);
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    pub(crate) fn new(epoch: u64, hand_off: u32) -> Self {
        debug_assert!(hand_off <= HAND_OFFS);
        Self(epoch << HAND_OFF_BITS | u64::from(hand_off))
    }

    /// Restores a token from its number, as [`get`](Self::get) returned it.
    pub const fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number to send to the protected resource.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns the number for columns and drivers with signed integers: it fits until the year 2255.
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// Returns the store's part of the number: the epoch of the grant.
    pub fn epoch(self) -> u64 {
        self.0 >> HAND_OFF_BITS
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = text.parse().map_err(|_| {
            Error::invalid_option(format!(
                "{text:?} is not a fencing token: use the number that the holder of the lock got"
            ))
        })?;
        Ok(Self(number))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}+{})", self.epoch(), self.0 & u64::from(HAND_OFFS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_grant_is_larger_than_every_hand_off_of_an_earlier_one() {
        assert!(Token::new(8, 0) > Token::new(7, HAND_OFFS));
        assert!(Token::new(7, 2) > Token::new(7, 1));
    }

    #[test]
    fn a_token_of_this_century_fits_a_signed_column() {
        let year_2250_in_micros = 280 * 366 * 24 * 3_600 * 1_000_000_u64;
        assert!(i64::try_from(Token::new(year_2250_in_micros, HAND_OFFS).get()).is_ok());
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        for token in [Token::new(7, 3), Token::from_u64(0), Token::from_u64(u64::MAX)] {
            assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
            assert_eq!(Token::from_u64(token.into()), token);
        }
        for bad in ["", "-1", "1.5", "18446744073709551616", "seven"] {
            let error = bad.parse::<Token>().unwrap_err();
            assert!(error.is_invalid_option() && error.to_string().contains("fencing token"), "{error}");
        }
    }
}
