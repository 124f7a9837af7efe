//! A lock in MySQL or MariaDB.
//!
//! `cargo run --example mysql --features mysql -- mysql://user:password@localhost/test`

use tidelock::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "mysql://root@localhost/test".to_owned());
    let locks = Locks::connect(&url).await?;
    let guard = locks.mutex("reports/monthly").lock().await?;
    // An update of the application's own table takes the token along, and refuses an older one:
    // UPDATE reports SET body = ?, fence = ? WHERE id = 1 AND fence <= ?
    println!("held with token {}", guard.token());
    guard.release().await?;
    Ok(())
}
