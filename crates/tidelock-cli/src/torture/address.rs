//! The servers in a URL, so that doors can stand in front of them.

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
        let port = match scheme {
            "redis" | "redlock" => 6379,
            "etcd" => 2379,
            "zookeeper" | "zk" => 2181,
            "postgres" | "postgresql" => 5432,
            "mysql" | "mariadb" => 3306,
            "redis+sentinel" | "redis+cluster" => {
                return Err(format!("servers of {scheme} tell clients their own addresses"));
            }
            _ if scheme.contains("unix") || scheme == "file" => {
                return Err("this store is not on a network".to_owned());
            }
            _ => return Err(format!("{scheme} checks the names of the servers")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        let (login, hosts) = match authority.rfind('@') {
            Some(at) => authority.split_at(at + 1),
            None => ("", authority),
        };
        if hosts.is_empty() {
            return Err("the URL names no server".to_owned());
        }
        let servers = hosts.split(',').map(|host| with_port(host, port)).collect();
        Ok(Self { before: format!("{scheme}://{login}"), servers, after: after.to_owned() })
    }

    /// The URL with other servers.
    pub(super) fn with(&self, servers: &[String]) -> String {
        format!("{}{}{}", self.before, servers.join(","), self.after)
    }
}

fn with_port(host: &str, port: u16) -> String {
    let after_brackets = host.rfind(']').unwrap_or(0);
    if host[after_brackets..].contains(':') { host.to_owned() } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_stand_in_front_of_every_server_of_a_url() {
        for (url, servers, with) in [
            ("redis://127.0.0.1", &["127.0.0.1:6379"][..], "redis://door:1"),
            ("redis://u:p@w@one:7/3?a=b", &["one:7"], "redis://u:p@w@door:1/3?a=b"),
            ("redlock://a,b:2,c?x=1", &["a:6379", "b:2", "c:6379"], "redlock://door:1,door:2,door:3?x=1"),
            ("postgres://app@[::1]/app", &["[::1]:5432"], "postgres://app@door:1/app"),
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
            "rediss://a",
            "postgres:///app?host=/run",
            "memory:",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }
}
