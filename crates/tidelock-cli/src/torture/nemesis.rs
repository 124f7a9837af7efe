//! The faults: which one comes when, as the seed says, and what it does.

use std::{
    io,
    sync::{Arc, mpsc::TryRecvError},
    time::Duration,
};

use super::{
    herd::Client,
    history::Log,
    hook::{Hook, Hooked},
    proxy::{Door, Mode},
    record::Event,
    rng::Rng,
    work::{BRINK, GUST, HUSH},
};
use crate::{clock::Moment, output::Trouble};

/// How often each kind of fault comes; `None` is never.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    pub(super) kill: Option<Duration>,
    pub(super) stop: Option<Duration>,
    pub(super) cut: Option<Duration>,
    /// Whether the network doubles connections, too.
    pub(super) doubles: bool,
    /// Whether it changes bytes, too: without encryption nobody could notice that.
    pub(super) corrupts: bool,
    pub(super) hook: Option<Hook>,
}

/// What comes at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// All faults, and several at once.
    Storm,
    /// Light ones, one at a time.
    Breeze,
    Calm,
}

/// How often light faults come: with time between them in which their effects would be seen.
const BREEZE: Duration = Duration::from_secs(5);

/// For how many milliseconds at most clients are warned before a light fault, and before a server fails.
const WARNED: u64 = 120;
const WARNED_OF_SERVER: u64 = 150;
/// For how many milliseconds before, if they ask nothing else then: what they asked last has to end first.
const HUSHED: (u64, u64) = (450, 650);

/// Light faults, the last one first. Those that last are followed by nothing for as long.
const LIGHT: [&str; 6] = ["deaf", "close", "mute", "blip", "lag", "blip"];

/// A fault of clients that has to be healed.
#[derive(Debug)]
struct Wound {
    fault: u32,
    clients: Vec<usize>,
    what: Hurt,
    heals: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hurt {
    Stopped,
    Network,
    /// No file and no connection can be opened.
    NoFiles,
}

#[derive(Debug)]
pub(super) struct Nemesis {
    log: Arc<Log>,
    rng: Rng,
    rates: Rates,
    ttl: Duration,
    /// When the next fault of each kind comes: kill, stop, cut, hook, breeze.
    due: [Option<Moment>; 5],
    /// Faults of the network, of servers, of a breeze and of processes (killed, or stopped) that did not come yet: each
    /// comes once before any comes again.
    decks: [Vec<String>; 5],
    /// A light fault that clients were warned of.
    gust: Option<(Moment, String)>,
    wounds: Vec<Wound>,
    hooked: Option<Hooked>,
    next: u32,
    /// The last one, for those who watch.
    pub(super) last: String,
}

impl Nemesis {
    pub(super) fn new(log: Arc<Log>, seed: u64, rates: Rates, ttl: Duration) -> Self {
        Self {
            log,
            rng: Rng::new(seed, 0),
            rates,
            ttl,
            due: [None; 5],
            decks: Default::default(),
            gust: None,
            wounds: Vec::new(),
            hooked: None,
            next: 0,
            last: String::new(),
        }
    }

    /// How many there were.
    pub(super) fn count(&self) -> u32 {
        self.next
    }

    /// Begins the faults that are due and heals those whose time has passed.
    pub(super) fn act(
        &mut self,
        clients: &mut [Client],
        doors: &[Vec<Door>],
        weather: Weather,
    ) -> Result<(), Trouble> {
        self.heal(clients, doors, false)?;
        let now = Moment::now();
        let cut = self.rates.cut.filter(|_| !doors.is_empty());
        let storm = |every: Option<Duration>| every.filter(|_| weather == Weather::Storm);
        let every = [
            storm(self.rates.kill),
            storm(self.rates.stop),
            storm(cut),
            storm(self.rates.hook.as_ref().map(|hook| hook.every)),
            cut.filter(|_| weather == Weather::Breeze).map(|_| BREEZE),
        ];
        for (kind, every) in every.into_iter().enumerate() {
            let Some(every) = every else {
                self.due[kind] = None;
                continue;
            };
            // The first one of a breeze comes soon, so that a short one has several.
            let first = if kind == 4 { every / 5 } else { every };
            let due = *self.due[kind].get_or_insert_with(|| now.plus(self.rng.around(first, 50, 150)));
            if now >= due {
                self.due[kind] = Some(now.plus(self.rng.around(every, if kind == 4 { 90 } else { 50 }, 150)));
                match kind {
                    0 => self.kill(clients)?,
                    1 => self.hinder(clients)?,
                    2 => self.cut(clients, doors)?,
                    3 => self.hook(clients)?,
                    _ => self.warn_of_gust(clients),
                }
            }
        }
        if let Some((_, kind)) = self.gust.take_if(|(at, _)| *at <= now) {
            self.blow(&kind, clients, doors)?;
        }
        Ok(())
    }

