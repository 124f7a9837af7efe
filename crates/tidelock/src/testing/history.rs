//! What happened, and whether it may happen.
//!
//! A history has one [`Hold`] for each time somebody got a lock. The checker needs no search: each
//! check is a sweep over sorted holds.
//!
//! | check | violated when |
//! |---|---|
//! | exclusion | two holds that do not fit together were both in use, by real time |
//! | tokens | a hold asked for after another was got has no larger token, or two have the same |
//! | hand-off | a process kept a lock to itself for longer than it may |
//! | usable | a lock was got that was not held any more |

use std::{collections::HashMap, fmt, time::Duration};

use crate::{backend::Share, model::name::Name, model::token::Token};

/// One time that somebody got a lock. Times are on one clock for all; they never repeat.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The lock.
    pub name: Name,
    /// The client that got it.
    pub client: usize,
    /// How much of it.
    pub share: Share,
    /// On whose behalf, if on anybody's.
    pub owner: Option<String>,
    /// Its token.
    pub token: Token,
    /// When it was asked for.
    pub asked: u64,
    /// When it was got.
    pub got: u64,
    /// When it was got, on the clock that durations are measured on.
    pub got_at: Duration,
    /// When it was last in use: checked to be held, and then used.
    pub used: u64,
    /// Whether it was held when it was got.
    pub usable: bool,
}

impl Hold {
    /// Taken again by an owner that had it: the same grant, not a new one.
    fn is_of(&self, other: &Self) -> bool {
        self.owner.is_some() && self.owner == other.owner
    }
}

/// What must not happen, and did.
#[derive(Clone, Debug)]
pub enum Breach {
    /// Two holds that do not fit together were both in use.
    Exclusion(Box<Hold>, Box<Hold>),
    /// The permits in use were more than there are.
    Permits(Box<Hold>, u64),
    /// The later of two holds has no larger token.
    Token(Box<Hold>, Box<Hold>),
    /// Two holds have the same token.
    SameToken(Box<Hold>, Box<Hold>),
    /// Handed on inside the process for too long.
    HandOff(Box<Hold>, Duration),
    /// Got, but not held.
    Unusable(Box<Hold>),
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusion(a, b) => write!(f, "two at once: {a:?} and {b:?}"),
            Self::Permits(hold, used) => write!(f, "{used} permits in use with {hold:?}"),
            Self::Token(a, b) => write!(f, "a token did not grow: {a:?}, then {b:?}"),
            Self::SameToken(a, b) => write!(f, "two have one token: {a:?} and {b:?}"),
            Self::HandOff(hold, kept) => write!(f, "handed on {kept:?} after the grant: {hold:?}"),
            Self::Unusable(hold) => write!(f, "got a lock that was not held: {hold:?}"),
        }
    }
}

/// For how long after a grant a process may hand a lock on (and a little for the clocks).
const HAND_OFF_TIME: Duration = Duration::from_millis(52);

/// Checks a history.
///
/// # Errors
/// The first breach found.
pub fn check(holds: &[Hold]) -> Result<(), Breach> {
    let mut by_name: HashMap<&Name, Vec<&Hold>> = HashMap::new();
    for hold in holds {
        by_name.entry(&hold.name).or_default().push(hold);
    }
    for holds in by_name.values_mut() {
        holds.sort_by_key(|hold| hold.got);
        if let Some(hold) = holds.iter().find(|hold| !hold.usable) {
            return Err(Breach::Unusable(boxed(hold)));
        }
        exclusion(holds)?;
        tokens(holds)?;
        hand_offs(holds)?;
    }
    Ok(())
}

fn boxed(hold: &Hold) -> Box<Hold> {
    Box::new(hold.clone())
}

/// Sweeps over the holds by the time they were got, keeping those still in use.
fn exclusion(holds: &[&Hold]) -> Result<(), Breach> {
    let mut in_use: Vec<&Hold> = Vec::new();
    for hold in holds {
        in_use.retain(|other| other.used > hold.got);
        for other in in_use.iter().filter(|other| !other.is_of(hold)) {
            if hold.share == Share::Exclusive || other.share == Share::Exclusive {
                return Err(Breach::Exclusion(boxed(other), boxed(hold)));
            }
        }
        in_use.push(hold);
        if let Share::Permits { of, .. } = hold.share {
            let used = permits(&in_use);
            if used > u64::from(of) {
                return Err(Breach::Permits(boxed(hold), used));
            }
        }
    }
    Ok(())
}

/// The permits in use: an owner that holds several times takes the most it asked for once.
fn permits(in_use: &[&Hold]) -> u64 {
    let mut of_owner: HashMap<&str, u64> = HashMap::new();
    let mut used = 0;
    for hold in in_use {
        let n = u64::from(hold.share.weight());
        match &hold.owner {
            None => used += n,
            Some(owner) => {
                let most = of_owner.entry(owner).or_default();
                *most = n.max(*most);
            }
        }
    }
    used + of_owner.values().sum::<u64>()
}

