//! Whether a server is fit for locks: asked of each one when it is connected.

use std::{collections::HashMap, time::Duration};

use redis::{Value, aio::MultiplexedConnection};

use crate::{DEFAULT_TTL, backend::Failure};

/// No server's clock is right that says less, in microseconds: the year 2020. A board without a battery starts in 1970.
const EARLIEST: u64 = 1_577_836_800_000_000;
/// Nor one that says more: the year 2200. Epochs are times, and end in 2255.
const LATEST: u64 = 7_258_118_400_000_000;

/// What a server says about itself, as far as locks depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fitness {
    /// Changes with every start of the server.
    pub(super) run: String,
    pub(super) uptime: Duration,
    pub(super) is_replica: bool,
    /// Whether what it confirmed survives the end of its process.
    pub(super) keeps_data: bool,
    /// Whether it survives the end of its machine, too; asked only where it matters.
    pub(super) syncs: bool,
    /// Whether a restart skips what scripts wrote: see [`skips_scripts`].
    pub(super) skips_scripts: bool,
    /// What its clock said, in microseconds.
    pub(super) time: Option<u64>,
    policy: String,
    bounded: bool,
    /// It does not tell this user anything about itself.
    silent: bool,
}

impl Fitness {
    /// Of a server whose user may not ask.
    pub(super) fn silent() -> Self {
        Self { silent: true, ..Self::default() }
    }

    /// Reads the answer to `INFO`. `syncs` was asked elsewhere.
    pub(super) fn read(info: &str, syncs: bool) -> Self {
        let field = |name: &str| {
            let of_name = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
            info.lines().find_map(of_name).unwrap_or_default()
        };
        Self {
            run: field("run_id"),
            // Told as the difference of two times without their fractions: it may be less by nearly a second.
            uptime: Duration::from_secs(
                field("uptime_in_seconds").parse().unwrap_or(0_u64).saturating_sub(1),
            ),
            is_replica: field("role") == "slave",
            keeps_data: field("aof_enabled") == "1",
            syncs,
            skips_scripts: false,
            time: field("server_time_usec").parse().ok(),
            policy: field("maxmemory_policy"),
            bounded: field("maxmemory").parse() != Ok(0_u64) && !field("maxmemory").is_empty(),
            silent: false,
        }
    }

    /// Refuses a server that would give locks away.
    pub(super) fn check(&self, eviction_allowed: bool) -> Result<(), Failure> {
        if let Some(time) = self.time.filter(|time| !(EARLIEST..LATEST).contains(time)) {
            // Not for good: a time service sets it right a little later.
            return Err(Failure::unreachable(format!(
                "its clock is wrong: it says that {} s have passed since 1970, which is not between the years 2020 and 2200; set the clock of its machine (chronyd, ntpd)",
                time / 1_000_000
            )));
        }
        if self.evicts() && self.bounded && !eviction_allowed {
            return Err(Failure::denied(format!(
                "its maxmemory-policy is {:?}, so it may drop locks that are held when memory is short: set maxmemory-policy noeviction, or accept it with ?eviction=allow in the URL",
                self.policy
            )));
        }
        Ok(())
    }

    fn evicts(&self) -> bool {
        !self.policy.is_empty() && self.policy != "noeviction"
    }

    /// Problems that do not forbid its use.
    pub(super) fn concerns(&self) -> Vec<String> {
        let mut concerns = Vec::new();
        if self.silent {
            concerns.push(
                "the user may not call INFO, so it is not known whether the server drops locks when memory is short, and not noticed when it forgets them in a restart: give the user +info".to_owned(),
            );
            return concerns;
        }
        if self.evicts() {
            concerns.push(format!(
                "maxmemory-policy is {:?}: with a memory limit the server may drop locks that are held; set maxmemory-policy noeviction",
                self.policy
            ));
        }
        if !self.keeps_data && self.uptime < DEFAULT_TTL {
            concerns.push(format!(
                "the server was started {:?} ago and keeps no append-only file: if that was a restart, locks from before it may still be relied on; wait until the longest ttl in use is over",
                self.uptime
            ));
        }
        if !self.keeps_data {
            concerns.push(
                "the server keeps no append-only file: after a restart it has forgotten who holds what; set appendonly yes, best with appendfsync always".to_owned(),
            );
        }
        if self.skips_scripts {
            concerns.push(
                "the default user lacks rights: servers such as Redis 7.0 and 7.2 skip what that user may not do when they load their append-only file, and forget who holds what; give it the rights and leave it off (ACL SETUSER default off nopass allkeys allchannels allcommands, also in the configuration)".to_owned(),
            );
        }
        concerns
    }
}

