//! The programs in `peers/`: how they are made and started, and what they say.

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
};

/// A library whose program takes locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// In this version.
    Redisson(&'static str),
    RedisPy,
    PythonRedisLock,
    Pottery,
    NodeRedlock,
    Redsync,
    Redislock,
    Rslock,
    /// Locks as people write them by hand, with these clients.
    Jedis,
    Lettuce,
}

/// Before sharded channels and the batches of the watchdog, and the newest.
pub(crate) const OLD: Library = Library::Redisson("3.16.8");
pub(crate) const NEW: Library = Library::Redisson("4.7.0");

/// What was made, and what could not be: nobody waits for a library of others.
static MADE: Mutex<Vec<(Library, Arc<OnceLock<bool>>)>> = Mutex::new(Vec::new());

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers")
}

fn built() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers")
}

fn runs(command: &mut Command) -> bool {
    let done = command.stdin(Stdio::null()).output();
    match done {
        Ok(done) if done.status.success() => true,
        Ok(done) => {
            eprintln!("{command:?}: {}", String::from_utf8_lossy(&done.stderr));
            false
        }
        Err(_) => false,
    }
}

impl Library {
    fn folder(self) -> &'static str {
        match self {
            Self::Redisson(_) => "redisson",
            Self::RedisPy => "redis-py",
            Self::PythonRedisLock => "python-redis-lock",
            Self::Pottery => "pottery",
            Self::NodeRedlock => "node-redlock",
            Self::Redsync => "redsync",
            Self::Redislock => "redislock",
            Self::Rslock => "rslock",
            Self::Jedis => "jedis",
            Self::Lettuce => "lettuce",
        }
    }

    /// What makes a key of a name that is not the name, in the URL.
    pub(crate) fn lock_key(self) -> &'static str {
        match self {
            Self::PythonRedisLock => "lock:",
            Self::Pottery => "redlock:",
            _ => "",
        }
    }

    /// How many turns are taken where nobody says how many. On several servers programs collide, and take ten times as
    /// long.
    pub(crate) fn grants(self, hosts: &str) -> u64 {
        if hosts.contains(',') { 200 } else { 2_000 }
    }

    /// How many of its programs want one lock, if not as many as clients of ours.
    pub(crate) fn programs(self, hosts: &str) -> Option<usize> {
        // Where too few of several servers are free, node-redlock keeps them for ten tries, and refuses what it has
        // itself meanwhile: a few of them keep each other from the lock for most of the time.
        (self == Self::NodeRedlock && hosts.contains(',')).then_some(2)
    }

    pub(crate) fn mode(self) -> &'static str {
        if matches!(self, Self::Redisson(_)) { "redisson" } else { "setnx" }
    }

    /// Where what is made of it is.
    fn target(self) -> PathBuf {
        match self {
            Self::Redisson(version) => built().join(format!("redisson-{version}")),
            other => built().join(other.folder()),
        }
    }

    fn make(self) -> bool {
        let (source, target) = (peers().join(self.folder()), self.target());
        fs::create_dir_all(&target).unwrap();
        match self {
            Self::Redisson(_) | Self::Jedis | Self::Lettuce => {
                let mut mvn = Command::new("mvn");
                mvn.args(["-q", "-B", "-f"]).arg(source.join("pom.xml"));
                mvn.arg(format!("-Dpeer.target={}", target.display()));
                if let Self::Redisson(version) = self {
                    mvn.arg(format!("-Dredisson.version={version}"));
                }
                runs(mvn.arg("package"))
            }
            Self::RedisPy | Self::PythonRedisLock | Self::Pottery => {
                runs(Command::new("python3").args(["-m", "venv"]).arg(&target))
                    && runs(
                        Command::new(target.join("bin/python"))
                            .args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r"])
                            .arg(source.join("requirements.txt")),
                    )
            }
            Self::NodeRedlock => {
                for file in ["main.js", "driver.mjs", "package.json", "package-lock.json"] {
                    fs::copy(source.join(file), target.join(file)).unwrap();
                }
                runs(
                    Command::new("npm")
                        .args(["install", "--no-audit", "--no-fund", "--silent"])
                        .current_dir(target),
                )
            }
            Self::Redsync | Self::Redislock => runs(
                Command::new("go")
                    .args(["build", "-o"])
                    .arg(target.join("peer"))
                    .arg(".")
                    .current_dir(source),
            ),
            Self::Rslock => runs(
                Command::new(env!("CARGO"))
                    .args(["build", "--quiet", "--locked", "--manifest-path"])
                    .arg(source.join("Cargo.toml"))
                    .arg("--target-dir")
                    .arg(target),
            ),
        }
    }

    /// The program, made by the first trial that needs it.
    pub(crate) fn program(self) -> Result<Command, &'static str> {
        let made = {
            let mut all = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let known = all.iter().find(|(library, _)| *library == self).map(|(_, made)| Arc::clone(made));
            known.unwrap_or_else(|| {
                let made = Arc::<OnceLock<bool>>::default();
                all.push((self, Arc::clone(&made)));
                made
            })
        };
        let could = *made.get_or_init(|| self.make());
        if !could {
            return Err("the library or the tools of its language are missing: see peers/README.md");
        }
        let target = self.target();
        let in_target = |program: &str| Command::new(target.join(program));
        Ok(match self {
            Self::Redisson(_) | Self::Jedis | Self::Lettuce => {
                let mut java = Command::new("java");
                let jar = target.join(format!("{}-peer.jar", self.folder()));
                let jars = target.join("jars/*");
                java.args([
                    "-XX:-UsePerfData",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-Xmx128m",
                    "-cp",
                ]);
                java.arg(format!("{}:{}", jar.display(), jars.display())).arg("Peer");
                java
            }
            Self::RedisPy | Self::PythonRedisLock | Self::Pottery => {
                let mut python = in_target("bin/python");
                python.arg(peers().join(self.folder()).join("main.py"));
                python
            }
            Self::NodeRedlock => {
                let mut node = Command::new("node");
                node.arg(target.join("main.js"));
                node
            }
            Self::Redsync | Self::Redislock => in_target("peer"),
            Self::Rslock => in_target("debug/rslock-peer"),
        })
    }
}

/// A program that runs. Killed when it is dropped.
pub(crate) struct Peer {
    pub(crate) child: Child,
    said: Option<Lines<BufReader<ChildStdout>>>,
}

impl Peer {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = Some(BufReader::new(child.stdout.take().unwrap()).lines());
        Self { child, said }
    }

    /// Starts a program and waits until it is ready.
    pub(crate) async fn ready(command: &mut Command) -> Self {
        let mut peer = Self::start(command);
        assert_eq!(peer.hear().await, "ready");
        peer
    }

    /// What it says next.
    pub(crate) async fn hear(&mut self) -> String {
        let mut said = self.said.take().unwrap();
        let heard = tokio::task::spawn_blocking(move || (said.next(), said));
        let (line, said) = heard.await.unwrap();
        self.said = Some(said);
        line.expect("the other program ended: see its message").unwrap()
    }

    /// Begins a turn.
    pub(crate) fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Lets it end, and give back what it holds.
    pub(crate) fn let_go(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many pairs an answer says.
pub(crate) fn pairs(answer: &str) -> u64 {
    let (_, rest) = answer.split_once("\"pairs\":").unwrap();
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}
