//! Many locks are held for a while.

use std::{thread, time::Duration};

use tidelock::testing::Clock;

use super::{
    Effort, machine,
    program::{Absent, Program, absent_or},
    progress::Progress,
    results::{Kind, Row, Unit},
    scenario::{grouped, own, slug},
    spread::Spread,
    stores::{Contestant, Stand},
};

const SETTLE: Duration = Duration::from_millis(500);
/// As many locks as a peer is asked to hold at most.
const MOST_LOCKS_OF_PEERS: u64 = 10_000;

/// What a client and its servers work while it holds so many locks.
pub(super) fn run(
    scenario: &str,
    stand: &Stand,
    contestants: &[Contestant],
    locks: u64,
    effort: Effort,
    progress: &Progress,
) -> Vec<Row> {
    let times = (effort.held_lease, effort.held_time);
    let seen = watch_all(scenario, stand, contestants, locks, times, progress);
    rows(
        scenario,
        Unit::Core,
        seen.iter().map(|(contestant, watched)| {
            (*contestant, watched, watched.as_ref().ok().map(|watched| watched.core))
        }),
    )
}

/// What one more lock takes in the client.
pub(super) fn grow(
    stand: &Stand,
    contestants: &[Contestant],
    effort: Effort,
    progress: &Progress,
) -> Vec<Row> {
    // Memory is seen at once.
    let times = (effort.many_lease, SETTLE);
    let watch = |locks| watch_all(&name(locks), stand, contestants, locks, times, progress);
    let Some((fewest, more)) = effort.locks.split_first() else { return Vec::new() };
    let first = watch(*fewest);
    let memory_of_first = |contestant: &Contestant| {
        first.iter().find(|(one, _)| one.name == contestant.name)?.1.as_ref().ok().map(|seen| seen.memory)
    };
    let mut all = Vec::new();
    for locks in more {
        let seen = watch(*locks);
        let each = seen.iter().map(|(contestant, watched)| {
            let grown = (|| Some(watched.as_ref().ok()?.memory - memory_of_first(contestant)?))();
            let each = grown.map(|grown| (grown / (locks - fewest) as f64).max(1.0));
            (*contestant, watched, each)
        });
        all.extend(rows(&name(*locks), Unit::Bytes, each));
    }
    all
}

fn name(locks: u64) -> String {
    format!("locks {}", grouped(locks))
}

fn rows<'a>(
    scenario: &str,
    unit: Unit,
    seen: impl Iterator<Item = (&'a Contestant, &'a Result<Watched, Absent>, Option<f64>)>,
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (contestant, watched, value) in seen {
        let ours = rows.iter().find(|row| row.kind == Kind::Ours).and_then(|row| row.value);
        let note = watched.as_ref().map(ToString::to_string).unwrap_or_default();
        let value = value.and_then(|value| Spread::of(vec![value]));
        rows.push(Row {
            scenario: scenario.to_owned(),
            contestant: contestant.name.clone(),
            kind: contestant.kind,
            unit,
            value,
            ahead: (contestant.kind != Kind::Ours)
                .then(|| Spread::of_ratios(&[value?.median], &[ours?.median]))
                .flatten(),
            before: None,
            waits_us: None,
            fairness: None,
            note: absent_or(watched.as_ref().err(), note),
            bar: None,
        });
    }
    rows
}

fn watch_all<'a>(
    scenario: &str,
    stand: &Stand,
    contestants: &'a [Contestant],
    locks: u64,
    times: (Duration, Duration),
    progress: &Progress,
) -> Vec<(&'a Contestant, Result<Watched, Absent>)> {
    let can = |contestant: &&Contestant| contestant.kind != Kind::Peer || locks <= MOST_LOCKS_OF_PEERS;
    let watch = |contestant: &'a Contestant| {
        progress.show(&format!("{scenario}: {} takes {locks} locks", contestant.name));
        let watched = match contestant.holds {
            Ok(()) => watch(scenario, stand, contestant, locks, times),
            Err(why) => Err(Absent::Because(why.to_owned())),
        };
        (contestant, watched)
    };
    contestants.iter().filter(can).map(watch).collect()
}

/// What was seen of a client that holds many locks.
struct Watched {
    /// Of client and servers together, in cores.
    core: f64,
    client: f64,
    packets: f64,
    memory: f64,
}

impl std::fmt::Display for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { core, client, packets, memory } = self;
        let server = (core - client).max(0.0);
        write!(
            f,
            "client {:.2} %, server {:.2} % of a core, {packets:.0} packets/s, {:.0} KiB in the client",
            client * 100.0,
            server * 100.0,
            memory / 1_024.0
        )
    }
}

fn watch(
    scenario: &str,
    stand: &Stand,
    contestant: &Contestant,
    locks: u64,
    (lease, time): (Duration, Duration),
) -> Result<Watched, Absent> {
    let name = format!("{}-{}", slug(scenario), slug(&contestant.name));
    let launch = contestant.launch.clone()?;
    let words = own(&["hold", &contestant.servers, &name, &locks.to_string()]);
    let program = Program::start(&launch, &words, lease)?.ready()?;
    let (client, servers) = (machine::family(program.pid()), stand.processes());
    let idle = machine::memory(program.pid());
    let clock = Clock::machine();
    let (start, packets) = (clock.now(), machine::packets());
    let (ours, theirs) = (machine::worked(&client), machine::worked(&servers));
    thread::sleep(time);
    let seconds = clock.now().since(start).as_secs_f64();
    let ours = (machine::worked(&client) - ours) / seconds;
    let theirs = (machine::worked(&servers) - theirs) / seconds;
    let packets = (machine::packets() - packets) / seconds;
    Ok(Watched { core: ours + theirs, client: ours, packets, memory: idle })
}
