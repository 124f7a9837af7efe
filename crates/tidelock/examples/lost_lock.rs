//! Work that stops when its lock is lost.

use std::time::Duration;

use tidelock::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> tidelock::Result<()> {
    let locks = Locks::connect("memory:").await?;
    let nightly = locks.mutex("nightly-report").max_hold(Duration::from_millis(250));

    let report = nightly.run(|held| async move {
        for page in 1.. {
            println!("page {page}, sure for another {:?}", held.valid_for());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    if let Err(why) = report.await {
        println!("stopped: {why}");
    }

    let second = nightly.run(|held| async move { format!("done under token {}", held.token()) });
    println!("second try: {}", second.await?);
    Ok(())
}
