//! Processes that want the same name: each takes it and gives it back for a while.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tidelock::{Locks, clock::Clock};

use super::{Threads, mysql};

/// One process of several that contend.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store, or a peer: `shedlock+mysql://…`, `getlock+mysql://…`.
    url: String,
    /// For how many milliseconds.
    millis: u64,
}

/// What a process did.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Count {
    pub(super) pairs: u32,
    pub(super) seconds: f64,
}

/// The process itself: says that it is ready, waits for the start, works, says what it did.
pub(crate) fn run(args: &Args) -> Result<bool, String> {
    let begin = || {
        println!("ready");
        std::io::stdin().lock().read_line(&mut String::new()).map(drop).map_err(|error| error.to_string())
    };
    if let Some(count) = mysql::peer(&args.url, Duration::from_millis(args.millis), begin) {
        return say(&count?);
    }
    let runtime = Threads::One.runtime()?;
    let count = runtime.block_on(async {
        let text = |error: tidelock::Error| error.to_string();
        let locks = Locks::connect(&args.url).await.map_err(text)?;
        let mutex = locks.mutex("contend");
        begin()?;
        let clock = Clock::machine();
        let (start, limit) = (clock.now(), Duration::from_millis(args.millis));
        let mut pairs = 0;
        while clock.now().since(start) < limit {
            mutex.lock().await.map_err(text)?.release().await.map_err(text)?;
            pairs += 1;
        }
        Ok::<_, String>(Count { pairs, seconds: clock.now().since(start).as_secs_f64() })
    })?;
    say(&count)
}

fn say(count: &Count) -> Result<bool, String> {
    println!("{}", serde_json::to_string(count).map_err(|error| error.to_string())?);
    Ok(true)
}

/// Lets processes contend, all from the same moment on.
pub(super) fn run_all(url: &str, processes: usize, time: Duration) -> Result<Vec<Count>, String> {
    let program = std::env::current_exe().map_err(|error| format!("xtask does not find itself: {error}"))?;
    let millis = time.as_millis().to_string();
    run_programs(processes, || {
        let mut command = Command::new(&program);
        command.args(["bench-contend", url, &millis]);
        Ok(command)
    })
}

/// How many seconds a pair took, of all processes together.
pub(super) fn each(counts: &[Count]) -> f64 {
    let longest = counts.iter().map(|count| count.seconds).fold(0.0, f64::max);
    longest / f64::from(counts.iter().map(|count| count.pairs).sum::<u32>().max(1))
}

/// As [`run_all`], with any program that does as [`run`].
pub(super) fn run_programs(
    processes: usize,
    program: impl Fn() -> Result<Command, String>,
) -> Result<Vec<Count>, String> {
    let mut children = Vec::new();
    for _ in 0..processes {
        children.push(start(program()?)?);
    }
    for (child, said) in &mut children {
        let mut line = String::new();
        said.read_line(&mut line).map_err(|error| error.to_string())?;
        if line.trim() != "ready" {
            return Err(format!("a process did not begin: {line}"));
        }
        child.stdin.as_mut().ok_or("no way to tell the start")?.flush().map_err(|error| error.to_string())?;
    }
    for (child, _) in &mut children {
        let stdin = child.stdin.as_mut().ok_or("no way to tell the start")?;
        stdin.write_all(b"go\n").map_err(|error| error.to_string())?;
    }
    let mut counts = Vec::new();
    for (mut child, mut said) in children {
        let mut text = String::new();
        said.read_to_string(&mut text).map_err(|error| error.to_string())?;
        child.wait().map_err(|error| error.to_string())?;
        counts
            .push(serde_json::from_str(&text).map_err(|error| format!("a process said nonsense: {error}"))?);
    }
    Ok(counts)
}

fn start(mut program: Command) -> Result<(Child, BufReader<std::process::ChildStdout>), String> {
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{program:?} cannot run: {error}"))?;
    let said = child.stdout.take().ok_or("a process without output")?;
    Ok((child, BufReader::new(said)))
}
