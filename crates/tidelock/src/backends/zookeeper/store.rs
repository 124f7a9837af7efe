//! The verbs.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, mpsc::UnboundedSender};

use super::{
    config::ZookeeperConfig,
    errors::{BAD_VERSION, NO_AUTH, NO_NODE, ZkError, classify},
    notice::Notice,
    order::{Order, Stand},
    paths,
    session::{Answer, Listener, Session},
    table::{Entry, Follows, Phase, Table},
    wire::{self, Change, Request, Step},
};
use crate::{
    backend::{Ask, Claim, ClaimId, Entered, Failure, Leave, News, Place, Standing, What},
    claim::random_u64,
    clock::{Clock, Moment},
    name::Name,
};

/// The shortest lease that is worth its messages.
pub(super) const MIN_TTL: Duration = Duration::from_millis(500);

/// How often something is tried again that others changed in between.
pub(super) const TRIES: usize = 8;

/// How soon a node that could not be deleted is tried again.
pub(super) const DELETE_AGAIN: Duration = Duration::from_secs(1);

/// The locks of an ensemble, as one client sees them.
pub(super) struct ZkStore {
    pub(super) config: Arc<ZookeeperConfig>,
    pub(super) clock: Clock,
    /// One for each length of leases; the first one is also for everything else.
    sessions: Mutex<Vec<Arc<Session>>>,
    next_session: AtomicU64,
    table: Mutex<Table>,
    /// Holds of others that outlive their clients: their last change, and since when it is known here.
    pub(super) left: Mutex<HashMap<String, (i64, Moment)>>,
    pub(super) news: UnboundedSender<News>,
    pub(super) todo: UnboundedSender<Todo>,
    pub(super) wake: Arc<Notify>,
}

/// What is to be done because something happened.
#[derive(Debug)]
pub(super) enum Todo {
    /// Something moved in the line of a claim.
    Look(ClaimId),
    /// Somebody else deleted the node of a claim.
    Gone(Entry),
    /// A session was taken up again.
    Resumed(Vec<Entry>),
}

/// What was asked about a claim that is renewed.
enum Question {
    /// Nothing: it is known to be gone.
    Gone,
    /// It is of another client, and may outlive that.
    Ticket,
    /// Its own node, unless that is watched: then the server has said so if it is gone.
    Held(Option<Answer>),
    Left(Answer),
    /// The line with this number was listed.
    Waiting(usize),
    Unclear,
}

/// What was asked once for all claims of a batch that need it.
#[derive(Default)]
struct Shared {
    synced: Vec<(u64, Answer)>,
    listed: Vec<(u64, Arc<str>, Answer)>,
}

