//! When no fault was near. Faults may delay anything for a while, so nothing is said about time around them.

use std::collections::HashMap;

use crate::torture::{
    history::{Fault, History, client_of},
    record::Nanos,
};

/// How long after its end a fault may still be felt, beyond two leases: leases that are counted anew after an election,
/// sessions that the server ends late, pauses between attempts.
const RECOVERY: Nanos = 4_000_000_000;

/// How long a client that was hit may take until it is as if nothing had happened, if no lease ended meanwhile.
const MARGIN: Nanos = 4_000_000_000;

/// Faults that cost nobody a lease: what they touched is asked again at once.
pub(super) const LIGHT: [&str; 3] = ["close", "blip", "mute"];

/// Clients that hear nothing find out by asking, and those that hear late do so by less than a second: nothing is excused
/// by it.
pub(super) const HARMLESS: [&str; 2] = ["deaf", "lag"];

/// The disturbed times, in order and apart from each other.
#[derive(Debug)]
pub(super) struct Calm(Vec<(Nanos, Nanos)>);

impl Calm {
    /// As far as locks of this ttl are concerned.
    pub(super) fn new(history: &History, ttl: Nanos) -> Self {
        let recovery = RECOVERY + 2 * ttl;
        let disturbs = |fault: &Fault| {
            let recovery = if LIGHT.contains(&&*fault.kind) { 0 } else { recovery };
            (fault.began, fault.healed.unwrap_or(history.last).saturating_add(recovery))
        };
        let faults = history.faults.iter().filter(|fault| !HARMLESS.contains(&&*fault.kind));
        Self::of(faults.map(disturbs).collect())
    }

    fn of(mut times: Vec<(Nanos, Nanos)>) -> Self {
        times.sort_unstable();
        let mut disturbed: Vec<(Nanos, Nanos)> = Vec::new();
        for (from, to) in times {
            match disturbed.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => disturbed.push((from, to)),
            }
        }
        Self(disturbed)
    }

    /// Whether nothing disturbed this time.
    pub(super) fn covers(&self, from: Nanos, to: Nanos) -> bool {
        let after = self.0.partition_point(|(began, _)| *began <= to);
        after == 0 || self.0[after - 1].1 < from
    }

    /// Since when it was calm at a moment; `None` if it was not.
    pub(super) fn since(&self, at: Nanos) -> Option<Nanos> {
        let after = self.0.partition_point(|(began, _)| *began <= at);
        match after.checked_sub(1).map(|last| self.0[last].1) {
            None => Some(0),
            Some(ended) if ended < at => Some(ended),
            Some(_) => None,
        }
    }

    /// How much of a time was calm.
    pub(super) fn within(&self, from: Nanos, to: Nanos) -> Nanos {
        let disturbed: Nanos =
            self.0.iter().map(|(began, ended)| (*ended).min(to).saturating_sub((*began).max(from))).sum();
        to.saturating_sub(from).saturating_sub(disturbed)
    }
}

/// When nothing disturbed single processes: their own faults and those of servers.
#[derive(Debug)]
pub(super) struct Undisturbed {
    servers: Calm,
    of_client: HashMap<(u32, u32), Calm>,
}

impl Undisturbed {
    /// With faults of these kinds left out.
    pub(super) fn new(history: &History, except: &[&str]) -> Self {
        Self::by(history, MARGIN, |kind| !except.contains(&kind))
    }

    /// Around light faults only, which are soon forgotten.
    pub(super) fn light(history: &History, margin: Nanos) -> Self {
        Self::by(history, margin, |kind| LIGHT.contains(&kind))
    }

    fn by(history: &History, margin: Nanos, counts: impl Fn(&str) -> bool) -> Self {
        let mut servers = Vec::new();
        let mut of_client: HashMap<_, Vec<_>> = HashMap::new();
        for fault in history.faults.iter().filter(|fault| counts(&fault.kind)) {
            let time = (fault.began, fault.healed.unwrap_or(history.last).saturating_add(margin));
            match client_of(&fault.target) {
                // What is slow for one client is slow for others, who may not have noted it.
                Some(client) if fault.kind != "slow" => of_client.entry(client).or_default().push(time),
                _ => servers.push(time),
            }
        }
        let of_client = of_client.into_iter().map(|(client, times)| (client, Calm::of(times))).collect();
        Self { servers: Calm::of(servers), of_client }
    }

    /// Whether nothing disturbed this process in this time.
    pub(super) fn covers(&self, history: &History, process: u32, from: Nanos, to: Nanos) -> bool {
        let process = &history.processes[process as usize];
        let own = self.of_client.get(&(process.client, process.generation));
        self.servers.covers(from, to) && own.is_none_or(|own| own.covers(from, to))
    }
}
