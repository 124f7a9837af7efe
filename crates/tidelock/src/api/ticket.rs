//! Tickets: a held lock as text, so that another process can renew or release it.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use crate::{
    backend::{Claim, ClaimId, Share},
    clock::nanos,
    error::Error,
    model::escape::unescape,
    model::name::Name,
    model::token::Token,
};

/// The first part of every ticket in this format.
const VERSION: &str = "tl1";

/// A held lock that was [left behind](crate::Guard::leave_behind).
///
/// A ticket is as good as the lock itself: anyone who has it can renew or release the lock on the same store.
///
/// As text, a ticket is one word without characters that a shell or a URL would change:
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// let locks = tidelock::Locks::connect("memory:").await?;
/// let guard = locks.mutex("deploy").detached(true).lock().await?;
/// let written = guard.leave_behind()?.to_string();
///
/// let ticket: tidelock::Ticket = written.parse()?;
/// locks.renew(&ticket).await?;
/// locks.release(&ticket).await?;
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    name: Name,
    id: ClaimId,
    share: Share,
    ttl: Duration,
    token: Token,
}

impl Ticket {
    pub(crate) fn new(claim: &Claim, token: Token) -> Self {
        Self { name: claim.name.clone(), id: claim.id, share: claim.share, ttl: claim.ttl, token }
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the fencing token of the held lock.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns how long the lock lives after its last renewal, which may have happened while it waited.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the claim as the store knows it.
    pub(crate) fn claim(&self) -> Arc<Claim> {
        Arc::new(Claim {
            id: self.id,
            name: self.name.clone(),
            share: self.share,
            owner: None,
            ttl: self.ttl,
            label: "ticket".into(),
            detached: true,
            writes: false,
            auto_renew: true,
        })
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}.{}.{}.{}.", self.id, self.token.get(), nanos(self.ttl))?;
        match self.share {
            Share::Exclusive => f.write_str("x.")?,
            Share::Shared => f.write_str("s.")?,
            Share::Permits { n, of } => write!(f, "{n}of{of}.")?,
        }
        for byte in self.name.as_str().bytes() {
            if byte.is_ascii_alphanumeric() || b"-_./".contains(&byte) {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).ok_or_else(|| {
            // Not shown: a ticket is the lock.
            Error::invalid_option(format!(
                "this is no ticket: one begins with \"{VERSION}.\" and has six parts; use the word that was printed as it is"
            ))
        })
    }
}

fn read(text: &str) -> Option<Ticket> {
    let mut parts = text.trim().splitn(6, '.');
    if parts.next()? != VERSION {
        return None;
    }
    let id = parts.next().filter(|hex| hex.len() == 32)?;
    let id = ClaimId::from_u128(u128::from_str_radix(id, 16).ok()?);
    let token = Token::from_u64(parts.next()?.parse().ok()?);
    let ttl = Duration::from_nanos(parts.next()?.parse().ok().filter(|nanos| *nanos > 0)?);
    let share = match parts.next()? {
        "x" => Share::Exclusive,
        "s" => Share::Shared,
        permits => {
            let (n, of) = permits.split_once("of")?;
            let (n, of) = (n.parse().ok()?, of.parse().ok()?);
            Some(Share::Permits { n, of }).filter(|_| 0 < n && n <= of)?
        }
    };
    Some(Ticket { name: Name::new(&unescape(parts.next()?)?).ok()?, id, share, ttl, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_read_as_they_were_written_and_anything_else_is_refused() {
        for (name, share) in [
            ("deploy", Share::Exclusive),
            ("a.b/c d", Share::Shared),
            ("%41 🔒 \"$(x)'", Share::Permits { n: 2, of: 5 }),
        ] {
            let ticket = Ticket {
                name: Name::new(name).unwrap(),
                id: ClaimId::from_u128(7 << 64 | 9),
                share,
                ttl: Duration::from_millis(1_500),
                token: Token::new(1_234, 5),
            };
            let text = ticket.to_string();
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./%".contains(&byte)),
                "{text}"
            );
            assert_eq!(text.parse::<Ticket>().unwrap(), ticket);
            assert_eq!(format!("{text}\n").parse::<Ticket>().unwrap(), ticket);
            for cut in 0..text.len() {
                if let Ok(other) = text[..cut].parse::<Ticket>() {
                    assert_ne!(other.name, ticket.name, "only the name may be shorter");
                }
            }
        }
        for bad in ["", "tl1", "tl2.0.0.0.x.a", "tl1.00000000000000000000000000000001.1.5.3of2.a"] {
            let error = bad.parse::<Ticket>().unwrap_err();
            assert!(error.is_invalid_option() && !error.to_string().contains('\n'), "{error}");
        }
    }
}
