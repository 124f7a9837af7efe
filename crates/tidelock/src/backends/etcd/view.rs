//! Lines as they are read: for the verbs, and for people.

use std::{collections::HashMap, time::Duration};

use futures_util::future::join_all;

use super::{
    codec::Contender,
    order::order,
    proto::{KeyValue, LeaseTimeToLiveRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest, revision},
    store::EtcdStore,
};
use crate::{
    backend::{ClaimView, Failure, LockView, Scope},
    backends::shared::order::capacity,
    clock::wall_micros,
    model::name::Name,
};

/// How many lines one transaction reads; a server takes 128 operations unless it was told otherwise.
pub(super) const LINES: usize = 100;

/// A line as it was read, and at which revision.
pub(super) type Reading = (Vec<Contender>, i64);

impl EtcdStore {
    /// Reads one line.
    pub(super) async fn read_line(&self, name: &Name) -> Result<Reading, Failure> {
        let (key, range_end) = self.space.range(name);
        let answer = self.link.ask(RangeRequest::of(key, range_end)).await?.answer;
        let at = revision(answer.header.as_ref());
        self.epochs.saw(0, at);
        Ok((self.space.contenders(name, answer.kvs), at))
    }

    /// Reads some lines, in order.
    pub(super) async fn read_lines<'a>(
        &self,
        names: impl Iterator<Item = &'a Name>,
    ) -> Result<Vec<Reading>, Failure> {
        let names: Vec<_> = names.collect();
        if let [name] = names[..] {
            return Ok(vec![self.read_line(name).await?]);
        }
        let asked = names.chunks(LINES).map(async |some| {
            let read = |name: &&Name| {
                let (from, to) = self.space.range(name);
                RequestOp::range(from, to)
            };
            let read = TxnRequest { success: some.iter().map(read).collect(), ..TxnRequest::default() };
            let answer = self.link.ask(read).await?.answer;
            let at = revision(answer.header.as_ref());
            if answer.responses.len() != some.len() {
                return Err(Failure::unknown("the server answered another question"));
            }
            let lines = some.iter().zip(answer.responses);
            Ok(lines
                .map(|(name, line)| (self.space.contenders(name, kvs(vec![line])), at))
                .collect::<Vec<_>>())
        });
        let answers = join_all(asked).await.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        Ok(answers.into_iter().flatten().collect())
    }

    /// What people see of lines.
    pub(super) async fn look_at(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let lines: Vec<(Name, Vec<Contender>)> = match scope {
            Scope::Names(names) => {
                let lines = self.read_lines(names.iter()).await?;
                names.iter().cloned().zip(lines.into_iter().map(|(line, _)| line)).collect()
            }
            Scope::All => self.read_all().await?,
        };
        let mut leases: Vec<_> =
            lines.iter().flat_map(|(_, line)| line.iter().map(|claim| claim.lease)).collect();
        leases.sort_unstable();
        leases.dedup();
        leases.retain(|lease| *lease != 0);
        let left = join_all(leases.iter().map(async |lease| {
            let answer = self.link.ask(LeaseTimeToLiveRequest { id: *lease, keys: false }).await.ok()?;
            u64::try_from(answer.answer.ttl).ok().map(Duration::from_secs)
        }));
        let left: HashMap<_, _> = leases.iter().copied().zip(left.await).collect();
        let views = lines.iter().filter(|(_, line)| !line.is_empty());
        Ok(views.map(|(name, line)| view(name, line, &left)).collect())
    }

    async fn read_all(&self) -> Result<Vec<(Name, Vec<Contender>)>, Failure> {
        let (key, range_end) = self.space.all();
        let answer = self.link.ask(RangeRequest::of(key, range_end)).await?.answer;
        let mut lines: HashMap<Name, Vec<KeyValue>> = HashMap::new();
        // What has no lease is something else that is kept there.
        for kv in answer.kvs.into_iter().filter(|kv| kv.lease != 0) {
            if let Some((name, _)) = self.space.name(&kv.key) {
                lines.entry(name).or_default().push(kv);
            }
        }
        let mut lines: Vec<_> =
            lines.into_iter().map(|(name, kvs)| (name.clone(), self.space.contenders(&name, kvs))).collect();
        lines.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(lines)
    }
}

/// The keys that a transaction read.
pub(super) fn kvs(responses: Vec<ResponseOp>) -> Vec<KeyValue> {
    responses.into_iter().find_map(|response| response.range).map(|range| range.kvs).unwrap_or_default()
}

fn view(name: &Name, line: &[Contender], left: &HashMap<i64, Option<Duration>>) -> LockView {
    let order = order(line);
    let epoch = order.holders().map(|index| line[index].epoch()).max().unwrap_or(0);
    let mut view = LockView::new(name.clone(), capacity(line), epoch as u64);
    let now = wall_micros();
    let shown = |index: usize, holds: bool| {
        let claim = &line[index];
        let age = Duration::from_micros(now.saturating_sub(claim.since));
        let left = left.get(&claim.lease).copied().flatten().unwrap_or_default();
        ClaimView::new(&claim.claim(name), holds.then_some(claim.epoch() as u64), age, left)
    };
    view.holders = order.holders().map(|index| shown(index, true)).collect();
    view.waiters = order.waiters().map(|index| shown(index, false)).collect();
    view
}
