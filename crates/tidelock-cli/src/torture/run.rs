//! A run: clients, faults, calm, an end, and a look at what was left in the store.

use std::{
    io::{IsTerminal, Write, stderr},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tidelock::{Locks, backend::LockView};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    address::Address,
    herd::{Client, Desk},
    history::{Log, RUN},
    nemesis::{Nemesis, Rates, Weather},
    proxy::Door,
    record::{Event, Plan},
    viewers,
    work::{CALM, Lock, Pace, STORM, Use, Work},
};
use crate::{
    clock::Moment,
    output::{self, Trouble},
    signals::Signals,
    values::Span,
};

/// How often the run looks whether something is due.
const TICK: Duration = Duration::from_millis(25);

/// How often the pulse of the store is felt, and after how long it counts as slow.
const PULSE: Duration = Duration::from_millis(200);
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// The number of the first time that it is slow: far from those of other faults.
const SLOW: u32 = 1 << 31;

/// What to do.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) url: String,
    pub(super) time: Duration,
    pub(super) clients: u32,
    pub(super) tasks: u32,
    pub(super) names: u32,
    pub(super) seed: u64,
    pub(super) ttl: Duration,
    /// The ttl of a few locks.
    pub(super) long_ttl: Duration,
    pub(super) breaks: bool,
    pub(super) rates: Rates,
    pub(super) overlaps_allowed: bool,
    /// The operator's command that prints how many entries the store has.
    pub(super) count: Option<String>,
}

/// What a run left.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// What could not be done to this deployment.
    pub(super) skipped: Vec<String>,
    /// Claims that nobody holds any more and that are still in the store.
    pub(super) leftovers: Vec<String>,
}

/// Runs, and writes histories into the folder.
pub(super) async fn run(setup: &Setup, folder: &Path) -> Result<Done, Trouble> {
    let locks = Locks::connect(&setup.url).await?;
    let mut done = Done::default();
    let log = Arc::new(Log::create(&folder.join(RUN))?);
    let abilities = locks.abilities();
    let ttl = setup.ttl.max(abilities.min_ttl);
    log.note(&Event::Plan(Plan {
        seed: setup.seed,
        store: abilities.store.to_owned(),
        ttl: u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX),
        fair: abilities.fair,
        overlaps_allowed: setup.overlaps_allowed,
    }))?;
    let prefix = format!("torture/{:x}-{:x}/", setup.seed, Moment::now().as_nanos());
    let long_ttl = setup.long_ttl.max(ttl);
    let tortured = tortured(&prefix, setup.names, (ttl, long_ttl), abilities.permits.is_ok());
    for (lock, it) in (0_u16..).zip(&tortured) {
        log.note(&Event::Lock { lock, ttl: it.ttl_ms * 1_000_000, name: it.name.clone() })?;
    }
    if let Err(why) = abilities.permits {
        done.skipped.push(format!("permits: {why}"));
    }

    count(setup, &log).await?;
    let checks_logins = viewers::checks_logins(&setup.url).await.unwrap_or(true);
    if !checks_logins {
        done.skipped.push("refusing wrong passwords: this store lets everybody in".to_owned());
    }
    let pulse = format!("{prefix}pulse");
    let mut network = JoinSet::new();
    let (urls, doors) = doors(setup, &mut done, &mut network).await?;
    let desk = Desk::new(Arc::clone(&log));
    let mut clients = Vec::new();
    for client in 0..setup.clients {
        let work = Work {
            client,
            generation: 0,
            seed: setup.seed,
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            tasks: setup.tasks,
            locks: tortured.clone(),
            pulse: pulse.clone(),
            folder: folder.to_owned(),
            breaks: setup.breaks,
            checks_logins,
        };
        clients.push(Client::start(work, urls[client as usize].clone(), Arc::clone(&desk))?);
    }
    let mut nemesis = Nemesis::new(Arc::clone(&log), setup.seed, setup.rates.clone(), ttl);
    let mut signals = Signals::forwarded()?;
    let outcome = tokio::select! {
        outcome = play(setup, ttl, &mut clients, &doors, &mut nemesis) => outcome,
        outcome = feel(&locks, &log, &pulse, ttl) => outcome,
        signal = signals.end() => {
            output::complain(&format!("{signal:?}: healing faults, and checking what happened until now"));
            Ok(())
        }
    };
    // Whatever happened, servers are not left broken.
    heal(&mut nemesis, &clients, &doors).await?;
    outcome?;
    end(&mut clients).await?;
    match leftovers(&locks, &prefix, long_ttl).await {
        Ok(leftovers) => done.leftovers = leftovers,
        // What the histories say counts all the same.
        Err(error) => done.skipped.push(format!("a look at what is left in the store: {error}")),
    }
    if let Err(error) = count(setup, &log).await {
        done.skipped.push(format!("the entries of the store: {error}"));
    }
    Ok(done)
}

