//! Other lock libraries: each is a program in `peers/`, and all of them do the same when they are asked the
//! same.

use super::{making::Making, program::Launch, progress::Progress, root};

/// A library, and how its program is made and started.
#[derive(Debug)]
pub(super) struct Peer {
    /// As results name it.
    pub(super) name: &'static str,
    /// Its folder in `peers/`.
    folder: &'static str,
    /// What makes its program, each with its arguments.
    make: &'static [&'static [&'static str]],
    /// The program, in its folder.
    run: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Told a URL instead of an address.
    pub(super) by_url: bool,
    /// Whether it can hold many locks for longer than a lease, or why not.
    pub(super) holds: Result<(), &'static str>,
}

pub(super) const ONE_LEASE: Result<(), &str> = Err("it renews nothing by itself: held for one lease only");
pub(super) const FEW_CONNECTIONS: Result<(), &str> = Err("it needs a connection for each lock");

const GO: &[&[&str]] = &[&["go", "build", "-o", "peer", "."]];
const MAVEN: &[&[&str]] = &[&["mvn", "-q", "-B", "package"]];
const PYTHON: &[&[&str]] = &[
    &["python3", "-m", "venv", "venv"],
    &["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"],
];
const NODE: &[&[&str]] = &[&["npm", "install", "--no-audit", "--no-fund", "--silent"]];
// Workspaces of their own, which share what they are built from.
const CARGO: &[&[&str]] =
    &[&["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", "../cargo"]];

const fn go(name: &'static str) -> Peer {
    Peer { run: &["./peer"], make: GO, ..PEER }.named(name)
}

const fn python(name: &'static str) -> Peer {
    Peer { run: &["venv/bin/python", "main.py"], make: PYTHON, ..PEER }.named(name)
}

const fn java(name: &'static str, run: &'static [&'static str]) -> Peer {
    Peer { run, make: MAVEN, ..PEER }.named(name)
}

const fn rust(name: &'static str, run: &'static [&'static str]) -> Peer {
    Peer { run, make: CARGO, ..PEER }.named(name)
}

const PEER: Peer =
    Peer { name: "", folder: "", make: &[], run: &[], environment: &[], by_url: false, holds: ONE_LEASE };

impl Peer {
    const fn named(self, name: &'static str) -> Self {
        Self { name, folder: name, ..self }
    }

    const fn by_url(self) -> Self {
        Self { by_url: true, ..self }
    }

    const fn renews(self) -> Self {
        Self { holds: Ok(()), ..self }
    }

    const fn holds_few(self) -> Self {
        Self { holds: FEW_CONNECTIONS, ..self }
    }

    /// The same program, used in another way.
    const fn with(self, name: &'static str, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { name, environment, ..self }
    }
}

const DISTRIBUTED_LOCK: Peer = rust("distributed-lock", &["../cargo/release/distributed-lock-peer"]).by_url();
const NODE_REDLOCK: Peer =
    Peer { run: &["node", "main.js"], make: NODE, ..PEER }.named("node-redlock").renews();
const RSLOCK: Peer = rust("rslock", &["../cargo/release/rslock-peer"]).renews();
const SHEDLOCK: Peer =
    java("shedlock", &["java", "-Xmx256m", "-cp", "target/shedlock-peer.jar:target/jars/*", "Peer"]).by_url();
const SQLX: Peer = rust("sqlx-advisory", &["../cargo/release/sqlx-advisory"]).by_url();

/// The server that `cargo xtask bench` has built, as seen from the folders of programs.
const SERVER: &[(&str, &str)] = &[("TIDELOCK_BINARY", "../../release/tidelock")];
const TIDELOCK_PYTHON: Peer = Peer { run: &["python3", "main.py"], ..PEER }
    .named("tidelock-python")
    .with("tidelock (Python)", SERVER)
    .renews();
const TIDELOCK_NODE: Peer = Peer { run: &["node", "main.js"], ..PEER }
    .named("tidelock-node")
    .with("tidelock (Node)", SERVER)
    .renews();

pub(super) const FILE: &[Peer] =
    &[rust("fs4", &["../cargo/release/fs4-peer"]).renews(), DISTRIBUTED_LOCK.renews()];

pub(super) const REDIS: &[Peer] = &[
    java("redisson", &["java", "-Xmx256m", "-cp", "target/redisson-peer.jar:target/jars/*", "Peer"]).renews(),
    go("redsync"),
    go("redislock"),
    python("redis-py"),
    python("python-redis-lock").renews(),
    python("pottery"),
    NODE_REDLOCK,
    RSLOCK,
    DISTRIBUTED_LOCK.renews(),
    TIDELOCK_PYTHON,
    TIDELOCK_NODE,
];

/// Of those that several servers vote on.
pub(super) const REDLOCK: &[Peer] = &[NODE_REDLOCK, go("redsync"), python("pottery"), RSLOCK];

pub(super) const ETCD: &[Peer] = &[
    go("etcd-concurrency").renews(),
    java("jetcd", &["java", "-Xmx256m", "-cp", "target/jetcd-peer.jar:target/jars/*", "Peer"]).renews(),
];

pub(super) const ZOOKEEPER: &[Peer] = &[
    java("curator", &["java", "-Xmx256m", "-cp", "target/curator-peer.jar:target/jars/*", "Bench"]).renews(),
    python("kazoo").renews(),
    rust("zookeeper-client", &["../cargo/release/zookeeper-client-peer"]).renews(),
];

pub(super) const POSTGRES: &[Peer] = &[
    SQLX.holds_few(),
    SQLX.with("sqlx-advisory, no pool", &[("SQLX_POOL", "off")]).holds_few(),
    DISTRIBUTED_LOCK.holds_few(),
    SHEDLOCK,
];

pub(super) const MYSQL: &[Peer] = &[DISTRIBUTED_LOCK.holds_few(), SHEDLOCK];

impl Peer {
    /// Makes the program, in `target/peers/`. The error says what is missing.
    pub(super) fn prepare(&self, progress: &Progress) -> Result<Launch, String> {
        let folder = root().join("target/peers").join(self.folder);
        let launch = |words: &[&str]| Launch {
            folder: folder.clone(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            environment: self
                .environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        // What is given by a path is made; of a list of paths, the first.
        let made =
            self.run.iter().filter_map(|word| word.split(':').next()).filter(|word| word.contains('/'));
        Making {
            name: self.folder,
            from: root().join("peers").join(self.folder),
            to: folder.clone(),
            commands: self.make.iter().map(|words| launch(words)).collect(),
            made: made.map(|path| folder.join(path)).collect(),
            typical: typical(self.make),
        }
        .run(progress)?;
        Ok(launch(self.run))
    }
}

/// Seconds that it takes to make a program, with all that it is made from.
fn typical(make: &[&[&str]]) -> f64 {
    match make.first().and_then(|words| words.first()) {
        Some(&"cargo") => 120.0,
        Some(&"mvn") => 60.0,
        _ => 20.0,
    }
}
