//! `tidelock elect`: a command that runs on the leader only.

use std::time::Duration;

use tidelock::{Election, Guard, Locks};
use tokio::time::sleep;

use crate::{
    args::{self, Restart},
    child::{self, Ended},
    clock::Moment,
    exit::Exit,
    hold::Hold,
    output::{self, Trouble},
    plan::Elect,
    signals::Signals,
    waiting,
};

/// How long a store has to confirm that the lead is given back.
const RELEASE: Duration = Duration::from_secs(5);

/// How long a store has to hear that a candidate leaves the queue.
const FAREWELL: Duration = Duration::from_secs(1);

/// A command that ends sooner is run again after a pause.
const SOON: Duration = Duration::from_secs(10);

/// The first pause; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Is a candidate, leads, and is a candidate again.
pub(crate) async fn run(args: args::Elect) -> Result<Exit, Trouble> {
    let plan = Elect::new(args)?;
    let mut signals = Signals::forwarded()?;
    let Some(locks) = waiting::connect(&plan.run.store, &plan.run.ask, &mut signals).await? else {
        return Ok(ended_by(&signals));
    };
    let exit = serve(&plan, &locks, &mut signals).await;
    // Others should not have to wait for our place to lapse.
    locks.shutdown(FAREWELL).await;
    exit
}

async fn serve(plan: &Elect, locks: &Locks, signals: &mut Signals) -> Result<Exit, Trouble> {
    let ask = &plan.run.ask;
    let mut election = locks.election(ask.names[0].as_str()).label(&ask.label).ttl(ask.ttl);
    if let Some(text) = &plan.advertise {
        election = election.advertise(text);
    }
    let mut pause = PAUSE;
    loop {
        let Some(guard) = campaign(&election, signals).await? else { return Ok(ended_by(signals)) };
        let began = Moment::now();
        let ended = term(plan, guard, signals).await?;
        if let Some(exit) = decide(plan, ended, signals) {
            return Ok(exit);
        }
        if Moment::now().since(began) >= SOON {
            pause = PAUSE;
            continue;
        }
        tokio::select! {
            () = sleep(pause) => pause = LONGEST_PAUSE.min(2 * pause),
            _ = signals.end() => return Ok(ended_by(signals)),
        }
    }
}

/// Waits for the lead; nothing if a signal came first.
async fn campaign(election: &Election, signals: &mut Signals) -> Result<Option<Guard>, Trouble> {
    tokio::select! {
        guard = election.campaign() => Ok(Some(guard?)),
        _ = signals.end() => Ok(None),
    }
}

/// Leads: runs the command, and gives the lead back when it and all that it started has ended.
async fn term(plan: &Elect, guard: Guard, signals: &mut Signals) -> Result<Ended, Trouble> {
    let (name, token) = (guard.name().clone(), guard.token());
    if !plan.run.ask.quiet {
        output::complain(&format!("leads {name:?} in term {token}"));
    }
    let hold = Hold::One(guard);
    let ended = child::run(&hold, &plan.run, signals).await;
    let released = tokio::select! {
        released = hold.release() => released,
        () = sleep(RELEASE) => {
            output::complain(&"the store did not confirm that the lead is given back: it lapses after its ttl");
            Ok(())
        }
    };
    let ended = match (ended, released) {
        // Lost before the command was started, or so late that it ended first.
        (Err(Trouble::Lock(error)), _) | (Ok(Ended::Done(_)), Err(error)) if error.is_lost() => {
            output::complain(&error);
            Ended::Lost
        }
        (ended, _) => ended?,
    };
    if !plan.run.ask.quiet {
        let how = match ended {
            Ended::Lost => "lost the lead of".to_owned(),
            Ended::Done(exit) => format!("the command ended with {}; no longer leads", exit.code()),
        };
        output::complain(&format!("{how} {name:?}, term {token}"));
    }
    Ok(ended)
}

/// What tidelock exits with after a term; nothing if it is a candidate again.
fn decide(plan: &Elect, ended: Ended, signals: &Signals) -> Option<Exit> {
    let exit = match ended {
        Ended::Lost => Exit::Lost,
        Ended::Done(exit) => exit,
    };
    if plan.once || signals.asked_to_end().is_some() {
        return Some(exit);
    }
    let again = match (ended, plan.restart) {
        (Ended::Lost, _) | (Ended::Done(_), Restart::Always) => true,
        (Ended::Done(exit), Restart::OnFailure) => exit.code() != 0,
        (Ended::Done(_), Restart::Never) => false,
    };
    (!again).then_some(exit)
}

/// The exit of a candidate that a signal ended.
fn ended_by(signals: &Signals) -> Exit {
    signals.asked_to_end().map_or(Exit::Done, |signal| Exit::Signal(signal.as_raw()))
}
