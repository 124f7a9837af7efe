//! Standing in line, and telling people about it.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use rustix::termios::tcgetwinsize;
use tidelock::{
    Locks,
    backend::{ClaimId, ClaimView, LockView},
};

use crate::{
    clock::Moment,
    exit::Exit,
    hold::Hold,
    output::{self, Trouble},
    plan::Ask,
    signals::Signals,
    store::Store,
    values::Span,
};

/// How soon a person at a terminal is told that there is a line, and how often how it moves.
const FIRST: Duration = Duration::from_millis(200);
const REFRESH: Duration = Duration::from_millis(500);
/// When a log is told, once: a wait shorter than this is not worth a line.
const LOGGED: Duration = Duration::from_secs(2);

/// How long a store has to say how the line stands.
const LOOK: Duration = Duration::from_secs(2);

/// How long a store has to hear that we leave the line.
const FAREWELL: Duration = Duration::from_secs(1);

/// What came of a wait.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The lock, and the client that holds it.
    Got(Locks, Hold),
    /// We were told to end, or did not get it in time.
    Ended(Exit),
}

/// Waits for a lock as it is asked for, and says how it goes. Leaves the queue if it does not get it.
pub(crate) async fn acquire(store: &Store, ask: &Ask, signals: &mut Signals) -> Result<Waited, Trouble> {
    let wait = Wait::new(ask);
    let locks = tokio::select! {
        locks = wait.connect(store) => locks?,
        signal = signals.next() => return Ok(Waited::Ended(Exit::Signal(signal.as_raw()))),
    };
    if ask.detached {
        Store::check_beyond_process(&locks)?;
    }
    let got = tokio::select! {
        got = wait.get(&locks) => got.map(Ok),
        signal = signals.next() => Ok(Err(signal)),
    };
    if !matches!(got, Ok(Ok(_))) {
        // Others should not have to wait for our place to lapse.
        locks.shutdown(FAREWELL).await;
    }
    match got {
        Ok(Ok(hold)) => Ok(Waited::Got(locks, hold)),
        Ok(Err(signal)) => Ok(Waited::Ended(Exit::Signal(signal.as_raw()))),
        Err(trouble) if trouble.exit() == Exit::NotAcquired => {
            if !ask.quiet {
                output::complain(&trouble);
            }
            Ok(Waited::Ended(Exit::Busy(ask.busy_code)))
        }
        Err(trouble) => Err(trouble),
    }
}

/// Connects for a candidate, which waits for its store for ever. Nothing if a signal ends that.
pub(crate) async fn connect(
    store: &Store,
    ask: &Ask,
    signals: &mut Signals,
) -> Result<Option<Locks>, Trouble> {
    let wait = Wait::new(ask);
    tokio::select! {
        locks = wait.connect(store) => locks.map(Some),
        _ = signals.end() => Ok(None),
    }
}

/// A wait that has begun.
struct Wait<'a> {
    ask: &'a Ask,
    start: Moment,
}

impl<'a> Wait<'a> {
    fn new(ask: &'a Ask) -> Self {
        Self { ask, start: Moment::now() }
    }

    fn waited(&self) -> Duration {
        Moment::now().since(self.start)
    }

    /// Connects, with the patience that was asked for: a store that is down for a moment must not cost
    /// a job its run.
    async fn connect(&self, store: &Store) -> Result<Locks, Trouble> {
        if self.ask.fail_fast || self.ask.wait == Some(Duration::ZERO) {
            return store.connect().await;
        }
        let (mut shown, mut logged) = (None, false);
        let tell = |error: &tidelock::Error| {
            if self.ask.quiet {
                return;
            }
            let text = line(&Err(error.to_string()), |_| false, self.ask, self.waited());
            if io::stderr().is_terminal() {
                shown.get_or_insert(Shown).update(&text);
            } else if !logged && self.waited() >= LOGGED {
                logged = true;
                output::complain(&text);
            }
        };
        store.connect_within(self.ask.wait.unwrap_or(Duration::MAX), tell).await
    }

    async fn get(&self, locks: &Locks) -> Result<Hold, Trouble> {
        // What connecting took is gone, but for a moment: a lock that is free is taken.
        let left = |limit: Duration| match limit {
            Duration::ZERO => limit,
            limit => limit.saturating_sub(self.waited()).max(Duration::from_millis(1)),
        };
        let got = tokio::select! {
            biased;
            got = Hold::acquire(locks, self.ask, self.ask.wait.map(left)) => got?,
            () = self.tell(locks) => unreachable!("telling has no end"),
        };
        match got {
            Some(hold) => Ok(hold),
            None => Err(Trouble::Busy(busy(locks, self.ask).await)),
        }
    }