    /// Whether everything is healed.
    pub(super) fn is_quiet(&self) -> bool {
        self.wounds.is_empty() && self.hooked.is_none()
    }

    /// Heals what is due, or everything at once.
    pub(super) fn heal(&mut self, clients: &[Client], doors: &[Vec<Door>], all: bool) -> Result<(), Trouble> {
        let now = Moment::now();
        let (healing, wounds) =
            std::mem::take(&mut self.wounds).into_iter().partition(|wound| all || wound.heals <= now);
        self.wounds = wounds;
        for wound in healing {
            for client in wound.clients {
                match wound.what {
                    Hurt::Stopped => clients[client].resume()?,
                    Hurt::Network => doors[client].iter().for_each(|door| door.set(Mode::Open)),
                    Hurt::NoFiles => clients[client].let_open(true)?,
                }
            }
            self.log.note(&Event::FaultEnded { fault: wound.fault })?;
        }
        self.heal_hook(all)
    }

    fn heal_hook(&mut self, now: bool) -> Result<(), Trouble> {
        let broken = match self.hooked.take() {
            Some(Hooked::Running { fault, heals, done }) => match done.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.hooked = Some(Hooked::Running { fault, heals, done });
                    return Ok(());
                }
                Ok(Ok(true)) if heals => {
                    self.log.note(&Event::FaultEnded { fault })?;
                    return Ok(());
                }
                Ok(Ok(true)) => {
                    Hooked::Broken { fault, heals: Moment::now().plus(self.rng.around(self.ttl, 10, 200)) }
                }
                Ok(Ok(false)) => return Err(self.hook_failed("failed")),
                Ok(Err(error)) => return Err(self.hook_failed(&error.to_string())),
                Err(TryRecvError::Disconnected) => return Err(self.hook_failed("was lost")),
            },
            Some(broken) => broken,
            None => return Ok(()),
        };
        self.hooked = match (broken, &self.rates.hook) {
            (Hooked::Broken { fault, heals }, Some(hook)) if now || heals <= Moment::now() => {
                Some(Hooked::Running { fault, heals: true, done: hook.call("heal", Duration::ZERO) })
            }
            (broken, _) => Some(broken),
        };
        Ok(())
    }

    fn hook_failed(&self, how: &str) -> Trouble {
        let command = self.rates.hook.as_ref().map(|hook| hook.command.as_str()).unwrap_or_default();
        Trouble::Usage(format!("the hook {command:?} {how}: faults of servers cannot go on"))
    }

    fn begin(&mut self, kind: &str, target: &str) -> io::Result<u32> {
        let fault = self.next;
        self.next += 1;
        self.last = format!("{kind} {target}");
        self.log.note(&Event::FaultBegan { fault, kind: kind.to_owned(), target: target.to_owned() })?;
        Ok(fault)
    }

    /// The clients without this fault. They may have the other one: a client that is slow and then stopped is worse off
    /// than two clients with one fault each.
    fn all_without(&self, what: Hurt, clients: &[Client]) -> Vec<usize> {
        let has_it = |client: &usize| {
            self.wounds.iter().any(|wound| wound.what == what && wound.clients.contains(client))
        };
        (0..clients.len()).filter(|client| !has_it(client)).collect()
    }

    fn without(&mut self, what: Hurt, clients: &[Client]) -> Option<usize> {
        let healthy = self.all_without(what, clients);
        self.rng.pick(&healthy).copied()
    }

    /// Whom a fault of the network hits: one client, or sometimes all of them. With the name of the target.
    fn network_of(&mut self, clients: &[Client]) -> Option<(Vec<usize>, String)> {
        if self.rng.chance(150) {
            let hit = self.all_without(Hurt::Network, clients);
            return (!hit.is_empty()).then(|| (hit, "clients".to_owned()));
        }
        let client = self.without(Hurt::Network, clients)?;
        Some((vec![client], clients[client].label()))
    }

    /// Kills one client, one that is stopped, or all at once.
    fn kill(&mut self, clients: &mut [Client]) -> io::Result<()> {
        let kind = self.draw(3, &["kill", "kill", "kill", "kill-stopped", "kill-all"]);
        let running = self.all_without(Hurt::Stopped, clients);
        let (hit, kind) = match &*kind {
            "kill-stopped" => {
                let stopped: Vec<_> = (0..clients.len()).filter(|client| !running.contains(client)).collect();
                match self.rng.pick(&stopped) {
                    Some(client) => (vec![*client], "kill-stopped"),
                    None => (self.rng.pick(&running).copied().into_iter().collect(), "kill"),
                }
            }
            "kill-all" => (running, "kill-all"),
            _ => (self.rng.pick(&running).copied().into_iter().collect::<Vec<_>>(), "kill"),
        };
        if hit.is_empty() {
            return Ok(());
        }
        let fault = self.begin(kind, &labels(&hit, clients))?;
        for client in &hit {
            clients[*client].kill()?;
        }
        for client in hit {
            clients[client].restart()?;
        }
        self.log.note(&Event::FaultEnded { fault })
    }

    /// Stops one client, for long or for a moment, or all at once, or lets one open nothing any more.
    fn hinder(&mut self, clients: &[Client]) -> io::Result<()> {
        let mut kinds = vec!["stop", "stop", "stop", "stop-all", "stutter"];
        if cfg!(target_os = "linux") {
            kinds.push("no-files");
        }
        let kind = self.draw(4, &kinds);
        let what = if kind == "no-files" { Hurt::NoFiles } else { Hurt::Stopped };
        let mut hit = self.all_without(what, clients);
        if what == Hurt::NoFiles {
            // A program needs files until it runs.
            hit.retain(|client| clients[*client].is_at_work());
        }
        if kind != "stop-all" {
            hit = self.rng.pick(&hit).copied().into_iter().collect();
        }
        if hit.is_empty() {
            return Ok(());
        }
        // Mostly past its lease, sometimes just before its end.
        let time = if kind == "stutter" {
            self.rng.around(self.ttl, 2, 30)
        } else {
            self.rng.around(self.ttl, 80, 200)
        };
        let fault = self.begin(&kind, &labels(&hit, clients))?;
        for client in &hit {
            match what {
                Hurt::NoFiles => clients[*client].let_open(false)?,
                _ => clients[*client].stop()?,
            }
        }
        self.wounds.push(Wound { fault, clients: hit, what, heals: Moment::now().plus(time) });
        Ok(())
    }

    fn cut(&mut self, clients: &[Client], doors: &[Vec<Door>]) -> io::Result<()> {
        let Some((hit, target)) = self.network_of(clients) else { return Ok(()) };
        let mut kinds =
            vec!["close", "cut", "hold-requests", "hold-replies", "lose-replies", "delay", "deaf", "stall"];
        if self.rates.doubles {
            kinds.push("double");
        }
        if self.rates.corrupts {
            kinds.push("corrupt");
        }
        let kind = self.draw(0, &kinds);
        let mode = match &*kind {
            "close" => Mode::Open,
            "cut" => Mode::Cut,
            "hold-requests" => Mode::HoldRequests,
            "hold-replies" => Mode::HoldReplies,
            "lose-replies" => Mode::LoseReplies,
            "deaf" => Mode::Deaf,
            "stall" => Mode::Stall,
            "corrupt" => Mode::Corrupt,
            "double" => Mode::Double(self.rng.millis(0, 300)),
            _ => Mode::Delay(self.rng.millis(20, 400)),
        };
        // From one of several servers, or from all.
        let servers = doors[hit[0]].len();
        let some = self.rng.below(servers as u64 + 1) as usize;
        let which = if some < servers { some..some + 1 } else { 0..servers };
        let time = self.rng.around(self.ttl, 5, 200);
        self.hit(&kind, mode, (hit, target), time, |client| &doors[client][which.clone()])
    }

    /// Breaks the network of clients, at these of their doors.
    fn hit<'a>(
        &mut self,
        kind: &str,
        mode: Mode,
        (clients, target): (Vec<usize>, String),
        time: Duration,
        doors: impl Fn(usize) -> &'a [Door],
    ) -> io::Result<()> {
        let fault = self.begin(kind, &target)?;
        let hit = clients.iter().flat_map(|client| doors(*client));
        if mode == Mode::Open {
            hit.for_each(Door::close_all);
            return self.log.note(&Event::FaultEnded { fault });
        }
        hit.for_each(|door| door.set(mode));
        self.wounds.push(Wound { fault, clients, what: Hurt::Network, heals: Moment::now().plus(time) });
        Ok(())
    }

    /// What is asked and held at the moment of a light fault is what clients have to ask about again.
    fn warn_of_gust(&mut self, clients: &[Client]) {
        if self.decks[2].is_empty() {
            self.decks[2] = LIGHT.map(str::to_owned).to_vec();
        }
        clients.iter().for_each(|client| client.warn(GUST));
        let at = Moment::now().plus(self.rng.millis(0, WARNED));
        self.gust = self.decks[2].pop().map(|kind| (at, kind));
    }

    /// A light fault, which costs nobody a lock: what clients promise about time holds soon after it.
    fn blow(&mut self, kind: &str, clients: &[Client], doors: &[Vec<Door>]) -> io::Result<()> {
        let (mode, time) = match kind {
            "close" => (Mode::Open, Duration::ZERO),
            // Past several renewals, so that a client that was taken out meanwhile has to find out by asking.
            "deaf" => (Mode::Deaf, 2 * self.ttl),
            // Shorter than an answer may take: what is asked once is asked once.
            "lag" => (Mode::Lag(self.rng.around(self.ttl, 3, 6)), 2 * self.ttl),
            // Shorter than a lease can do without.
            "mute" => (Mode::Mute, self.rng.around(self.ttl, 10, 30)),
            _ => (Mode::LoseReplies, self.rng.around(self.ttl, 5, 30)),
        };
        let lasts = matches!(kind, "deaf" | "lag");
        if lasts || self.rng.chance(250) {
            let all = ((0..clients.len()).collect(), "clients".to_owned());
            return self.hit(kind, mode, all, time, |client| &doors[client]);
        }
        // Half of them: the others go on, and do things that those who are hit do not hear of.
        for (client, it) in clients.iter().enumerate() {
            if self.rng.chance(500) {
                self.hit(kind, mode, (vec![client], it.label()), time, |client| &doors[client])?;
            }
        }
        Ok(())
    }

    /// The next of these faults.
    fn draw(&mut self, deck: usize, of: &[&str]) -> String {
        if self.decks[deck].is_empty() {
            self.decks[deck] = of.iter().map(|kind| (*kind).to_owned()).collect();
        }
        let at = self.rng.below(self.decks[deck].len() as u64) as usize;
        self.decks[deck].swap_remove(at)
    }

    fn hook(&mut self, clients: &[Client]) -> io::Result<()> {
        let Some(hook) = self.rates.hook.clone().filter(|_| self.hooked.is_none()) else { return Ok(()) };
        if hook.faults.is_empty() {
            return Ok(());
        }
        let faults: Vec<_> = hook.faults.iter().map(String::as_str).collect();
        let kind = self.draw(1, &faults);
        // What was granted in the last moment is what a server is most likely to forget.
        let (word, after) = if self.rng.chance(850) {
            (HUSH, self.rng.millis(HUSHED.0, HUSHED.1))
        } else {
            (BRINK, self.rng.millis(0, WARNED_OF_SERVER))
        };
        clients.iter().for_each(|client| client.warn(word));
        let fault = self.begin(&kind, "servers")?;
        self.hooked = Some(Hooked::Running { fault, heals: false, done: hook.call(&kind, after) });
        Ok(())
    }
}

/// The target of a fault that hits these clients.
fn labels(hit: &[usize], clients: &[Client]) -> String {
    hit.iter().map(|client| clients[*client].label()).collect::<Vec<_>>().join(",")
}
