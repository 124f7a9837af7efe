//! Standing in line, and telling people about it.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use rustix::{process::Signal, termios::tcgetwinsize};
use tidelock::{
    Locks,
    backend::{ClaimView, ClientId, LockView},
    clock::Clock,
};

use crate::{
    hold::Hold,
    output::{self, Trouble},
    plan::Ask,
    signals::Signals,
    values::Span,
};

/// How soon a person at a terminal is told that there is a line, and how often how it moves.
const FIRST: Duration = Duration::from_millis(200);
const REFRESH: Duration = Duration::from_millis(500);
/// When a log is told, once: a wait shorter than this is not worth a line.
const LOGGED: Duration = Duration::from_secs(2);

/// How long a store has to hear that we leave the line.
const FAREWELL: Duration = Duration::from_secs(1);

/// What came of a wait.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The lock, and the client that holds it.
    Got(Locks, Hold),
    /// We were told to end.
    Signal(Signal),
}

/// Waits for a lock as it is asked for, and says how it goes. Whoever does not get it is out of line.
pub(crate) async fn acquire(
    connect: impl Future<Output = Result<Locks, Trouble>>,
    ask: &Ask,
    signals: &mut Signals,
) -> Result<Waited, Trouble> {
    let locks = tokio::select! {
        locks = connect => locks?,
        signal = signals.next() => return Ok(Waited::Signal(signal)),
    };
    let got = tokio::select! {
        got = get(&locks, ask) => got.map(Ok),
        signal = signals.next() => Ok(Err(signal)),
    };
    if !matches!(got, Ok(Ok(_))) {
        // Others should not have to wait for our place to lapse.
        locks.shutdown(FAREWELL).await;
    }
    Ok(match got? {
        Ok(hold) => Waited::Got(locks, hold),
        Err(signal) => Waited::Signal(signal),
    })
}

async fn get(locks: &Locks, ask: &Ask) -> Result<Hold, Trouble> {
    let got = tokio::select! {
        biased;
        got = Hold::acquire(locks, ask) => got?,
        () = tell(locks, ask) => unreachable!("telling has no end"),
    };
    match got {
        Some(hold) => Ok(hold),
        None => Err(Trouble::Busy(busy(locks, ask).await)),
    }
}

async fn tell(locks: &Locks, ask: &Ask) {
    if ask.quiet {
        return std::future::pending().await;
    }
    let (clock, start) = (Clock::machine(), Clock::machine().now());
    if !io::stderr().is_terminal() {
        tokio::time::sleep(LOGGED).await;
        let waited = clock.now().since(start);
        output::complain(&line(&look(locks, ask).await, locks.client_id(), ask, waited));
        return std::future::pending().await;
    }
    // Erased when this future is dropped, whoever won.
    let shown = Shown;
    let mut pause = FIRST;
    loop {
        tokio::time::sleep(pause).await;
        let views = look(locks, ask).await;
        shown.update(&line(&views, locks.client_id(), ask, clock.now().since(start)));
        pause = REFRESH;
    }
}

async fn look(locks: &Locks, ask: &Ask) -> Vec<LockView> {
    let names: Vec<_> = ask.names.iter().map(|name| name.as_str()).collect();
    // The wait goes on whether or not there is something to tell about it.
    locks.look(&names).await.unwrap_or_default()
}

/// How the wait goes, in one line.
fn line(views: &[LockView], client: ClientId, ask: &Ask, waited: Duration) -> String {
    // Of several names, the one in whose line we stand.
    let place = views.iter().find_map(|view| Some((view, place(view, client)?)));
    let name = place.map_or(ask.names[0].as_str(), |(view, _)| view.name.as_str());
    let mut text = format!("waiting for lock {name:?} for {}", Span(waited));
    if let Some((view, place)) = place {
        text.push_str(&format!(": place {place} of {} in line", view.waiters.len()));
        if let Some(holder) = held_by(view) {
            text.push_str(&format!(", held by {holder}"));
        }
    }
    text
}

/// The place of a client in line, from 1.
fn place(view: &LockView, client: ClientId) -> Option<usize> {
    view.waiters.iter().position(|waiter| waiter.id.client() == client).map(|index| index + 1)
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
    let views = look(locks, ask).await;
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
        let text: String = format!("tidelock: {}", output::clean(text)).chars().take(width).collect();
        let _ = io::stderr().write_all(format!("\r{text}\x1b[K").as_bytes());
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
        backend::{Claim, ClaimId, Share},
    };

    use super::*;

    #[test]
    fn our_place_is_ours_though_others_have_the_same_label() {
        let clients = [1, 2, 3].map(ClientId::from_u64);
        let name = Name::new("job").unwrap();
        let mut view = LockView::new(name.clone(), None, 1);
        for client in clients {
            let claim = Claim {
                id: ClaimId::new(client, 1),
                name: name.clone(),
                share: Share::Exclusive,
                owner: None,
                ttl: Duration::from_secs(30),
                label: "worker".into(),
                detached: false,
                writes: false,
                auto_renew: true,
            };
            view.waiters.push(ClaimView::new(&claim, None, Duration::ZERO, Duration::ZERO));
        }
        assert_eq!(clients.map(|client| place(&view, client)), [1, 2, 3].map(Some));
        assert_eq!(place(&view, ClientId::from_u64(4)), None);
    }
}
