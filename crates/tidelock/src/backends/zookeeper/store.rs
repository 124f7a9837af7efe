//! The verbs, and what they have in common.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use super::{
    claims::{Claims, Entry, Phase},
    codec::{nodes::Contender, paths},
    epochs::Epochs,
    errors::{ZkError, classify},
    fitness::Fitness,
    link::{
        Link,
        session::Session,
        wire::{self, Request},
    },
    own_nodes::Nodes,
    settings::ZookeeperSettings,
    turns::Turns,
    wake::{Events, Wake, pushes::Pushes, work::Work},
};
use crate::{
    backend::{
        Ask, Claim, ClaimId, Entered, Failure, FollowAll, Follows, Leave, Left, LockView, News, Place, Scope,
        Standing,
    },
    backends::shared::{
        following::{Following, Tell},
        mutex::lock,
        served::Verbs,
    },
    clock::{Clock, Moment},
    model::name::Name,
};

/// The shortest lease that is worth its messages.
pub(super) const MIN_TTL: Duration = Duration::from_millis(500);

/// How often something is tried again that others changed in between.
pub(super) const TRIES: usize = 8;

/// How soon a node that could not be deleted is tried again.
pub(super) const DELETE_AGAIN: Duration = Duration::from_secs(1);

/// The locks of an ensemble, as one client sees them.
#[derive(Debug)]
pub(crate) struct ZookeeperStore {
    pub(super) config: Arc<ZookeeperSettings>,
    pub(super) clock: Clock,
    pub(super) epochs: Epochs,
    pub(super) link: Link,
    /// Known once the client is connected.
    pub(super) fitness: OnceLock<Fitness>,
    claims: Mutex<Claims>,
    pub(super) turns: Turns,
    /// Holds of others that outlive their clients: their last change, and since when it is known here.
    pub(super) left: Mutex<HashMap<String, (i64, Moment)>>,
    pub(super) pushes: Arc<Pushes>,
    pub(super) work: Arc<Work>,
    pub(super) follows: Follows,
    /// Where it goes what servers say about names that are followed.
    pub(super) followed: Tell,
}

impl Verbs for ZookeeperStore {
    type Wake = Wake;

    fn concerns(&self) -> Vec<String> {
        let fitness = self.fitness.get();
        fitness.map_or_else(Vec::new, |fitness| fitness.concerns(&self.config, &self.link.all_sessions()))
    }

    async fn enter(self: Arc<Self>, claim: Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        if self.claims().get(claim.id).is_some() {
            // Asked before, and maybe not answered.
            match self.standings(std::slice::from_ref(&claim)).await?.pop() {
                Some(Standing::Held(grant)) => return Ok(Entered::Held(grant)),
                Some(Standing::Waiting(_)) if ask == Ask::Try => {
                    self.take_back(&claim).await?;
                    return Ok(Entered::Busy);
                }
                Some(Standing::Waiting(place)) => return Ok(Entered::Waiting(place)),
                Some(Standing::Gone | Standing::Unknown) | None => {
                    self.take_back(&claim).await?;
                }
            }
        }
        if ask == Ask::Try
            && let Some(answer) = self.would_enter(&claim).await?
        {
            return Ok(answer);
        }
        self.take_place(&claim, ask).await
    }

    async fn wait(self: Arc<Self>, wake: &mut Wake) -> Result<News, Failure> {
        wake.next(&self).await
    }

    async fn renew(self: Arc<Self>, claims: Vec<Arc<Claim>>) -> Result<Vec<Standing>, Failure> {
        self.standings(&claims).await
    }

    async fn leave(self: Arc<Self>, name: Name, id: ClaimId, why: Leave) -> Result<Left, Failure> {
        let left = match why {
            Leave::Evicted(reason) => self.evict(&name, id, &reason).await,
            Leave::Done => self.give_back(&name, id).await,
        };
        left.map_err(|error| classify(&error))
    }

    async fn look(self: Arc<Self>, scope: Scope) -> Result<Vec<LockView>, Failure> {
        self.views(&scope).await.map_err(|error| classify(&error))
    }

    fn follows(&self) -> Option<&Follows> {
        Some(&self.follows)
    }

