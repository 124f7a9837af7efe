//! The faults: which one comes when, as the seed says, and what it does.

use std::{
    io,
    process::{Command, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError, channel},
    },
    time::Duration,
};

use super::{
    herd::Client,
    history::Log,
    proxy::{Door, Mode},
    record::Event,
    rng::Rng,
};
use crate::{clock::Moment, output::Trouble};

/// How often each kind of fault comes; `None` is never.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    pub(super) kill: Option<Duration>,
    pub(super) stop: Option<Duration>,
    pub(super) cut: Option<Duration>,
    pub(super) hook: Option<Hook>,
}

/// The operator's own command for faults of servers.
#[derive(Clone, Debug)]
pub(super) struct Hook {
    pub(super) command: String,
    pub(super) faults: Vec<String>,
    pub(super) every: Duration,
}

/// A fault of a client that has to be healed.
#[derive(Debug)]
struct Wound {
    fault: u32,
    client: usize,
    what: Hurt,
    heals: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hurt {
    Stopped,
    Network,
}

/// What the hook does at the moment.
#[derive(Debug)]
enum Hooked {
    /// Called, and not back yet: with the fault, or to heal it.
    Running { fault: u32, heals: bool, done: Receiver<io::Result<bool>> },
    /// The fault is there until then.
    Broken { fault: u32, heals: Moment },
}

#[derive(Debug)]
pub(super) struct Nemesis {
    log: Arc<Log>,
    rng: Rng,
    rates: Rates,
    ttl: Duration,
    /// When the next fault of each kind comes: kill, stop, cut, hook.
    due: [Option<Moment>; 4],
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
            due: [None; 4],
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
        begin: bool,
    ) -> Result<(), Trouble> {
        self.heal(clients, doors, false)?;
        let now = Moment::now();
        let every = [
            self.rates.kill,
            self.rates.stop,
            self.rates.cut.filter(|_| !doors.is_empty()),
            self.rates.hook.as_ref().map(|hook| hook.every),
        ];
        for (kind, every) in every.into_iter().enumerate() {
            let Some(every) = every.filter(|_| begin) else {
                self.due[kind] = None;
                continue;
            };
            let due = *self.due[kind].get_or_insert_with(|| now.plus(self.rng.around(every, 50, 150)));
            if now >= due {
                self.due[kind] = Some(now.plus(self.rng.around(every, 50, 150)));
                match kind {
                    0 => self.kill(clients)?,
                    1 => self.stop(clients)?,
                    2 => self.cut(clients, doors)?,
                    _ => self.hook()?,
                }
            }
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
            match wound.what {
                Hurt::Stopped => clients[wound.client].resume()?,
                Hurt::Network => doors[wound.client].iter().for_each(|door| door.set(Mode::Open)),
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
        self.hooked = Some(broken);
        if let Some(Hooked::Broken { fault, heals }) = self.hooked
            && (now || heals <= Moment::now())
        {
            self.hooked = Some(Hooked::Running { fault, heals: true, done: self.call("heal") });
        }
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

    /// A client without this fault. It may have the other one: a client that is slow and then stopped is worse off than
    /// two clients with one fault each.
    fn without(&mut self, what: Hurt, clients: &[Client]) -> Option<usize> {
        let has_it =
            |client: usize| self.wounds.iter().any(|wound| wound.client == client && wound.what == what);
        let healthy: Vec<_> = (0..clients.len()).filter(|client| !has_it(*client)).collect();
        self.rng.pick(&healthy).copied()
    }

    fn kill(&mut self, clients: &mut [Client]) -> io::Result<()> {
        let Some(client) = self.without(Hurt::Stopped, clients) else { return Ok(()) };
        let fault = self.begin("kill", &clients[client].label())?;
        clients[client].restart()?;
        self.log.note(&Event::FaultEnded { fault })
    }

    fn stop(&mut self, clients: &[Client]) -> io::Result<()> {
        let Some(client) = self.without(Hurt::Stopped, clients) else { return Ok(()) };
        // Mostly past its lease, sometimes just before its end.
        let time = self.rng.around(self.ttl, 80, 200);
        let fault = self.begin("stop", &clients[client].label())?;
        clients[client].stop()?;
        self.wounds.push(Wound { fault, client, what: Hurt::Stopped, heals: Moment::now().plus(time) });
        Ok(())
    }

    fn cut(&mut self, clients: &[Client], doors: &[Vec<Door>]) -> io::Result<()> {
        let Some(client) = self.without(Hurt::Network, clients) else { return Ok(()) };
        let delay = Mode::Delay(self.rng.millis(20, 400));
        let (kind, mode) = match self.rng.below(6) {
            0 => ("close", Mode::Open),
            1 => ("cut", Mode::Cut),
            2 => ("hold-requests", Mode::HoldRequests),
            3 => ("hold-replies", Mode::HoldReplies),
            4 => ("lose-replies", Mode::LoseReplies),
            _ => ("delay", delay),
        };
        // From one of several servers, or from all.
        let of_client = &doors[client];
        let some = self.rng.below(of_client.len() as u64 + 1) as usize;
        let hit = if some < of_client.len() { &of_client[some..=some] } else { &of_client[..] };
        let time = self.rng.around(self.ttl, 5, 200);
        let fault = self.begin(kind, &clients[client].label())?;
        if mode == Mode::Open {
            hit.iter().for_each(Door::close_all);
            return self.log.note(&Event::FaultEnded { fault });
        }
        hit.iter().for_each(|door| door.set(mode));
        self.wounds.push(Wound { fault, client, what: Hurt::Network, heals: Moment::now().plus(time) });
        Ok(())
    }

    fn hook(&mut self) -> io::Result<()> {
        let Some(hook) = self.rates.hook.clone().filter(|_| self.hooked.is_none()) else { return Ok(()) };
        let Some(kind) = self.rng.pick(&hook.faults).cloned() else { return Ok(()) };
        let fault = self.begin(&kind, "servers")?;
        self.hooked = Some(Hooked::Running { fault, heals: false, done: self.call(&kind) });
        Ok(())
    }

    /// Calls the hook in a thread: it may take long.
    fn call(&self, what: &str) -> Receiver<io::Result<bool>> {
        let (tell, done) = channel();
        let command = self.rates.hook.as_ref().map(|hook| hook.command.clone()).unwrap_or_default();
        let what = what.to_owned();
        std::thread::spawn(move || {
            let status = Command::new("sh")
                .args(["-c", &format!("{command} \"$1\""), "tidelock-torture", &what])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status();
            // Nobody listens when the run was ended.
            let _ = tell.send(status.map(|status| status.success()));
        });
        done
    }
}
