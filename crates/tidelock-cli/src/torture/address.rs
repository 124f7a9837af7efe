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
        if is_encrypted(url) && servers.iter().any(|host| !host.starts_with("127.0.0.1:")) {
            return Err(format!(
                "{scheme} compares the names of servers with their certificates, so only those at 127.0.0.1 can be behind a proxy"
            ));
        }
        Ok(Self { before: format!("{scheme}://{login}"), servers, after: after.to_owned() })
    }

    /// The URL with other servers.
    pub(super) fn with(&self, servers: &[String]) -> String {
        format!("{}{}{}", self.before, servers.join(","), self.after)
    }
}

/// Whether connections are encrypted, so that what a network changed is noticed.
pub(super) fn is_encrypted(url: &str) -> bool {
    let plain = url.split_once("://").and_then(|(scheme, _)| scheme.strip_suffix('s'));
    plain.is_some_and(|plain| Locks::schemes().contains(&plain))
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
            ("rediss://127.0.0.1:7?ca=/a.pem", &["127.0.0.1:7"], "rediss://door:1?ca=/a.pem"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.servers, servers, "{url}");
            let doors: Vec<_> = (1..=servers.len()).map(|door| format!("door:{door}")).collect();
            assert_eq!(address.with(&doors), with);
        }
    }

    #[test]
    fn bytes_are_changed_only_where_encryption_notices_it() {
        assert!(is_encrypted("rediss://127.0.0.1:7"));
        for url in ["redis://127.0.0.1:7", "postgres://a:1/b", "etcd://a:1", "file:///x", "memory:"] {
            assert!(!is_encrypted(url), "{url}");
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
            "rediss://127.0.0.1:1,127.0.0.10:2",
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