/// Notes how many entries the store has, if there is a command that says so.
async fn count(setup: &Setup, log: &Log) -> Result<(), Trouble> {
    let Some(command) = setup.count.clone() else { return Ok(()) };
    let failed = |why: &str| Trouble::Usage(format!("--count {command:?} {why}"));
    let call = {
        let command = command.clone();
        move || Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).output()
    };
    let output = tokio::task::spawn_blocking(call).await.map_err(std::io::Error::other)??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(&format!("failed: {}", said.trim())));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    // Clients print units or a frame with it.
    let numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
    let [entries] = numbers.collect::<Vec<u64>>()[..] else {
        return Err(failed(&format!("has to print one number, and printed {:?}", said.trim())));
    };
    Ok(log.note(&Event::Counted { entries })?)
}

/// The locks, a use after the other: of twelve, each kind that the checker needs.
fn tortured(prefix: &str, count: u32, (ttl, long): (Duration, Duration), with_permits: bool) -> Vec<Lock> {
    const KINDS: [(Use, Pace); 12] = [
        (Use::Mutex, Pace::Quick),
        (Use::ReadWrite, Pace::Quick),
        (Use::Mutex, Pace::Long),
        (Use::Mutex, Pace::Slow),
        (Use::Permits(3), Pace::Quick),
        (Use::ReadWrite, Pace::Rare),
        (Use::Mutex, Pace::Quick),
        (Use::ReadWrite, Pace::Slow),
        (Use::Election, Pace::Slow),
        (Use::Mutex, Pace::Quick),
        (Use::ReadWrite, Pace::Quick),
        (Use::Mutex, Pace::Brink),
    ];
    let is_possible = |kind: &&(Use, Pace)| with_permits || !matches!(kind.0, Use::Permits(_));
    let kinds = KINDS.iter().filter(is_possible).cycle();
    let lock = |(number, (usage, pace)): (u32, &(Use, Pace))| {
        let ttl = if matches!(pace, Pace::Long | Pace::Rare | Pace::Brink) { long } else { ttl };
        Lock {
            name: format!("{prefix}{}-{number}", usage.word()),
            usage: *usage,
            pace: *pace,
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
        }
    };
    (0..count).zip(kinds).map(lock).collect()
}

/// For each client its URL and its doors to the servers.
async fn doors(
    setup: &Setup,
    done: &mut Done,
    network: &mut JoinSet<()>,
) -> Result<(Vec<String>, Vec<Vec<Door>>), Trouble> {
    let address = match Address::parse(&setup.url) {
        Ok(address) if setup.rates.cut.is_some() => address,
        Ok(_) => return Ok((vec![setup.url.clone(); setup.clients as usize], Vec::new())),
        Err(why) => {
            if setup.rates.cut.is_some() {
                done.skipped.push(format!("faults of the network: {why}"));
            }
            return Ok((vec![setup.url.clone(); setup.clients as usize], Vec::new()));
        }
    };
    let (mut urls, mut all) = (Vec::new(), Vec::new());
    for _ in 0..setup.clients {
        let mut doors = Vec::new();
        for server in &address.servers {
            doors.push(Door::open(server.clone(), network).await?);
        }
        let servers: Vec<_> = doors.iter().map(|door| door.addr().to_string()).collect();
        urls.push(address.with(&servers));
        all.push(doors);
    }
    Ok((urls, all))
}

/// A breeze, a storm of faults and a calm time in turn; the last one is calm.
async fn play(
    setup: &Setup,
    ttl: Duration,
    clients: &mut [Client],
    doors: &[Vec<Door>],
    nemesis: &mut Nemesis,
) -> Result<(), Trouble> {
    // As long as the checker takes a fault to be felt, and then some.
    let calm = (2 * ttl + Duration::from_secs(4 + 6)).min(setup.time / 2);
    // Light faults are all of the network.
    let breeze = if doors.is_empty() { Duration::ZERO } else { Duration::from_secs(30).min(setup.time / 4) };
    let storm = (4 * calm).min(setup.time.saturating_sub(calm + breeze)).max(setup.time / 4);
    let began = Moment::now();
    let mut shown = began;
    let mut before = Weather::Calm;
    loop {
        let passed = Moment::now().since(began);
        if passed >= setup.time {
            return Ok(());
        }
        let of_round = passed.as_millis() % (breeze + storm + calm).as_millis();
        let weather = if of_round >= (breeze + storm).as_millis() || passed + calm >= setup.time {
            Weather::Calm
        } else if of_round < breeze.as_millis() {
            Weather::Breeze
        } else {
            Weather::Storm
        };
        if weather != before {
            let word = if weather == Weather::Storm { STORM } else { CALM };
            clients.iter_mut().for_each(|client| client.tell(word));
            before = weather;
        }
        nemesis.act(clients, doors, weather)?;
        for client in clients.iter_mut() {
            if client.has_ended()? {
                return Err(Trouble::Usage(format!(
                    "{} ended: it said why; its history is kept",
                    client.label()
                )));
            }
        }
        if Moment::now().since(shown) > Duration::from_millis(250) {
            shown = Moment::now();
            show(passed, setup.time, clients, nemesis, weather);
        }
        sleep(TICK).await;
    }
}

