//! A nightly job that runs once, whichever minority of five Redis servers is down. Start it on several machines.
//!
//! `TIDELOCK_URL=redlock://one,two,three,four,five cargo run --example redlock --features redis`

use tidelock::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> tidelock::Result<()> {
    let url = std::env::var("TIDELOCK_URL");
    let default = "redlock://127.0.0.1:6381,127.0.0.1:6382,127.0.0.1:6383";
    let locks = Locks::connect(url.as_deref().unwrap_or(default)).await?;
    // Servers that are down, or have no vote yet because they were just started.
    for concern in locks.concerns() {
        eprintln!("to fix: {concern}");
    }
    let Some(guard) = locks.mutex("nightly-report").try_lock().await? else {
        println!("somebody else is at it");
        return Ok(());
    };
    println!("at it, with token {}", guard.token());
    guard.release().await
}
