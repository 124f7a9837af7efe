//! Enters and leaves that go together in one statement. What it leaves open is asked with the verbs, one by one.

use std::sync::Arc;

use tokio_postgres::types::ToSql;

use super::{
    codec::{self, Id, strange, value},
    link::Link,
    store::TOGETHER,
};
use crate::{
    backend::{Call, Failure},
    backends::shared::{
        steps::{Step, Steps, one_for_each_name},
        units::addable_micros,
    },
};

/// The epoch of an enter that was granted at once. Of a leave it says that the claim was removed, and nothing else.
pub(super) type Together = Steps<i64>;

/// The enters and leaves of a client.
pub(super) fn together(link: &Arc<Link>) -> Together {
    let link = Arc::clone(link);
    Together::new(move |steps| {
        let link = Arc::clone(&link);
        Call::later(async move { ask(&link, &steps).await })
    })
}

async fn ask(link: &Arc<Link>, steps: &[Step]) -> Result<Vec<Option<i64>>, Failure> {
    let chosen = one_for_each_name(steps);
    let mut batch = Batch::default();
    for index in &chosen {
        batch.add(link.prefix(), &steps[*index]);
    }
    let values: [&(dyn ToSql + Sync); 9] = [
        &batch.names,
        &batch.ids,
        &batch.ttls,
        &batch.shares,
        &batch.ns,
        &batch.ofs,
        &batch.detached,
        &batch.owners,
        &batch.labels,
    ];
    let answer = link.ask(TOGETHER, &values).await?;
    let done: Vec<i64> = value::<Option<Vec<i64>>>(&answer.rows)?.unwrap_or_default();
    let (numbers, epochs) = done.split_at(done.len() / 2);
    let mut answers = vec![None; steps.len()];
    for (number, epoch) in numbers.iter().zip(epochs) {
        let number = usize::try_from(*number).unwrap_or_default().checked_sub(1);
        let index = number.and_then(|number| chosen.get(number)).ok_or_else(strange)?;
        answers[*index] = Some(*epoch);
    }
    Ok(answers)
}

/// The arguments: one array for each column.
#[derive(Debug, Default)]
struct Batch<'a> {
    names: Vec<String>,
    ids: Vec<Id>,
    ttls: Vec<Option<i64>>,
    shares: Vec<Option<i16>>,
    ns: Vec<Option<i64>>,
    ofs: Vec<Option<i64>>,
    detached: Vec<Option<bool>>,
    owners: Vec<Option<&'a str>>,
    labels: Vec<Option<&'a str>>,
}

impl<'a> Batch<'a> {
    fn add(&mut self, prefix: &str, step: &'a Step) {
        self.names.push([prefix, step.name().as_str()].concat());
        self.ids.push(Id(step.id()));
        let claim = step.entering();
        let share = claim.map(|claim| codec::share(claim.share));
        self.ttls.push(claim.map(|claim| addable_micros(claim.ttl)));
        self.shares.push(share.map(|(kind, _, _)| kind));
        self.ns.push(share.map(|(_, n, _)| n));
        self.ofs.push(share.map(|(_, _, of)| of));
        self.detached.push(claim.map(|claim| claim.detached));
        self.owners.push(claim.and_then(|claim| claim.owner.as_ref()).map(|owner| owner.as_str()));
        self.labels.push(claim.map(|claim| &*claim.label));
    }
}
