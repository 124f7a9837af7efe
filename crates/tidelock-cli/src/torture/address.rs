//! The servers in a URL, so that doors can stand in front of them.

use tidelock::Locks;

/// The URL in parts: what comes before the servers, the servers with their ports, and the rest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    before: String,
    pub(super) servers: Vec<String>,
    after: String,
}

impl Address {
    /// Takes a URL apart, or says why clients cannot be cut off from its servers.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("this store has no servers")?;
        if scheme.contains('+') {
            return Err(format!("servers of {scheme} tell clients their own addresses, or are a socket"));
        }
        if scheme.strip_suffix('s').is_some_and(|plain| Locks::schemes().contains(&plain)) {
            return Err(format!("{scheme} compares the names of servers with their certificates"));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        let (login, hosts) = match authority.rfind('@') {
            Some(at) => authority.split_at(at + 1),
            None => ("", authority),
        };
        if hosts.is_empty() {
            return Err("the URL names no server".to_owned());
        }
        let servers: Vec<_> = hosts.split(',').map(ToOwned::to_owned).collect();
        if let Some(host) = servers.iter().find(|host| !has_port(host)) {
            return Err(format!("write the port of {host} into the URL"));
        }
        Ok(Self { before: format!("{scheme}://{login}"), servers, after: after.to_owned() })
    }

    /// The URL with other servers.
    pub(super) fn with(&self, servers: &[String]) -> String {
        format!("{}{}{}", self.before, servers.join(","), self.after)
    }
}

fn has_port(host: &str) -> bool {
    let after_brackets = host.rfind(']').unwrap_or(0);
    host[after_brackets..].contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_stand_in_front_of_every_server_of_a_url() {
        for (url, servers, with) in [
            ("redis://127.0.0.1:6379", &["127.0.0.1:6379"][..], "redis://door:1"),
            ("redis://u:p@w@one:7/3?a=b", &["one:7"], "redis://u:p@w@door:1/3?a=b"),
            ("redlock://a:1,b:2,c:3?x=1", &["a:1", "b:2", "c:3"], "redlock://door:1,door:2,door:3?x=1"),
            ("postgres://app@[::1]:5/app", &["[::1]:5"], "postgres://app@door:1/app"),
            ("etcd://[::1]:9", &["[::1]:9"], "etcd://door:1"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.servers, servers, "{url}");
            let doors: Vec<_> = (1..=servers.len()).map(|door| format!("door:{door}")).collect();
            assert_eq!(address.with(&doors), with);
        }
    }

    #[test]
    fn servers_that_cannot_stand_behind_doors_are_said() {
        for url in [
            "file:",
            "file:///x",
            "redis+unix:///x",
            "redis+sentinel://a/b",
            "redis+cluster://a",
            "rediss://a:1",
            "redis://a",
            "redis://a:1,b",
            "etcd://[::1]",
            "postgres:///app?host=/run",
            "memory:",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }
}