impl ZkStore {
    pub(super) fn new(
        config: ZookeeperConfig,
        news: UnboundedSender<News>,
        todo: UnboundedSender<Todo>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::new(config),
            clock: Clock::machine(),
            sessions: Mutex::default(),
            next_session: AtomicU64::new(1),
            table: Mutex::default(),
            left: Mutex::default(),
            news,
            todo,
            wake: Arc::default(),
        })
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All sessions of this client.
    pub(super) fn all_sessions(&self) -> Vec<Arc<Session>> {
        self.sessions().clone()
    }

    /// The session for leases of this length: one that ends as soon, or a little sooner.
    pub(super) fn session(self: &Arc<Self>, ttl: Duration) -> Arc<Session> {
        let mut sessions = self.sessions();
        sessions.retain(|session| !session.is_expired());
        let fits = |session: &&Arc<Session>| session.asked <= ttl && session.asked >= ttl / 5 * 4;
        if let Some(session) = sessions.iter().filter(fits).max_by_key(|session| session.asked) {
            return Arc::clone(session);
        }
        let key = self.next_session.fetch_add(1, Ordering::Relaxed);
        let listener = Box::new(Ears(Arc::downgrade(self)));
        // Clients spread over the servers.
        let first = random_u64() as usize % self.config.hosts.len();
        let session = Session::new(key, Arc::clone(&self.config), ttl, first, listener);
        sessions.push(Arc::clone(&session));
        session
    }

    /// A session for questions that belong to no claim.
    pub(super) fn any_session(self: &Arc<Self>) -> Arc<Session> {
        let first = self.sessions().iter().find(|session| !session.is_expired()).cloned();
        first.unwrap_or_else(|| self.session(crate::DEFAULT_TTL))
    }

    pub(super) fn path(&self, name: &Name) -> String {
        paths::path(&self.config.root, name)
    }

    pub(super) async fn enter(self: &Arc<Self>, claim: &Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        if self.table().get(claim.id).is_some() {
            // Asked before, and maybe not answered.
            match self.renew(std::slice::from_ref(claim)).await?.pop() {
                Some(Standing::Held(grant)) => return Ok(Entered::Held(grant)),
                Some(Standing::Waiting(_)) if ask == Ask::Try => {
                    self.leave(&claim.name, claim.id, &Leave::Done).await?;
                    return Ok(Entered::Busy);
                }
                Some(Standing::Waiting(place)) => return Ok(Entered::Waiting(place)),
                Some(Standing::Gone | Standing::Unknown) | None => {
                    self.leave(&claim.name, claim.id, &Leave::Done).await?;
                }
            }
        }
        if ask == Ask::Try
            && let Some(answer) = self.would_enter(claim).await?
        {
            return Ok(answer);
        }
        self.take_place(claim, ask).await
    }

    /// A try that cannot succeed is answered without a place in line.
    async fn would_enter(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Option<Entered>, Failure> {
        let (session, parent) = (self.session(claim.ttl), self.path(&claim.name));
        for _ in 0..TRIES {
            let order = match self.list_fresh(&session, &parent).await {
                Ok(children) => Order::read(&children),
                Err(error) if error.is(NO_NODE) => return Ok(None),
                Err(error) => return Err(classify(&error)),
            };
            match order.would_stand(claim) {
                Stand::Refused(refusal) => return Ok(Some(Entered::Refused(refusal))),
                Stand::Waits(wait) => {
                    let left = self.end_left_holds(&session, &parent, &wait.left, true).await;
                    if !left.map_err(|error| classify(&error))?.ended {
                        return Ok(Some(Entered::Busy));
                    }
                }
                Stand::Holds { .. } | Stand::Rides(_) | Stand::Absent => return Ok(None),
            }
        }
        Ok(Some(Entered::Busy))
    }

    /// The children of a lock's node as of now, not as of when the server last heard from its leader.
    pub(super) async fn list_fresh(&self, session: &Session, parent: &str) -> Result<Vec<String>, ZkError> {
        let synced = session.ask(Request::sync(&self.config.root));
        let listed = session.ask(Request::children(parent, false));
        synced.await?;
        wire::children(&listed.await?)
    }

    pub(super) async fn renew(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<Vec<Standing>, Failure> {
        let mut shared = Shared::default();
        let asked: Vec<_> = claims.iter().map(|claim| self.question(claim, &mut shared)).collect();
        // A server answers reads though it lost its leader; with this it has to have heard from that.
        let mut confirmed = HashMap::new();
        for (session, answer) in shared.synced {
            confirmed.insert(session, answer.on_connection().await);
        }
        let mut lines = Vec::with_capacity(shared.listed.len());
        for (_, _, answer) in shared.listed {
            lines
                .push(answer.await.and_then(|listed| wire::children(&listed)).map(|line| Order::read(&line)));
        }
        let mut standings = Vec::with_capacity(claims.len());
        let mut failure = None;
        for (claim, (session, question)) in claims.iter().zip(asked) {
            let standing = match confirmed.get(&session) {
                Some((Err(ZkError::Expired), _)) if !claim.detached => Ok(Standing::Gone),
                Some((Err(ZkError::Expired), _)) => self.renew_ticket(claim).await,
                Some((Err(error), _)) => Err(error.clone()),
                Some((Ok(_), connection)) => self.standing(claim, question, &lines, *connection).await,
                None => self.standing(claim, question, &lines, 0).await,
            };
            standings.push(match standing {
                Err(ZkError::Expired) => Standing::Gone,
                // Of another session more may be known.
                Err(error) => {
                    failure.get_or_insert_with(|| classify(&error));
                    Standing::Unknown
                }
                Ok(standing) => standing,
            });
        }
        match failure {
            Some(failure) if standings.iter().all(|standing| *standing == Standing::Unknown) => Err(failure),
            _ => Ok(standings),
        }
    }

    fn question(&self, claim: &Claim, shared: &mut Shared) -> (u64, Question) {
        let entry = self.table().get(claim.id).filter(|entry| entry.claim.name == claim.name).cloned();
        let Some(entry) = entry else {
            return (0, if claim.detached { Question::Ticket } else { Question::Gone });
        };
        let session = &entry.session;
        if !shared.synced.iter().any(|(key, _)| *key == session.key) {
            shared.synced.push((session.key, session.ask(Request::sync(&self.config.root))));
        }
        let question = match entry.phase {
            Phase::Held if entry.stays() => {
                Question::Left(session.ask(Request::set_data(&entry.nodes[0], &super::view::data(claim), -1)))
            }
            Phase::Held => Question::Held(
                (!entry.is_watched()).then(|| session.ask(Request::get_data(&entry.nodes[0], true))),
            ),
            Phase::Waiting => {
                let is_same = |(key, parent, _): &(u64, Arc<str>, Answer)| {
                    *key == session.key && *parent == entry.parent
                };
                let listed = shared.listed.iter().position(is_same).unwrap_or_else(|| {
                    let answer = session.ask(Request::children(&entry.parent, false));
                    shared.listed.push((session.key, Arc::clone(&entry.parent), answer));
                    shared.listed.len() - 1
                });
                Question::Waiting(listed)
            }
            Phase::Unclear => Question::Unclear,
            Phase::Leaving => Question::Gone,
        };
        (session.key, question)
    }

    /// How a claim stands, from what was asked about it. Its session was confirmed on that connection.
    async fn standing(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        question: Question,
        lines: &[Result<Order, ZkError>],
        confirmed_on: u64,
    ) -> Result<Standing, ZkError> {
        match question {
            Question::Gone => Ok(Standing::Gone),
            Question::Ticket => self.renew_ticket(claim).await,
            Question::Unclear => self.find_again(claim).await,
            Question::Held(own) => {
                let Some(entry) = self.table().get(claim.id).cloned() else { return Ok(Standing::Gone) };
                // What a server says comes in order: had the node gone before it confirmed the session, it would
                // have said so by then, if it watches on the same connection.
                let own = match own {
                    None if entry.is_watched_on(confirmed_on) => None,
                    None => Some(entry.session.ask(Request::get_data(&entry.nodes[0], true))),
                    asked => asked,
                };
                if let Some(own) = own {
                    let (seen, connection) = own.on_connection().await;
                    match seen {
                        Ok(_) => self.table().is_watched(claim.id, connection),
                        Err(error) if error.is(NO_NODE) => {
                            self.note_gone(claim.id);
                            return Ok(Standing::Gone);
                        }
                        Err(error) => return Err(error),
                    }
                }
                // Nobody counts who waits: a process has had its turn long before it renews.
                Ok(self.held(claim.id, 0))
            }
            Question::Left(written) => match written.await {
                Ok(stat) => {
                    let now = self.clock.now();
                    self.table().written(claim.id, wire::stat(&stat)?.mzxid, now);
                    Ok(self.held(claim.id, 0))
                }
                Err(error) if error.is(NO_NODE) => {
                    self.table().remove(claim.id);
                    Ok(Standing::Gone)
                }
                Err(error) => Err(error),
            },
            Question::Waiting(listed) => {
                let order = match &lines[listed] {
                    Err(error) if error.is(NO_NODE) => return self.look_at(claim.id).await,
                    order => order.as_ref().map_err(ZkError::clone)?,
                };
                let Some(entry) = self.table().get(claim.id).cloned() else { return Ok(Standing::Gone) };
                match order.stand(claim, entry_node(&entry)) {
                    Stand::Waits(wait) if wait.left.is_empty() => {
                        Ok(self.waits(claim.id, Place { ahead: wait.ahead, lapse_in: None }))
                    }
                    // It holds, or somebody ahead may have lapsed: with care, one at a time.
                    _ => self.look_at(claim.id).await,
                }
            }
        }
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
        let (entry, wake) = self.table().stands(id, phase, self.clock.now())?;
        if wake {
            self.wake.notify_one();
        }
        Some(entry)
    }

    /// The node of a claim is not there any more, and this client did not delete it.
    pub(super) fn note_gone(&self, id: ClaimId) {
        let mut table = self.table();
        if table.get(id).is_some_and(|entry| entry.phase != Phase::Leaving)
            && let Some(entry) = table.remove(id)
        {
            // Nobody looks after it only when the client is gone.
            let _ = self.todo.send(Todo::Gone(entry));
        }
    }

    /// A node of a claim was not there when it was read. It may have another one by now.
    pub(super) async fn note_gone_unless_moved(&self, entry: &Entry) {
        // Whoever replaces nodes does so in its turn.
        let _alone = entry.turn.lock().await;
        let same = self.table().get(entry.claim.id).is_some_and(|now| now.nodes == entry.nodes);
        if same {
            self.note_gone(entry.claim.id);
        }
    }

    pub(super) async fn leave(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        why: &Leave,
    ) -> Result<(), Failure> {
        let done = match why {
            Leave::Evicted(reason) => self.evict(name, id, reason).await,
            Leave::Done => match self.table_leaves(name, id) {
                Some(entry) => self.remove(&entry).await,
                None => self.remove_unknown(name, id).await,
            },
        };
        done.map_err(|error| classify(&error))
    }

    fn table_leaves(&self, name: &Name, id: ClaimId) -> Option<Entry> {
        let mut table = self.table();
        table.get(id).filter(|entry| entry.claim.name == *name)?;
        table.leaves(id, self.clock.now() + DELETE_AGAIN)
    }

    /// Deletes the nodes of a claim of this client.
    pub(super) async fn remove(self: &Arc<Self>, entry: &Entry) -> Result<(), ZkError> {
        // Whoever deletes its own node need not be told; whoever stands behind it has to be, also if it is of
        // this client.
        let unwatched = {
            let table = self.table();
            let alone = entry.is_watched() && !table.is_waited_for(entry.session.key, &entry.nodes[0]);
            alone.then(|| entry.session.ask(Request::unwatch(&entry.nodes[0])))
        };
        let answers: Vec<_> =
            entry.nodes.iter().map(|node| entry.session.ask(Request::delete(node, -1))).collect();
        let mut expired = entry.session.is_expired();
        for answer in answers {
            match answer.await {
                Ok(_) => {}
                Err(error) if error.is(NO_NODE) => {}
                Err(ZkError::Expired) => expired = true,
                Err(error) => return Err(error),
            }
        }
        drop(unwatched);
        // With a session its nodes go; one that outlives its client, and one that nobody knows, have to be found.
        if entry.nodes.is_empty() || expired && entry.claim.detached {
            self.remove_unknown(&entry.claim.name, entry.claim.id).await?;
        }
        self.table().remove(entry.claim.id);
        Ok(())
    }

    /// Deletes the nodes of a claim that this client knows nothing of.
    async fn remove_unknown(self: &Arc<Self>, name: &Name, id: ClaimId) -> Result<(), ZkError> {
        let parent = self.path(name);
        let session = self.session_of(id);
        let children = match self.list_fresh(&session, &parent).await {
            Err(error) if error.is(NO_NODE) => return Ok(()),
            children => children?,
        };
        for contender in Order::nodes_of(&children, id) {
            let deleted = session.ask(Request::delete(&format!("{parent}/{}", contender.node), -1)).await;
            if let Err(error) = deleted
                && !error.is(NO_NODE)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The session on which a node of a claim may still be made.
    pub(super) fn session_of(self: &Arc<Self>, id: ClaimId) -> Arc<Session> {
        let session = self.table().get(id).map(|entry| Arc::clone(&entry.session));
        session.filter(|session| !session.is_expired()).unwrap_or_else(|| self.any_session())
    }

    /// Puts a claim out, and writes down why for whoever it belongs to.
    async fn evict(self: &Arc<Self>, name: &Name, id: ClaimId, reason: &str) -> Result<(), ZkError> {
        let (session, parent) = (self.any_session(), self.path(name));
        for _ in 0..TRIES {
            let synced = session.ask(Request::sync(&self.config.root));
            let (read, listed) = (
                session.ask(Request::get_data(&parent, false)),
                session.ask(Request::children(&parent, false)),
            );
            synced.await?;
            let (data, stat) = match read.await {
                Err(error) if error.is(NO_NODE) => return Ok(()),
                read => wire::data(&read?)?,
            };
            let nodes = Order::nodes_of(&wire::children(&listed.await?)?, id);
            let nodes: Vec<_> = nodes.iter().map(|node| format!("{parent}/{}", node.node)).collect();
            if nodes.is_empty() {
                return Ok(());
            }
            let mut steps: Vec<_> = nodes.iter().map(|node| Step::Delete(node)).collect();
            let notice = Notice::read(&data).map(|notice| notice.with(id, reason));
            if let Some(notice) = &notice {
                steps.push(Step::SetData(&parent, notice, stat.version));
            }
            let done = session.ask(Request::multi(&steps)).await.and_then(|done| wire::multi(&done));
            match done {
                Ok(_) => return Ok(()),
                // It left meanwhile, or somebody else was put out.
                Err(error) if error.is(NO_NODE) || error.is(BAD_VERSION) => {}
                // Without the right to write down why it goes all the same.
                Err(error) if error.is(NO_AUTH) && notice.is_some() => {
                    for node in &nodes {
                        session.ask(Request::delete(node, -1)).await?;
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Err(ZkError::Code(BAD_VERSION))
    }

    pub(super) fn tell(&self, claim: &Claim, what: What) {
        // Nobody listens any more only when the client is gone.
        let _ = self.news.send(News { name: claim.name.clone(), id: claim.id, what });
    }
}

/// The name of the first node of a claim.
pub(super) fn entry_node(entry: &Entry) -> &str {
    entry.nodes.first().map_or("", |node| node.rsplit('/').next().unwrap_or(node))
}

impl fmt::Debug for ZkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZkStore({:?}, {:?})", self.config, self.sessions())
    }
}

/// How sessions tell what happens to them. They may outlive the store.
struct Ears(Weak<ZkStore>);

impl Listener for Ears {
    fn changed(&self, session: u64, change: Change, path: &str) {
        let Some(store) = self.0.upgrade() else { return };
        let now = store.clock.now();
        let follows = store.table().changed(session, change, path, now);
        for follows in follows {
            match follows {
                Follows::Granted(entry) => store.tell(&entry.claim, What::Granted(entry.grant(0))),
                Follows::Gone(entry) => drop(store.todo.send(Todo::Gone(entry))),
                Follows::Look(id) => drop(store.todo.send(Todo::Look(id))),
            }
        }
        if change == Change::Other {
            store.wake.notify_one();
        }
    }

    fn resumed(&self, session: u64) {
        let Some(store) = self.0.upgrade() else { return };
        let entries = store.table().of_session(session);
        let _ = store.todo.send(Todo::Resumed(entries));
    }

    fn expired(&self, session: u64) {
        let Some(store) = self.0.upgrade() else { return };
        let mut table = store.table();
        let over = table.of_session(session);
        for entry in &over {
            table.remove(entry.claim.id);
        }
        drop(table);
        for entry in over.iter().filter(|entry| entry.phase != Phase::Leaving) {
            // Whoever holds or waits asks, and hears that it is gone.
            store.tell(&entry.claim, What::Ask);
        }
    }
}
