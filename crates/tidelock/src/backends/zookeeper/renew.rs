//! A batch of claims is renewed: each session is confirmed once, each line is listed once.
//!
//! Of very many that wait no line is listed. A server tells what happens to a node that it watches before it answers a
//! later question on the same connection: when it has confirmed the session, and said nothing of a claim's own node and
//! of those that the claim waits for, the claim waits. How far the line moved ahead of those nodes is not known then.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    claims::Phase,
    errors::{NO_NODE, ZkError, classify},
    link::{
        session::Answer,
        wire::{self, Request},
    },
    order::{Order, Position},
    store::ZookeeperStore,
    view,
};
use crate::{
    backend::{Claim, Failure, Place, Standing},
    model::name::Name,
};

/// The lines of so few that wait are listed.
const FEW: usize = 32;
/// How soon those are asked about again whose line was not listed. It costs as little as asking seldom, and any of them
/// may be the first by now.
const AGAIN: Duration = Duration::from_secs(2);

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
    /// Nothing: all that it waits for is watched.
    Watching,
    Unclear,
}

/// What was asked once for all claims of a batch that need it.
#[derive(Default)]
struct Shared {
    /// Whether more than a few of them wait.
    many: bool,
    synced: Vec<(u64, Answer)>,
    listed: Vec<(u64, Name, Answer)>,
}

impl ZookeeperStore {
    /// Renews claims, and says how each stands.
    pub(super) async fn standings(&self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>, Failure> {
        let mut shared = Shared { many: self.are_many(claims), ..Shared::default() };
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

    fn are_many(&self, claims: &[Arc<Claim>]) -> bool {
        let own = self.claims();
        let waits =
            |claim: &&Arc<Claim>| own.get(claim.id).is_some_and(|entry| entry.phase == Phase::Waiting);
        claims.len() > FEW && claims.iter().filter(waits).nth(FEW).is_some()
    }

    fn question(&self, claim: &Claim, shared: &mut Shared) -> (u64, Question) {
        let entry = self.claims().get(claim.id).filter(|entry| entry.claim.name == claim.name).cloned();
        let Some(entry) = entry else {
            return (0, if claim.detached { Question::Ticket } else { Question::Gone });
        };
        let session = &entry.session;
        if !shared.synced.iter().any(|(key, _)| *key == session.key) {
            shared.synced.push((session.key, session.ask(Request::sync(&self.config.root))));
        }
        let question = match entry.phase {
            Phase::Held if entry.nodes.is_empty() => Question::Unclear,
            Phase::Held if entry.stays() => {
                Question::Left(session.ask(Request::set_data(&entry.nodes[0], &view::data(claim), -1)))
            }
            Phase::Held => Question::Held(
                (!entry.is_watched()).then(|| session.ask(Request::get_data(&entry.nodes[0], true))),
            ),
            Phase::Waiting
                if shared.many && self.claims().still_waits(claim.id, session.connections()).is_some() =>
            {
                Question::Watching
            }
            Phase::Waiting => {
                let is_same =
                    |(key, name, _): &(u64, Name, Answer)| *key == session.key && *name == claim.name;
                let listed = shared.listed.iter().position(is_same).unwrap_or_else(|| {
                    let answer = session.ask(Request::children(&self.path(&claim.name), false));
                    shared.listed.push((session.key, claim.name.clone(), answer));
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
        &self,
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
                let Some(entry) = self.claims().get(claim.id).cloned() else { return Ok(Standing::Gone) };
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
                        Ok(_) => self.claims().is_watched(claim.id, &entry.nodes[0], connection),
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
                    self.claims().written(claim.id, wire::stat(&stat)?.mzxid, now);
                    Ok(self.held(claim.id, 0))
                }
                Err(error) if error.is(NO_NODE) => {
                    self.claims().remove(claim.id);
                    Ok(Standing::Gone)
                }
                Err(error) => Err(error),
            },
            Question::Watching => {
                let still = self.claims().still_waits(claim.id, confirmed_on);
                match still {
                    Some(ahead) => Ok(self.waits(claim.id, Place { ahead, lapse_in: Some(AGAIN) })),
                    None => self.look_at(claim.id).await,
                }
            }
            Question::Waiting(listed) => {
                let order = match &lines[listed] {
                    Err(error) if error.is(NO_NODE) => return self.look_at(claim.id).await,
                    order => order.as_ref().map_err(ZkError::clone)?,
                };
                let Some(entry) = self.claims().get(claim.id).cloned() else { return Ok(Standing::Gone) };
                match order.position(claim, entry.node()) {
                    Position::Waits(wait) if wait.left.is_empty() => {
                        Ok(self.waits(claim.id, Place { ahead: wait.ahead, lapse_in: None }))
                    }
                    // It holds, or somebody ahead may have lapsed: with care, one at a time.
                    _ => self.look_at(claim.id).await,
                }
            }
        }
    }
}
