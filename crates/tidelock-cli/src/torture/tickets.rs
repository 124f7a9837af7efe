//! Holds that go on by a ticket: the guard is left behind, and the word that stands for the lock is all that is left.

use std::time::Duration;

use tidelock::{Guard, Ticket};
use tokio::time::sleep;

use super::{
    asks::{Hold, Request, Way},
    history::BY_TICKET,
    player::{Player, nanos},
    record::Event,
    work::{Pace, Use},
};
use crate::clock::Moment;

impl Player {
    /// Takes a slow lock and goes on with it by its ticket.
    pub(super) async fn ticket(&mut self) -> bool {
        let Some(lock) = self.some_lock(Pace::Slow) else { return false };
        let usage = self.work.locks[lock].usage;
        if usage == Use::Election {
            return true;
        }
        let way = Way::TryFor(self.rng.millis(1, 3_000));
        let times = self.rng.between(0, 4) as u32;
        let hold = Hold::ByTicket(self.rng.millis(0, 400), times);
        let share = self.share(usage);
        self.request(Request { lock, share, way, owner: 0, renews: true, hold }).await
    }

    /// Leaves a lock behind, renews it by its ticket, and releases it by that, or lets it expire. Then it must not be possible
    /// to renew it any more.
    pub(super) async fn by_ticket(
        &mut self,
        op: u32,
        lock: usize,
        guard: Guard,
        (pause, times): (Duration, u32),
    ) {
        sleep(pause).await;
        if !self.check(op, &guard.holding()) {
            return self.let_go(op, guard).await;
        }
        // As another program would have it.
        let left = guard.leave_behind().map(|ticket| ticket.to_string());
        let Ok(Ok(ticket)) = left.map(|text| text.parse::<Ticket>()) else {
            // Lost since it was looked at.
            self.journal.note(&Event::Lost { op, reason: BY_TICKET.to_owned() });
            return;
        };
        for _ in 0..times {
            sleep(pause).await;
            if !self.resume(op, &ticket).await {
                return;
            }
        }
        let ttl = Duration::from_millis(self.work.locks[lock].ttl_ms);
        if self.rng.chance(100) {
            // For others it is free after one ttl, or a little later.
            sleep(ttl * 3 + Duration::from_secs(2)).await;
        } else {
            let left = nanos(ttl).max(1);
            self.journal.note(&Event::Releasing { op, left });
            let answer = match self.locks.release(&ticket).await {
                Ok(()) => "ok".to_owned(),
                Err(error) => format!("{:?}", error.kind()),
            };
            self.journal.note(&Event::Released { op, answer });
            sleep(self.rng.millis(0, 100)).await;
        }
        self.resume(op, &ticket).await;
    }

    /// Renews a lock by its ticket. Says whether it may still be held.
    async fn resume(&self, op: u32, ticket: &Ticket) -> bool {
        let asked = Moment::now();
        match self.locks.renew(ticket).await {
            Ok(()) => {
                let until = asked.plus(usable(ticket.ttl())).as_nanos();
                let token = ticket.token().get();
                self.journal.note_at(asked.as_nanos(), &Event::Resumed { op, token, until });
                true
            }
            Err(error) if error.is_lost() => {
                self.journal.note(&Event::Lost { op, reason: BY_TICKET.to_owned() });
                false
            }
            // The store did not answer: what is left of the window stays as it is.
            Err(_) => true,
        }
    }
}

/// How much of a ttl counts: clocks may differ in rate by one percent.
fn usable(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100 + Duration::from_millis(2))
}
