//! The replies of the scripts for locks that other programs take as well: those of the ordinary ones, and more.

use redis::Value;

use super::{Dialect, Fleet};
use crate::{
    backend::{Claim, Entered, Failure, Standing},
    backends::{
        redis::codec,
        shared::{
            answers::{grant, place},
            units::natural,
        },
    },
};

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
            Some([1, epoch, ttl, waiting, made]) => {
                if !self.claims.holds(claim, natural(*made)) {
                    return Err(Failure::unknown(
                        "the lock of other programs was taken away and taken again",
                    ));
                }
                (Entered::Held(grant(*epoch, *ttl, (*waiting).max(1))), false)
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
        let numbers = codec::numbers(answer).filter(|numbers| numbers.len() == 5 * count + 1);
        let numbers = numbers.ok_or_else(|| codec::strange("renew"))?;
        let (fives, _) = numbers.as_chunks::<5>();
        let standings = claims.zip(fives).map(|(claim, five)| match *five {
            [1, epoch, ttl, waiting, made] if self.claims.holds(claim, natural(made)) => {
                (Standing::Held(grant(epoch, ttl, waiting.max(1))), false)
            }
            [2, ahead, look_again, _, why] => {
                self.claims.waits(claim, why < 0);
                (Standing::Waiting(place(ahead, look_again)), why == -1)
            }
            [9, ..] => (Standing::Unknown, false),
            _ => {
                self.claims.forget(claim.id);
                (Standing::Gone, false)
            }
        });
        Ok((standings.collect(), natural(numbers[5 * count])))
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
