//! The commands that call the scripts for locks that other programs take as well.

use redis::Cmd;

use super::{FENCED, Fleet};
use crate::{
    backend::{Claim, ClaimId},
    backends::redis::{codec::Text, commands::name_of, link::Form, scripts::Verb},
    model::name::Name,
};

impl Fleet {
    /// The beginning of `fleet_enter`; what follows is as for enter.
    pub(in crate::backends::redis) fn enter(
        &self,
        verb: &'static Verb,
        form: Form<'_>,
        line: &str,
        claim: &Claim,
    ) -> Cmd {
        let mut command = name_of(verb, form);
        let key = self.key(&claim.name);
        command.arg(if self.is_fenced { 3 } else { 2 }).arg(line).arg(&key);
        if self.is_fenced {
            command.arg(self.counter(claim, key));
        }
        command.arg(self.kind(claim)).arg(millis(claim));
        command
    }

    /// The beginning of `fleet_renew`; what follows is as for renew.
    pub(in crate::backends::redis) fn renew<'a>(
        &self,
        verb: &'static Verb,
        form: Form<'_>,
        claims: impl ExactSizeIterator<Item = (&'a Claim, &'a str)> + Clone,
    ) -> Cmd {
        let mut command = name_of(verb, form);
        command.arg(if self.is_fenced { 3 } else { 2 } * claims.len());
        for (_, line) in claims.clone() {
            command.arg(line);
        }
        for (claim, _) in claims.clone() {
            command.arg(self.key(&claim.name));
        }
        for (claim, _) in claims.clone().filter(|_| self.is_fenced) {
            command.arg(self.counter(claim, self.key(&claim.name)));
        }
        command.arg(claims.len());
        for (claim, _) in claims {
            command.arg(self.kind(claim)).arg(Text(self.claims.known(claim.id))).arg(millis(claim));
        }
        command
    }

    /// The beginning of `fleet_leave`; what follows is as for leave.
    pub(in crate::backends::redis) fn leave(
        &self,
        verb: &'static Verb,
        form: Form<'_>,
        line: &str,
        name: &Name,
        id: ClaimId,
    ) -> Cmd {
        let mut command = name_of(verb, form);
        command.arg(2).arg(line).arg(self.key(name));
        command.arg(self.form()).arg(Text(self.claims.known(id)));
        command.arg(if form.shard.is_some() { "s" } else { "p" });
        command
    }
}

impl Fleet {
    /// The counter of a claim that raises one; else its key once more, because a key that is missing keeps a script
    /// from being called in a slot that is on the move.
    fn counter(&self, claim: &Claim, key: String) -> String {
        if self.kind(claim) == FENCED { super::beside("redisson_lock_token", &key) } else { key }
    }
}

/// Never less than the lease in our line.
fn millis(claim: &Claim) -> u64 {
    u64::try_from(claim.ttl.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