    fn follow_all(self: Arc<Self>) -> Option<FollowAll> {
        Some(FollowAll::new(|told| self.hear_all(told)))
    }
}

impl ZookeeperStore {
    pub(super) fn new(config: ZookeeperSettings) -> (Arc<Self>, Wake) {
        let (config, follows) = (Arc::new(config), Follows::new());
        let (followed, following) = Following::new(follows.clone());
        let store = Arc::new_cyclic(|store| Self {
            clock: Clock::machine(),
            epochs: Epochs::new(&config.root),
            link: Link::new(Arc::clone(&config), Arc::new(Events(store.clone()))),
            fitness: OnceLock::new(),
            claims: Mutex::default(),
            turns: Turns::default(),
            left: Mutex::default(),
            pushes: Arc::default(),
            work: Arc::default(),
            follows,
            followed,
            config,
        });
        let wake = Wake { pushes: Arc::clone(&store.pushes), following };
        (store, wake)
    }

    pub(super) fn claims(&self) -> MutexGuard<'_, Claims> {
        lock(&self.claims)
    }

    pub(super) fn path(&self, name: &Name) -> String {
        paths::path(&self.config.root, name)
    }

    /// The children of a lock's node as of now, not as of when the server last heard from its leader.
    pub(super) async fn list_fresh(&self, session: &Session, parent: &str) -> Result<Vec<String>, ZkError> {
        let synced = session.ask(Request::sync(&self.config.root));
        let listed = session.ask(Request::children(parent, false));
        synced.await?;
        wire::children(&listed.await?)
    }

    /// A claim has these nodes now, of which the first says where it stands.
    pub(super) fn note_nodes(
        &self,
        id: ClaimId,
        nodes: impl IntoIterator<Item: Into<Arc<str>>>,
        epoch: u64,
    ) -> Result<(), ZkError> {
        let nodes: Nodes = nodes.into_iter().map(Into::into).collect();
        let first = nodes.first().and_then(|node| Contender::read(node.rsplit('/').next()?));
        let number = first.ok_or_else(ZkError::garbled)?.number;
        if self.claims().has_nodes(id, nodes, number, epoch, self.clock.now()) {
            self.work.stir();
        }
        Ok(())
    }

    /// A claim holds, unless it left in the meantime.
    pub(super) fn held(&self, id: ClaimId, waiting: u32) -> Standing {
        match self.note_stands(id, Phase::Held) {
            Some(entry) => Standing::Held(entry.grant(waiting)),
            None => Standing::Gone,
        }
    }

    /// A claim waits, unless it left in the meantime, or holds.
    pub(super) fn waits(&self, id: ClaimId, place: Place) -> Standing {
        match self.note_stands(id, Phase::Waiting) {
            Some(entry) if entry.phase == Phase::Held => Standing::Held(entry.grant(0)),
            Some(_) => Standing::Waiting(place),
            None => Standing::Gone,
        }
    }

    fn note_stands(&self, id: ClaimId, phase: Phase) -> Option<Entry> {
        let (entry, wake) = self.claims().stands(id, phase, self.clock.now())?;
        if wake {
            self.work.stir();
        }
        Some(entry)
    }

    /// The node of a claim is not there any more, and this client did not delete it.
    pub(super) fn note_gone(&self, id: ClaimId) {
        let mut claims = self.claims();
        if claims.get(id).is_some_and(|entry| entry.phase != Phase::Leaving)
            && let Some(entry) = claims.remove(id)
        {
            self.work.gone(entry);
        }
    }

    /// A node of a claim was not there when it was read. It may have another one by now.
    pub(super) async fn note_gone_unless_moved(&self, entry: &Entry) {
        // Nodes are replaced by one that has the turn.
        let turn = self.turns.of(entry.claim.id);
        let _alone = turn.comes().await;
        let same = self.claims().get(entry.claim.id).is_some_and(|now| now.nodes == entry.nodes);
        if same {
            self.note_gone(entry.claim.id);
        }
    }
}

impl Drop for ZookeeperStore {
    fn drop(&mut self) {
        // The task that does the work sees that there is none any more.
        self.work.stir();
    }
}
