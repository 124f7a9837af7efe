//! Other lock libraries: each is a program in `peers/`, and all of them do the same when they are asked the same.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    contend::{self, Count},
    duel::Duel,
    report::Row,
};
use crate::progress::Progress;

/// A library, and how its program is made and started.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its folder in `peers/`.
    pub(super) name: &'static str,
    /// What makes its program, each with its arguments.
    make: &'static [&'static [&'static str]],
    /// The program, in its folder.
    run: &'static [&'static str],
}

const GO: &[&[&str]] = &[&["go", "build", "-o", "peer", "."]];
const MAVEN: &[&[&str]] = &[&["mvn", "-q", "-B", "package"]];
const PYTHON: &[&[&str]] = &[
    &["python3", "-m", "venv", "venv"],
    &["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"],
];
const IN_PYTHON: &[&str] = &["venv/bin/python", "main.py"];

/// Of those that several servers vote on.
pub(super) const VOTING: &[Peer] = &[NODE_REDLOCK, REDSYNC, POTTERY];

/// Of one Redis.
pub(super) const REDIS: &[Peer] = &[
    Peer {
        name: "redisson",
        make: MAVEN,
        run: &["java", "-Xmx256m", "-cp", "target/redisson-peer.jar:target/jars/*", "Peer"],
    },
    REDSYNC,
    Peer { name: "redislock", make: GO, run: &["./peer"] },
    Peer { name: "redis-py", make: PYTHON, run: IN_PYTHON },
    Peer { name: "python-redis-lock", make: PYTHON, run: IN_PYTHON },
    POTTERY,
    NODE_REDLOCK,
];

/// Of etcd.
pub(super) const ETCD: &[Peer] = &[
    Peer { name: "etcd-concurrency", make: GO, run: &["./peer"] },
    Peer {
        name: "jetcd",
        make: MAVEN,
        run: &["java", "-Xmx256m", "-cp", "target/jetcd-peer.jar:target/jars/*", "Peer"],
    },
];

/// Of PostgreSQL.
pub(super) const POSTGRES: &[Peer] = &[Peer {
    name: "sqlx-advisory",
    // A workspace of its own, and so a folder of its own, whatever the environment says.
    make: &[&["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", "target"]],
    run: &["target/release/sqlx-advisory"],
}];

/// Of ZooKeeper.
pub(super) const ZOOKEEPER: &[Peer] = &[
    Peer {
        name: "curator",
        make: MAVEN,
        run: &["java", "-Xmx256m", "-cp", "target/curator-peer.jar:target/jars/*", "Bench"],
    },
    Peer { name: "kazoo", make: PYTHON, run: IN_PYTHON },
];

const NODE_REDLOCK: Peer = Peer {
    name: "node-redlock",
    make: &[&["npm", "install", "--no-audit", "--no-fund", "--silent"]],
    run: &["node", "main.js"],
};
const REDSYNC: Peer = Peer { name: "redsync", make: GO, run: &["./peer"] };
const POTTERY: Peer = Peer { name: "pottery", make: PYTHON, run: IN_PYTHON };

/// Pairs of lock and release, by so many processes with so many tasks each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) servers: &'a str,
    pub(super) name: &'a str,
    pub(super) processes: usize,
    pub(super) tasks: usize,
    pub(super) time: Duration,
}

/// A peer whose program is made.
#[derive(Debug)]
struct Ready {
    folder: PathBuf,
    run: &'static [&'static str],
}

impl Peer {
    /// Ours against theirs in turns: a turn of ours says how many seconds a pair took. A peer whose tools are missing
    /// is named as missing.
    pub(super) fn against(
        &self,
        scenario: &str,
        asked: Asked<'_>,
        rounds: usize,
        progress: &Progress,
        ours: impl FnMut() -> Result<f64, String>,
    ) -> Row {
        let label = format!("{scenario}, against {}", self.name);
        let fight = || {
            let ready = self.prepare(progress)?;
            Duel::rounds(&label, rounds, progress, ours, || Ok(contend::each(&ready.pairs(asked)?)))
        };
        match fight() {
            Ok(duel) => {
                let bar = format!("faster than {}", self.name);
                Row::duel(label, &duel, duel.throughput(), &bar, |ratio| ratio > 1.0)
            }
            Err(why) => Row::missing(label, &why),
        }
    }

    /// Makes the program, in `target/peers/`. The error says what is missing.
    fn prepare(&self, progress: &Progress) -> Result<Ready, String> {
        progress.show(&format!("{}: its program is made", self.name));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = root.join("target/peers").join(self.name);
        copy(&root.join("peers").join(self.name), &folder)
            .map_err(|error| format!("no folder for {}: {error}", self.name))?;
        for words in self.make {
            let mut command = command(&folder, words)?;
            let output = command.output().map_err(|error| format!("{} cannot be run: {error}", words[0]))?;
            if !output.status.success() {
                let said = [output.stderr, output.stdout].concat();
                let said = String::from_utf8_lossy(&said);
                return Err(format!("{} failed: {}", words[0], said.lines().next().unwrap_or_default()));
            }
        }
        Ok(Ready { folder, run: self.run })
    }
}

impl Ready {
    fn pairs(&self, asked: Asked<'_>) -> Result<Vec<Count>, String> {
        let (tasks, millis) = (asked.tasks.to_string(), asked.time.as_millis().to_string());
        let program = || {
            let mut command = command(&self.folder, self.run)?;
            command.args(["pairs", asked.servers, asked.name, &tasks, &millis]);
            Ok(command)
        };
        contend::run_programs(asked.processes, program)
    }
}

/// Where a program is given by a path it is in the folder, wherever we are.
fn command(folder: &Path, words: &[&str]) -> Result<Command, String> {
    let (program, args) = words.split_first().ok_or("no program")?;
    let program = if program.contains('/') { folder.join(program) } else { PathBuf::from(program) };
    let mut command = Command::new(program);
    command.args(args).current_dir(folder);
    Ok(command)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        let (from, to) = (file.path(), to.join(file.file_name()));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(from, to)?;
        }
    }
    Ok(())
}
