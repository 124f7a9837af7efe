//! `tidelock run`: a command under a lock.

use std::time::Duration;

use tidelock::Error;

use crate::{
    args,
    child::{self, Ended},
    clock::Moment,
    exit::Exit,
    hold::Hold,
    once,
    output::{self, Trouble},
    plan::Run,
    signals::Signals,
    waiting::{self, Waited},
};

/// How long a store has to confirm that the lock is given back.
const RELEASE: Duration = Duration::from_secs(5);

/// Waits, runs, gives back.
pub(crate) async fn run(args: args::Run) -> Result<Exit, Trouble> {
    let plan = Run::new(args)?;
    let mut signals = Signals::forwarded()?;
    if let Some(once) = &plan.once {
        return once::run(&plan, once, &mut signals).await;
    }
    let hold = match waiting::acquire(&plan.store, &plan.ask, &mut signals).await? {
        Waited::Got(_, hold) => hold,
        Waited::Ended(exit) => return Ok(exit),
    };
    let granted = Moment::now();
    let ended = child::run(&hold, &plan, &mut signals).await;
    if let Ok(Ended::Done(exit)) = ended {
        let rest = plan.ask.at_least.saturating_sub(Moment::now().since(granted));
        if let Some(why) = keep_for(rest, &hold, &mut signals).await {
            // What the command did was protected.
            output::complain(&format!("{why}; the command had ended before"));
            return Ok(exit);
        }
    }
    // Whether the store hears of it does not change what the command did: its lease ends by itself.
    let released = tokio::select! {
        released = hold.release() => released,
        () = tokio::time::sleep(RELEASE) => {
            output::complain(&"the store did not confirm that the lock is given back: it lapses after its ttl");
            Ok(())
        }
    };
    match (ended?, released) {
        (Ended::Lost, _) => Ok(Exit::Lost),
        // It was lost so late that the command ended before we heard of it: it was unprotected for
        // a while all the same.
        (Ended::Done(_), Err(error)) if error.is_lost() => Err(error.into()),
        (Ended::Done(exit), Err(error)) => {
            // The command did its work under the lock, and its code is what counts.
            output::complain(&format!("{error}; the lock may stay taken until its ttl ends"));
            Ok(exit)
        }
        (Ended::Done(exit), Ok(())) => Ok(exit),
    }
}

/// Stays for the rest of the time for which others are kept out. If a signal ends this process before, the lock is left
/// behind when it is released, and its lease keeps others out. Returns the loss of the lock, if it is lost.
async fn keep_for(rest: Duration, hold: &Hold, signals: &mut Signals) -> Option<Error> {
    if rest.is_zero() || signals.asked_to_end().is_some() {
        return None;
    }
    tokio::select! {
        () = tokio::time::sleep(rest) => None,
        _ = signals.end() => None,
        why = hold.lost() => Some(why),
    }
}
