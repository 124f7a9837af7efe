//! What people see of lines, and what is written for them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    codec::{nodes::Contender, paths},
    errors::{NO_NODE, ZkError},
    link::{
        session::Session,
        wire::{self, Request, Stat},
    },
    order::Order,
    store::ZookeeperStore,
};
use crate::{
    backend::{Claim, ClaimId, ClaimView, LockView, Scope},
    clock::wall_micros,
    model::name::Name,
    model::owner::{Owner, split_label},
};

/// How many nodes are read at once.
const AT_ONCE: usize = 256;

/// What is written into a claim's node: who says it is, and its ttl.
pub(super) fn data(claim: &Claim) -> Vec<u8> {
    format!("{}\nttl {}ms", claim.label, claim.ttl.as_millis()).into_bytes()
}

fn read_data(data: &[u8]) -> (Arc<str>, Duration) {
    let text = String::from_utf8_lossy(data);
    let ttl = text.rsplit_once('\n').and_then(|(label, ttl)| {
        let millis = ttl.strip_prefix("ttl ")?.strip_suffix("ms")?.parse().ok()?;
        Some((label.into(), Duration::from_millis(millis)))
    });
    // What other programs write: Curator an address, kazoo an identifier, or nothing.
    let label: String = text.chars().filter(|c| !c.is_control()).take(128).collect();
    ttl.unwrap_or_else(|| (label.into(), Duration::ZERO))
}

impl ZookeeperStore {
    /// What is in line.
    pub(super) async fn views(&self, scope: &Scope) -> Result<Vec<LockView>, ZkError> {
        let session = self.link.any_session();
        let synced = session.ask(Request::sync(&self.config.root));
        let epochs = self.prepare_epochs(&session);
        synced.await?;
        self.learn_epochs(&session, epochs).await;
        let names = match scope {
            Scope::Names(names) => names.clone(),
            Scope::All => self.names(&session).await?,
        };
        let mut views = Vec::new();
        for some in names.chunks(AT_ONCE) {
            let asked: Vec<_> = some
                .iter()
                .map(|name| (name, session.ask(Request::children(&self.path(name), false))))
                .collect();
            for (name, answer) in asked {
                let children = match answer.await {
                    Err(error) if error.is(NO_NODE) => continue,
                    children => wire::children(&children?)?,
                };
                views.extend(self.view(&session, name, &children).await?);
            }
        }
        Ok(views)
    }

    async fn view(
        &self,
        session: &Session,
        name: &Name,
        children: &[String],
    ) -> Result<Option<LockView>, ZkError> {
        let order = Order::read(children);
        let parent = self.path(name);
        let all: Vec<_> = order.holders().chain(order.waiters()).collect();
        let mut read: HashMap<String, (Vec<u8>, Stat)> = HashMap::new();
        for some in all.chunks(AT_ONCE) {
            let asked: Vec<_> = some
                .iter()
                .map(|node| (node, session.ask(Request::get_data(&format!("{parent}/{}", node.node), false))))
                .collect();
            for (node, answer) in asked {
                match answer.await {
                    // It left in between.
                    Err(error) if error.is(NO_NODE) => {}
                    answer => drop(read.insert(node.node.clone(), wire::data(&answer?)?)),
                }
            }
        }
        let claim = |contender: &Contender, holds: bool| {
            let (data, stat) = read.get(&contender.node)?;
            let (label, ttl) = read_data(data);
            let (label, advertised) = split_label(&label);
            let epoch = contender.epoch.or_else(|| self.epochs.shown(stat.czxid));
            // The first claim of all is made before the base is: it has no epoch yet, and does not hold before it has.
            // What others make has no epoch but its transaction.
            let epoch = epoch.or_else(|| contender.id.is_none().then_some(stat.czxid.unsigned_abs()));
            let born = u64::try_from(stat.ctime).unwrap_or(0).saturating_mul(1_000);
            let ttl = contender.lease.unwrap_or(ttl);
            Some(ClaimView {
                id: contender.id.unwrap_or(ClaimId::from_u128(stat.czxid.unsigned_abs().into())),
                share: contender.share,
                owner: contender.owner.as_deref().and_then(|owner| Owner::new(owner).ok()),
                label,
                advertised,
                epoch: epoch.filter(|_| holds),
                age: Duration::from_micros(wall_micros().saturating_sub(born)),
                lapse_in: ttl,
                foreign: None,
            })
        };
        let mut view = LockView::new(name.clone(), order.capacity, 0);
        view.holders = order.holders().filter_map(|contender| claim(contender, true)).collect();
        view.waiters = order.waiters().filter_map(|contender| claim(contender, false)).collect();
        view.epoch = view.holders.iter().filter_map(|holder| holder.epoch).max().unwrap_or(0);
        let in_use = !view.holders.is_empty() || !view.waiters.is_empty();
        Ok(in_use.then_some(view))
    }

    /// The names of all locks in use: all nodes below the root that somebody stands below.
    async fn names(&self, session: &Session) -> Result<Vec<Name>, ZkError> {
        let (mut names, mut level) = (Vec::new(), vec![self.config.root.clone()]);
        while !level.is_empty() {
            let mut below = Vec::new();
            for some in level.chunks(AT_ONCE) {
                let asked: Vec<_> =
                    some.iter().map(|path| (path, session.ask(Request::children(path, false)))).collect();
                for (path, answer) in asked {
                    let children = match answer.await {
                        Err(error) if error.is(NO_NODE) => continue,
                        children => wire::children(&children?)?,
                    };
                    let (standing, others): (Vec<_>, Vec<_>) =
                        children.iter().partition(|child| Contender::read(child).is_some());
                    if !standing.is_empty() {
                        names.extend(paths::name(&self.config.root, path));
                    }
                    below.extend(others.iter().map(|child| format!("{path}/{child}")));
                }
            }
            level = below;
        }
        names.sort();
        Ok(names)
    }
}
