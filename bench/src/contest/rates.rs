//! As much as possible, in turns.

use std::{fs, path::PathBuf, time::Duration};

use super::{
    Effort, machine,
    program::{Absent, Launch, Team, absent_or},
    progress::Progress,
    results::{Kind, Row, Unit},
    scenario::{Cores, Question, slug},
    spread::Spread,
    stores::{Contestant, Stand},
};
use crate::protocol::{HANDS, Turn, Waits};

/// Whose turns take longer than they should, because waiters poll, has no more of them after so many seconds,
/// but at least so many.
const ENOUGH_SECONDS: f64 = 5.0;
const FEWEST_TURNS: usize = 2;

/// A lease that is longer than all rounds, for those who may not renew it.
const THROUGHOUT: Duration = Duration::from_secs(600);

/// The contestants of a scenario: those that could not be started are there, too.
struct Playing {
    name: String,
    kind: Kind,
    team: Result<Team, Absent>,
    turns: Vec<Vec<Turn>>,
    /// How many seconds its turns took.
    spent: f64,
    /// The file of hands, if there is one.
    hands: Option<PathBuf>,
}

/// Lets all of them take turns.
pub(super) fn run(
    scenario: &str,
    stand: &Stand,
    players: &[(Kind, String, &Contestant)],
    question: &dyn Fn(Kind, &str, &Contestant) -> Question,
    cores: Cores,
    effort: Effort,
    progress: &Progress,
) -> Vec<Row> {
    let mut playing: Vec<_> = players
        .iter()
        .map(|(kind, name, contestant)| {
            progress.show(&format!("{scenario}: {name} starts"));
            Playing::start(*kind, name, contestant, &question(*kind, name, contestant), effort)
        })
        .collect();
    if cores != Cores::Any {
        stand.processes().into_iter().for_each(|pid| machine::pin(pid, 0));
        let core = if cores == Cores::Two { 1 } else { 0 };
        playing.iter().filter_map(|playing| playing.team.as_ref().ok()).for_each(|team| team.pin(core));
    }
    // The first round warms up caches, compilers and the clock of the processor.
    for round in 0..=effort.rounds {
        let count = playing.len();
        // Later turns run on a hotter processor, so contestants change places.
        for turn in 0..count {
            let playing = &mut playing[(turn + round) % count];
            progress.show(&format!("{scenario}: round {round} of {}: {}", effort.rounds, playing.name));
            playing.turn(round > 0);
        }
    }
    if cores != Cores::Any {
        stand.processes().into_iter().for_each(machine::unpin);
    }
    rows_of_rates(scenario, playing)
}

impl Playing {
    fn start(kind: Kind, name: &str, contestant: &Contestant, question: &Question, effort: Effort) -> Self {
        let hands = question.counts_hands.then(|| {
            let file = format!("tidelock-hands-{}-{}", std::process::id(), slug(name));
            std::env::temp_dir().join(file)
        });
        let team = contestant.launch.clone().and_then(|launch| {
            let mut launch: Launch = launch;
            if let Some(hands) = &hands {
                fs::write(hands, [0; 4]).map_err(|error| error.to_string())?;
                launch.environment.push((HANDS.to_owned(), hands.display().to_string()));
            }
            let lease =
                if question.holds_throughout && kind != Kind::Ours { THROUGHOUT } else { effort.lease };
            Team::start(&launch, question.processes, &question.words, lease)
        });
        Self { name: name.to_owned(), kind, team, turns: Vec::new(), spent: 0.0, hands }
    }

    fn turn(&mut self, counts: bool) {
        if self.turns.len() >= FEWEST_TURNS && self.spent > ENOUGH_SECONDS {
            return;
        }
        if let Ok(team) = &mut self.team {
            match team.turn() {
                Ok(turns) => {
                    self.spent += turns.iter().map(|turn| turn.seconds).fold(0.0, f64::max);
                    if counts {
                        self.turns.push(turns);
                    }
                }
                Err(why) => self.team = Err(Absent::Because(why)),
            }
        }
    }

    /// Hand-overs, or whatever is done, in a second.
    fn rates(&self) -> Vec<f64> {
        let rate = |turns: &Vec<Turn>| {
            let longest = turns.iter().map(|turn| turn.seconds).fold(0.0, f64::max);
            let done = |turn: &Turn| turn.handed.unwrap_or(turn.pairs);
            turns.iter().map(done).sum::<u64>() as f64 / longest.max(1e-9)
        };
        self.turns.iter().map(rate).collect()
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        if let Some(hands) = &self.hands {
            let _ = fs::remove_file(hands);
        }
    }
}

fn rows_of_rates(scenario: &str, playing: Vec<Playing>) -> Vec<Row> {
    let ours = playing.iter().find(|playing| playing.kind == Kind::Ours).map(Playing::rates);
    let ours = ours.unwrap_or_default();
    let mut rows = Vec::new();
    for playing in &playing {
        let rates = playing.rates();
        let many = playing.turns.iter().any(|turns| turns.len() > 1);
        let middle = |of: &dyn Fn(&Vec<Turn>) -> f64| {
            Spread::of(playing.turns.iter().map(of).collect()).map(|spread| spread.median)
        };
        let most = |of: fn(&Turn) -> f64| move |turns: &Vec<Turn>| turns.iter().map(of).fold(0.0, f64::max);
        let waits_us = (|| {
            let p50 = |turns: &Vec<Turn>| {
                turns.iter().map(|turn| turn.waits_us.p50).sum::<f64>() / turns.len() as f64
            };
            Some(Waits {
                p50: middle(&p50)?,
                p99: middle(&most(|turn| turn.waits_us.p99))?,
                max: playing.turns.iter().map(most(|turn| turn.waits_us.max)).fold(0.0, f64::max),
            })
        })();
        let shares =
            |turns: &Vec<Turn>| jain(&turns.iter().map(|turn| turn.pairs as f64).collect::<Vec<_>>());
        let all_pairs = |turns: &Vec<Turn>| turns.iter().map(|turn| turn.pairs).sum::<u64>() as f64;
        let handed = playing.turns.iter().flatten().any(|turn| turn.handed.is_some());
        let note = if let (true, Some(pairs), Some(rate)) =
            (handed, middle(&all_pairs), Spread::of(rates.clone()))
        {
            let seconds = middle(&most(|turn| turn.seconds)).unwrap_or(1.0);
            format!(
                "{:.0} locks/s with those taken again by the same process",
                (pairs / seconds).max(rate.median)
            )
        } else {
            String::new()
        };
        rows.push(Row {
            scenario: scenario.to_owned(),
            contestant: playing.name.clone(),
            kind: playing.kind,
            unit: Unit::PerSecond,
            value: Spread::of(rates.clone()),
            ahead: (playing.kind != Kind::Ours).then(|| Spread::of_ratios(&ours, &rates)).flatten(),
            before: None,
            waits_us: waits_us.filter(|waits| waits.max > 0.0),
            fairness: many.then(|| middle(&shares)).flatten(),
            note: absent_or(playing.team.as_ref().err(), note),
            bar: None,
        });
    }
    rows
}

/// How equal the shares are: 1 if all are.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) = (shares.iter().sum(), shares.iter().map(|share| share * share).sum());
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equal_shares() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[3.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
    }
}
