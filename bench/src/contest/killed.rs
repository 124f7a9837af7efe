//! A holder is killed, and somebody waits.

use std::{thread, time::Duration};

use tidelock::testing::Clock;

use super::{
    Effort,
    program::{Absent, Program, absent_or},
    progress::Progress,
    results::{Kind, Row, Unit},
    scenario::{own, slug},
    spread::Spread,
    stores::Contestant,
};

/// How long a waiter is given to be in line before the holder is killed.
const IN_LINE: Duration = Duration::from_millis(500);

/// How long it takes until the next holds what a killed process held.
pub(super) fn run(contestants: &[Contestant], effort: Effort, progress: &Progress) -> Vec<Row> {
    let mut times: Vec<Result<Vec<f64>, Absent>> = contestants.iter().map(|_| Ok(Vec::new())).collect();
    for round in 1..=effort.killed {
        progress.show(&format!("killed: round {round} of {}", effort.killed));
        // Mostly nothing happens, so all at the same time.
        thread::scope(|scope| {
            let running: Vec<_> = contestants
                .iter()
                .map(|contestant| scope.spawn(move || kill(contestant, round, effort)))
                .collect();
            for (running, times) in running.into_iter().zip(&mut times) {
                let took = running.join().unwrap_or_else(|_| Err(Absent::Because("it panicked".to_owned())));
                match (took, &mut *times) {
                    (Ok(took), Ok(times)) => times.push(took),
                    (Err(absent), Ok(_)) => *times = Err(absent),
                    (_, Err(_)) => {}
                }
            }
        });
    }
    let ours = contestants.iter().position(|contestant| contestant.kind == Kind::Ours);
    let ours = ours.and_then(|index| times[index].clone().ok()).unwrap_or_default();
    let row = |(contestant, times): (&Contestant, Result<Vec<f64>, Absent>)| {
        let (seconds, absent) = match times {
            Ok(seconds) => (seconds, None),
            Err(absent) => (Vec::new(), Some(absent)),
        };
        Row {
            scenario: "killed".to_owned(),
            contestant: contestant.name.clone(),
            kind: contestant.kind,
            unit: Unit::Seconds,
            value: Spread::of(seconds.clone()),
            ahead: (contestant.kind != Kind::Ours).then(|| Spread::of_ratios(&seconds, &ours)).flatten(),
            before: None,
            waits_us: None,
            fairness: None,
            note: absent_or(absent.as_ref(), format!("leases of {} s", effort.killed_lease.as_secs())),
            bar: None,
        }
    };
    contestants.iter().zip(times).map(row).collect()
}

fn kill(contestant: &Contestant, round: usize, effort: Effort) -> Result<f64, Absent> {
    let launch = contestant.launch.clone()?;
    let name = format!("killed-{}-{round}", slug(&contestant.name));
    let start = |words: &[&str]| Program::start(&launch, &own(words), effort.killed_lease)?.ready();
    let mut waiter = start(&["wait", &contestant.servers, &format!("{name}-0")])?;
    let mut holder = start(&["hold", &contestant.servers, &name, "1"])?;
    waiter.go()?;
    thread::sleep(IN_LINE);
    let clock = Clock::machine();
    let start = clock.now();
    holder.kill()?;
    waiter.done()?;
    Ok(clock.now().since(start).as_secs_f64())
}
