//! The replies of the scripts for locks that other programs take as well: those of the ordinary ones, and more.

use redis::Value;

use super::{Dialect, Fleet, claims::Entry};
use crate::{
    backend::{Claim, Entered, Failure, Grant, Standing},
    backends::{
        redis::codec,
        shared::{
            answers::{grant, place},
            units::natural,
        },
    },
};

/// When a claim looks again whose entry was given back while it was asked about, in microseconds.
const LOOK_AGAIN: i64 = 25_000;

impl Fleet {
    /// The reply to `fleet_enter`, noted. Also whether other programs are in the way.
    pub(in crate::backends::redis) fn entered(
        &self,
        claim: &Claim,
        answer: &Value,
    ) -> Result<(Entered, bool), Failure> {
        if let Some([Value::Int(8), found]) = answer.as_sequence() {
            return Err(self.strange(claim, codec::text(found).unwrap_or("something else")));
        }
        Ok(match codec::numbers(answer).as_deref() {
            // That somebody waits outside of our line is not known, and likely.
            Some([1, epoch, ttl, waiting, made, number @ ..]) => {
                match self.claims.holds(claim, natural(*made)) {
                    Entry::Good => (
                        Entered::Held(numbered(grant(*epoch, *ttl, (*waiting).max(1)), number.first())),
                        false,
                    ),
                    Entry::Yielded => (Entered::Waiting(place(1, LOOK_AGAIN)), true),
                    Entry::Another => {
                        return Err(Failure::unknown(
                            "the lock of other programs was taken away and taken again",
                        ));
                    }
                }
            }
            Some([2, ahead, look_again, -1]) => {
                self.claims.waits(claim, true);
                (Entered::Waiting(place(*ahead, *look_again)), true)
            }
            _ => {
                let entered = codec::entered(claim, answer)?;
                if matches!(entered, Entered::Waiting(_)) {
                    self.claims.waits(claim, false);
                }
                (entered, false)
            }
        })
    }

    /// The reply to `fleet_renew`, noted: how each claim stands and whether other programs are in its way; then the
    /// server's time.
    pub(in crate::backends::redis) fn standings<'a>(
        &self,
        claims: impl ExactSizeIterator<Item = &'a Claim>,
        answer: &Value,
    ) -> Result<(Vec<(Standing, bool)>, u64), Failure> {
        let count = claims.len();
        let numbers = codec::numbers(answer).filter(|numbers| numbers.len() == 6 * count + 1);
        let numbers = numbers.ok_or_else(|| codec::strange("renew"))?;
        let (sixes, _) = numbers.as_chunks::<6>();
        let gone = |claim: &Claim| {
            self.claims.forget(claim.id);
            (Standing::Gone, false)
        };
        let standings = claims.zip(sixes).map(|(claim, six)| match *six {
            [1, epoch, ttl, waiting, made, number] => match self.claims.holds(claim, natural(made)) {
                Entry::Good => {
                    (Standing::Held(numbered(grant(epoch, ttl, waiting.max(1)), Some(&number))), false)
                }
                Entry::Yielded => (Standing::Waiting(place(1, LOOK_AGAIN)), true),
                Entry::Another => gone(claim),
            },
            [2, ahead, look_again, _, why, _] => {
                // One that lets others in goes on doing so if it is asked about before its time.
                self.claims.waits(claim, why == -1);
                (Standing::Waiting(place(ahead, look_again)), why == -1)
            }
            [9, ..] => (Standing::Unknown, false),
            _ => gone(claim),
        });
        Ok((standings.collect(), natural(numbers[6 * count])))
    }

    /// Something else is kept where other programs take the lock.
    fn strange(&self, claim: &Claim, found: &str) -> Failure {
        let (wanted, other) = match self.dialect {
            Dialect::Redisson => ("the hash of a Redisson lock", "mode=setnx if it is a string of SET NX"),
            Dialect::SetNx => ("a string of SET NX", "mode=redisson if it is the hash of a Redisson lock"),
        };
        Failure::denied(format!(
            "the key {:?} has a {found}, not {wanted}, so its programs cannot be kept out: use {other}, or another lock_key in the URL",
            self.key(&claim.name)
        ))
    }
}

/// A grant with the number of its entry, if that has one.
fn numbered(grant: Grant, number: Option<&i64>) -> Grant {
    Grant { foreign: number.map(|number| natural(*number)).filter(|number| *number > 0), ..grant }
}
