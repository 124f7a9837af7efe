//! `tidelock top`: all locks live, in a terminal.
//!
//! | file | what is in it |
//! |---|---|
//! | [`state`] | what is shown, and what the user chose (pure) |
//! | [`keys`] | what a key does to it (pure) |
//! | [`draw`] | the screen: header, table, footer |
//! | [`detail`] | the pane of one lock |
//! | [`dialog`] | help, and the question before a break |
//! | [`screen`] | the terminal: taken, read, given back |

mod detail;
mod dialog;
mod draw;
mod keys;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::{future::pending, io::IsTerminal, pin::Pin, time::Duration};

use tidelock::{Locks, Name, backend::ClaimId};

use self::{keys::Action, screen::Screen, state::State};
use crate::{
    args,
    clock::Moment,
    exit::Exit,
    observe::{Ending, Observer, Options},
    output::{self, Trouble},
    signals::Signals,
    store::Store,
    who,
};

/// How often ages and leases move on the screen.
const TICK: Duration = Duration::from_millis(500);
/// How long events of the locks on the screen are kept.
const HISTORY: Duration = Duration::from_secs(3_600);
/// How long the store has to answer a break.
const BREAK_LIMIT: Duration = Duration::from_secs(10);

/// What came of a break, in words.
type Breaking = Pin<Box<dyn Future<Output = String> + Send>>;

/// Shows locks until the user or a signal ends it.
pub(crate) async fn run(args: &args::Top) -> Result<Exit, Trouble> {
    let store = Store::new(&args.store)?;
    let is_live = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !args.once && !is_live {
        let text =
            "top needs a terminal: print the locks once with --once, or watch them with tidelock events";
        return Err(Trouble::Usage(text.to_owned()));
    }
    let mut signals = Signals::forwarded()?;
    let connected = tokio::select! {
        locks = store.connect() => locks?,
        signal = signals.end() => return Ok(Exit::Signal(signal.as_raw())),
    };
    let options = Options { interval: args.interval, history: HISTORY, always: false };
    let observer = Observer::start(connected.clone(), options);
    let mut state = State::new(&store.to_string(), &args.prefix, args.sort);
    if args.once {
        once(&observer, &mut state).await
    } else {
        live(&connected, &observer, &mut state, &mut signals).await
    }
}

/// Prints all locks as they are.
async fn once(observer: &Observer, state: &mut State) -> Result<Exit, Trouble> {
    let mut viewer = observer.subscribe();
    loop {
        let news = viewer.next().await;
        if let Some(error) = &news.health.error {
            return Err(Trouble::Usage(format!("the locks cannot be seen: {error}")));
        }
        let is_whole = news.since.is_some();
        state.take(&news);
        if is_whole {
            output::text(&draw::plain(state, Moment::now()))?;
            return Ok(Exit::Done);
        }
    }
}

/// Shows all locks, and does what keys say.
async fn live(
    locks: &Locks,
    observer: &Observer,
    state: &mut State,
    signals: &mut Signals,
) -> Result<Exit, Trouble> {
    let mut screen = Screen::take()?;
    let mut viewer = observer.subscribe();
    let mut breaking: Option<Breaking> = None;
    let mut shown = Vec::new();
    loop {
        screen.draw(state)?;
        let visible = state.visible();
        if visible != shown {
            viewer.focus(visible.iter().cloned());
            shown = visible;
        }
        let broken = async {
            match &mut breaking {
                Some(breaking) => breaking.await,
                None => pending().await,
            }
        };
        tokio::select! {
            news = viewer.next() => state.take(&news),
            () = tokio::time::sleep(TICK) => {}
            said = broken => {
                breaking = None;
                state.say(said);
            }
            signal = signals.end() => return Ok(Exit::Signal(signal.as_raw())),
            key = screen.key() => match key?.map_or(Action::Nothing, |key| keys::press(state, key)) {
                Action::Nothing => {}
                Action::Quit => return Ok(Exit::Done),
                Action::Break { name, claims, reason } => {
                    state.say(format!("breaking {name:?} …"));
                    breaking = Some(Box::pin(evict(locks.clone(), observer.clone(), name, claims, reason)));
                }
            },
        }
    }
}

/// Takes a lock away from those who were seen to hold it, and says what came of it.
async fn evict(locks: Locks, observer: Observer, name: Name, claims: Vec<ClaimId>, reason: String) -> String {
    let mut evicted = 0;
    let reason = who::signed(&reason, &who::user());
    for claim in claims {
        observer.tell(&name, claim, Ending::Evicted { reason: reason.as_str().into() });
        let asked = tokio::time::timeout(BREAK_LIMIT, locks.evict(name.as_str(), claim, &reason)).await;
        match asked {
            Ok(Ok(true)) => evicted += 1,
            Ok(Ok(false)) => observer.untell(claim),
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "the store did not answer in time: it may be broken or not".to_owned(),
        }
    }
    observer.poke([name.clone()]);
    match evicted {
        0 => format!("{name:?} was released just now; nothing was broken"),
        1 => format!("broke {name:?}"),
        more => format!("broke {name:?}, which {more} held"),
    }
}
