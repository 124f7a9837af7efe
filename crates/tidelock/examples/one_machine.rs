//! Locks between the processes of one machine, without a server. Start it twice.

use std::time::Duration;

use tidelock::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> tidelock::Result<()> {
    // The directory of this user; "file:/path" is another.
    let locks = Locks::connect("file:").await?;
    let mutex = locks.mutex("nightly-report");

    let guard = match mutex.try_lock().await? {
        Some(guard) => guard,
        None => {
            for lock in locks.look(&["nightly-report"]).await? {
                for holder in &lock.holders {
                    println!("held by {} for {:?}; waiting", holder.label, holder.age);
                }
            }
            // If the other is killed, even with -9, this goes on at once.
            mutex.lock().await?
        }
    };
    println!("token {}: at work for five seconds", guard.token());
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(5)) => {}
        loss = guard.lost() => return Err(loss),
    }
    guard.release().await
}