fn show(passed: Duration, time: Duration, clients: &[Client], nemesis: &Nemesis, weather: Weather) {
    if !stderr().is_terminal() {
        return;
    }
    let (asked, granted) = clients
        .iter()
        .map(|client| client.counts().get())
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let weather = if weather == Weather::Calm { "calm" } else { &nemesis.last };
    // Progress that cannot be shown is no reason to stop.
    let _ = write!(
        stderr(),
        "\r\x1b[K{} of {}: {asked} requests, {granted} granted, {} faults ({weather})",
        Span(passed),
        Span(time),
        nemesis.count()
    );
}

/// Feels the pulse of the store: a lock that nobody else wants. A store or a machine that is slow on its own is noted as
/// a fault, so that the checker blames nobody for it.
async fn feel(locks: &Locks, log: &Log, name: &str, ttl: Duration) -> Result<(), Trouble> {
    let mutex = locks.mutex(name).ttl(ttl);
    let beat = || async {
        // A store that fails is slow until it does not.
        while mutex.run(|_| async {}).await.is_err() {
            sleep(TICK).await;
        }
    };
    for fault in SLOW.. {
        let began = Moment::now().as_nanos();
        let beating = beat();
        tokio::pin!(beating);
        if timeout(SLOW_AFTER, &mut beating).await.is_err() {
            let (kind, target) = ("slow".to_owned(), "store".to_owned());
            log.note_at(began, &Event::FaultBegan { fault, kind, target })?;
            beating.await;
            log.note(&Event::FaultEnded { fault })?;
        }
        sleep(PULSE).await;
    }
    Ok(())
}

/// Heals everything, and waits for the hook.
async fn heal(nemesis: &mut Nemesis, clients: &[Client], doors: &[Vec<Door>]) -> Result<(), Trouble> {
    loop {
        nemesis.heal(clients, doors, true)?;
        if nemesis.is_quiet() {
            return Ok(());
        }
        sleep(TICK).await;
    }
}

/// Lets the clients finish.
async fn end(clients: &mut [Client]) -> Result<(), Trouble> {
    if stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[Kthe clients finish");
    }
    clients.iter().for_each(Client::end);
    let began = Moment::now();
    // A client gives up after a minute on its own.
    while Moment::now().since(began) < Duration::from_secs(90) {
        let mut running = false;
        for client in clients.iter_mut() {
            running |= !client.has_ended()?;
        }
        if !running {
            break;
        }
        sleep(TICK).await;
    }
    if stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[K");
    }
    Ok(())
}

/// What is still in the store when the last lease has ended, which is then taken out.
async fn leftovers(locks: &Locks, prefix: &str, ttl: Duration) -> tidelock::Result<Vec<String>> {
    let began = Moment::now();
    loop {
        let is_last = Moment::now().since(began) > 2 * ttl + Duration::from_secs(10);
        let mut views = match locks.look_all().await {
            Ok(views) => views,
            // This client did not use the store for a while, and may have to connect again.
            Err(_) if !is_last => {
                sleep(Duration::from_millis(200)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        views.retain(|view| view.name.as_str().starts_with(prefix));
        views.retain(|view| !view.holders.is_empty() || !view.waiters.is_empty());
        if views.is_empty() {
            return Ok(Vec::new());
        }
        if is_last {
            for view in &views {
                for claim in view.holders.iter().chain(&view.waiters) {
                    locks.evict(view.name.as_str(), claim.id, "left over by a torture").await?;
                }
            }
            return Ok(views.iter().map(describe).collect());
        }
        sleep(Duration::from_millis(200)).await;
    }
}

fn describe(view: &LockView) -> String {
    format!("{}: {} holders, {} waiters", view.name, view.holders.len(), view.waiters.len())
}
