//! `tidelock run`: a command under a lock.

use std::time::Duration;

use crate::{
    args,
    child::{self, Ended},
    exit::Exit,
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
    let ended = child::run(&hold, &plan, &mut signals).await;
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
