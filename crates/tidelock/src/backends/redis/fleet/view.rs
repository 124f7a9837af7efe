//! What people see of other programs, and how their entries are taken away.

use std::{sync::Arc, time::Duration};

use redis::Value;

use super::{Dialect, Fleet, ears::Sound};
use crate::{
    backend::{Claim, ClaimId, ClaimView, Failure, Foreign, Left, LockView, Share},
    backends::{
        redis::{
            codec::{self, Text},
            commands::name_of,
            link::Form,
            scripts::{FLEET_FREE, FLEET_LOOK},
            store::RedisStore,
        },
        shared::units::natural,
    },
    model::name::Name,
};

/// The holders of other programs have ids that no claim has: those of a client with this number.
const STRANGERS: u64 = u64::MAX;

/// What is kept at the key of other programs.
#[derive(Debug, Default)]
struct Found {
    /// What tells an entry from others, how often it was entered, and whether it only reads.
    entries: Vec<(Vec<u8>, String, bool)>,
    left: Option<Duration>,
    /// What is there that is no lock.
    strange: Option<String>,
}

impl RedisStore {
    /// What people see of a lock that other programs take as well.
    pub(in crate::backends::redis) async fn look_together(
        &self,
        fleet: &Fleet,
        name: &Name,
        listed: bool,
    ) -> Result<Option<LockView>, Failure> {
        let (now, head, found) = self.see_together(fleet, name).await?;
        let is_wanted = !listed || head.is_empty() || super::super::forms::is_line(&head);
        let is_idle = head.is_empty() || codec::is_idle(&head);
        let view = if is_idle { None } else { codec::view(name, &head, codec::store_time(now)) };
        let view = view.filter(|_| is_wanted);
        let is_ours = |entry: &[u8]| view.as_ref().is_some_and(|view| is_of(entry, view));
        let strangers = found.entries.iter().filter(|(entry, ..)| !is_ours(entry));
        let mut strangers: Vec<_> = strangers
            .map(|(entry, count, reads)| fleet.stranger(name, entry, count, *reads, &found))
            .collect();
        if let Some(strange) = &found.strange {
            let text =
                format!("a {strange} that is no lock of these programs is kept there, and is in the way");
            let foreign = Foreign::new(strange, "", 1, found.left.is_some());
            strangers.push(stranger(name, id_of(b""), text, false, found.left.unwrap_or_default(), foreign));
        }
        if strangers.is_empty() {
            return Ok(view);
        }
        let mut view = without_entries(view.unwrap_or_else(|| LockView::new(name.clone(), None, 0)), &found);
        strangers.append(&mut view.holders);
        view.holders = strangers;
        Ok(Some(view))
    }

    /// Takes the entry of another program away that people see under this id.
    pub(in crate::backends::redis) async fn free(
        &self,
        fleet: &Fleet,
        name: &Name,
        id: ClaimId,
    ) -> Result<Left, Failure> {
        let (now, head, found) = self.see_together(fleet, name).await?;
        let line = codec::view(name, &head, codec::store_time(now));
        let is_ours = |entry: &[u8]| line.as_ref().is_some_and(|view| is_of(entry, view));
        let mut strangers = found.entries.iter().filter(|(entry, ..)| !is_ours(entry));
        let Some((entry, ..)) = strangers.find(|(entry, ..)| fleet.id_of(entry) == id) else {
            return Ok(Left::Absent);
        };
        self.free_entry(fleet, name, entry).await
    }

    /// Takes the entry of a claim away that was made at this time, and leaves the claim in line.
    pub(in crate::backends::redis) async fn free_own(
        &self,
        fleet: &Fleet,
        name: &Name,
        id: ClaimId,
        made: u64,
    ) -> Result<Left, Failure> {
        self.free_entry(fleet, name, format!("{}{made}", owner(id)).as_bytes()).await
    }

    async fn free_entry(&self, fleet: &Fleet, name: &Name, entry: &[u8]) -> Result<Left, Failure> {
        let key = fleet.key(name);
        let make = |form: Form<'_>| {
            let mut command = name_of(&FLEET_FREE, form);
            command.arg(1).arg(&key).arg(fleet.form()).arg(entry);
            command.arg(if form.shard.is_some() { "s" } else { "p" });
            command
        };
        codec::left(&self.ask(&FLEET_FREE, &key, &make).await?)
    }

    async fn see_together(&self, fleet: &Fleet, name: &Name) -> Result<(u64, Vec<u8>, Found), Failure> {
        let (line, key) = (self.common.space.key(name), fleet.key(name));
        let make = |form: Form<'_>| {
            let mut command = name_of(&FLEET_LOOK, form);
            command.arg(2).arg(&line).arg(&key).arg(Text(fleet.form()));
            command
        };
        let answer = self.ask(&FLEET_LOOK, &line, &make).await?;
        let Some([Value::Int(now), Value::BulkString(head), kept, Value::Int(left), strange]) =
            answer.as_sequence()
        else {
            return Err(codec::strange("look"));
        };
        let strange = codec::text(strange).filter(|text| !text.is_empty()).map(ToOwned::to_owned);
        let left = u64::try_from(*left).ok().map(Duration::from_millis);
        Ok((natural(*now), head.clone(), Found { entries: entries(kept), left, strange }))
    }

    /// Hears it when another program gives a lock back that a claim is kept from; of one that holds, that it was taken
    /// away.
    pub(in crate::backends::redis) async fn listen_for(&self, fleet: &Fleet, claim: &Claim, holds: bool) {
        let key = fleet.key(&claim.name);
        let sound = match fleet.dialect {
            // A holder would hear its own renewals.
            Dialect::SetNx if holds => return,
            Dialect::SetNx => Sound::Key(key),
            Dialect::Redisson => {
                let is_rw = matches!(fleet.kind(claim), "r" | "w");
                let of = if is_rw { "redisson_rwlock" } else { "redisson_lock__channel" };
                Sound::Channel { channel: super::beside(of, &key), sharded: fleet.is_cluster }
            }
        };
        if let Ok(server) = self.link.server(&self.common.space.key(&claim.name)).await {
            fleet.ears.listen(server, sound, claim.name.clone(), claim.id);
        }
    }
}

