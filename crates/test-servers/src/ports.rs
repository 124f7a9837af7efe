//! Free ports on 127.0.0.1.
//!
//! A port must stay free for its server while the server is down, so that it can start again on
//! it. Two things would take it away: another test process that looks for a port at the same
//! time, and the kernel, which gives outgoing connections any port of its ephemeral range (a
//! client that keeps dialling a dead server there may even be connected to itself). So ports
//! come from below that range, and each is claimed by an abstract socket name, which all test
//! processes see and which the kernel gives back when the process ends, however it ends.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};

use crate::Error;

/// Below it are too many ports that people know by heart.
const LOWEST: u16 = 15_000;

/// How often a server is started on new ports when a stranger took the ones it was given.
const TRIES: u32 = 5;

/// A port on 127.0.0.1 that no other test process uses while this value lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Holds the name that other test processes try to take.
    _claim: UnixDatagram,
}

impl Port {
    /// The number of the port.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }

    /// Claims the port among the test processes, then asks the kernel whether it is free.
    fn claim(number: u16) -> Option<Self> {
        let name = format!("tidelock-test-port-{number}");
        let claim = UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(name).ok()?).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _claim: claim })
    }
}

/// Finds a free port.
///
/// # Errors
///
/// When there is none.
pub fn free() -> Result<Port, Error> {
    search(0, Port::claim)
}

/// Finds two free ports, the second `gap` above the first.
pub(crate) fn free_pair(gap: u16) -> Result<(Port, Port), Error> {
    search(gap, |number| Some((Port::claim(number)?, Port::claim(number.checked_add(gap)?)?)))
}

fn search<T>(gap: u16, claim: impl Fn(u16) -> Option<T>) -> Result<T, Error> {
    let end = ephemeral_start().saturating_sub(gap).max(LOWEST);
    let span = end - LOWEST;
    // Test processes start at different places, so that they seldom look at the same port.
    let offset = RandomState::new().hash_one(gap) % u64::from(span.max(1));
    (0..span)
        .map(|step| LOWEST + ((u64::from(step) + offset) % u64::from(span)) as u16)
        .find_map(&claim)
        .or_else(|| (0..1000).find_map(|_| claim(ephemeral()?)))
        .ok_or_else(|| Error::new("no free port on 127.0.0.1"))
}

/// Where the kernel's range for outgoing connections starts.
fn ephemeral_start() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768)
}

/// A port of the kernel's choice, for machines whose ephemeral range leaves nothing below it.
fn ephemeral() -> Option<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    Some(listener.local_addr().ok()?.port())
}

/// Runs a start again, on other ports, as long as a stranger's program holds one of them.
pub(crate) fn retry<T>(mut start: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..TRIES {
        match start() {
            Err(error) if error.is_address_in_use() => {}
            done => return done,
        }
    }
    start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_given_to_nobody_else_until_it_is_dropped() {
        let port = free().unwrap();
        let number = port.number();
        assert!(Port::claim(number).is_none());
        drop(port);
        assert!(Port::claim(number).is_some());
    }

    #[test]
    fn a_port_that_a_stranger_listens_on_is_not_free() {
        let port = free().unwrap();
        let number = port.number();
        let _stranger = TcpListener::bind(port.addr()).unwrap();
        drop(port);
        assert!(Port::claim(number).is_none());
    }

    #[test]
    fn a_port_lies_below_the_range_of_outgoing_connections() {
        assert!(free().unwrap().number() < ephemeral_start());
        let (first, second) = free_pair(10_000).unwrap();
        assert_eq!(second.number() - first.number(), 10_000);
        assert!(second.number() < ephemeral_start());
    }

    #[test]
    fn a_start_is_tried_again_only_when_the_address_was_in_use() {
        let mut starts = 0;
        let done = retry(|| {
            starts += 1;
            match starts {
                1 | 2 => Err(Error::address_in_use("taken")),
                _ => Ok(starts),
            }
        });
        assert_eq!(done.unwrap(), 3);

        let mut starts = 0;
        let failed = retry(|| {
            starts += 1;
            Err::<(), _>(Error::new("broken"))
        });
        assert_eq!((failed.unwrap_err().to_string().as_str(), starts), ("broken", 1));
    }
}
