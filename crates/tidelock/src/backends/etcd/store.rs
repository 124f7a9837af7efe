//! The verbs: what one client asks about the locks of an installation.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use super::{
    claims::Claims, codec::Space, epochs::Epochs, hearing::Hearing, leases::Leases, link::Link, wake::Wake,
};
use crate::{
    backend::{
        Ask, Claim, ClaimId, Entered, Failure, FollowAll, Follows, Leave, Left, LockView, News, Scope,
        Standing,
    },
    backends::shared::{mutex::lock, served::Verbs},
    clock::Clock,
    model::name::Name,
};

/// How often something is tried again that others came in between of.
pub(super) const TRIES: usize = 8;

/// The locks of an installation, as one client sees them.
#[derive(Debug)]
pub(crate) struct EtcdStore {
    pub(super) space: Arc<Space>,
    pub(super) link: Arc<Link>,
    pub(super) leases: Leases,
    pub(super) epochs: Epochs,
    pub(super) clock: Clock,
    pub(super) claims: Mutex<Claims>,
    pub(super) hearing: Hearing,
    pub(super) follows: Follows,
    /// Told when there is something to do for `wait` that no watch told it of.
    pub(super) stirred: Arc<Notify>,
}

impl Verbs for EtcdStore {
    type Wake = Wake;

    fn concerns(&self) -> Vec<String> {
        self.link.concerns()
    }

    fn notes(&self) -> Vec<String> {
        self.link.notes()
    }

    async fn enter(self: Arc<Self>, claim: Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        self.enter_line(&claim, ask).await
    }

    async fn wait(self: Arc<Self>, wake: &mut Wake) -> Result<News, Failure> {
        wake.next(&self).await
    }

    async fn renew(self: Arc<Self>, claims: Vec<Arc<Claim>>) -> Result<Vec<Standing>, Failure> {
        self.renew_all(&claims).await
    }

    async fn leave(self: Arc<Self>, name: Name, id: ClaimId, why: Leave) -> Result<Left, Failure> {
        self.leave_line(&name, id, &why).await
    }

    async fn look(self: Arc<Self>, scope: Scope) -> Result<Vec<LockView>, Failure> {
        self.look_at(&scope).await
    }

    fn follows(&self) -> Option<&Follows> {
        Some(&self.follows)
    }

    fn follow_all(self: Arc<Self>) -> Option<FollowAll> {
        Some(FollowAll::new(|told| self.hear_all(told)))
    }
}

impl EtcdStore {
    pub(super) fn new(link: Arc<Link>, prefix: &str) -> Self {
        let (clock, space) = (Clock::machine(), Arc::new(Space::new(prefix)));
        let stirred = Arc::new(Notify::new());
        Self {
            epochs: Epochs::new(space.epoch(), Arc::clone(&link), clock.clone()),
            claims: Mutex::new(Claims::new(Arc::clone(&space))),
            space,
            leases: Leases::new(Arc::clone(&link), clock.clone(), Arc::clone(&stirred)),
            link,
            clock,
            hearing: Hearing::default(),
            follows: Follows::new(),
            stirred,
        }
    }

    pub(super) fn claims(&self) -> MutexGuard<'_, Claims> {
        lock(&self.claims)
    }

    /// The cluster was restored from a snapshot: claims that were left are back, under leases that this client would
    /// keep alive for as long as it holds anything. All of them end; holders hear it, and are lost.
    pub(super) async fn begin_anew(&self) {
        self.leases.revoke_all().await;
    }

    /// There may be something to do for `wait`.
    pub(super) fn stir(&self) {
        if self.claims().is_restless() {
            self.stirred.notify_one();
        }
    }
}
