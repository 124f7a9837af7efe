//! Names that nobody used before.

use tidelock::Locks;

use super::{LONG, within};

/// Locks and releases so many names, in 16 tasks at once, each with names of its own.
pub(crate) async fn use_names(locks: &Locks, of: &str, names: usize) {
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (locks, of) = (locks.clone(), of.to_owned());
            tokio::spawn(async move {
                for number in 0..names / 16 {
                    let guard = locks.mutex(format!("{of}/{task}/{number}")).ttl(LONG).lock().await.unwrap();
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        within("all names are used", task).await.unwrap();
    }
}