/// Whether a server confirms nothing before it is on the disk. One that does not tell counts as one that does not.
pub(super) async fn syncs_all(connection: &mut MultiplexedConnection) -> bool {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("appendfsync");
    let told: Result<HashMap<String, String>, _> = ask.query_async(connection).await;
    told.is_ok_and(|told| told.values().any(|policy| policy == "always"))
}

/// Whether the server skips what scripts wrote when it loads its append-only file: several writes of a script are a
/// transaction there, and those are checked against the rights of the default user. A user who may not ask knows nothing.
pub(super) async fn skips_scripts(connection: &mut MultiplexedConnection) -> bool {
    let mut ask = redis::cmd("ACL");
    ask.arg("GETUSER").arg("default");
    let told: Result<HashMap<String, Value>, _> = ask.query_async(connection).await;
    told.is_ok_and(|mut told| {
        let mut has = |field: &str, right: &str| {
            let value = told.remove(field).unwrap_or(Value::Nil);
            // A text, or a list on older servers.
            redis::from_redis_value::<Vec<String>>(value).is_ok_and(|all| {
                all.iter().any(|rights| rights.split(' ').any(|one| one.trim_start_matches('~') == right))
            })
        };
        !(has("commands", "+@all") && has("keys", "*"))
    })
}

/// What `TIME` answers, in microseconds.
pub(super) fn time_of(answer: &Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value(answer.clone()).ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_clock_is_absurd_is_refused_by_name() {
        for (micros, is_absurd) in
            [(0, true), (999_999_999_000_000, true), (1_700_000_000_000_000, false), (u64::MAX, true)]
        {
            let fitness = Fitness { time: Some(micros), ..Fitness::default() };
            let checked = fitness.check(false);
            assert_eq!(checked.is_err(), is_absurd, "{micros}");
            if let Err(failure) = checked {
                assert!(failure.reason.contains("its clock is wrong"), "{failure}");
            }
        }
    }

    #[test]
    fn a_server_that_skips_what_scripts_wrote_is_a_concern_with_the_fix() {
        let fitness = Fitness { keeps_data: true, skips_scripts: true, ..Fitness::default() };
        assert!(fitness.concerns()[0].contains("ACL SETUSER default off nopass allkeys"));
    }

    #[test]
    fn a_server_that_may_drop_locks_is_refused_with_the_fix() {
        let info = |maxmemory, policy| {
            format!(
                "run_id:abc\r\nuptime_in_seconds:7\r\nrole:master\r\naof_enabled:1\r\nmaxmemory:{maxmemory}\r\nmaxmemory_policy:{policy}\r\n"
            )
        };
        let fit = Fitness::read(&info(0, "noeviction").replace('\r', ""), false);
        assert_eq!((fit.run.as_str(), fit.uptime, fit.is_replica), ("abc", Duration::from_secs(6), false));
        assert!(fit.check(false).is_ok() && fit.concerns().is_empty());
        let bounded = Fitness::read(&info(1_000, "volatile-lru").replace('\r', ""), false);
        assert!(bounded.check(false).unwrap_err().reason.contains("maxmemory-policy noeviction"));
        assert!(bounded.check(true).is_ok() && bounded.concerns().len() == 1);
        let young = Fitness::read(
            &info(0, "noeviction").replace('\r', "").replace("aof_enabled:1", "aof_enabled:0"),
            false,
        );
        assert!(young.concerns()[0].contains("was started 6s ago"), "{:?}", young.concerns());
        assert!(Fitness::read(&info(0, "allkeys-lru").replace('\r', ""), false).check(false).is_ok());
    }
}
