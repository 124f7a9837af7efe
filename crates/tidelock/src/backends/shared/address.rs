//! Hosts and ports.

use std::net::IpAddr;

/// A host and its port, as people and URLs write them.
pub(crate) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Whether a host is this machine, so that nobody on a network can read along.
pub(crate) fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv6_has_brackets() {
        assert_eq!(host_and_port("one.example", 7), "one.example:7");
        assert_eq!(host_and_port("10.0.0.1", 7), "10.0.0.1:7");
        assert_eq!(host_and_port("::1", 7), "[::1]:7");
    }

    #[test]
    fn only_loopback_addresses_are_this_machine() {
        assert!(["localhost", "127.0.0.1", "127.8.9.1", "::1"].into_iter().all(is_this_machine));
        assert!(!["localhost.example", "10.0.0.1", "::", "fe80::1", ""].into_iter().any(is_this_machine));
    }
}
