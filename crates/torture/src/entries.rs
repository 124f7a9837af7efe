//! How many entries servers have: a store must not grow with each request.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use test_servers::{Error, Server};

const ROWS_OF_POSTGRES: &str = "SELECT (SELECT count(*) FROM tidelock.line) + (SELECT count(*) FROM tidelock.gone) \
     + (SELECT count(*) FROM tidelock.follower)";
const ROWS_OF_MARIADB: &str = "SELECT (SELECT COUNT(*) FROM test.tidelock_lines) + (SELECT COUNT(*) FROM test.tidelock_claims) \
     + (SELECT COUNT(*) FROM test.tidelock_followers) + (SELECT COUNT(*) FROM test.tidelock_gone) \
     + (SELECT COUNT(*) FROM test.tidelock_evictions)";

/// How many keys, nodes or rows these servers have together.
pub(crate) fn of(servers: &[&Server]) -> Result<u64, Error> {
    servers.iter().map(|server| of_one(server)).sum()
}

fn of_one(server: &Server) -> Result<u64, Error> {
    let said = match server.store() {
        "redis" => server.command(&["DBSIZE"])?.unwrap_or_default(),
        "etcd" => {
            // Older clients cannot count.
            let keys = server.ask(&["get", "", "--prefix", "--keys-only"])?;
            keys.lines().filter(|line| !line.is_empty()).count().to_string()
        }
        "zookeeper" => {
            let said = four_letters(server, "srvr").map_err(|error| Error::new(error.to_string()))?;
            said.lines().find_map(|line| line.strip_prefix("Node count:")).unwrap_or_default().to_owned()
        }
        "postgres" => server.ask(&["-tAc", ROWS_OF_POSTGRES])?,
        "mariadb" => server.ask(&["-N", "-e", ROWS_OF_MARIADB])?,
        other => return Err(Error::new(format!("{other} does not say how many entries it has"))),
    };
    said.trim().parse().map_err(|_| Error::new(format!("{} has {said:?} entries", server.store())))
}

/// What a member of ZooKeeper answers to a word.
pub(crate) fn four_letters(member: &Server, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(member.addr())?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(word.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
