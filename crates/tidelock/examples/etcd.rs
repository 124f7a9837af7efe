//! One of several machines that leads, with the lock in etcd. Start it twice, and stop the one that leads.
//!
//! `TIDELOCK_URL=etcd://host cargo run --example etcd --features etcd`

use std::time::Duration;

use tidelock::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> tidelock::Result<()> {
    let url = std::env::var("TIDELOCK_URL");
    let locks = Locks::connect(url.as_deref().unwrap_or("etcd://127.0.0.1")).await?;
    for concern in locks.concerns() {
        eprintln!("to fix: {concern}");
    }

    println!("waiting to lead");
    let lead = locks.mutex("leader").ttl(Duration::from_secs(10)).lock().await?;
    println!("leading with token {}", lead.token());
    let mut rounds = 0;
    let why = loop {
        tokio::select! {
            why = lead.lost() => break why,
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                rounds += 1;
                println!("round {rounds}, sure of it for another {:?}", lead.valid_for());
            }
        }
    };
    println!("not leading any more: {why}");
    Ok(())
}
