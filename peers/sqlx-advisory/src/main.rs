//! sqlx: `PgAdvisoryLock`. See `peers/README.md` for what is asked and answered.

use std::{
    error::Error,
    io::BufRead,
    process::ExitCode,
    time::{Duration, Instant},
};

use sqlx::{Connection, PgConnection, postgres::PgAdvisoryLock};
use tokio::task::JoinSet;

/// What ends a program whose library has no such thing.
const NO_SUCH_THING: u8 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ["pairs", url, name, tasks, millis, rest @ ..] = &*words else {
        return Ok(ExitCode::from(NO_SUCH_THING));
    };
    let limit = Duration::from_millis(millis.parse()?);
    let mut connections = Vec::new();
    for task in 0..tasks.parse()? {
        let name: String = if rest.contains(&"distinct") { format!("{name}/{task}") } else { (*name).to_owned() };
        connections.push((PgConnection::connect(url).await?, PgAdvisoryLock::new(name)));
    }
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for (mut connection, lock) in connections {
        tasks.spawn(async move {
            let mut waits = Vec::new();
            while start.elapsed() < limit {
                let asked = Instant::now();
                let guard = lock.acquire(&mut connection).await?;
                waits.push(asked.elapsed().as_secs_f64() * 1e6);
                guard.release_now().await?;
            }
            Ok::<_, sqlx::Error>(waits)
        });
    }
    let mut waits = Vec::new();
    while let Some(done) = tasks.join_next().await {
        waits.extend(done??);
    }
    let seconds = start.elapsed().as_secs_f64();
    waits.sort_by(f64::total_cmp);
    let at = |part: f64| waits.get((waits.len() as f64 * part) as usize).or(waits.last()).copied().unwrap_or(0.0);
    let waits_us = serde_json::json!({ "p50": at(0.5), "p99": at(0.99), "max": at(1.0) });
    println!("{}", serde_json::json!({ "pairs": waits.len(), "seconds": seconds, "waits_us": waits_us }));
    Ok(ExitCode::SUCCESS)
}