impl Fleet {
    fn stranger(&self, name: &Name, entry: &[u8], count: &str, reads: bool, found: &Found) -> ClaimView {
        let id: String = entry
            .iter()
            .flat_map(|byte| std::ascii::escape_default(*byte))
            .take(80)
            .map(char::from)
            .collect();
        let made = match self.dialect {
            Dialect::Redisson => "a Redisson client",
            Dialect::SetNx => "a SET NX client",
        };
        let times = count.parse().unwrap_or(1);
        let often = if times == 1 { String::new() } else { format!(", entered {times} times") };
        let ends = if found.left.is_none() { ", without an expiry" } else { "" };
        let label = format!("{made}: {id}{often}{ends}");
        let foreign = Foreign::new(self.dialect.as_str(), &id, times, found.left.is_some());
        stranger(name, self.id_of(entry), label, reads, found.left.unwrap_or_default(), foreign)
    }

    /// The id under which people see an entry. A client of Redisson has another one on each server, so on servers that
    /// vote all of its entries have the same id: a server has one of them at most.
    fn id_of(&self, entry: &[u8]) -> ClaimId {
        let is_any = self.votes && self.dialect == Dialect::Redisson;
        id_of(if is_any { b"" } else { entry })
    }
}

fn stranger(
    name: &Name,
    id: ClaimId,
    label: String,
    reads: bool,
    left: Duration,
    foreign: Foreign,
) -> ClaimView {
    let share = if reads { Share::Shared } else { Share::Exclusive };
    let mut claim = Claim::new(id, name.clone(), share, left);
    claim.label = Arc::from(label);
    let mut view = ClaimView::new(&claim, None, Duration::ZERO, left);
    view.foreign = Some(foreign);
    view
}

/// Whether an id is one under which people see another program.
pub(in crate::backends) fn is_stranger(id: ClaimId) -> bool {
    id.client().get() == STRANGERS
}

/// The id under which people see an entry: of the 64 bits that FNV makes of it.
fn id_of(entry: &[u8]) -> ClaimId {
    let hash = entry.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ClaimId::from_u128(u128::from(STRANGERS) << 64 | u128::from(hash))
}

/// What a string is one of, or the fields of a hash.
fn entries(kept: &Value) -> Vec<(Vec<u8>, String, bool)> {
    match kept {
        Value::BulkString(value) if value.is_empty() => Vec::new(),
        Value::BulkString(value) => vec![(value.clone(), String::new(), false)],
        Value::Array(flat) => {
            let (pairs, _) = flat.as_chunks::<2>();
            let reads = pairs.iter().any(|[field, value]| is(field, b"mode") && is(value, b"read"));
            let fields = pairs.iter().filter(|[field, _]| !is(field, b"mode"));
            fields.filter_map(|[field, count]| entry(field, count, reads)).collect()
        }
        _ => Vec::new(),
    }
}

fn entry(field: &Value, count: &Value, reads: bool) -> Option<(Vec<u8>, String, bool)> {
    let Value::BulkString(field) = field else { return None };
    Some((
        field.clone(),
        codec::text(count).unwrap_or_default().to_owned(),
        reads && !field.ends_with(b":write"),
    ))
}

fn is(value: &Value, text: &[u8]) -> bool {
    matches!(value, Value::BulkString(bytes) if bytes == text)
}

/// What the entry of a claim begins with.
fn owner(id: ClaimId) -> String {
    let id = id.to_string();
    format!("{}-{}-{}-{}-{}:", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..])
}

fn is_of(entry: &[u8], view: &LockView) -> bool {
    view.holders.iter().any(|holder| entry.starts_with(owner(holder.id).as_bytes()))
}

/// A claim is a holder only while its entry is there: else it is the first that waits, behind other programs.
fn without_entries(mut view: LockView, found: &Found) -> LockView {
    let (holders, mut waiting): (Vec<_>, Vec<_>) =
        view.holders.into_iter().partition(|claim| found.has_entry_of(claim.id));
    for claim in &mut waiting {
        claim.epoch = None;
    }
    waiting.append(&mut view.waiters);
    LockView { holders, waiters: waiting, ..view }
}

impl Found {
    fn has_entry_of(&self, id: ClaimId) -> bool {
        let owner = owner(id);
        self.entries.iter().any(|(entry, ..)| entry.starts_with(owner.as_bytes()))
    }
}
