//! The commands that call scripts.

use std::time::Duration;

use redis::Cmd;

use super::{
    codec::{Tail, Text},
    link::Form,
    scripts::{REMEMBER, Verb},
    store::{Floor, RedisStore},
};
use crate::{
    backend::{Ask, Claim, ClaimId, Leave},
    backends::shared::units::micros,
    model::name::Name,
};

impl RedisStore {
    /// Asks for a place in line.
    pub(crate) fn enter_command(&self, claim: &Claim, ask: Ask, floor: Floor, form: Form<'_>) -> Cmd {
        let key = self.common.space.key(&claim.name);
        let mut command = match &self.fleet {
            None => call(self.verbs.enter, form, &key),
            Some(fleet) => fleet.enter(self.verbs.enter, form, &key, claim),
        };
        command.arg(Text(claim.id)).arg(if ask == Ask::Try { "t" } else { "q" });
        command.arg(Text(format_args!("{:016}", micros(claim.ttl)))).arg(keep_millis(claim.ttl));
        command.arg(Text(Tail(claim)));
        add_floor_and_shard(&mut command, floor, form);
        command
    }

    /// Gives back a place in line.
    pub(crate) fn leave_command(
        &self,
        name: &Name,
        id: ClaimId,
        why: &Leave,
        floor: Floor,
        form: Form<'_>,
    ) -> Cmd {
        let key = self.common.space.key(name);
        let mut command = match &self.fleet {
            None => call(self.verbs.leave, form, &key),
            Some(fleet) => fleet.leave(self.verbs.leave, form, &key, name, id),
        };
        command.arg(Text(id));
        match why {
            Leave::Evicted(reason) => {
                command.arg(Text(format_args!("e{reason}")));
            }
            Leave::Done if form.shard.is_some() || floor.is_some() => {
                command.arg("");
            }
            Leave::Done => {}
        }
        add_floor_and_shard(&mut command, floor, form);
        command
    }
}

/// The beginning of a call: how the verb is named.
pub(super) fn name_of(verb: &'static Verb, form: Form<'_>) -> Cmd {
    name_with_room(verb, form, 1)
}

/// The beginning of a call for so many claims, which need not be moved while the rest is added.
pub(super) fn name_with_room(verb: &'static Verb, form: Form<'_>, claims: usize) -> Cmd {
    let mut command = Cmd::with_capacity(10 + 2 * claims, 128 + 128 * claims);
    if form.functions {
        command.arg("FCALL").arg(verb.function());
    } else {
        command.arg("EVALSHA").arg(verb.hash());
    }
    command
}

/// The beginning of a call with the key of one lock.
pub(super) fn call(verb: &'static Verb, form: Form<'_>, key: &str) -> Cmd {
    let mut command = name_of(verb, form);
    command.arg(1).arg(key);
    command
}

/// The same call with all of the script instead of its name.
pub(super) fn with_text(verb: &'static Verb, command: &Cmd) -> Cmd {
    let mut whole = redis::cmd("EVAL");
    whole.arg(verb.text());
    for arg in command.args_iter().skip(2) {
        match arg {
            redis::Arg::Simple(arg) => whole.arg(arg),
            _ => &mut whole,
        };
    }
    whole
}

/// The least epoch of a grant where it is not the server's time, and what the channels of clients end with in
/// a cluster.
pub(super) fn add_floor_and_shard(command: &mut Cmd, floor: Floor, form: Form<'_>) {
    match floor {
        Some(floor) => {
            command.arg(Text(format_args!("{floor:016}")));
        }
        None if form.shard.is_some() => {
            command.arg("");
        }
        None => {}
    }
    if let Some(shard) = form.shard {
        command.arg(shard);
    }
}

/// How long a head is kept: for the lease, and then until no clock is likely to be before its epoch.
pub(super) fn keep_millis(ttl: Duration) -> u128 {
    ttl.as_micros().div_ceil(1_000) + REMEMBER.as_millis()
}