fn tokens(holds: &[&Hold]) -> Result<(), Breach> {
    let mut seen: HashMap<Token, &Hold> = HashMap::new();
    for hold in holds {
        if let Some(other) = seen.insert(hold.token, hold)
            && !other.is_of(hold)
        {
            return Err(Breach::SameToken(boxed(other), boxed(hold)));
        }
    }
    // Of all that were got before this one was asked for, the largest token must be smaller.
    let mut by_asked: Vec<&Hold> = holds.to_vec();
    by_asked.sort_by_key(|hold| hold.asked);
    let mut got = holds.iter().peekable();
    let mut largest: Option<&Hold> = None;
    for hold in by_asked {
        while let Some(earlier) = got.next_if(|earlier| earlier.got < hold.asked) {
            if largest.is_none_or(|largest| earlier.token > largest.token) {
                largest = Some(earlier);
            }
        }
        // Who re-enters has the token it had: others may have got a share with a larger one since.
        let re_enters = hold.owner.is_some() && hold.share != Share::Exclusive;
        if let Some(largest) = largest
            && largest.token >= hold.token
            && !largest.is_of(hold)
            && !re_enters
        {
            return Err(Breach::Token(boxed(largest), boxed(hold)));
        }
    }
    Ok(())
}

fn hand_offs(holds: &[&Hold]) -> Result<(), Breach> {
    let mut first_of_epoch: HashMap<u64, Duration> = HashMap::new();
    for hold in holds.iter().filter(|hold| hold.owner.is_none()) {
        let first = *first_of_epoch.entry(hold.token.epoch()).or_insert(hold.got_at);
        let kept = hold.got_at.saturating_sub(first);
        if kept > HAND_OFF_TIME {
            return Err(Breach::HandOff(boxed(hold), kept));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(share: Share, epoch: u64, asked: u64, got: u64, used: u64) -> Hold {
        Hold {
            name: Name::new("x").unwrap(),
            client: 0,
            share,
            owner: None,
            token: Token::new(epoch, 0),
            asked,
            got,
            got_at: Duration::from_millis(got),
            used,
            usable: true,
        }
    }

    #[test]
    fn holds_that_follow_each_other_are_fine() {
        let x = Share::Exclusive;
        assert!(
            check(&[hold(x, 1, 0, 1, 5), hold(x, 2, 2, 6, 9), hold(Share::Shared, 3, 3, 10, 12)]).is_ok()
        );
    }

    #[test]
    fn two_at_once_are_found_whatever_their_order() {
        let x = Share::Exclusive;
        for other in [x, Share::Shared, Share::Permits { n: 1, of: 5 }] {
            let found = check(&[hold(other, 2, 0, 4, 9), hold(x, 1, 0, 1, 5)]);
            assert!(matches!(found, Err(Breach::Exclusion(..))), "{found:?}");
        }
        assert!(check(&[hold(Share::Shared, 2, 0, 4, 9), hold(Share::Shared, 1, 0, 1, 5)]).is_ok());
    }

    #[test]
    fn permits_are_added_up() {
        let permits = |n| Share::Permits { n, of: 3 };
        let found = check(&[hold(permits(2), 1, 0, 1, 9), hold(permits(2), 2, 0, 2, 9)]);
        assert!(matches!(found, Err(Breach::Permits(_, 4))), "{found:?}");
        assert!(check(&[hold(permits(2), 1, 0, 1, 9), hold(permits(1), 2, 0, 2, 9)]).is_ok());
    }

    #[test]
    fn a_token_that_does_not_grow_is_found() {
        let x = Share::Exclusive;
        let found = check(&[hold(x, 7, 0, 1, 2), hold(x, 6, 3, 4, 5)]);
        assert!(matches!(found, Err(Breach::Token(..))), "{found:?}");
        let found = check(&[hold(x, 7, 0, 1, 2), hold(x, 7, 0, 4, 5)]);
        assert!(matches!(found, Err(Breach::SameToken(..))), "{found:?}");
        // Asked for before the other was got: either order is fine.
        assert!(check(&[hold(x, 7, 0, 1, 2), hold(x, 6, 0, 4, 5)]).is_ok());
    }

    #[test]
    fn a_process_that_keeps_a_lock_to_itself_is_found() {
        let mut late = hold(Share::Exclusive, 1, 0, 100, 101);
        late.token = Token::new(1, 1);
        let found = check(&[hold(Share::Exclusive, 1, 0, 1, 2), late]);
        assert!(matches!(found, Err(Breach::HandOff(..))), "{found:?}");
    }

    #[test]
    fn a_lock_that_was_not_held_when_it_was_got_is_found() {
        let bad = Hold { usable: false, ..hold(Share::Exclusive, 1, 0, 1, 1) };
        assert!(matches!(check(&[bad]), Err(Breach::Unusable(_))));
    }
}
