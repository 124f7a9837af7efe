//! `tidelock run --once-per`: a command that runs once in each slot of a period.

use std::time::Duration;

use tidelock::{Locks, Outcome, Turn};

use crate::{
    child::{self, Ended},
    clock::Moment,
    exit::Exit,
    hold::Hold,
    output::{self, Trouble},
    plan::{Once, Run},
    signals::Signals,
    waiting,
};

/// How long to pause before a store that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a store has to hear that we go.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs the command, unless its slot is done or somebody runs it now.
pub(crate) async fn run(plan: &Run, once: &Once, signals: &mut Signals) -> Result<Exit, Trouble> {
    let start = Moment::now();
    let Some(locks) = waiting::connect(&plan.store, &plan.ask, signals).await? else {
        return Ok(ended_by(signals));
    };
    let outcome = tokio::select! {
        outcome = begin(plan, once, &locks, start) => outcome?,
        _ = signals.end() => {
            locks.shutdown(FAREWELL).await;
            return Ok(ended_by(signals));
        }
    };
    let name = &plan.ask.names[0];
    let why = match outcome {
        Outcome::Ran(turn) => return serve(plan, turn, signals).await,
        Outcome::Done(done) => format!("skipped: this slot of {name:?} was done by {done}"),
        Outcome::Running(running) => format!("skipped: {name:?} is run by {running}"),
        _ => format!("skipped: {name:?} is not to be run now"),
    };
    if !plan.ask.quiet {
        output::complain(&why);
    }
    Ok(Exit::Busy(plan.ask.busy_code))
}

/// Asks for the slot, with the patience for the store that was asked for.
async fn begin(plan: &Run, once: &Once, locks: &Locks, start: Moment) -> Result<Outcome<Turn>, Trouble> {
    let ask = &plan.ask;
    let mut job = locks.once(ask.names[0].as_str(), once.period).label(&ask.label).ttl(ask.ttl);
    job = job.retry_failed(once.retry_failed);
    if let Some(slot) = &once.slot {
        job = job.slot(slot);
    }
    loop {
        match job.start().await {
            Err(error)
                if error.is_unavailable()
                    && !ask.fail_fast
                    && ask.wait.is_none_or(|wait| Moment::now().since(start) < wait) =>
            {
                tokio::time::sleep(PAUSE).await;
            }
            outcome => return Ok(outcome?),
        }
    }
}

/// Runs the command, and says what came of the slot.
async fn serve(plan: &Run, turn: Turn, signals: &mut Signals) -> Result<Exit, Trouble> {
    let hold = Hold::Turn(Box::new(turn));
    let ended = child::run(&hold, plan, signals).await;
    let Hold::Turn(turn) = hold else { unreachable!("it is the turn from above") };
    match ended? {
        Ended::Lost => Ok(Exit::Lost),
        Ended::Done(exit) => {
            let ended = if exit.code() == 0 { turn.done().await } else { turn.failed().await };
            ended?;
            Ok(exit)
        }
    }
}

/// The exit after a signal, before the command was started.
fn ended_by(signals: &Signals) -> Exit {
    signals.asked_to_end().map_or(Exit::Failed, |signal| Exit::Signal(signal.as_raw()))
}