    async fn tell(&self, locks: &Locks) {
        if self.ask.quiet {
            return std::future::pending().await;
        }
        let line = |views| line(&views, |claim| locks.is_own(claim), self.ask, self.waited());
        if !io::stderr().is_terminal() {
            tokio::time::sleep(LOGGED.saturating_sub(self.waited())).await;
            output::complain(&line(look(locks, self.ask).await));
            return std::future::pending().await;
        }
        let shown = Shown;
        let mut pause = FIRST;
        loop {
            tokio::time::sleep(pause).await;
            shown.update(&line(look(locks, self.ask).await));
            pause = REFRESH;
        }
    }
}

/// What is in line, or why nobody knows. The wait goes on in any case.
async fn look(locks: &Locks, ask: &Ask) -> Result<Vec<LockView>, String> {
    let names: Vec<_> = ask.names.iter().map(|name| name.as_str()).collect();
    match tokio::time::timeout(LOOK, locks.look(&names)).await {
        Ok(looked) => looked.map_err(|error| error.to_string()),
        Err(_) => Err(format!("{} does not answer", locks.abilities().store)),
    }
}

/// How the wait goes, in one line.
fn line(
    views: &Result<Vec<LockView>, String>,
    is_own: impl Fn(ClaimId) -> bool,
    ask: &Ask,
    waited: Duration,
) -> String {
    // Of several names, the one in whose line we stand.
    let seen = views.as_deref().unwrap_or_default();
    let place = seen.iter().find_map(|view| Some((view, place(view, &is_own)?)));
    let name = place.map_or(ask.names[0].as_str(), |(view, _)| view.name.as_str());
    let mut text = format!("waiting for lock {name:?} for {}", Span(waited));
    if let Some((view, place)) = place {
        text.push_str(&format!(": place {place} of {} in line", view.waiters.len()));
        if let Some(holder) = held_by(view) {
            text.push_str(&format!(", held by {holder}"));
        }
    } else if let Err(why) = views {
        text.push_str(&format!(": {why}"));
    }
    text
}

/// The place of a client in line, from 1.
fn place(view: &LockView, is_own: impl Fn(ClaimId) -> bool) -> Option<usize> {
    view.waiters.iter().position(|waiter| is_own(waiter.id)).map(|index| index + 1)
}

/// Who holds a lock and for how long: the first of them, and how many more.
fn held_by(view: &LockView) -> Option<String> {
    let longest = view.holders.iter().max_by_key(|holder| holder.age)?;
    let ClaimView { label, age, .. } = longest;
    Some(match view.holders.len() {
        1 => format!("{label} for {}", Span(*age)),
        n => format!("{label} for {} and {} more", Span(*age), n - 1),
    })
}

async fn busy(locks: &Locks, ask: &Ask) -> String {
    let views = look(locks, ask).await.unwrap_or_default();
    let store = locks.abilities().store;
    match views.iter().find_map(|view| Some((&view.name, held_by(view)?))) {
        Some((name, holder)) => format!("lock {name:?} on {store} is taken; held by {holder}"),
        None => format!("lock {:?} on {store} is taken", ask.names[0]),
    }
}

/// A line on the terminal that is written again and again.
struct Shown;

impl Shown {
    fn update(&self, text: &str) {
        let width = tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col));
        // A line that wraps could not be erased; one column stays free for the cursor.
        let width = if width == 0 { 79 } else { width - 1 };
        let text = format!("tidelock: {}", output::clean(text));
        let _ = io::stderr().write_all(format!("\r{}\x1b[K", output::fit(&text, width)).as_bytes());
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use tidelock::{
        Name,
        backend::{Claim, ClientId, Share},
    };

    use super::*;

    #[test]
    fn our_place_is_ours_though_others_have_the_same_label() {
        let clients = [1, 2, 3].map(ClientId::from_u64);
        let name = Name::new("job").unwrap();
        let mut view = LockView::new(name.clone(), None, 1);
        for client in clients {
            let claim =
                Claim::new(ClaimId::new(client, 1), name.clone(), Share::Exclusive, Duration::from_secs(30))
                    .label("worker");
            view.waiters.push(ClaimView::new(&claim, None, Duration::ZERO, Duration::ZERO));
        }
        assert_eq!(clients.map(|client| place(&view, |claim| claim.client() == client)), [1, 2, 3].map(Some));
        assert_eq!(place(&view, |claim| claim.client() == ClientId::from_u64(4)), None);
    }
}
