//! Take a lock, let somebody wait for it, and see who holds it.

use std::time::Duration;

use tidelock::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> tidelock::Result<()> {
    let locks = Locks::builder("memory:till").label("cashier 1").connect().await?;
    let guard = locks.mutex("orders/42").lock().await?;
    println!("cashier 1 holds {:?} with token {}", guard.name().as_str(), guard.token());

    let second = Locks::builder("memory:till").label("cashier 2").connect().await?;
    let busy = second.mutex("orders/42").try_lock().await?;
    println!("cashier 2 tries: {}", if busy.is_none() { "busy" } else { "got it" });
    let patient = second.mutex("orders/42").wait(Duration::from_millis(300)).lock().await;
    println!(
        "cashier 2 waits: {}",
        patient.map(|_| "got it".to_owned()).unwrap_or_else(|why| why.to_string())
    );

    for lock in locks.look_all().await? {
        for holder in &lock.holders {
            println!("look: {:?} is held by {} for {:?}", lock.name.as_str(), holder.label, holder.age);
        }
    }

    guard.release().await?;
    let guard = second.mutex("orders/42").lock().await?;
    println!("cashier 2 holds it with token {}, larger than before", guard.token());
    guard.release().await
}
